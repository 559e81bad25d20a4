"""The comparison of style variants: its measures obey their laws, every variant runs, and results are joined."""

import itertools
import json
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from skimage.metrics import structural_similarity

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def quality():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import style_quality

    yield style_quality
    sys.path.remove(str(ROOT / "benchmarks"))


def noise(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def test_structure_is_whole_in_the_photo_itself(quality):
    photo, painting = noise(96, 80, 3), noise(90, 100, 3, seed=1)
    own = quality.measures(photo, photo, painting, None)
    assert own["gradients"] == pytest.approx(1, abs=1e-5)
    assert own["ssim"] == pytest.approx(1, abs=1e-5)
    negative = quality.measures(1 - photo, photo, painting, None)
    assert negative["gradients"] < -0.5
    assert negative["ssim"] < 0.2


def test_style_is_nearest_in_the_painting_itself(quality):
    photo, painting = noise(96, 80, 3), noise(96, 80, 3, seed=1).cumsum(0) / 96
    own = quality.measures(painting, photo, painting, None)
    other = quality.measures(photo, photo, painting, None)
    for name in ("wide", "deep"):
        assert own[name] == pytest.approx(0, abs=1e-5)
        assert other[name] > 0.3


def test_ssim_is_the_usual_one(quality):
    from style_measures import ssim

    a, b = noise(1, 1, 40, 50), noise(1, 1, 40, 50, seed=1) * 0.5
    expected = structural_similarity(
        a[0, 0].numpy(), b[0, 0].numpy(), data_range=1, gaussian_weights=True, sigma=1.5, use_sample_covariance=False
    )
    assert ssim(a, b) == pytest.approx(expected, abs=1e-4)


def test_variants_are_run_and_joined(quality, tmp_path, monkeypatch):
    monkeypatch.setattr(quality, "PAIRS", ("a/b",))
    rng = np.random.default_rng(0)
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", rng.integers(0, 256, (48, 50, 3), dtype=np.uint8))
    arguments = Namespace(
        pictures=tmp_path, output=tmp_path / "out.json", sheets=tmp_path, size=48, iterations=1, device="cpu", workers=1,
        vgg=None, alex=None, seeds=[0], until=float("inf"),
    )  # fmt: skip
    names = ["mixed 3 7", "edges", "blurred"]
    quality.compare("a/b", names[:2], arguments)
    quality.join(arguments.output, 48)
    quality.compare("a/b", names[2:], arguments)
    quality.join(arguments.output, 48)
    kept = json.loads(arguments.output.read_text())
    assert sorted(row["variant"] for row in kept["rows"]) == sorted(names)
    assert [line["variant"] for line in kept["summary"]] == [name for name in quality.VARIANTS if name in names]
    assert kept["summary"][0]["ssim"] == next(
        r["ssim"] for r in kept["rows"] if r["variant"] == kept["summary"][0]["variant"]
    )
    assert len({row["wide"] for row in kept["rows"]}) == 3
    assert (tmp_path / "a+b+mixed_3_7.jpg").exists()


def test_every_variant_has_options(quality):
    for variant in quality.VARIANTS.values():
        made = (
            quality.style_options(variant.preset, variant.changes)
            if variant.preset
            else quality.StyleOptions(**{**quality.BASE, **variant.changes})
        )
        assert made.maps > 0


def test_seeds_are_averaged_and_their_spread_is_stated(quality, monkeypatch):
    monkeypatch.setattr(quality, "PAIRS", ("a/b", "c/d"))
    rows = [
        {"pair": pair, "variant": "patches", "seed": seed, "seconds": 1.0, "ssim": value}
        for pair, seed, value in (("a/b", 0, 0.1), ("c/d", 0, 0.3), ("a/b", 1, 0.2), ("c/d", 1, 0.4))
    ]
    (line,) = quality.summary(rows)
    assert line["ssim"] == pytest.approx(0.25)
    assert line["ssim spread"] == pytest.approx(0.1)
    assert line["seeds"] == 2
    assert quality.summary(rows[:3]) == []


def test_judges_are_computed_layer_by_layer(quality):
    from style_measures import alex_features, measures

    sizes = [(4, 3, 11), (5, 4, 5), (6, 5, 3), (5, 6, 3), (4, 5, 3)]
    layers = [(noise(a, b, side, side, seed=a) - 0.4, noise(a)) for a, b, side in sizes]
    image = noise(70, 90, 3)
    assert [tuple(maps.shape[1:]) for maps in alex_features(image.permute(2, 0, 1)[None], layers)] == [
        (4, 16, 21), (5, 7, 10), (6, 3, 4), (5, 3, 4), (4, 3, 4),
    ]  # fmt: skip
    own = measures(image, image, image, None, layers)
    assert own["alex_style"] == own["alex_content"] == 0


@pytest.fixture(scope="module")
def layers():
    """A network of the judge's shape with two or three maps in each layer."""
    counts = [3, 2, 2, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2]
    return [(noise(b, a, 3, 3, seed=k) - 0.45, noise(b, seed=k)) for k, (a, b) in enumerate(itertools.pairwise(counts))]


def test_gatys_moves_the_photo_to_the_painting(quality, layers):
    from style_gatys import gatys
    from style_measures import style_distance, vgg_features

    photo, painting = noise(40, 48, 3), noise(40, 40, 3, seed=1) ** 3
    new = gatys(photo, painting, layers, (24, 48), 8)
    assert new.shape == photo.shape
    seen = [vgg_features(image.permute(2, 0, 1)[None], layers) for image in (new, photo, painting)]
    after, before = (style_distance([maps[1]], [seen[2][1]], centred=False) for maps in seen[:2])
    assert after < 0.8 * before


def test_each_scale_of_gatys_starts_from_the_result_of_the_one_before(quality, layers, monkeypatch):
    import style_gatys

    seen = []

    def marked(start, content, style, *rest):
        seen.append((start, content.shape[2:], style.shape[2:]))
        return torch.full_like(start, len(seen) / 10)

    monkeypatch.setattr(style_gatys, "_minimised", marked)
    photo, painting = noise(32, 48, 3), noise(40, 20, 3, seed=1)
    new = style_gatys.gatys(photo, painting, layers, (12, 24, 48))
    assert [(tuple(content), tuple(style)) for _, content, style in seen] == [
        ((8, 12), (12, 6)), ((16, 24), (24, 12)), ((32, 48), (40, 20)),
    ]  # fmt: skip
    assert seen[0][0].mean() == pytest.approx(float(photo.mean()), abs=0.02)  # the photo, shrunk
    assert [round(float(start.unique()), 4) for start, _, _ in seen[1:]] == [0.1, 0.2]
    assert new.shape == photo.shape
    assert new.unique().tolist() == pytest.approx([0.3])
