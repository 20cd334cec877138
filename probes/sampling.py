"""The machine while an engine runs, in samples: VRAM and load per device, resident memory and page faults.

Polling a driver slows its link (an NVML query every 200 ms cut pinned copies from 23.5 to 16.8 GB/s: facts of one
16 GB card), so devices are asked seldom, and not at all inside a timed block.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from planner.facts.machine import Backend, Gpu, Os
from planner.facts.observed import CpuTime, GpuSample, Sample
from probes import nvidia_live
from probes.host import Host
from probes.text import whole

T = TypeVar("T")
PERIOD_S: Final = 2.0
BUSY_S: Final = 0.3


class Sampler:
    """Samples an engine's process in a thread until ``stop``; ``pause`` leaves timed work alone."""

    def __init__(self, host: Host, pid: int, gpus: tuple[Gpu, ...]) -> None:
        self._host, self._pid, self._gpus = host, pid, gpus
        self._nvml = nvidia_live.Session(host) if any(gpu.backend is Backend.CUDA for gpu in gpus) else None
        self._samples: list[Sample] = []
        self._stop, self._paused, self._lock = threading.Event(), threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> Sampler:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=2.0)
        if self._nvml is not None:
            self._nvml.close()
            self._nvml = None

    def pause(self, paused: bool) -> None:
        """Take no samples by itself for a while; ``take`` still does."""
        (self._paused.set if paused else self._paused.clear)()

    def take(self) -> Sample:
        """One sample now, kept with the others."""
        with self._lock:
            sample = Sample(
                at_s=self._host.clock(),
                gpus=tuple(self._gpu(gpu, n) for n, gpu in enumerate(self._gpus)),
                rss_bytes=rss(self._host, self._pid),
                major_faults=major_faults(self._host, self._pid),
                cpu=cpu_time(self._host, self._pid),
            )
            self._samples.append(sample)
        return sample

    def samples(self) -> tuple[Sample, ...]:
        return tuple(self._samples)

    def _work(self) -> None:
        while not self._stop.wait(PERIOD_S):
            if not self._paused.is_set():
                self.take()

    def _gpu(self, gpu: Gpu, index: int) -> GpuSample:
        if self._nvml is not None and gpu.backend is Backend.CUDA:
            return self._nvml.sample(gpu.id)
        if gpu.backend in (Backend.ROCM, Backend.VULKAN):
            return amd(self._host, gpu.id, index)
        return GpuSample(gpu.id)


def rss(host: Host, pid: int) -> int | None:
    """Resident bytes: ``VmRSS`` of ``/proc/PID/status`` (kB), else psutil; None if it is gone."""
    text = host.read_text(f"/proc/{pid}/status")
    if text is not None:
        line = next((line for line in text.splitlines() if line.startswith("VmRSS:")), "")
        kib = whole(line.partition(":")[2].replace("kB", ""))
        return None if kib is None else kib << 10
    return _psutil(host, pid, lambda process: int(process.memory_info().rss))


def major_faults(host: Host, pid: int) -> int | None:
    """Pages that were read from a disk: field 12 of ``/proc/PID/stat`` (proc_pid_stat(5)); None elsewhere.

    Windows counts soft and hard faults together, so its figure is left out.
    """
    if host.os is not Os.LINUX:
        return None
    text = host.read_text(f"/proc/{pid}/stat") or ""
    fields = text.rpartition(")")[2].split()
    return whole(fields[9]) if len(fields) > 9 else None


def oom_kills(host: Host) -> int:
    """Processes the kernel has killed for memory since it started: ``oom_kill`` of ``/proc/vmstat`` and our group."""
    text = host.read_text("/proc/vmstat") or ""
    group = host.read_text("/sys/fs/cgroup/memory.events") or ""
    lines = [line.split() for line in (*text.splitlines(), *group.splitlines())]
    return sum(whole(words[1]) or 0 for words in lines if len(words) == 2 and words[0] == "oom_kill")


def amd(host: Host, device: str, index: int) -> GpuSample:
    """An amdgpu card by its place among the cards (Documentation/gpu/amdgpu/driver-misc.rst)."""
    files = host.glob("/sys/class/drm/card*/device/mem_info_vram_used")
    if index >= len(files):
        return GpuSample(device)
    folder = files[index].rpartition("/")[0]
    busy = whole(host.read_text(f"{folder}/gpu_busy_percent"))
    return GpuSample(
        device,
        used_bytes=whole(host.read_text(files[index])),
        busy=None if busy is None else min(busy, 100) / 100,
        shared_bytes=whole(host.read_text(f"{folder}/mem_info_gtt_used")),
    )


def _psutil(host: Host, pid: int, ask: Callable[[Any], T]) -> T | None:
    psutil = host.library("psutil")
    if psutil is None:
        return None
    try:
        return ask(psutil.Process(pid))
    except psutil.Error:
        return None


def cpu_time(host: Host, pid: int) -> CpuTime | None:
    """What the CPUs did so far, by psutil's ``cpu_times``; None where it or the process is not there.

    Linux counts guests in ``user`` too; ``iowait`` is idle.
    """
    psutil, engine = host.library("psutil"), _psutil(host, pid, _cpu_s)
    if psutil is None or engine is None:
        return None
    times = psutil.cpu_times()._asdict()
    total = sum(times.values()) - times.get("guest", 0.0) - times.get("guest_nice", 0.0)
    ours = _cpu_s(psutil.Process())
    return CpuTime(total, total - times["idle"] - times.get("iowait", 0.0), engine + ours)


def _cpu_s(process: Any) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def busy_share(host: Host) -> float | None:
    """Share of the CPUs' time that others take now, looked at for ``BUSY_S``; None where psutil is not there."""
    psutil = host.library("psutil")
    return None if psutil is None else float(psutil.cpu_percent(BUSY_S)) / 100
