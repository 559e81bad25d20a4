"""Plots, drawn twice by matplotlib: once for a light page and once for a dark one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glocal.errors import needed
from glocal.paper.blocks import Array, Part, Plate

# Background and ink: the colours of a block in page.html.j2.
_THEMES = (("#f3f3f0", "#1c2024"), ("#1e2226", "#e6e6e2"))
COLORS = {"blue": "#3987c9", "green": "#2f9e5b", "red": "#d9534f", "gray": "#8a9299"}


@dataclass(frozen=True)
class Curve:
    """One line of a plot: its name in the legend, its points, and its colour (a key of `COLORS`)."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    color: str = "blue"


def curves(
    name: str,
    lines: Sequence[Curve],
    *,
    x: str,
    y: str,
    alt: str,
    ends: Sequence[float] = (),
    span: float = 2.5,
    caption: tuple[Part, ...] = (),
) -> Plate:
    """Plot lines over one pair of axes; `ends` are dash-dotted vertical lines (the ends of epochs in figure 5).

    What lies more than `span` below the highest point is cut off, so that differences at the end can be seen.

    Raises
    ------
    MissingDependencyError
        matplotlib is not installed.
    """

    def draw(axes: Any, ink: str) -> None:
        for end in ends:
            axes.axvline(end, color=ink, linestyle="-.", linewidth=0.7, alpha=0.6)
        for line in lines:
            axes.plot(line.x, line.y, color=COLORS[line.color], label=line.label, linewidth=1.5)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        top = max(max(line.y) for line in lines)
        if min(min(line.y) for line in lines) < top - span:
            axes.set_ylim(top - span, top + 0.08 * span)
        axes.legend(labelcolor=ink, loc="lower right", facecolor=axes.get_facecolor(), edgecolor="none", framealpha=0.9)

    light, dark = plotted(draw)
    return Plate(name, light, alt, caption, dark)


def check_plotting() -> None:
    """Refuse to start where matplotlib is missing.

    Raises
    ------
    MissingDependencyError
        It is not installed.
    """
    needed("matplotlib.figure", "reproduce: the page", "plot")


def plotted(
    draw: Callable[[Any, str], None], *, size: tuple[float, float] = (5.2, 3.4), dpi: int = 200
) -> tuple[Array, Array]:
    """Call `draw(axes, ink)` for a light and for a dark page and return the two pictures, `dpi` pixels to the inch.

    `size` is small so that the letters stay readable on a telephone.
    """
    check_plotting()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    pictures = []
    for paper, ink in _THEMES:
        figure = Figure(figsize=size, dpi=dpi, facecolor=paper, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        axes = figure.subplots()
        axes.set_facecolor(paper)
        axes.tick_params(colors=ink)
        axes.xaxis.label.set_color(ink)
        axes.yaxis.label.set_color(ink)
        for side, spine in axes.spines.items():
            spine.set_color(ink)
            spine.set_visible(side in ("left", "bottom"))
        draw(axes, ink)
        canvas.draw()
        pictures.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())
    return pictures[0], pictures[1]
