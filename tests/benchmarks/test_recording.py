"""The benchmark of recordings runs, and prints every measurement beside its bar."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.tree import ROOT


@pytest.mark.slow
def test_the_benchmark_of_recordings_prints_all_bars():
    command = [sys.executable, str(ROOT / "benchmarks" / "recording.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("at most") == 5
    assert done.stdout.count("audit, peak memory") == 2
