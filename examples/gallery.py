"""Draw the gallery of the README: the four tasks on the samples of glocal, before and after.

python examples/gallery.py docs/pictures/gallery.jpg [--size 448]
python examples/gallery.py docs/pictures/style_paintings.jpg --paintings [--preset patches] [--device cuda]

The script adds the noise with a fixed seed: sigma 25 of 255 to the photo, and white noise at 5 dB to the sentence.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import glocal
from glocal import samples
from glocal.apps.style.options import DEFAULT_PRESET, Preset

PAINTINGS = ("van_gogh_auvers", "van_gogh_starry_night", "munch_scream", "turner_shipwreck", "monet_water_lilies")
PHOTOS = ("bridge", "temple", "citrus", "mountains")
_GAP, _LABEL = 8, 22


def tiles(size: int) -> list[tuple[str, list[Any]]]:
    """Return the rows of the sheet: a title, then pictures (h, w, 3) uint8 of equal height."""
    bridge, painting = _photo("bridge.jpg", size), _photo("van_gogh_starry_night.jpg", size)
    temple = _photo("temple.jpg", size)
    citrus = _photo("citrus.jpg", size)
    noisy = citrus / 255 + np.random.default_rng(0).normal(0, 25 / 255, citrus.shape)
    speech, rate = _sentence()
    loud = speech + np.random.default_rng(0).normal(0, float(speech.std()) * 10 ** (-5 / 20), speech.shape)
    clean = glocal.denoise_speech(loud.astype(np.float32), rate)
    return [
        ("style: photo, painting, result", [bridge, painting, glocal.stylize(bridge, painting, size=size).image]),
        ("colour: photo, reference, result", [temple, bridge, glocal.recolor(temple, bridge).image]),
        ("photo: with noise, denoised", [_bytes(noisy), _bytes(np.asarray(glocal.denoise(noisy, 25 / 255).image))]),
        ("speech: with noise, denoised", [_spectrogram(loud), _spectrogram(np.asarray(clean.audio))]),
    ]


def paintings(size: int, preset: Preset, device: str = "cpu") -> list[tuple[str, list[Any]]]:
    """One row per photo: the photo, then its result with each painting. The first row shows the paintings."""
    every = [_photo(f"{name}.jpg", size) for name in PAINTINGS]
    rows = [("photo, then the paintings", [np.full_like(_square(every[0]), 255), *map(_square, every)])]
    for name in PHOTOS:
        photo = _photo(f"{name}.jpg", size)
        results = [glocal.stylize(photo, painting, preset=preset, size=size, device=device).image for painting in every]
        rows.append((f"{name}, preset {preset}", [photo, *results]))
    return rows


def _square(picture: Any) -> Any:
    side = min(picture.shape[:2])
    top, left = ((length - side) // 2 for length in picture.shape[:2])
    return picture[top : top + side, left : left + side]


def sheet(rows: list[tuple[str, list[Any]]], width: int) -> Image.Image:
    """Stack the rows, each `width` wide, with their titles above them."""
    drawn = []
    for title, pictures in rows:
        height = min(len(p) for p in pictures)
        fitted = [Image.fromarray(p).resize((round(p.shape[1] * height / len(p)), height)) for p in pictures]
        total = sum(p.width for p in fitted)
        scale = (width - _GAP * (len(fitted) - 1)) / total
        drawn.append((title, [p.resize((round(p.width * scale), round(height * scale))) for p in fitted]))
    page = Image.new("RGB", (width, sum(_LABEL + p[0].height + _GAP for _, p in drawn)), "white")
    pen, top = ImageDraw.Draw(page), 0
    for title, pictures in drawn:
        pen.text((2, top + 3), title, fill="black", font=ImageFont.load_default(14))
        left, top = 0, top + _LABEL
        for picture in pictures:
            page.paste(picture, (left, top))
            left += picture.width + _GAP
        top += pictures[0].height + _GAP
    return page


def _photo(name: str, size: int) -> Any:
    picture = Image.open(samples.path(name)).convert("RGB")
    picture.thumbnail((size, size))
    return np.asarray(picture)


def _sentence() -> tuple[Any, int]:
    import soundfile

    return soundfile.read(samples.path("speech.wav"), dtype="float32")  # type: ignore[no-any-return]


def _bytes(picture: Any) -> Any:
    return np.round(np.clip(picture, 0, 1) * 255).astype(np.uint8)


def _spectrogram(sound: Any) -> Any:
    import matplotlib

    cells = np.lib.stride_tricks.sliding_window_view(sound, 512)[::96] * np.hanning(512)
    level = 20 * np.log10(np.abs(np.fft.rfft(cells)) + 1e-6).T[::-1]
    shade = np.clip((level + 60) / 75, 0, 1)
    return _bytes(matplotlib.colormaps["magma"](shade)[..., :3])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--size", type=int, default=448)
    parser.add_argument(
        "--paintings", action="store_true", help="the photos in all paintings instead of the four tasks"
    )
    parser.add_argument("--preset", default=DEFAULT_PRESET)
    parser.add_argument("--device", default="cpu", help="where to paint the photos in all paintings")
    given = parser.parse_args()
    rows = paintings(given.size, given.preset, given.device) if given.paintings else tiles(given.size)
    sheet(rows, 1500 if given.paintings else 900).save(given.output, quality=84 if given.paintings else 88)
