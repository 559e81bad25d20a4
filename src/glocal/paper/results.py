"""What images and speech share on the page: figure 5 and the table of section B.3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from glocal.paper.blocks import Figure, Part, Plate, Table
from glocal.paper.figures import Curve, curves
from glocal.paper.runs import Run
from glocal.paper.source import Number, paper

_COLORS = {"pretrain": ("pre-training, local", "blue"), "local": ("local", "green"), "nonlocal": ("non-local", "red")}
_WORDS = {
    "noisy": "before denoising",
    "haar": "Haar, soft threshold",
    "haar-stationary": "Haar, shift-invariant",
    "local": "local network",
    "local-middle": "local network with a local middle layer",
    "nonlocal": "non-local network",
    "gain": "gain of non-local over local",
}


def figure_5(run: Run, *, part: str, name: str, measure: str, wide: bool = True) -> Figure:
    """Draw the validation curves of a run; the ends of epochs are dash-dotted lines."""
    lines = [
        Curve(words, [x for x, _ in run.curves[key]], [y for _, y in run.curves[key]], color)
        for key, (words, color) in _COLORS.items()
        if key in run.curves
    ]
    last = max(x for line in lines for x in line.x)
    ends = [run.epoch * (i + 1) for i in range(int(last // run.epoch))]
    plate: Plate = curves(
        name, lines, x="step", y=f"validation {measure} (dB)", ends=ends, alt=f"Validation curves: {part}, {run.data}"
    )
    caption = (
        f"Mean {measure} on the validation set during training; data: {run.data}. {_which(run)}"
        "Low values at the start are cut off. ",
        *_last(run),
    )
    return Figure(f"Figure 5, {part}: validation curves", [plate], 1, caption, run.source, wide=wide)


def _which(run: Run) -> str:
    """Whose curves are drawn, if the run has several seeds."""
    first, comma, _ = run.source.seed.partition(",")
    return f"Curves of seed {first}. " if comma else ""


def _last(run: Run) -> tuple[Part, ...]:
    """Where each curve ends."""
    parts: list[Part] = []
    for key, (words, _) in _COLORS.items():
        if key in run.curves:
            parts += [
                f"; {words} " if parts else f"At the end: {words} ",
                Number(run.curves[key][-1][1], run.source, unit="dB"),
            ]
    return (*parts, ".")


def table_b3(run: Run, *, title: str, published: Mapping[str, float], unit: str = "dB") -> Table:
    """Return the numbers of section B.3: paper, ours, difference, standard error."""
    theirs = paper("section B.3")
    rows: list[Sequence[Part]] = []
    for method, words in _WORDS.items():
        if method not in run.scores:
            continue
        score, signed = run.scores[method], method == "gain"
        known = published.get(method)
        rows.append(
            (
                words,
                Number(known, theirs, signed=signed) if known is not None else "–",
                Number(score.mean, run.tested, signed=signed),
                Number(score.mean - known, run.tested, signed=True) if known is not None else "–",
                Number(score.error, run.tested, digits=3),
                Number(score.error_seeds, run.tested, digits=3) if score.error_seeds is not None else "–",
            )
        )
    caption = (
        f"Means over the test set, in {unit}. Ours: {run.data}; networks trained by {run.source.text()}. "
        "The standard error is over the test items; that of the gain is of the differences item by item. "
        "A difference to the paper is also one of data, unless the data set is the paper's.",
    )
    head = ("method", "paper", "ours", "difference", "standard error", "over seeds")
    return Table(title, head, rows, caption)
