"""``python -m planner``, and the ``moeplan`` command."""

import gc
import signal

HEEDED = signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""False where Ctrl-C was ignored when the program began, as it is in a background job: it stays so."""
if HEEDED:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C before the program has begun: no traceback of its imports

GC_THRESHOLD = 200_000
"""Objects between two collections: graphs are trees that go by themselves, and looking for cycles among them took 6 %
of a plan's time, among what imports make another 1 %."""
gc.set_threshold(GC_THRESHOLD)

from planner.cli import app  # noqa: E402


def main() -> None:
    """Entry point of the console script."""
    if HEEDED:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    app.main()


if __name__ == "__main__":
    main()
