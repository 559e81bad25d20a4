"""Half an hour of random calls under a memory limit: no crash, no foreign error, no growth."""

import subprocess
import sys
from pathlib import Path

import pytest
from endurance_scale import scaled

WORKER = Path(__file__).with_name("random_calls.py")


@pytest.mark.slow
def test_random_calls_do_not_crash_or_grow(capsys):
    done = subprocess.run([sys.executable, str(WORKER), str(scaled(1800)), "1"], capture_output=True, text=True)
    with capsys.disabled():
        sys.stdout.write(f"\n{done.stdout}")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
