"""Scratch files: the same pixels as in memory, no file left, a full disk is an error and not a crash."""

import errno
import os
import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from glocal.apps.color.options import ColorOptions
from glocal.apps.denoise.options import DenoiseOptions
from glocal.errors import MemoryLimitError, OutputError
from glocal.files.images.picture import Picture
from glocal.files.images.read import read_image
from glocal.files.images.scratch import Scratch
from glocal.files.images.write import write_image
from glocal.jobs.batch import check_memory
from glocal.jobs.color import ColorFiles, ColorJob
from glocal.jobs.denoise import DenoiseJob
from glocal.jobs.inputs import Inputs
from glocal.jobs.paths import Task

RNG = np.random.default_rng(0)
COLOR, ALPHA = RNG.integers(0, 256, (30, 41, 3), np.uint8), RNG.integers(0, 256, (30, 41), np.uint8)
PICTURES = {
    "a.png": Picture(COLOR),
    "alpha.png": Picture(COLOR, ALPHA),
    "deep.png": Picture(COLOR.astype(np.uint16) * 257),
    "gray.png": Picture(COLOR[..., :1]),
    "a.tif": Picture(COLOR),
    "alpha.tif": Picture(COLOR, ALPHA),
    "float.tif": Picture(COLOR.astype(np.float32) / 100),
    "gray.tif": Picture(COLOR[..., :1]),
    "a.jpg": Picture(COLOR),
    "gray.jpg": Picture(COLOR[..., :1]),
    "a.webp": Picture(COLOR),
    "alpha.webp": Picture(COLOR, ALPHA),
    "lossless.webp": Picture(COLOR, ALPHA),
    "deep.avif": Picture(COLOR.astype(np.uint16) * 257, ALPHA.astype(np.uint16) * 257),
    "deep.heic": Picture(COLOR.astype(np.uint16) * 257, bits=10),
}


@pytest.mark.parametrize("name", PICTURES)
def test_files_decode_to_the_same_pixels_in_scratch_files(tmp_path, name):
    write_image(tmp_path / name, PICTURES[name], quality=100 if name == "lossless.webp" else 95)
    kept, scratched = read_image(tmp_path / name), read_image(tmp_path / name, scratch=Scratch(tmp_path, memory=1))
    assert np.array_equal(kept.pixels, scratched.pixels)
    assert kept.pixels.dtype == scratched.pixels.dtype
    assert (kept.alpha is None) == (scratched.alpha is None)
    assert kept.alpha is None or np.array_equal(kept.alpha, scratched.alpha)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(("name", "each"), [("a.jpg", 0), ("a.webp", 0), ("lossless.webp", 8), ("deep.avif", 12)])
def test_what_decoders_keep_in_memory_is_counted(tmp_path, name, each):
    write_image(tmp_path / name, PICTURES[name], quality=100 if name == "lossless.webp" else 95)
    for job in (
        ColorJob(ColorOptions(), ColorFiles(), others=(str(tmp_path / name),)),
        DenoiseJob(DenoiseOptions(model="local")),
    ):
        header = job.header(Inputs(tmp_path / name))
        assert header.decoding == each * 30 * 41
        large = replace(header, size=(9000, 9000), decoding=each * 9000 * 9000)
        task = Task(tmp_path / name, tmp_path / "o.png", memory=1 << 30)
        needs = replace(job.cost(large), smaller=job.smaller(large, task.memory))
        if each == 12:
            with pytest.raises(
                MemoryLimitError, match=r"needs 1\.[0-9] GiB, .* Use a JPEG, PNG or TIFF file, which is"
            ):
                check_memory(needs, task)
            assert "JPEG" not in job.smaller(large, 1 << 20)  # another file would not fit either
        elif isinstance(job, DenoiseJob):
            check_memory(needs, replace(task, memory=1200 << 20))


@pytest.mark.parametrize("turn", [3, 6, 8])
def test_a_turned_photo_is_upright_in_scratch_files_too(tmp_path, turn):
    exif = Image.Exif()
    exif[0x0112] = turn
    Image.fromarray(COLOR).save(tmp_path / "a.jpg", exif=exif)
    scratch = Scratch(tmp_path, memory=1)
    assert np.array_equal(read_image(tmp_path / "a.jpg").pixels, read_image(tmp_path / "a.jpg", scratch=scratch).pixels)


def test_released_arrays_keep_their_values_and_give_their_memory_back(tmp_path):
    scratch = Scratch(tmp_path, memory=1)
    array = scratch.empty((64 << 20,), np.uint8)
    array[:] = 3
    before = resident()
    scratch.release()
    assert before - resident() > 48 << 20
    assert int(array[:: 1 << 16].sum()) == 3 * 1024


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_a_full_disk_and_a_missing_folder_are_named(tmp_path, monkeypatch):
    with pytest.raises(OutputError, match="no such file or directory"):
        Scratch(tmp_path / "none", memory=1).empty((2,), np.uint8)

    def full(*arguments):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OutputError, match=r"temporary file \(.*\): there is no space for 2 bytes. Free some space"):
        Scratch(tmp_path, memory=1).empty((2,), np.uint8)
