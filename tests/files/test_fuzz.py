"""Damaged files bring out `GlocalError`s and nothing else: no crash, no hang, no other exception, bounded memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("fuzzing.py")


def findings(first: int, count: int, folder: Path, *more: str) -> tuple[list[str], str]:
    """What the cases brought out, and what the last worker said; after a crash it is started behind that case."""
    found = []
    said = ""
    at = first
    while at < first + count:
        command = [sys.executable, str(WORKER), str(at), str(first + count - at), str(folder), *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said = done.stdout
        if done.returncode and said:
            found.append(said)
        assert (folder / "case").exists(), said + done.stderr
        case = (folder / "case").read_text()
        at = int(case.split()[0]) + 1
        if done.returncode < 0 or (done.returncode and at < first + count):
            found.append(f"case {case}: the process ended with {done.returncode}")
    return found, said


def test_some_damaged_files(tmp_path):
    assert findings(0, 300, tmp_path)[0] == []


@pytest.mark.slow
def test_many_damaged_files(tmp_path, capsys):
    """14 readers take turns, 20,000 files each."""
    count = 14 * int(20_000 * float(os.environ.get("GLOCAL_ENDURANCE", "1")))
    found, said = findings(300, count, tmp_path, "even")
    with capsys.disabled():
        sys.stdout.write(f"\n{said}")
    assert found == []
    assert f"tried {count:,} files" in said
