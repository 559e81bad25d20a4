"""The baselines and the measures against what they must be by their definitions, and the docs against the results."""

import importlib.util
import json
import math
import sys
from pathlib import Path

import pytest
import torch

from glocal.apps.color.baselines import linear_monge, reinhard
from glocal.apps.color.draw import palette_sheet
from glocal.apps.color.measures import quality, sliced_wasserstein, steps

ROOT = Path(__file__).parents[3]


def cloud(n, seed, matrix=((10.0, 0.0), (0.0, 4.0)), shift=0.0):
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(seed)).double()
    return x @ torch.tensor(matrix).double() + shift


def ramp(gain=1.0):
    """A Lab picture whose `a` rises slowly along the rows and `b` down the columns."""
    y, x = torch.meshgrid(torch.arange(30.0), torch.arange(40.0), indexing="ij")
    return torch.stack([50 + x, gain * x, gain * 0.5 * y], -1)


def test_reinhard_matches_mean_and_deviation():
    photo, reference = cloud(500, 0), cloud(700, 1, ((3.0, 2.0), (0.0, 5.0)), 7.0)
    got = reinhard(photo, reference)
    torch.testing.assert_close(got.mean(0), reference.mean(0))
    torch.testing.assert_close(got.std(0, correction=0), reference.std(0, correction=0))
    flat = reinhard(torch.ones(5, 2).double(), reference)
    torch.testing.assert_close(flat, reference.mean(0).expand(5, 2))


def test_linear_monge_matches_the_covariance_by_a_symmetric_map():
    photo, reference = cloud(500, 0, ((6.0, 3.0), (1.0, 2.0))), cloud(700, 1, ((3.0, 2.0), (0.0, 5.0)), 7.0)
    got = linear_monge(photo, reference)
    torch.testing.assert_close(got.mean(0), reference.mean(0))
    torch.testing.assert_close(torch.cov(got.T), torch.cov(reference.T) * (500 / 499) * (699 / 700))
    matrix = torch.linalg.lstsq(photo - photo.mean(0), got - got.mean(0)).solution
    torch.testing.assert_close(matrix, matrix.T)
    assert float(torch.linalg.eigvalsh(matrix).min()) > 0
    one_hue = torch.stack([torch.linspace(0, 9, 50), torch.zeros(50)], 1).double()
    assert bool(torch.isfinite(linear_monge(one_hue, reference)).all())


def test_sliced_wasserstein_of_a_shift_is_known():
    x = cloud(400, 3)
    assert sliced_wasserstein(x, x) == 0
    assert sliced_wasserstein(x, x + torch.tensor([3.0, 4.0])) == pytest.approx(5 * 2 / math.pi, rel=1e-3)
    assert sliced_wasserstein(x, x[torch.randperm(400, generator=torch.Generator().manual_seed(0))]) == 0


def test_quality_of_what_did_not_change_is_perfect():
    found = quality(ramp(), ramp(), ramp())
    assert found.as_dict() == {"distance": 0.0, "torn": 0.0, "flat": 0.0, "distortion": 0.0}
    assert quality(ramp(), ramp(2.0), ramp(2.0)).distortion == pytest.approx(0, abs=1e-6)  # saturation costs nothing


def test_posterised_ramp_is_flat_and_torn():
    photo = ramp()
    bands = photo.clone()
    bands[..., 1:] = (photo[..., 1:] / 8).round() * 8
    found = quality(photo, bands, photo)
    assert found.flat > 70
    assert 5 < found.torn < 20  # one step in eight
    assert found.distortion > 0.5


def test_steps_and_distortion_by_hand():
    lab = torch.zeros(2, 2, 3)
    lab[0, 1, 1], lab[1, 1, 2] = 3.0, 4.0
    assert sorted(steps(lab).norm(dim=1).tolist()) == [0.0, 3.0, 4.0, 5.0]
    other = torch.zeros(2, 2, 3)
    other[0, 1, 1], other[1, 1, 2] = 3.0, 0.0  # differences 3, 3, 0, 0 where there were 3, 5, 4, 0: scale 6 / 12
    assert quality(lab, other, lab).distortion == pytest.approx((1.5 + 0.5 + 2) / 6)


def test_sheet_of_palettes_shows_every_entry():
    palette = torch.tensor([[60.0, 0.0], [0.0, 60.0], [-60.0, 0.0]])
    sheet = palette_sheet(palette, palette.flip(0), palette.roll(1, 0), palette)
    first = [sheet[50, 20 + 26 * k].tolist() for k in range(3)]
    assert len({tuple(color) for color in first}) == 3
    moved = [sheet[50, 20 + 8 * 26 + 16 + 26 * k].tolist() for k in range(3)]
    assert moved == first[::-1]


def test_tables_of_the_docs_come_from_the_results(monkeypatch):
    spec = importlib.util.spec_from_file_location("color_bench", ROOT / "benchmarks" / "color.py")
    bench = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "color_bench", bench)  # dataclasses look their module up
    spec.loader.exec_module(bench)
    found = json.loads((ROOT / "benchmarks" / "results" / "color.json").read_text())
    page = (ROOT / "docs" / "color.md").read_text()
    assert len(found["pairs"]) == 13
    for name, table in bench.tables(found).items():
        assert f"<!-- generated: {name} -->\n{table}\n<!-- end: {name} -->" in page
