"""Trials with a known answer: a planted faster setting must be kept and a planted slower one dropped, every time.

python benchmarks/verify/planted.py MODEL LLAMA [REPEATS]

The plant is a real llama-server behind a script: with ``--load-mode none`` it is halted for 10 ms of every 40. So the
two arms differ in speed alone and compute the same tokens. A second process is always busy on whatever core it gets:
the noise of a machine in use. POSIX.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic

from planner import pipeline, search
from planner.facts.workload import Workload
from planner.plans.oracle import Ask
from planner.plans.settings import LoadMode
from planner.plans.verified import Attempt
from planner.verification import looking
from planner.verification.engine import Engine, Live
from planner.verification.startable import Own
from planner.verification.trialling import Base, Trialling
from policies import RULES
from probes.host import LocalHost

SLOW, FAST = LoadMode.NONE, LoadMode.MMAP
PROMPT = 2048
WRAPPER = """#!/bin/sh
case " $* " in *" --load-mode none "*)
  (while kill -STOP $$ 2>/dev/null; do sleep 0.01; kill -CONT $$; sleep 0.03; done) > /dev/null 2>&1 & ;;
esac
exec "{real}" "$@"
"""
BUSY = "while True: pass"


class Silent:
    """Hears nothing."""

    def note(self, text: str) -> None: ...

    def hear(self, text: str) -> None: ...

    def heard(self) -> None: ...


@contextmanager
def planted(llama: Path) -> Iterator[Path]:
    """A folder with the slowed llama-server, and a busy neighbour."""
    busy = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "llama-server"
            program.write_text(WRAPPER.format(real=llama / "llama-server"))
            program.chmod(0o755)
            yield Path(folder)
    finally:
        busy.kill()
        busy.wait()


def trial(model: str, llama: str, before: LoadMode, after: LoadMode) -> tuple[bool, str, float]:
    """One trial from one load mode to the other: kept, the reason, seconds."""
    pins = (("threads", "1"), ("threads_batch", "1"), ("load_mode", before.value))
    work = Workload(prompt_tokens=2048, answer_tokens=64, pins=pins)
    plan = pipeline.make_plan(pipeline.Request(model, work, llama=llama, ask=Ask.NEVER))
    pricing, start = search.pricing(plan, RULES), monotonic()
    with Engine(LocalHost(), plan, pricing, Own()) as engine:
        live = engine.with_settings(plan.chosen)
        assert isinstance(live, Live), live
        seen = looking.first(live, pricing, "Hello", Silent())
        assert isinstance(seen, looking.Seen), seen
        pace = looking.pace_of(seen, pricing, PROMPT)
        base = Base(plan.chosen, pace, looking.room(seen.slot), seen.prose)
        changed = replace(plan.chosen.settings, load_mode=after)
        attempt = Attempt((("load_mode", after),), changed, None, 0.1, "planted")
        found = Trialling(engine, pricing, base, attempt, PROMPT).run(monotonic, monotonic() + 300)
    return found.kept, f"{found.reason} ({found.pairs} pairs)", monotonic() - start


def main(model: str, llama: str, repeats: int) -> int:
    """Exit code 1 if one trial was decided wrongly."""
    wrong = 0
    with planted(Path(llama)) as folder:
        for number in range(repeats):
            for before, after in ((SLOW, FAST), (FAST, SLOW)):
                kept, reason, seconds = trial(model, str(folder), before, after)
                wrong += kept != (after is FAST)
                word = "faster" if after is FAST else "slower"
                print(f"{number + 1} planted {word}: kept {kept}, {reason}, {seconds:.0f} s", flush=True)
    print(f"{2 * repeats - wrong} of {2 * repeats} as planted")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 10))
