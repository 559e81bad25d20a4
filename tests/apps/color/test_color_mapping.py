"""From palettes to pixels: the smooth field, the nearest entry, gamut, protection and tone."""

import math

import pytest
import torch

from glocal.apps.color.gamut import chroma_limits, compressed, fullness
from glocal.apps.color.look import ColorMap
from glocal.apps.color.mapping import bandwidth, displacement, field, looked_up, nearest
from glocal.apps.color.options import ColorOptions
from glocal.apps.color.palette import Chroma, chroma_of, joined, palette_of, repeated
from glocal.apps.color.protect import freedom
from glocal.apps.color.tone import tone_curve, toned
from glocal.color_space import lab_from_rgb, rgb_from_lab


def grid(n=5, step=10.0):
    axis = (torch.arange(n, dtype=torch.float64) - n // 2) * step
    return torch.cartesian_prod(axis, axis)


def colors(n, seed=0):
    return torch.rand(n, 3, generator=torch.Generator().manual_seed(seed))


def test_smooth_mapping_is_the_weighted_mean_by_hand():
    palette = torch.tensor([[0.0, 0.0], [8.0, 0.0]]).double()
    new = palette + torch.tensor([[1.0, 0.0], [0.0, 4.0]])
    got = displacement(torch.tensor([[2.0, 0.0]]).double(), palette, new, width=4.0)
    near, far = math.exp(-4 / 16), math.exp(-36 / 16)
    want = torch.tensor([[near, 4 * far]]).double() / (near + far)
    torch.testing.assert_close(got, want)


def test_one_displacement_for_all_moves_everything_by_it():
    palette = grid()
    anywhere = torch.rand(200, 2, generator=torch.Generator().manual_seed(0)).double() * 200 - 100
    got = displacement(anywhere, palette, palette + torch.tensor([3.0, -7.0]), width=12.0)
    torch.testing.assert_close(got, torch.tensor([[3.0, -7.0]]).double().expand(200, 2))


def test_far_colours_follow_the_nearest_entry():
    palette = grid(3)
    new = palette + torch.arange(18, dtype=torch.float64).reshape(9, 2)
    got = displacement(torch.tensor([[120.0, 115.0]]).double(), palette, new, width=5.0)
    torch.testing.assert_close(got[0], (new - palette)[8])


def test_field_equals_the_direct_evaluation():
    palette = grid()
    new = palette + 15 * torch.randn(25, 2, generator=torch.Generator().manual_seed(1)).double()
    ab = torch.rand(500, 2, generator=torch.Generator().manual_seed(2)) * 90 - 45
    direct = displacement(ab.double(), palette, new, width=bandwidth(palette)).float()
    assert float((looked_up(ab, field(palette, new, width=bandwidth(palette))) - direct).norm(dim=1).max()) < 0.1


def test_nearest_leaves_only_palette_colours_and_is_brute_force():
    palette, new = grid(3), -grid(3)
    look = ColorMap(palette, new, ColorOptions(mapping="nearest", gamut="clip"))
    rgb = colors(300) * 0.3 + 0.35  # far from the edges of sRGB
    ab = lab_from_rgb(rgb)[:, 1:]
    by_hand = torch.stack([(palette.float() - x).square().sum(1).argmin() for x in ab])
    assert torch.equal(nearest(ab, palette.float()), by_hand)
    torch.testing.assert_close(lab_from_rgb(look(rgb))[:, 1:], new.float()[by_hand], atol=0.02, rtol=0)


def test_smooth_is_continuous_where_nearest_jumps():
    palette = grid(3)
    new = palette + 8 * torch.randn(9, 2, generator=torch.Generator().manual_seed(4)).double()
    ramp = torch.stack([torch.full((2000,), 60.0), torch.linspace(-10, 10, 2000), torch.zeros(2000)], 1)
    rgb = rgb_from_lab(ramp)
    jumps = {}
    for kind in ("smooth", "nearest"):
        ab = lab_from_rgb(ColorMap(palette, new, ColorOptions(mapping=kind))(rgb))[:, 1:]
        jumps[kind] = float((ab[1:] - ab[:-1]).norm(dim=1).max())
    assert jumps["smooth"] < 0.1
    assert jumps["nearest"] > 5


def test_strength_zero_changes_nothing_and_half_goes_half_way():
    palette = grid()
    look = ColorMap(palette, palette + 6, ColorOptions(gamut="clip"))
    rgb = colors(500) * 0.4 + 0.3
    torch.testing.assert_close(look.with_strength(0.0)(rgb), rgb, atol=2e-6, rtol=0)
    before, half, full = (lab_from_rgb(x) for x in (rgb, look.with_strength(0.5)(rgb), look(rgb)))
    torch.testing.assert_close(half, (before + full) / 2, atol=0.05, rtol=0)


def test_luminance_is_untouched_by_default():
    look = ColorMap(grid(), grid() * 0.3 + 9, ColorOptions())
    rgb = colors(2000)
    assert float((lab_from_rgb(look(rgb))[:, 0] - lab_from_rgb(rgb)[:, 0]).abs().max()) < 0.6


def test_picture_in_bands_is_the_picture_at_once(monkeypatch):
    look = ColorMap(grid(), grid() * 0.5, ColorOptions(protect=("skin",)))
    rgb = colors(64 * 50).reshape(64, 50, 3)
    whole = look(rgb)
    monkeypatch.setattr("glocal.apps.color.bands.BAND", 77)
    torch.testing.assert_close(look(rgb), whole)


def test_limits_of_srgb():
    assert fullness(lab_from_rgb(colors(20000))).quantile(0.999) < 1.03
    red = lab_from_rgb(torch.tensor([[1.0, 0.0, 0.0]]))
    assert float(fullness(red)) == pytest.approx(1, abs=0.03)
    assert float(chroma_limits()[50].min()) > 25


def test_compression_fits_keeps_hue_and_order():
    level, chroma = torch.full((60,), 55.0), torch.linspace(20, 160, 60)
    wild = torch.stack([level, chroma * 0.8, chroma * 0.6], 1)
    tame = compressed(wild, torch.stack([level, chroma * 0, chroma * 0], 1))
    rgb = rgb_from_lab(tame)
    assert float(rgb.min()) > -0.02
    assert float(rgb.max()) < 1.02
    assert bool((tame[1:, 1] > tame[:-1, 1]).all())  # clipping would make them equal
    torch.testing.assert_close(tame[:, 1] / tame[:, 2], torch.full((60,), 0.8 / 0.6))
    assert torch.equal(tame[:3], wild[:3])


def test_compression_leaves_colours_that_did_not_change():
    lab = lab_from_rgb(colors(5000))
    assert torch.equal(compressed(lab, lab), lab)


def test_protection():
    gray, green, skin = [60.0, 1.0, -1.0], [60.0, -40.0, 30.0], [65.0, 16.0, 18.0]
    lab = torch.tensor([gray, green, skin])
    torch.testing.assert_close(freedom(lab, ("neutrals",)), torch.tensor([0.0, 1.0, 1.0]))
    torch.testing.assert_close(freedom(lab, ("skin",)), torch.tensor([1.0, 1.0, 0.0]))
    torch.testing.assert_close(freedom(lab, ("skin", "neutrals")), torch.tensor([0.0, 1.0, 0.0]))


def test_tone_goes_half_way_and_rises():
    dark, bright = torch.rand(5000, generator=torch.Generator().manual_seed(0)) * 40 + 10, torch.linspace(40, 95, 999)
    curve = tone_curve(dark, bright)
    assert curve[0] == 0
    assert float(curve[-1]) == pytest.approx(100)
    assert bool((curve.diff() > 0.2).all())
    moved = float(toned(dark, curve).mean())
    assert float(dark.mean()) + 8 < moved < float(bright.mean()) - 8
    torch.testing.assert_close(
        toned(torch.tensor([0.0, 50.5, 100.0]), torch.arange(101.0)), torch.tensor([0, 50.5, 100])
    )


def test_palette_is_kmeans_and_repeats_to_the_bit():
    centres = torch.tensor([[-40.0, 0.0], [0.0, 30.0], [35.0, -20.0]])
    noise = torch.randn(3000, 2, generator=torch.Generator().manual_seed(0))
    chroma = chroma_of(centres.repeat(1000, 1) + noise)
    palette = palette_of(chroma, colors=3, seed=0)
    assert float(torch.cdist(palette.float(), centres).min(1).values.max()) < 0.2
    assert torch.equal(palette, palette_of(chroma, colors=3, seed=0))
    assert len(palette_of(chroma, colors=64, seed=1)) == 64


def test_cells_and_joint_palettes():
    gray = chroma_of(torch.randn(100, 2, generator=torch.Generator().manual_seed(0)) * 1e-4)
    assert len(gray.points) == 1  # rounding around gray must not make four colours of it
    both = joined([gray, Chroma(torch.ones(9, 2).double(), torch.full((9,), 1 / 9).double())])
    assert float(both.shares[0]) == pytest.approx(0.5)
    masked = chroma_of(torch.tensor([[10.0, 0.0], [50.0, 0.0]]), torch.tensor([1.0, 0.0]))
    assert masked.points.tolist() == [[10.0, 0.0]]
    assert repeated(torch.tensor([[1.0], [2.0]]), 5).flatten().tolist() == [1, 2, 1, 2, 1]
