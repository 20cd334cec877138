"""Save what the probes read on this machine as a fixture: ``python tests/probes/record.py NAME "what it is"``.

Look the folder over before you commit it: mount tables and control groups may name things that are private.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from probes.collect import collect
from probes.commands import Heard
from probes.host import CompletedRun, LocalHost


class Recorder(LocalHost):
    """This machine, keeping a copy of every file read and every command's answer in ``folder``."""

    def __init__(self, folder: Path) -> None:
        super().__init__(cache_dir=str(folder / "cache"))
        self.folder = folder
        self.commands: list[dict[str, object]] = []

    def read_text(self, path: str) -> str | None:
        text = super().read_text(path)
        if text is not None and path.startswith(("/proc/", "/sys/")):
            file = self.folder / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return text

    def keep(self, key: str, text: str) -> str:
        """A recording leaves no cache behind."""
        return ""

    def run(
        self, argv: tuple[str, ...], timeout_s: float, env: Mapping[str, str] | None = None, heard: Heard | None = None
    ) -> CompletedRun:
        done = super().run(argv, timeout_s, env)
        answer = {"stdout": done.stdout, "stderr": done.stderr, "returncode": done.returncode, "problem": done.problem}
        self.commands.append({"argv": list(argv), **answer})
        return done


def main(name: str, about: str) -> None:
    folder = Path(__file__).parent / "hosts" / name
    folder.mkdir(parents=True)
    host = Recorder(folder)
    machine = collect(host, model_path=__file__, llama=None)
    server = machine.engine.server if machine.engine else None
    which = {"llama-server": server} if server else {}
    saved = {"about": about, "os": host.os.value, "which": which, "commands": host.commands}
    (folder / "host.json").write_text(json.dumps(saved, indent=1) + "\n")
    for report in machine.probes:
        print(f"{report.name}: {report.status} {report.reason}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
