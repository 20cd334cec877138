"""Plan → a service for ``docker compose`` with llama.cpp's own image (docs/docker.md, 30255fcb)."""

from __future__ import annotations

from typing import Final

from emit import argv, service, yaml_text
from emit.flag_spell import Spelled
from emit.flag_table import NEWEST_BUILD
from planner.errors import OptionError
from planner.facts.machine import Backend
from planner.facts.workload import Target
from planner.plans.plan import Plan

_IMAGE: Final = "ghcr.io/ggml-org/llama.cpp:server"
_VARIANTS: Final[dict[Backend, str]] = {
    Backend.CUDA: "-cuda",
    Backend.ROCM: "-rocm",
    Backend.VULKAN: "-vulkan",
    Backend.SYCL: "-intel",
}
_NODES: Final[dict[Backend, tuple[str, ...]]] = {
    Backend.ROCM: ("/dev/kfd", "/dev/dri"),
    Backend.VULKAN: ("/dev/dri",),
    Backend.SYCL: ("/dev/dri",),
}
_MODELS: Final = "/models"
_NVIDIA: Final = """\
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              count: all
              capabilities: [gpu]
"""


def compose(plan: Plan) -> str:
    """The compose file. In the container the server listens to all; only this computer reaches the port.

    Raises:
        EngineError: the image's llama.cpp cannot do what the settings ask.
        OptionError: devices that no container of llama.cpp's sees, or a path that is no text.
    """
    service.serving("compose", plan, Target.LLAMA_CPP)
    build, backend = plan.workload.target_build, _backend(plan)
    flags = argv.flags(plan, build=build or NEWEST_BUILD)
    image = _IMAGE + (_VARIANTS[backend] if backend else "") + (f"-b{build}" if build else "")
    notes = [f"Flags of b{build or NEWEST_BUILD}" + ("." if build else "; the image is of the newest build.")]
    if backend in _NODES:
        notes.append("The images have no groups video and render: add group_add with their numbers on this host.")
    text = yaml_text.comments(service.remarks(plan, *notes))
    if plan.refusal is not None:
        return text + "services: {}\n"
    folder, file = service.parts(plan.model.path)
    local = not any(item.setting == "model_url" for item in flags)
    tokens = [token for item in flags for token in _inside(item, file)]
    service.holds("compose", (*tokens, folder), lambda char: False)
    port = service.port_of(flags)
    lines = [f"services:\n  {_string(service.name(plan))}:\n"]
    lines += [f"    image: {_string(image)}\n"]
    lines += ["    command:\n", *(f"      - {_string(token)}\n" for token in tokens)]
    lines += [f'    ports:\n      - "127.0.0.1:{port}:{port}"\n']
    if local:
        lines += ["    volumes:\n      - type: bind\n", f"        source: {_string(folder or '.')}\n"]
        lines += [f'        target: "{_MODELS}"\n        read_only: true\n']
    if service.locks_memory(plan):
        lines += ["    ulimits:\n      memlock: -1\n"]
    if backend in _NODES:
        lines += ["    devices:\n", *(f'      - "{node}"\n' for node in _NODES[backend])]
    lines += [_NVIDIA] if backend is Backend.CUDA else []
    return text + "".join(lines) + '    restart: "unless-stopped"\n'


def _backend(plan: Plan) -> Backend | None:
    """The backend of the devices in use, None for the CPU; remote ones need none of their own."""
    known = {gpu.id: gpu.backend for gpu in plan.machine.gpus}
    found = {known.get(device) for device in plan.chosen.settings.devices} - {Backend.RPC}
    if len(found) > 1 or found - set(_VARIANTS):
        names = " and ".join(sorted(item.value if item else "unknown" for item in found))
        raise OptionError("--format compose", expected="CUDA, ROCm, Vulkan or SYCL devices of one kind", found=names)
    for server in plan.chosen.settings.rpc:
        if server.rpartition(":")[0].strip("[]") in ("127.0.0.1", "localhost", "::1"):
            raise OptionError("--format compose", expected="--rpc servers of other hosts", found=server)
    return next(iter(found), None)


def _inside(item: Spelled, file: str) -> tuple[str, ...]:
    """A flag as it is in the container: another folder, and a port that can be forwarded."""
    if item.setting == "model":
        return item.flag, f"{_MODELS}/{file}"
    return (item.flag, "0.0.0.0") if item.setting == "host" else item.tokens


def _string(text: str) -> str:
    """Compose replaces ``$NAME``; a doubled ``$`` is one."""
    return yaml_text.quoted(text.replace("$", "$$"))
