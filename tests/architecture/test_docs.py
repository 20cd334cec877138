"""Generated pages are current, and the README's commands are what CI runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]


def check(*args: str) -> None:
    command = [sys.executable, "docs/generate.py", "--check", *args]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}run: python docs/generate.py {' '.join(args)}"


def test_generated_pages_are_current() -> None:
    check()


def test_the_readme_example_is_what_it_prints(zoo: Callable[[str], Path]) -> None:
    check("--example", str(zoo("qwen3-30b-a3b")))


def test_every_decision_page_has_the_three_parts() -> None:
    for path in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"# {path.name[:3]} "), path.name
        for part in ("**Context.**", "**Choice.**", "**Price.**"):
            assert part in text, f"{path.name} has no {part}"


def test_the_readme_marks_the_test_command() -> None:
    """``.ci/run`` takes its command from there."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = readme.partition("<!-- tests -->\n```\n")[2].partition("\n```")[0]
    assert block.count("\n") == 0 and block.endswith("pytest")
    commands = [line for line in readme.splitlines() if line.startswith("python3 -m venv ")]
    assert len(commands) == 2 and not any(" -q" in line for line in commands), "minutes of pip without a word"
