"""``python -m planner``, and the ``moeplan`` command."""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C before the program has begun: no traceback of its imports

from planner.cli import app  # noqa: E402


def main() -> None:
    """Entry point of the console script."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    app.main()


if __name__ == "__main__":
    main()
