import time

import pytest

from planner.cost.patterns import override_pattern
from planner.errors import OptionError


@pytest.mark.parametrize(
    "text",
    [
        r"blk\.(\d+)\.ffn_(up|down|gate|gate_up)_(ch|)exps",
        r"\.ffn_.*_exps\.",
        r"blk\.([0-9]|[1-3][0-9])\.ffn_.*_exps\.",
        r"blk\.14\.(ffn_gate_exps|ffn_up_exps)\.",
        r"(ch)?exps",
    ],
)
def test_what_users_write_is_taken(text: str) -> None:
    override_pattern(text)


@pytest.mark.parametrize("text", ["(.+)+!", "(a*)*b", "(a|b+)+c", ".*.*.*.*.*x", "(", "x" * 600, "a{2}{3}"])
def test_what_may_never_end_or_is_none_is_refused_at_once(text: str) -> None:
    start = time.monotonic()
    with pytest.raises(OptionError):
        override_pattern(text)
    assert time.monotonic() - start < 1


def test_posix_classes_say_nothing_on_stderr(recwarn: pytest.WarningsRecorder) -> None:
    override_pattern(r"blk\.[[:digit:]]+\.")
    assert not recwarn.list
