"""What every form that goes on running a server has to say: its name, its words, its comments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from emit import argv, wording
from emit.flag_spell import Spelled
from planner.errors import OptionError
from planner.facts.workload import Target
from planner.plans.plan import Plan
from planner.plans.settings import LoadMode

_SHARD: Final = re.compile(r"-\d{5}-of-\d{5}$")
_WINDOWS: Final = re.compile(r"[A-Za-z]:[\\/]|\\\\")
_NOTHING: Final = "Nothing to start: the plan is refused."


def parts(path: str) -> tuple[str, str]:
    """Folder and file name of a path of either system; the folder is empty where none is named."""
    cut = max(path.rfind("/"), path.rfind("\\") if _WINDOWS.match(path) else -1)
    return (path[:cut] or path[: cut + 1], path[cut + 1 :]) if cut >= 0 else ("", path)


def name(plan: Plan) -> str:
    """The name under which the model was named, as an id: letters, digits, ``.``, ``_`` and ``-``."""
    stem = parts(plan.model.shards[0])[1]
    stem = stem[:-5] if stem.lower().endswith(".gguf") else stem
    return re.sub(r"[^A-Za-z0-9._-]+", "-", _SHARD.sub("", stem))[:100].strip("-._") or "model"


def remarks(plan: Plan, *more: str) -> tuple[str, ...]:
    """Comments above everything else; those of a refusal end by saying that nothing can be started."""
    return (*argv.remarks(plan), *((_NOTHING,) if plan.refusal else more))


def holds(form: str, tokens: Iterable[str], bad: Callable[[str], bool]) -> None:
    """Raises OptionError for a word with a character that this form has no way to write; bytes of no text never fit."""
    for token in tokens:
        odd = next((char for char in token if "\ud800" <= char <= "\udfff" or bad(char)), None)
        if odd is not None:
            raise unfit(form, f"'{wording.clean(odd)}' in '{wording.clean(token)}'")


def unfit(form: str, found: str) -> OptionError:
    """A value that a form cannot hold, and the way out."""
    return OptionError(
        f"--format {form}",
        expected="a value that it can hold",
        found=found,
        advice="a link to the file under another name will do",
    )


def serving(form: str, plan: Plan, *targets: Target) -> None:
    """Raises OptionError where the form cannot run the plan's engine."""
    if plan.workload.target not in targets:
        raise OptionError(
            f"--format {form}",
            expected=f"--target {' or '.join(targets)}",
            found=plan.workload.target.value,
            advice="sh and ps1 hold any command",
        )


def port_of(flags: tuple[Spelled, ...]) -> str:
    """The port that the command serves at."""
    return next((item.value for item in flags if item.setting == "port"), "8080")


def locks_memory(plan: Plan) -> bool:
    """Whether the server pins or locks host memory, for which the usual limit of some MiB is too low."""
    locked = plan.chosen.settings.load_mode in (LoadMode.MLOCK, LoadMode.MMAP_MLOCK)
    return locked or plan.chosen.memory.host.pinned_bytes > 0
