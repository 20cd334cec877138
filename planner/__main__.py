"""``python -m planner``: the same as the ``moeplan`` command."""

from planner.cli.app import main

main()
