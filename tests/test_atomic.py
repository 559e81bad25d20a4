"""Files appear whole or not at all, whatever happens while they are written."""

import errno
import os
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from glocal import atomic
from glocal.atomic import check_free, check_writable, write_whole
from glocal.errors import OutputError
from glocal.files.images.picture import Picture
from glocal.files.images.write import write_image


def test_an_error_leaves_nothing_behind(tmp_path):
    with pytest.raises(ZeroDivisionError), write_whole(tmp_path / "a") as beside:
        beside.write_text(str(1 / 0))
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_refused_or_replaced(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o640)
    with pytest.raises(OutputError) as caught, write_whole(path):
        pass
    assert str(caught.value) == (
        f"write file ({path}): the file exists already. Add overwrite=True or choose another name."
    )
    with write_whole(path, overwrite=True) as beside:
        beside.write_text("new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path):
    path = tmp_path / "a"
    with pytest.raises(OutputError, match="exists already"), write_whole(path) as beside:
        beside.write_text("mine") and path.write_text("theirs")
    assert path.read_text() == "theirs"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_file_systems_without_hard_links(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    with write_whole(tmp_path / "a") as beside:
        beside.write_text("all")
    assert (tmp_path / "a").read_text() == "all"
    with pytest.raises(OutputError, match="exists already"), write_whole(tmp_path / "b") as beside:
        (tmp_path / "b").write_text("theirs")
    assert (tmp_path / "b").read_text() == "theirs"


def test_a_link_is_followed(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with write_whole(tmp_path / "link", overwrite=True) as beside:
        beside.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


@pytest.mark.parametrize("name", ["ä" * 120 + ".png", "x" * 251 + ".png", os.fsdecode(b"\xff\xfe" * 100) + ".png"])
def test_names_of_full_length_and_names_that_are_not_utf8(tmp_path, name):
    with write_whole(tmp_path / name) as beside:
        beside.write_text("x")
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("check", [check_free, check_writable])
def test_names_that_no_file_can_have_are_refused_before_the_work(tmp_path, check):
    long = tmp_path / ("x" * 300)
    with pytest.raises(OutputError) as caught:
        check(long, overwrite=False)
    assert str(caught.value) == (
        f"write file ({long}): the name has 300 bytes, and a file system takes 255. Choose a shorter name."
    )
    deep = tmp_path.joinpath(*["folder"] * 600, "a.png")
    with pytest.raises(OutputError) as caught:
        check(deep, overwrite=False)
    assert str(caught.value) == (
        f"write file ({deep}): the path has {len(str(deep))} bytes, and the system takes 4095. "
        "Choose a folder closer to the root."
    )
    with pytest.raises(OutputError) as caught:
        check("a\0b", overwrite=False)
    assert str(caught.value).endswith("its name has a zero byte. Choose another name.")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows writes such names")
def test_a_name_that_no_file_system_encoding_has():
    with pytest.raises(OutputError, match="cannot be written to a disk"):
        check_free("a\ud800", overwrite=False)


def test_a_file_system_with_shorter_names(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(OutputError) as caught, write_whole(tmp_path / "a"):
        pass
    assert str(caught.value) == (
        f"write file ({tmp_path / 'a'}): the name is too long for this file system. Choose a shorter name."
    )


def test_a_library_that_replaces_the_temporary_file(tmp_path):
    """Safetensors writes to a file of its own, readable by its owner alone, and renames it."""
    (tmp_path / "plain").write_text("x")
    with write_whole(tmp_path / "a") as beside:
        other = beside.with_name("other")
        other.write_text("new")
        other.chmod(0o600)
        other.replace(beside)
        atomic.remove_unfinished.cache_clear()
        done = subprocess.run([sys.executable, "-c", REMOVE, str(tmp_path)], check=True, capture_output=True)
        assert done.returncode == 0
    assert (tmp_path / "a").read_text() == "new"
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert {entry.name for entry in tmp_path.iterdir()} == {"a", "plain"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: d / "no" / "a", "write file ({p}): the folder {d} does not exist. Make the folder first."),
        (lambda d: d, "write file ({p}): it is a folder. Name a file inside it."),
    ],
)
def test_places_where_no_file_can_be(tmp_path, make, message):
    path = make(tmp_path)
    with pytest.raises(OutputError) as caught, write_whole(path):
        pass
    assert str(caught.value) == message.format(p=path, d=path.parent)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk is full or the file is too large for it; no file was left. Free some space or"),
        (errno.EACCES, "permission denied. Choose a folder that you may write to."),
    ],
)
def test_what_the_system_says(tmp_path, monkeypatch, number, words):
    def refuse(_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(atomic, "_flush", refuse)
    with pytest.raises(OutputError) as caught:
        write_image(tmp_path / "a.png", Picture(np.zeros((4, 4, 3), np.uint8)))
    assert words in str(caught.value)
    assert list(tmp_path.iterdir()) == []


REMOVE = """
import sys
from pathlib import Path
from glocal.atomic import remove_unfinished
remove_unfinished(Path(sys.argv[1]))
"""
FOREVER = """
import sys
from pathlib import Path
import numpy as np
from glocal.files.audio.audio_file import create_audio
from glocal.files.images.read import read_image
from glocal.files.images.write import write_image
from glocal.files.images.picture import Picture
folder = Path(sys.argv[1])
picture = read_image(folder / "input.png")
sys.stdout.write("ready\\n")
sys.stdout.flush()
while True:
    write_image(folder / "out.png", picture, overwrite=True)
    write_image(folder / "out.tif", picture, overwrite=True)
    write_image(folder / "input.png", picture, overwrite=True)
    with create_audio(folder / "out.wav", rate=8000, channels=1, overwrite=True) as out:
        for _ in range(20):
            out.write(np.full(1000, 0.25))
"""


def kill_in_the_middle(folder: Path, times: int) -> int:
    """Start a process that writes without end, kill it, and look at what it left; returns how often it left a part."""
    from glocal.files.audio.audio_file import open_audio
    from glocal.files.images.read import read_image

    random.seed(1)
    pixels = np.random.default_rng(0).integers(0, 255, (200, 300, 3), np.uint8)
    write_image(folder / "input.png", Picture(pixels))
    parts = 0
    for _ in range(times):
        atomic.remove_unfinished.cache_clear()
        process = subprocess.Popen([sys.executable, "-c", FOREVER, str(folder)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        while not (folder / "out.png").exists():  # the first round must get somewhere, however busy the machine is
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(random.uniform(0.0, 0.25))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        for name in ("input.png", "out.png", "out.tif"):
            if name == "input.png" or (folder / name).exists():
                np.testing.assert_array_equal(read_image(folder / name).pixels, pixels)
        if (folder / "out.wav").exists():
            with open_audio(folder / "out.wav") as sound:
                assert len(sound.read()) == 20_000
        left = [path for path in folder.iterdir() if path.name.endswith(".glocal-part")]
        assert all(path.name.startswith(".") for path in left)
        parts += len(left)
        assert len(left) <= 1  # those of the process before were removed by this one
    with write_whole(folder / "out.png", overwrite=True) as beside:
        beside.write_bytes((folder / "input.png").read_bytes())
    assert {path.name for path in folder.iterdir()} <= {"input.png", "out.png", "out.tif", "out.wav"}
    assert (folder / "out.png").exists()
    return parts


HELD = """
import sys, time
from glocal.atomic import write_whole
with write_whole(sys.argv[1]) as beside:
    sys.stdout.write("ready\\n")
    sys.stdout.flush()
    time.sleep(60)
"""


def unfinished(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name.endswith("part")}


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path):
    foreign = {".a.png.12345678.part", ".a.glocal-part", "a.12345678.glocal-part", ".a.1234567g.glocal-part"}
    for name in foreign:
        (tmp_path / name).write_text("keep me")
    (tmp_path / ".folder.12345678.glocal-part" / "more").mkdir(parents=True)  # this program makes no folders inside
    (tmp_path / ".link.12345678.glocal-part").symlink_to(tmp_path / ".a.glocal-part")
    foreign |= {".folder.12345678.glocal-part", ".link.12345678.glocal-part"}

    def write_one(name: str) -> None:
        atomic.remove_unfinished.cache_clear()
        with write_whole(tmp_path / name) as beside:
            beside.write_text("x")

    command = [sys.executable, "-c", HELD, str(tmp_path / "a.png")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert len(unfinished(tmp_path) - foreign) == 1
        write_one("b.png")
        assert len(unfinished(tmp_path) - foreign) == 1  # its writer lives
        process.send_signal(signal.SIGKILL)
    write_one("c.png")
    assert unfinished(tmp_path) == foreign


def test_without_locks_files_are_written_and_nothing_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "fcntl", None)
    (tmp_path / ".a.12345678.glocal-part").write_text("left")
    with write_whole(tmp_path / "a") as beside:
        beside.write_text("all")
    assert (tmp_path / "a").read_text() == "all"
    assert unfinished(tmp_path) == {".a.12345678.glocal-part"}


def test_killing_the_writer_leaves_whole_files(tmp_path):
    kill_in_the_middle(tmp_path, 3)


@pytest.mark.slow
def test_killing_the_writer_very_often(tmp_path):
    assert kill_in_the_middle(tmp_path, 200) > 0
