from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from probes.host import LocalHost
from probes.sampling import cpu_time


def test_work_of_the_engine_is_not_that_of_others(tmp_path: Path) -> None:
    """A process that computes for a while: the CPUs are busy by no less than it and we took."""
    pytest.importorskip("psutil")
    host = LocalHost(cache_dir=str(tmp_path))
    code = "import sys, time\nwhile time.process_time() < 0.5: pass\nprint('done', flush=True)\nsys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    before = cpu_time(host, process.pid)
    assert process.stdout.readline().strip() == b"done"
    after = cpu_time(host, process.pid)
    process.stdin.close()
    process.wait()
    process.stdout.close()
    assert before is not None and after is not None
    assert 0.3 < after.own_s - before.own_s < after.total_s - before.total_s
    assert after.busy_s - before.busy_s >= after.own_s - before.own_s - 0.1
    assert cpu_time(host, 1 << 22) is None
