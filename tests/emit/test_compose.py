from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emit import argv
from emit.compose import compose
from planner.errors import OptionError
from planner.facts.machine import Backend, Engine
from planner.facts.workload import Target, Workload
from planner.plans.plan import Plan
from planner.plans.settings import LoadMode
from tests.builders import make_gpu, make_machine, make_model
from tests.emit.plans import NASTY, make_plan, measured_machine, refused_plan

yaml = pytest.importorskip("yaml")
TEXT = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=20)


def service(plan: Plan) -> dict[str, Any]:
    """The one service after compose replaced ``$$``; a single ``$`` would be a variable."""
    (found,) = yaml.safe_load(compose(plan))["services"].values()
    for words in (found["command"], [volume["source"] for volume in found.get("volumes", ())]):
        assert all("$" not in word.replace("$$", "") for word in words)
        words[:] = [word.replace("$$", "$") for word in words]
    return dict(found)


@given(TEXT, TEXT)
def test_the_command_is_the_plans_but_for_where_things_are(folder: str, file: str) -> None:
    plan = make_plan(make_model(path=f"/{folder}/{file}"))
    found = service(plan)
    expected = list(argv.argv(plan))[1:]
    expected[1], expected[expected.index("127.0.0.1")] = f"/models/{file}", "0.0.0.0"
    assert found["command"] == expected
    assert found["ports"] == ["127.0.0.1:8080:8080"]


@pytest.mark.parametrize("path", NASTY)
def test_nasty_paths(path: str) -> None:
    folder = f"/x:y/{path}"
    plan = make_plan(make_model(path=f"{folder}/{path}"))
    (volume,) = yaml.safe_load(compose(plan))["services"].popitem()[1]["volumes"]
    assert volume == {"type": "bind", "source": folder.replace("$", "$$"), "target": "/models", "read_only": True}
    assert service(plan)["command"][:2] == ["-m", f"/models/{path}"]


def test_a_windows_folder() -> None:
    found = service(make_plan(make_model(path="C:\\m\\a b\\x.gguf")))
    assert yaml.safe_load(compose(make_plan(make_model(path="C:\\m\\x.gguf"))))["services"]["x"]
    assert found["command"][1] == "/models/x.gguf"


@pytest.mark.parametrize(
    ("backend", "image", "nodes"),
    [
        (Backend.CUDA, "server-cuda", None),
        (Backend.ROCM, "server-rocm", ["/dev/kfd", "/dev/dri"]),
        (Backend.VULKAN, "server-vulkan", ["/dev/dri"]),
        (Backend.SYCL, "server-intel", ["/dev/dri"]),
    ],
)
def test_image_and_devices_follow_the_backend(backend: Backend, image: str, nodes: list[str] | None) -> None:
    found = service(make_plan(machine=make_machine(make_gpu(backend=backend))))
    assert found["image"] == f"ghcr.io/ggml-org/llama.cpp:{image}" and found.get("devices") == nodes
    assert ("deploy" in found) == (backend is Backend.CUDA)
    assert ("group_add" in compose(make_plan(machine=make_machine(make_gpu(backend=backend))))) == bool(nodes)


def test_the_cpu_image_reserves_nothing_and_pinned_memory_lifts_the_limit() -> None:
    plan = make_plan()
    assert service(plan)["ulimits"] == {"memlock": -1}
    settings = replace(plan.chosen.settings, devices=(), n_gpu_layers=0, load_mode=LoadMode.MMAP)
    host = replace(plan.chosen.memory.host, pinned_bytes=0)
    memory = replace(plan.chosen.memory, devices=(), host=host)
    plan = replace(plan, chosen=replace(plan.chosen, settings=settings, memory=memory))
    found = service(plan)
    assert found["image"].endswith(":server") and not {"deploy", "devices", "ulimits"} & set(found)
    locked = replace(plan, chosen=replace(plan.chosen, settings=replace(settings, load_mode=LoadMode.MLOCK)))
    assert service(locked)["ulimits"] == {"memlock": -1}


def test_flags_are_those_of_the_images_build() -> None:
    old = measured_machine(engine=Engine("llama.cpp", 9000, ("cuda",)))
    assert "--no-mmap" in argv.argv(make_plan(machine=old))
    assert "--no-mmap" not in service(make_plan(machine=old))["command"]
    named = service(make_plan(machine=old, workload=Workload(target_build=10000)))
    assert named["image"].endswith("-cuda-b10000") and "--no-mmap" in named["command"]


@pytest.mark.parametrize("gpus", [(Backend.METAL,), (None,), (Backend.CUDA, Backend.VULKAN)])
def test_devices_that_no_image_sees_are_refused(gpus: tuple[Backend | None, ...]) -> None:
    cards = tuple(make_gpu(f"GPU{i}", backend=backend) for i, backend in enumerate(gpus))
    settings = replace(make_plan().chosen.settings, devices=tuple(card.id for card in cards))
    with pytest.raises(OptionError, match="of one kind"):
        compose(make_plan(machine=make_machine(*cards), settings=settings))


@pytest.mark.parametrize("server", ["127.0.0.1:50052", "localhost:1", "[::1]:50052"])
def test_a_container_has_a_loopback_of_its_own(server: str) -> None:
    settings = replace(make_plan().chosen.settings, rpc=(server,))
    with pytest.raises(OptionError, match="other hosts"):
        compose(make_plan(settings=settings))


def test_what_is_not_llama_cpp_or_not_text_is_refused_and_a_refusal_is_empty() -> None:
    with pytest.raises(OptionError, match=r"--target llama\.cpp"):
        compose(make_plan(workload=Workload(target=Target.IK)))
    with pytest.raises(OptionError, match="udcff"):
        compose(make_plan(make_model(path="/a\udcff/x.gguf")))
    assert yaml.safe_load(compose(refused_plan())) == {"services": {}}


def test_an_address_needs_no_folder() -> None:
    found = service(make_plan(make_model(path="https://example.org/m/x.gguf")))
    assert "volumes" not in found and found["command"][:2] == ["-mu", "https://example.org/m/x.gguf"]
