"""What can go wrong, as data: the subject, what was expected, what was found, what to do next.

The command line renders an error as one message and maps ``exit_code``; nothing here is a traceback.
"""

from __future__ import annotations


class Ended(BaseException):
    """The program was told to end (SIGTERM, SIGHUP): nothing may go on without what this broke off."""


class MoeplanError(Exception):
    """Base of every expected failure.

    Args:
        subject: the file, device or option it is about.
        expected: what would have been right; empty where the finding says it all.
        found: what was there instead.
        advice: the next command or step; empty if there is none.
    """

    exit_code = 3

    def __init__(self, subject: str, *, expected: str = "", found: str, advice: str = "") -> None:
        self.subject, self.expected, self.found, self.advice = subject, expected, found, advice
        middle = f"expected {expected}, found {found}" if expected else found
        super().__init__(f"{subject}: {middle}" + (f" ({advice})" if advice else ""))


class ModelFileError(MoeplanError):
    """A model that cannot be read or does not hold together."""


class CutError(MoeplanError):
    """A model of which no layers can be cut out to be timed."""


class MachineFileError(MoeplanError):
    """A machine file that is not ``moeplan.machine/1``."""


class EngineError(MoeplanError):
    """A llama.cpp that was named but cannot be used."""


class TargetError(EngineError):
    """An engine or a build that cannot do what the plan asks: the plan is refused."""

    exit_code = 1


class OptionError(MoeplanError):
    """A command line that contradicts itself or the model."""

    exit_code = 2


class PolicyError(MoeplanError):
    """A rule claimed what the cost model does not confirm: a defect of moeplan, named after the rule."""


class OutputError(MoeplanError):
    """A file that cannot be written."""


class PlanFileError(MoeplanError):
    """A plan file that is not ``moeplan.plan/1``."""


class RoutingFileError(MoeplanError):
    """Routing statistics that cannot be read, or that belong to another model."""


class CaptureError(MoeplanError):
    """A capture of routing statistics that did not come about."""


EMBEDDED = "pip install '.[embedded]' in a clone of moeplan"
"""How the embedded engine is had: moeplan is on no package index."""

STARVED = "out of memory: the system gives moeplan itself no more (see ulimit -v, ulimit -u)"


def starved(error: Exception) -> bool:
    """Whether we ourselves got no memory: a new thread needs some for its stack, too."""
    return isinstance(error, MemoryError) or "can't start new thread" in str(error)
