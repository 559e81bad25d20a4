"""The spectrograms of a sound before and after denoising, as one picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.apps.speech.blocks import Rows
from glocal.errors import needed

_COLUMNS = 1024
_RANGE = 80  # decibels between black and white


def check_plotting() -> None:
    """Refuse to start where matplotlib is missing."""
    needed("matplotlib.figure", "speech: `plot`", "plot")


class Spectrogram:
    """Mean power over time and frequency of rows (m, c) that arrive in pieces. Memory: constant.

    Frames of 32 ms follow each other; where they are more than 2048, pairs of columns are averaged again and again.
    """

    def __init__(self, rate: int) -> None:
        self.rate, self.size = rate, max(16, round(0.032 * rate))
        self.window = np.hanning(self.size + 2)[1:-1]
        self.waiting = Rows()
        self.columns: list[NDArray[np.float64]] = []
        self.open: list[NDArray[np.float64]] = []  # frames of the column that is not full yet
        self.frames = 1  # in a column

    def push(self, rows: NDArray[Any]) -> None:
        """Take the next rows."""
        self.waiting.push(rows)
        while self.waiting.count >= self.size:
            frame = self.waiting.take(self.size) * self.window[:, None]
            self.open.append(np.square(np.abs(np.fft.rfft(frame, axis=0))).mean(1))
            if len(self.open) == self.frames:
                self.columns.append(np.mean(self.open, axis=0))
                self.open = []
            if len(self.columns) == 2 * _COLUMNS:
                pairs = zip(self.columns[::2], self.columns[1::2], strict=True)
                self.columns = [(a + b) / 2 for a, b in pairs]
                self.frames *= 2

    def decibels(self) -> NDArray[np.float64]:
        """Return the power in decibels, (bins, columns); at least one column."""
        columns = [*self.columns, *([np.mean(self.open, axis=0)] if self.open else [])]
        power = np.stack(columns or [np.zeros(self.size // 2 + 1)], axis=1)
        return np.asarray(10 * np.log10(power + 1e-12))

    @property
    def seconds(self) -> float:
        """Return how much sound the columns show."""
        return max(1, len(self.columns) * self.frames + len(self.open)) * self.size / self.rate


def before_and_after(before: Spectrogram, after: Spectrogram) -> NDArray[np.uint8]:
    """Draw two spectrograms one above the other with one scale of colours, (h, w, 3)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.4), dpi=120, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    top = float(before.decibels().max())
    all_axes = figure.subplots(2, 1, sharex=True)
    for axes, name, found in zip(all_axes, ("before", "after"), (before, after), strict=True):
        image = axes.imshow(
            found.decibels(), origin="lower", aspect="auto", cmap="magma", vmin=top - _RANGE, vmax=top,
            extent=(0, found.seconds, 0, found.rate / 2000),
        )  # fmt: skip
        axes.set(title=name, ylabel="kHz")
    all_axes[-1].set_xlabel("s")
    figure.colorbar(image, ax=list(all_axes), label="dB")
    canvas.draw()
    return np.ascontiguousarray(np.asarray(canvas.buffer_rgba())[..., :3])
