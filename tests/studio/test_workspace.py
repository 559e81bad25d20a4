"""The temporary folder: private, removed at the end, and at the next start after kill -9."""

import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

from glocal.studio.workspace import PREFIX, remove_abandoned, workspace

HOLD = """
import sys, time
from glocal.studio.workspace import workspace
with workspace(sys.argv[1]) as found:
    (found.new_folder("a") / "photo.png").write_bytes(b"1")
    found.note(sys.argv[2])
    print(found.root, flush=True)
    time.sleep(60)
"""


def test_a_workspace_is_private_and_goes_with_everything_in_it(tmp_path):
    with workspace(tmp_path) as found:
        assert stat.S_IMODE(found.root.stat().st_mode) == 0o700
        first, second = found.new_folder("a"), found.new_folder("b")
        kept = found.new_private_file("a", ".bin")
        kept.write_bytes(b"1")
        (first / "photo.png").write_bytes(b"1")
        assert first.parent == second.parent == found.served
        assert len(first.name) == 32
        found.forget("a")
        assert not first.exists()
        assert not kept.exists()
        assert second.exists()
    assert list(tmp_path.iterdir()) == []


def test_the_next_studio_removes_what_a_killed_one_left_and_nothing_else(tmp_path):
    noted, precious = tmp_path / "pymp-1", tmp_path / "precious"
    noted.mkdir()
    precious.mkdir()
    with workspace(tmp_path) as wrong:
        wrong.note(str(precious))
        shutil.copytree(wrong.root, tmp_path / f"{PREFIX}wrong")  # as if it had been killed
    killed = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path), str(noted)], stdout=subprocess.PIPE, text=True
    )
    left = killed.stdout.readline().strip()
    (tmp_path / f"{PREFIX}link").symlink_to(precious)
    with workspace(tmp_path) as living:
        assert Path(left).exists()  # its studio lives
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert [str(path) for path in remove_abandoned(tmp_path)] == [left]
        assert not Path(left).exists()
        assert not noted.exists()
        assert living.root.exists()
    assert precious.exists()
    assert (tmp_path / f"{PREFIX}link").is_symlink()
