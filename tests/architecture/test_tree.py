"""The tree holds nothing of the place where it was written, and nothing that is left open."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRIVATE = re.compile(r"(?<![\w.~])/(?:root|work|tmp/w|farm)/|[s]ubagent|(?<!\w)[.]library/")
LEFT_OPEN = re.compile(r"\b(?:[T]ODO|[F]IXME|[X]XX|[N]otImplementedError)\b")


def text_files() -> list[Path]:
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in done.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and b"\0" not in path.read_bytes()[:4096]]


@pytest.mark.parametrize("pattern", [PRIVATE, LEFT_OPEN], ids=["private", "left-open"])
def test_tree_is_clean(pattern: re.Pattern[str]) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in text_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []
