"""``python -I leash.py SCRIPT ARGS…``: runs a script in a process that ends when its standard input ends.

The starter holds the other end of that pipe and never writes, so a starter that is killed takes the script with
it, on every system. The script may hang in a driver: the watching thread needs no lock that the script holds.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading


def _watch() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_watch, daemon=True).start()
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
