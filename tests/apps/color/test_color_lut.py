"""Maps and LUTs as files: what is written can be read, by us and by others, and what is damaged is refused."""

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from glocal.apps.color.look import ColorMap
from glocal.apps.color.lut import CUBE_SIZES, Lut, cube_text, hald_pixels, lut_of, read_lut, write_lut
from glocal.apps.color.measures import difference_of_maps
from glocal.apps.color.options import ColorOptions
from glocal.errors import ArgumentError, InputError, OutputError
from glocal.files.images.picture import Picture
from glocal.files.images.read import read_image
from glocal.files.images.write import write_image


def some_map(**options):
    axis = torch.linspace(-40, 40, 5, dtype=torch.float64)
    palette = torch.cartesian_prod(axis, axis)
    return ColorMap(palette, palette @ torch.tensor([[0.6, 0.3], [-0.2, 0.8]]).double() + 4, ColorOptions(**options))


def colors(n=4000):
    return torch.rand(n, 3, generator=torch.Generator().manual_seed(0))


def swap(rgb):
    return rgb[..., [1, 2, 0]] * torch.tensor([1.0, 0.5, 0.25])


def test_map_survives_its_file(tmp_path):
    look = some_map(strength=0.7, protect=("skin",), lambdas=(1, 0.2, 3))
    look = ColorMap(look.palette, look.new, look.options, torch.linspace(0, 100, 101).pow(1.01))
    look.save(tmp_path / "look.glocal")
    back = ColorMap.load(tmp_path / "look.glocal")
    assert back.options == look.options
    assert torch.equal(back(colors()), look(colors()))
    with pytest.raises(OutputError, match="exists already"):
        look.save(tmp_path / "look.glocal")
    look.save(tmp_path / "look.glocal", overwrite=True)


def broken(tmp_path, **about):
    tensors = {"palette": some_map().palette, "new": some_map().new}
    full = {"format": "glocal-color-map", "version": "1", "options": json.dumps(asdict(ColorOptions()))}
    path = tmp_path / "bad.glocal"
    save_file({k: about.pop(k, v).contiguous() for k, v in tensors.items()}, path, metadata=full | about)
    return path


def test_maps_that_cannot_be_read(tmp_path):
    cases = {
        "its version is '9', not '1'. Use the glocal version that wrote it": {"version": "9"},
        "it is not a color map": {"format": "glocal-graph-1"},
        "its contents are damaged": {"options": "{"},
        "its contents are damaged. Make it": {"options": json.dumps({"method": "magic"})},
        "its contents are damaged. Make it again": {"options": json.dumps({"colour": 3})},
        "its palettes are damaged": {"new": torch.zeros(3, 2).double()},
        "its palettes are damaged. Make": {"palette": torch.full((25, 2), float("nan")).double()},
    }
    for message, about in cases.items():
        with pytest.raises(InputError, match=message):
            ColorMap.load(broken(tmp_path, **about))
    with pytest.raises(InputError, match=r"read color map .*no such file"):
        ColorMap.load(tmp_path / "missing.glocal")
    some_map().save(tmp_path / "look.glocal")
    data = (tmp_path / "look.glocal").read_bytes()
    for cut in (0, 4, 100, len(data) - 5):
        (tmp_path / "cut.glocal").write_bytes(data[:cut])
        with pytest.raises(InputError, match=r"it is damaged or not a color map. Make it again with ColorMap.save"):
            ColorMap.load(tmp_path / "cut.glocal")
    assert set(load_file(tmp_path / "look.glocal")) == {"palette", "new"}


def test_lut_interpolates_linear_maps_exactly():
    torch.testing.assert_close(lut_of(swap, 5)(colors()), swap(colors()), atol=1e-6, rtol=0)
    with pytest.raises(ArgumentError, match=r"`size` \(=1\) must be between 2 and 129"):
        lut_of(swap, 1)


def test_cube_has_the_order_that_editors_expect():
    lines = cube_text(lut_of(swap, 2), title='a "b"').splitlines()
    assert lines[:4] == ["TITLE \"a 'b'\"", "LUT_3D_SIZE 2", "DOMAIN_MIN 0.0 0.0 0.0", "DOMAIN_MAX 1.0 1.0 1.0"]
    assert lines[4] == "0.000000 0.000000 0.000000"
    assert lines[5] == "0.000000 0.000000 0.250000"  # red first: swap(1, 0, 0) = (0, 0, 0.25)
    assert lines[6] == "1.000000 0.000000 0.000000"  # then green
    assert len(lines) == 12


