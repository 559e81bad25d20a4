"""Show where the graph of the deep denoiser helps and where it does not: crops of shipped pictures, and a page of text.

    python benchmarks/graph_pictures.py docs/pictures/denoise_graph.jpg

Columns: original, noise of 25 of 255, `small` with fixed neighbours (see `graph_controls.py`), `small` with its own graph, and a map:
green where its own graph is closer to the original, red where the fixed neighbours are. The network was trained with its own graph.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from graph_controls import _given, _psnr, _ring, _run
from PIL import Image, ImageDraw, ImageFont
from scipy.ndimage import gaussian_filter

from glocal import samples
from glocal.apps.denoise.models import load_deep
from glocal.graphs.window import window_graph

SIDE, LEVEL, GAP, LINE = 160, 25, 4, 16
CROPS = {  # left and top corner in the picture
    "roofs": ("temple.jpg", 190, 150),
    "girders": ("bridge.jpg", 20, 330),
    "strokes": ("van_gogh_auvers.jpg", 120, 60),
    "out of focus": ("meadow.jpg", 40, 300),
    "fruit": ("citrus.jpg", 300, 260),
}


def page() -> Image.Image:
    """Return a page of text."""
    image = Image.new("L", (SIDE, SIDE), 245)
    sentence = "every layer takes a signal and a graph so that one convolution does local and non-local work"
    words = sentence.split(" ")
    font, draw = ImageFont.load_default(13), ImageDraw.Draw(image)
    for line in range(11):
        text = " ".join(words[(3 * line + k) % len(words)] for k in range(6))
        draw.text((4, 4 + 14 * line), text, fill=20, font=font)
    return image


def main() -> None:
    """Draw one row for each crop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    output = parser.parse_args().output
    crops = {"text": page()}
    for name, (file, left, top) in CROPS.items():
        with Image.open(samples.path(file)) as photo:
            crops[name] = photo.convert("L").crop((left, top, left + SIDE, top + SIDE))
    net, rows = load_deep("small", 1), []
    for number, (name, crop) in enumerate(crops.items()):
        clean = np.asarray(crop) / 255.0
        noisy = clean + np.random.default_rng((number, LEVEL)).normal(0, LEVEL / 255, clean.shape)
        x, truth = (torch.from_numpy(p.astype(np.float32))[None, None] for p in (noisy, clean))
        fixed = _run(net, x, LEVEL / 255, lambda unit, **_: _given(unit, _ring(unit)))
        learned = _run(net, x, LEVEL / 255, window_graph)
        gain = (fixed - truth).square() - (learned - truth).square()
        texts = [
            name,
            *(f"{what} {_psnr(p, truth):.2f}" for what, p in (("noisy", x), ("fixed", fixed), ("learned", learned))),
        ]
        print(texts, flush=True)
        panels = [_gray(p) for p in (truth, x, fixed, learned)] + [_map(gain[0, 0].numpy())]
        rows.append(_row(panels, [*texts, "closer: learned / fixed"]))
    sheet = Image.new("RGB", (rows[0].width, sum(row.height for row in rows)), "white")
    for number, row in enumerate(rows):
        sheet.paste(row, (0, number * row.height))
    sheet.save(output, quality=88)


def _gray(plane: torch.Tensor) -> Image.Image:
    return Image.fromarray(np.rint(255 * plane[0, 0].clamp(0, 1).numpy()).astype(np.uint8)).convert("RGB")


def _map(gain: np.ndarray) -> Image.Image:
    """Green for a gain, red for a loss, averaged over a few pixels."""
    smooth = gaussian_filter(gain, 2) / (10 / 255) ** 2
    red, green = np.clip(-smooth, 0, 1), np.clip(smooth, 0, 1)
    colours = np.stack([1 - green, 1 - red, 1 - np.maximum(red, green)], -1)
    return Image.fromarray(np.rint(255 * colours).astype(np.uint8))


def _row(panels: list[Image.Image], texts: list[str]) -> Image.Image:
    row = Image.new("RGB", (len(panels) * (SIDE + GAP), SIDE + LINE + GAP), "white")
    for k, (panel, text) in enumerate(zip(panels, texts, strict=True)):
        row.paste(panel, (k * (SIDE + GAP), LINE))
        ImageDraw.Draw(row).text((k * (SIDE + GAP) + 2, 1), text, fill="black")
    return row


if __name__ == "__main__":
    main()
