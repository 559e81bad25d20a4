"""Windows of TIFF files equal the same part of the whole picture, for every way to store them."""

import itertools
import pickle

import numpy as np
import pytest
import tifffile

from glocal.errors import InputError
from glocal.files.images.windows import TiffPixels

RNG = np.random.default_rng(0)
WINDOWS = [(0, 101, 0, 93), (31, 33, 47, 49), (90, 101, 80, 93), (40, 41, 0, 1), (7, 7, 3, 9)]


@pytest.mark.parametrize("tile", [None, (32, 48)])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_windows_equal_the_whole(tmp_path, channels, tile):
    for dtype, compression, planar in itertools.product((np.uint8, np.float32), (None, "zlib"), ("contig", "separate")):
        array = (RNG.random((101, 93, channels)) * 200).astype(dtype)
        stored = array[..., 0] if channels == 1 else np.moveaxis(array, -1, 0) if planar == "separate" else array
        tifffile.imwrite(
            tmp_path / "a.tif", stored, tile=tile, rowsperstrip=None if tile else 7, compression=compression,
            photometric="rgb" if channels > 1 else "minisblack", planarconfig=planar if channels > 1 else None,
            bigtiff=dtype == np.float32, byteorder=">" if compression else "<",
        )  # fmt: skip
        pixels = pickle.loads(pickle.dumps(TiffPixels(tmp_path / "a.tif")))
        assert (pixels.shape, pixels.dtype) == (array.shape, dtype)
        for top, bottom, left, right in WINDOWS:
            assert np.array_equal(pixels[top:bottom, left:right], array[top:bottom, left:right])
        assert np.array_equal(pixels[5:50:2, :, 0], array[5:50:2, :, 0])
        assert np.array_equal(TiffPixels(tmp_path / "a.tif", channels=slice(0, 1))[5:9], array[5:9, :, :1])


def test_only_the_touched_tiles_are_read_and_few_are_kept(tmp_path, monkeypatch):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((256, 256), np.uint8), tile=(64, 64))
    monkeypatch.setattr("glocal.files.images.windows._CACHE", 2 * 64 * 64)
    pixels = TiffPixels(tmp_path / "a.tif")
    pixels[70:80, 10:20]
    assert list(pixels.decoded) == [4]
    pixels[:]
    assert list(pixels.decoded) == [14, 15]


def test_levels_of_a_pyramid_and_messages(tmp_path):
    with tifffile.TiffWriter(tmp_path / "p.tif") as out:
        out.write(np.full((128, 128), 1, np.uint8), tile=(64, 64), subifds=1)
        out.write(np.full((64, 64), 2, np.uint8), tile=(64, 64), subfiletype=1)
    assert TiffPixels(tmp_path / "p.tif", level=1)[60:, 60:].tolist() == [[[2]] * 4] * 4
    with pytest.raises(InputError, match=r"it has 2 level\(s\), and level 2 was asked for"):
        TiffPixels(tmp_path / "p.tif", level=2)
    data = bytearray((tmp_path / "p.tif").read_bytes())
    (tmp_path / "p.tif").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError):
        TiffPixels(tmp_path / "p.tif")[:]
