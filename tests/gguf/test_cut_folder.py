"""The folder is gone whatever ends the block, and what a killed process left is found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from planner.errors import Ended
from planner.gguf.cut_folder import PREFIX, base_folder, cut_folder, remove_stale

ROOT = Path(__file__).parents[2]
WAITS = """
import sys, time
from planner.gguf.cut_folder import cut_folder
with cut_folder(sys.argv[1]) as folder:
    open(folder + "/shallow.gguf", "wb").write(b"x")
    print(folder, flush=True)
    time.sleep(60)
"""

posix = pytest.mark.skipif(os.name != "posix", reason="signals")


def started(base: Path) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", WAITS, str(base)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert process.stdout is not None
    assert process.stdout.readline().startswith(str(base))
    return process


def test_removed_after_the_block_and_after_an_error(tmp_path: Path) -> None:
    with cut_folder(str(tmp_path)) as folder:
        Path(folder, "deep.gguf").write_bytes(b"x")
        assert os.path.basename(folder).startswith(PREFIX)
    with pytest.raises(ValueError, match="later"), cut_folder(str(tmp_path)):
        raise ValueError("later")
    assert list(tmp_path.iterdir()) == []


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_removed_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    process = started(tmp_path)
    process.send_signal(number)
    process.wait(20)
    assert list(tmp_path.iterdir()) == []


@posix
def test_a_signal_that_was_ignored_or_has_a_handler_keeps_it(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with cut_folder(str(tmp_path)):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            with pytest.raises(Ended), cut_folder(str(tmp_path)):
                signal.raise_signal(signal.SIGTERM)
            assert len(list(tmp_path.iterdir())) == 1
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGHUP), before, strict=True):
            signal.signal(number, handler)


@posix
def test_what_a_killed_process_left_is_removed_at_the_next_start(tmp_path: Path) -> None:
    dead, alive = started(tmp_path), started(tmp_path)
    dead.kill()
    dead.wait(20)
    assert len(list(tmp_path.iterdir())) == 2
    remove_stale(str(tmp_path))
    (left,) = tmp_path.iterdir()
    assert f"-{alive.pid}-" in left.name
    alive.terminate()
    alive.wait(20)


@posix
def test_a_reused_process_number_does_not_protect_an_old_folder(tmp_path: Path) -> None:
    old = tmp_path / f"{PREFIX}{os.getpid()}-old"
    old.mkdir()
    remove_stale(str(tmp_path))
    assert old.exists()  # young: its lock may still come
    os.utime(old, (time.time() - 3600,) * 2)
    remove_stale(str(tmp_path))
    assert not old.exists()


@posix
def test_links_and_other_names_are_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "mine"
    other.mkdir()
    (tmp_path / f"{PREFIX}999999999-x").symlink_to(other)
    remove_stale(str(tmp_path))
    assert other.exists()
    assert (tmp_path / f"{PREFIX}999999999-x").is_symlink()


def test_tmpdir_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert base_folder() == str(tmp_path)
