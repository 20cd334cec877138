"""macOS ``sysctl``: several names in one call."""

from __future__ import annotations

from probes.host import Host


def read(host: Host, names: tuple[str, ...]) -> dict[str, str]:
    """Values by name; names this system does not know are left out."""
    return parse(host.run(("sysctl", "-i", *names), 2.0).stdout)


def parse(text: str) -> dict[str, str]:
    """``name: value`` lines → values by name."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}
