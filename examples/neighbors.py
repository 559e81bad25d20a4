"""Draw the neighbours of a few pixels on a photo: the local graph (yellow) and the non-local one (red)."""

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw

import glocal
from glocal.color_space import lab_from_rgb

SIDE = 256


def main() -> None:
    """Build both graphs of a photo and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photo", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("neighbors.png"))
    options = parser.parse_args()
    with Image.open(options.photo) as file:
        photo = file.convert("RGB").resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    lab = lab_from_rgb(torch.from_numpy(np.asarray(photo, dtype=np.float32) / 255))
    graphs = {
        "yellow": glocal.grid_graph((SIDE, SIDE), size=5),
        "red": glocal.patch_graph(lab, k=25, patch=3, coords=0.3),
    }
    zoom = 3
    picture = photo.resize((zoom * SIDE, zoom * SIDE), Image.Resampling.LANCZOS)
    draw = ImageDraw.Draw(picture)
    for y, x in ((60, 60), (128, 40), (150, 128), (200, 180), (100, 210), (230, 90)):
        for color, graph in graphs.items():
            for j in graph.neighbors[y * SIDE + x].tolist():
                top, left = zoom * (j // SIDE), zoom * (j % SIDE)
                draw.rectangle((left, top, left + zoom - 1, top + zoom - 1), fill=color)
                if color == "red":
                    draw.line((zoom * x + 1, zoom * y + 1, left + 1, top + 1), fill=color)
        draw.ellipse((zoom * x - 4, zoom * y - 4, zoom * x + 6, zoom * y + 6), outline="white", width=2)
    picture.save(options.output)
    print(f"wrote {options.output}: {graphs['red']}")


if __name__ == "__main__":
    main()
