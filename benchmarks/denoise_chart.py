"""Draw PSNR against time for the denoisers, from the stored results.

    python benchmarks/denoise_chart.py [docs/pictures/denoise_chart.svg]

Measured: PSNR on Set12 at noise 25 (`denoise.json`, `deep_scores.json`) and seconds for a megapixel on two cores (`denoise.json`, and
`deep_speed.json` for the deep networks). DnCNN has its published PSNR and the time that was measured here. Other published figures
have no time of ours, so they are drawn as lines.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
OUT = Path(__file__).parent.parent / "docs/pictures/denoise_chart.svg"
_WIDE, _HIGH, _LEFT, _TOP, _RIGHT, _BOTTOM = 760, 430, 60, 20, 230, 50
_SECONDS, _PSNR = (0.02, 40.0), (25.5, 31.2)
_LABELLED_LEFT = {"NL-means (scikit-image)", "nonlocal", "small", "DnCNN (published PSNR)"}
_OURS = {"local", "nonlocal", "wide", "small", "large"}


def points() -> tuple[list[tuple[str, float, float]], list[tuple[str, float]]]:
    """Return (name, seconds for a megapixel, PSNR) of all that were timed here, and (name, PSNR) of the others."""
    kept: dict[str, Any] = {
        name: json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("denoise", "deep_scores", "deep_speed")
    }
    rows = [row for row in kept["denoise"]["rows"] if (row["set"], row["level"]) == ("Set12", 25)]
    found = {
        row["method"]: (row["seconds_per_megapixel"], row["psnr"]) for row in rows if "scaled" not in row["method"]
    }
    megapixels = kept["deep_speed"]["side"] ** 2 / 1e6
    times = {name: seconds / megapixels for name, seconds in kept["deep_speed"]["seconds"].items()}
    for row in kept["deep_scores"]["rows"]:
        if row["set"] == "Set12":
            found[row["model"]] = (times[row["model"]], row["psnr"][1])
    lines = []
    for other in kept["deep_scores"]["published"]:
        name = other["model"].split(",")[0]
        if name.startswith("DnCNN"):
            found["DnCNN (published PSNR)"] = (times["DnCNN"], other["Set12"][1])
        elif name not in found:
            lines.append((f"{name} (published)", other["Set12"][1]))
    found.pop("noisy", None)
    return [(name, *place) for name, place in found.items()], lines


def drawing(places: list[tuple[str, float, float]], lines: list[tuple[str, float]]) -> str:
    """Return the chart as SVG."""

    def x(seconds: float) -> float:
        share = math.log(seconds / _SECONDS[0]) / math.log(_SECONDS[1] / _SECONDS[0])
        return _LEFT + share * (_WIDE - _LEFT - _RIGHT)

    def y(psnr: float) -> float:
        return _TOP + (_PSNR[1] - psnr) / (_PSNR[1] - _PSNR[0]) * (_HIGH - _TOP - _BOTTOM)

    right, bottom = _WIDE - _RIGHT, _HIGH - _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {_HIGH}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDE}" height="{_HIGH}" fill="white"/>',
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="black"/>',
        f'<text x="{(_LEFT + right) / 2}" y="{_HIGH - 12}" text-anchor="middle">seconds for a megapixel, two cores</text>',
        f'<text x="{_LEFT - 45}" y="{_TOP - 6}">PSNR in dB, Set12 at noise 25</text>',
    ]
    for seconds in (0.1, 1.0, 10.0):
        parts.append(f'<path d="M{x(seconds):.1f} {bottom}v5" stroke="black"/>')
        parts.append(f'<text x="{x(seconds):.1f}" y="{bottom + 18}" text-anchor="middle">{seconds:g}</text>')
    for psnr in range(26, 32):
        parts.append(f'<path d="M{_LEFT} {y(psnr):.1f}h-5" stroke="black"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y(psnr) + 4:.1f}" text-anchor="end">{psnr}</text>')
    for name, psnr in lines:
        parts.append(f'<path d="M{_LEFT} {y(psnr):.1f}H{right}" stroke="gray" stroke-dasharray="4 4"/>')
        parts.append(f'<text x="{right + 6}" y="{y(psnr) + 4:.1f}" fill="gray">{name} {psnr:.2f}</text>')
    for name, seconds, psnr in places:
        color = "#c03030" if name in _OURS else "#3060a0"
        parts.append(f'<circle cx="{x(seconds):.1f}" cy="{y(psnr):.1f}" r="4" fill="{color}"/>')
        left = name in _LABELLED_LEFT
        place = f'x="{x(seconds) + (-7 if left else 7):.1f}" y="{y(psnr) + 4:.1f}"'
        parts.append(f'<text {place} fill="{color}" text-anchor="{"end" if left else "start"}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    out.write_text(drawing(*points()), encoding="utf-8")
    print(out)
