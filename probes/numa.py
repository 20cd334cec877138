"""NUMA nodes that hold memory: ``/sys/devices/system/node/has_memory``. Compare with ``numactl -H``."""

from __future__ import annotations

from probes.host import Host
from probes.probe import Absent, Failed, Found, Outcome, Request, Seen
from probes.text import cpu_list


def read(host: Host, _request: Request, _seen: Seen) -> Outcome[int]:
    folder = "/sys/devices/system/node/"
    text = host.read_text(folder + "has_memory") or host.read_text(folder + "online")
    if text is None:
        return Absent("the system lists no NUMA nodes")
    nodes = cpu_list(text)
    return Failed("the NUMA node list makes no sense") if nodes is None else Found(len(nodes))
