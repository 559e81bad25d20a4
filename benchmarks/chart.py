"""Draw the stored ratios: `python benchmarks/chart.py docs/pictures` writes bench.png and bench_short.png.

The first has every row with a target. The second is for the README: one row for each kind of work, without targets, and
legible on a light and on a dark page.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
# Label in the short chart: the beginning of the work, and the peer.
SHORT = {
    "similar patches of a photo, exact": ("style graph", "scipy cKDTree"),
    "similar patches of another photo, exact": ("another picture, 256x256, patch 7, k=8", "FAISS IndexFlatL2"),
    "similar patches of a video": ("video graph", "torch, shift by shift"),
    "layer on a graph": ("GraphConv 3->50, n=65536, d=25: x, filters", "torch indexing"),
    "layer on a graph ": ("GraphConv 3->50, n=65536, d=25: x, filters", "PyTorch Geometric"),
    "layer on a grid, 3 to 50 channels, 5x5": ("GraphConv 3->50 on a 256x256 grid", "torch conv2d"),
    "layer on a grid, 64 to 64 channels, 3x3": ("GraphConv 64->64 on a 256x256 grid, 3x3", "torch conv2d"),
    "style transfer, the whole run": ("style transfer", "plain PyTorch"),
}
_INK = "#7d8590"  # on white and on black


def main() -> None:
    """Read graph.json, conv.json and style.json, and draw both charts."""
    import matplotlib

    matplotlib.use("Agg")
    folder = Path(sys.argv[1])
    stored = [
        row for name in ("graph", "conv", "style") for row in json.loads((RESULTS / f"{name}.json").read_text())["rows"]
    ]
    draw_all([row for row in reversed(stored) if row["target"] and row["ratio"]], folder / "bench.png")
    draw_short(stored, folder / "bench_short.png")


def draw_all(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw every row with its target."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 0.42 * len(rows) + 0.8), dpi=110)
    reached = ["#2a7f62" if row["ratio"] >= row["target"] else "#b5482e" for row in rows]
    axes.barh(range(len(rows)), [row["ratio"] for row in rows], color=reached, height=0.6)
    for place, row in enumerate(rows):
        axes.plot([row["target"]] * 2, [place - 0.38, place + 0.38], color="black", linewidth=2)
        axes.text(max(row["ratio"], row["target"]) * 1.06, place, f"{row['ratio']:.1f}x", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [f"{row['work']} / {row['peer']}" for row in rows], fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(0.8, 200)
    axes.set_xlabel("peer's figure / ours; black: the target", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def draw_short(stored: list[dict[str, Any]], path: Path) -> None:
    """Draw one row for each entry of `SHORT`."""
    from matplotlib import pyplot

    found = []
    for label, (work, peer) in reversed(SHORT.items()):
        row = next(row for row in stored if row["work"].startswith(work) and row["peer"] == peer)
        found.append((f"{label.strip()}, compared with {peer.removeprefix('scipy ')}", row["ratio"]))
    figure, axes = pyplot.subplots(figsize=(9, 2.9), dpi=110)
    axes.barh(range(len(found)), [ratio for _, ratio in found], color="#2a7f62", height=0.62)
    for place, (_, ratio) in enumerate(found):
        axes.text(ratio * 1.06, place, f"{ratio:.1f} times as fast" if place == len(found) - 1 else f"{ratio:.1f}",
                  va="center", fontsize=9, color=_INK)  # fmt: skip
    axes.set_yticks(range(len(found)), [label for label, _ in found], fontsize=9, color=_INK)
    axes.set_xscale("log")
    axes.set_xlim(1, 200)
    axes.xaxis.set_visible(False)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.spines["left"].set_color(_INK)
    axes.tick_params(axis="y", color=_INK)
    figure.tight_layout()
    figure.savefig(path, transparent=True)


if __name__ == "__main__":
    main()
