"""Pages that follow from the code: the help in README.md, docs/rules, docs/cautions.md and docs/schema.

python docs/generate.py                     rewrite them
python docs/generate.py --check             say which are stale; exit 1 if any is
python docs/generate.py --example FILE      rewrite the README's example, too, from a qwen3-30b-a3b GGUF
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from emit import caution_table
from emit.json_v1 import schema_text, schemas
from emit.rule_page import markdown
from policies import RULES
from probes.machine_file import SCHEMA as MACHINE_SCHEMA
from probes.machine_file import json_schema

ROOT = Path(__file__).parents[1]
EXAMPLE_MACHINE = "tests/probes/machines/desktop-16gb-wddm.json"


def pages(example: Path | None) -> Iterator[tuple[Path, str]]:
    """Every generated file with what it should hold."""
    readme = ROOT / "README.md"
    text = with_block(readme.read_text(encoding="utf-8"), "help", moeplan(ROOT, "--help"))
    yield readme, with_block(text, "example", example_of(example)) if example else text
    for rule in RULES:
        yield ROOT / "docs" / "rules" / f"{rule.doc.id}.md", markdown(rule.doc)
    yield ROOT / "docs" / "rules" / "README.md", rule_index()
    yield ROOT / "docs" / "cautions.md", caution_table.markdown()
    for name, schema in {**schemas(), MACHINE_SCHEMA: json_schema()}.items():
        yield ROOT / "docs" / "schema" / f"{name.replace('/', '-')}.json", schema_text(schema)


def rule_index() -> str:
    """The list of rules in the order in which they run."""
    lines = ["# Rules", "", "In the order in which they run; `moeplan explain RULE` prints the same pages.", ""]
    return "\n".join([*lines, *(f"- [{rule.doc.id}]({rule.doc.id}.md): {rule.doc.title}" for rule in RULES)]) + "\n"


def example_of(model: Path) -> str:
    """A real answer up to its cautions."""
    shown = moeplan(model.parent, "--fit", model.name, "--machine", str(ROOT / EXAMPLE_MACHINE))
    kept = shown.partition("\nCautions\n")[0]
    return f"$ moeplan --fit {model.name} --machine {EXAMPLE_MACHINE}\n{kept}"


def moeplan(folder: Path, *args: str) -> str:
    """What the command prints on stdout in a pipe."""
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "planner", *args]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def with_block(page: str, name: str, content: str) -> str:
    """``page`` with the marked block of that name replaced."""
    start, end = f"<!-- {name} -->\n```\n", f"```\n<!-- /{name} -->"
    before, found, rest = page.partition(start)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise SystemExit(f"README.md has no block {name!r}")
    return before + start + content + end + after


def stale(wanted: dict[Path, str]) -> list[Path]:
    """Files that differ from what they should hold, and pages that belong to nothing."""
    differing = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    folders = (ROOT / "docs" / "rules", ROOT / "docs" / "schema")
    return differing + [path for folder in folders for path in folder.glob("*") if path not in wanted]


def main() -> int:
    """Check or rewrite; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--example", type=Path, metavar="FILE")
    options = parser.parse_args()
    wanted = dict(pages(options.example))
    if options.check:
        found = stale(wanted)
        for path in found:
            sys.stderr.write(f"stale: {path.relative_to(ROOT)}\n")
        return 1 if found else 0
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
