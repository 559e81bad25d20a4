"""What a reader had to change is said in the picture's notes."""

import numpy as np
import pillow_heif

from glocal.files.images import read_image


def test_heic_of_more_than_8_bits_says_that_it_is_read_as_8(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 2**16, (32, 32, 3)).astype(np.uint16)
    pillow_heif.from_bytes(mode="RGB;16", size=(32, 32), data=pixels.tobytes()).save(tmp_path / "deep.heic")
    picture = read_image(tmp_path / "deep.heic")
    assert picture.pixels.dtype == np.uint8
    assert picture.notes == ("10 bit converted to 8 bit",)