@pytest.mark.parametrize("size", CUBE_SIZES)
def test_cube_round_trip(tmp_path, size):
    written = write_lut(tmp_path / "look.cube", some_map(), size=size)
    assert written.size == size
    torch.testing.assert_close(read_lut(tmp_path / "look.cube").table, written.table, atol=1e-6, rtol=0)


def test_hald_round_trip_and_identity(tmp_path):
    written = write_lut(tmp_path / "look.png", some_map())
    picture = read_image(tmp_path / "look.png")
    assert picture.size == (512, 512)
    assert picture.pixels.dtype == np.uint16
    torch.testing.assert_close(read_lut(tmp_path / "look.png").table, written.table, atol=1e-5, rtol=0)
    same = hald_pixels(lut_of(lambda rgb: rgb, 64))
    assert same[0, 1].tolist() == [round(65535 / 63), 0, 0]  # red changes fastest, as in every identity HaldCLUT
    assert same[0, 64].tolist() == [0, round(65535 / 63), 0]


def test_finer_luts_are_nearer_to_the_map():
    look = some_map()
    differences = [difference_of_maps(look, lut_of(look, size), colors().reshape(40, 100, 3)) for size in (17, 33, 65)]
    means, largest = zip(*differences)
    assert means[0] > means[1] > means[2]
    assert means[1] < 0.6
    assert all(low < high for low, high in differences)
    assert max(largest) < 20
    assert difference_of_maps(look, look, colors().reshape(40, 100, 3)) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t[: len(t) // 2].rsplit("\n", 1)[0], r"it has \d+ points, but a size of 4 needs 64"),
        (lambda t: t.replace("LUT_3D_SIZE 4", "LUT_3D_SIZE x"), "line 2 .* cannot be understood. Export it again"),
        (lambda t: t.replace("LUT_3D_SIZE 4", "LUT_1D_SIZE 64"), "it is one-dimensional"),
        (lambda t: t.replace("DOMAIN_MAX 1.0 1.0 1.0", "DOMAIN_MAX 8 8 8"), "its domain is not 0 to 1"),
        (lambda t: t[:-9] + "nan\n", "NaN or infinite"),
        (lambda t: t[:-9] + "0.1 0.2\n", "cannot be understood"),
        (lambda t: "", "its size is 0, or comes after its points. A 3-D LUT begins with LUT_3D_SIZE, from 2 to 256"),
        (lambda t: t.replace("LUT_3D_SIZE 4", "LUT_3D_SIZE 300"), "its size is 300, or comes after its points"),
        (lambda t: t + "0 0 0\n", "it has more points, but a size of 4 needs 64"),
    ],
)
def test_cubes_that_cannot_be_read(tmp_path, change, message):
    (tmp_path / "bad.cube").write_text(change(cube_text(lut_of(swap, 4), title="t")))
    with pytest.raises(InputError, match=message):
        read_lut(tmp_path / "bad.cube")


def test_other_luts_that_cannot_be_read(tmp_path):
    (tmp_path / "bytes.cube").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(InputError, match="it is not text"):
        read_lut(tmp_path / "bytes.cube")
    with pytest.raises(InputError, match=r"read LUT .*no such file"):
        read_lut(tmp_path / "missing.cube")
    write_image(tmp_path / "photo.png", Picture(np.zeros((20, 30, 3), np.uint8)))
    with pytest.raises(InputError, match="a picture of 30 x 20 is not a HaldCLUT"):
        read_lut(tmp_path / "photo.png")
    with pytest.raises(ArgumentError, match=r"the suffix '.3dl' is unknown. Use .cube, or .png"):
        write_lut(tmp_path / "look.3dl", some_map())


def test_foreign_cubes_with_comments_and_ranges(tmp_path):
    text = cube_text(Lut(torch.rand(3, 3, 3, 3)), title="t").replace("DOMAIN_MIN 0.0 0.0 0.0", "\n# made elsewhere")
    (tmp_path / "a.cube").write_text(text.replace("DOMAIN_MAX 1.0 1.0 1.0", "LUT_3D_INPUT_RANGE 0.0 1.0"))
    assert read_lut(tmp_path / "a.cube").size == 3


@pytest.mark.parametrize("head", ["LUT_3D_SIZE 2\n", ""])
def test_a_cube_with_very_many_lines_is_refused_at_once(tmp_path, head):
    """In constant memory, and before the rest is read."""
    import tracemalloc

    (tmp_path / "long.cube").write_text(head + "0.1 0.2 0.3\n" * 300_000)
    tracemalloc.start()
    with pytest.raises(InputError, match=r"it has more points|comes after its points"):
        read_lut(tmp_path / "long.cube")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000
