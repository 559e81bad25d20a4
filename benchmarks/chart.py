"""Draw the stored ratios compared with their targets: `python benchmarks/chart.py docs/pictures/bench.png`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Read graph.json, conv.json and style.json, and draw every row that has a target."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    stored = [
        row for name in ("graph", "conv", "style") for row in json.loads((RESULTS / f"{name}.json").read_text())["rows"]
    ]
    rows = [row for row in reversed(stored) if row["target"] and row["ratio"]]
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
    figure.savefig(sys.argv[1])


if __name__ == "__main__":
    main()
