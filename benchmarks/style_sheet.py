"""Put results of `style_quality.py` on one sheet: one row per pair; photo, painting and one column per variant.

    python benchmarks/style_sheet.py OUT.jpg --pictures FOLDER --sheets FOLDER --variants preset [--pairs ...] [--width 300] [--across 2]

`--across` is the number of pairs side by side.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from PIL import Image, ImageDraw
from style_quality import PAIRS, read

GAP, LINE = 6, 14


def tile(image: Image.Image, width: int, height: int, text: str) -> Image.Image:
    """Place an image in a box, with a line of text above."""
    scaled = image.convert("RGB")
    factor = min(width / scaled.width, height / scaled.height)
    scaled = scaled.resize((round(scaled.width * factor), round(scaled.height * factor)), Image.Resampling.LANCZOS)
    box = Image.new("RGB", (width + GAP, height + LINE + GAP), "white")
    box.paste(scaled, ((width - scaled.width) // 2, LINE))
    ImageDraw.Draw(box).text((2, 1), text, fill="black")
    return box


def beside(tiles: list[Image.Image]) -> Image.Image:
    """Images in a row."""
    row = Image.new("RGB", (sum(t.width for t in tiles), max(t.height for t in tiles)), "white")
    x = 0
    for one in tiles:
        row.paste(one, (x, 0))
        x += one.width
    return row


def above(rows: list[Image.Image]) -> Image.Image:
    """Images in a column."""
    sheet = Image.new("RGB", (max(r.width for r in rows), sum(r.height for r in rows)), "white")
    y = 0
    for one in rows:
        sheet.paste(one, (0, y))
        y += one.height
    return sheet


def main() -> None:
    """Read the arguments and write the sheet, in the best quality that keeps it under 390 kB."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("--sheets", type=Path, required=True)
    parser.add_argument("--variants", default="preset")
    parser.add_argument("--pairs", default=",".join(PAIRS))
    parser.add_argument("--width", type=int, default=300)
    parser.add_argument("--across", type=int, default=1)
    parser.add_argument("--no-inputs", action="store_true", help="leave out photo and painting")
    arguments = parser.parse_args()
    rows = []
    for pair in arguments.pairs.split(","):
        inputs = [Image.fromarray(read(arguments.pictures, name)) for name in pair.split("/")]
        height = round(arguments.width * inputs[0].height / inputs[0].width)
        shown = [] if arguments.no_inputs else list(zip(inputs, pair.split("/"), strict=True))
        for name in arguments.variants.split(","):
            path = arguments.sheets / f"{pair.replace('/', '+')}+{name.replace(' ', '_')}.jpg"
            shown.append((Image.open(path), name))
        rows.append(beside([tile(image, arguments.width, height, text) for image, text in shown]))
    sheet = above([beside(rows[k : k + arguments.across]) for k in range(0, len(rows), arguments.across)])
    for quality in range(90, 30, -4):
        sheet.save(arguments.output, quality=quality, optimize=True)
        if arguments.output.stat().st_size < 390_000:
            break


if __name__ == "__main__":
    main()
