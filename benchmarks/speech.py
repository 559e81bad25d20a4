"""Compare speech denoisers: the paper's table, all methods at its noise level, and SI-SDR at several levels.

    python benchmarks/speech.py NAME=FOLDER [NAME=FOLDER ...] --runs RUN0 RUN1 RUN2     measure and write the docs
    python benchmarks/speech.py --docs-only                                             tables and figures from results

A FOLDER is read by `glocal.apps.speech.data.load_speech`; RUN folders come from `glocal train speech`, one per seed.
Results go to benchmarks/results/speech.json, tables and figures to docs/.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glocal.apps.speech.data import load_speech
from glocal.apps.speech.evaluate import compare_all, compare_colours, compare_levels, compare_paper, tune_wiener

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "speech.json"
CURVES = HERE / "results" / "speech_training.json"
GRAPHS = HERE / "results" / "frames_graph.json"
PAGE = HERE.parent / "docs" / "speech.md"
PICTURES = HERE.parent / "docs" / "pictures"
LEVELS = (-5.0, 0.0, 5.0, 10.0, 15.0)


def measure(name: str, folder: Path, options: argparse.Namespace) -> None:
    """Run the comparisons `options.parts` on one data set and add them to the results."""
    data = load_speech(folder)
    few = replace(data, test=data.test[:: options.every])
    found = json.loads(options.results.read_text()) if options.results.exists() else {"sets": {}}
    found |= {"machine": platform.machine(), "torch": torch.__version__}
    entry = found["sets"].setdefault(name, {})
    entry["clips"] = len(data.test)
    if "paper" in options.parts:
        entry["paper"] = [asdict(s) for s in compare_paper(data, runs=options.runs)]
    if "tune" in options.parts:
        entry["wiener"] = tune_wiener(data)
    tuned = (int(entry["wiener"][0]), float(entry["wiener"][1])) if "wiener" in entry else None
    if "levels" in options.parts:
        scores = compare_levels(few, LEVELS, tuned=tuned)
        entry["levels"] = {str(level): [asdict(s) for s in row] for level, row in scores.items()}
        entry["levels_clips"] = len(few.test)
    if "all" in options.parts:
        entry["all"] = [asdict(s) for s in compare_all(few, tuned=tuned)]
        entry["all_clips"] = len(few.test)
    if "colours" in options.parts:
        entry["colours"] = {c: [asdict(s) for s in row] for c, row in compare_colours(few).items()}
        entry["colours_clips"] = len(few.test)
    options.results.parent.mkdir(exist_ok=True)
    options.results.write_text(json.dumps(found, indent=1) + "\n")


def speed(seconds: int = 60) -> float:
    """Measure seconds of sound per second of work on one core: the best of 5 runs of `frames`.

    Work is the CPU time of one thread, which depends little on other jobs. Two idle cores are faster.
    """
    from glocal import denoise_speech

    torch.set_num_threads(1)
    sound = np.random.default_rng(0).standard_normal(16000 * seconds).astype(np.float32) * 0.1
    denoise_speech(sound[:16000], 16000, model="frames")
    taken = []
    for _ in range(5):
        start = time.process_time()
        denoise_speech(sound, 16000, model="frames")
        taken.append(time.process_time() - start)
    return seconds / min(taken)


def tables(found: dict[str, Any], graphs: dict[str, Any] | None = None) -> str:
    """Format all tables as Markdown, for each set those that were measured. `graphs` has the results of frames_graph.py."""
    makers = {"paper": paper_table, "all": all_table, "levels": levels_table, "colours": colours_table}
    parts = [makers[part](name, entry) for name, entry in found["sets"].items() for part in makers if part in entry]
    parts += [graph_table(name, entry, graphs["steps"]) for name, entry in graphs["sets"].items()] if graphs else []
    return "\n".join(parts)


def paper_table(name: str, entry: dict[str, Any]) -> str:
    """SNR of the paper's methods."""
    title = f"**{name}**, {entry['clips']} clips, sigma 0.12, SNR in dB (standard error over clips / over seeds)"
    rows = [
        [s["method"], f"{s['mean']:.2f}", f"{s['error']:.2f} / {s['error_seeds'] or 0:.3f}"] for s in entry["paper"]
    ]
    return _markdown(title, ["method", "SNR", "error"], rows)


def all_table(name: str, entry: dict[str, Any]) -> str:
    """All methods and measures at the paper's noise."""
    title = f"**{name}**, {entry['all_clips']} clips, the same noise, all methods (standard error over clips)"
    by = {(s["method"], s["measure"]): s for s in entry["all"]}
    digits = {"SNR": 2, "SI-SDR": 2, "STOI": 3, "PESQ": 2}
    rows = [
        [method, *(f"{by[method, m]['mean']:.{d}f} ({by[method, m]['error']:.{d}f})" for m, d in digits.items())]
        for method in dict.fromkeys(method for method, _ in by)
    ]
    return _markdown(title, ["method", *digits], rows)


def levels_table(name: str, entry: dict[str, Any]) -> str:
    """SI-SDR by the SNR of the input."""
    title = f"**{name}**, {entry['levels_clips']} clips, SI-SDR in dB by the SNR of the input, white noise"
    return _by_level(title, entry["levels"], errors=lambda method: " - " in method)


def colours_table(name: str, entry: dict[str, Any]) -> str:
    """SI-SDR in coloured noise."""
    title = f"**{name}**, {entry['colours_clips']} clips, SI-SDR in dB, coloured noise at 5 dB (error over clips)"
    columns = list(zip(*entry["colours"].values(), strict=True))
    rows = [[row[0]["method"], *(f"{s['mean']:.2f} ({s['error']:.2f})" for s in row)] for row in columns]
    return _markdown(title, ["method", *entry["colours"]], rows)


def graph_table(name: str, entry: dict[str, Any], steps: int) -> str:
    """`frames` with the graph of similar frames and with the local graph in time."""
    title = (
        f"**{name}**, {entry['clips']} clips, `frames` after {steps:,} steps with one graph or the other, SI-SDR in dB"
    )
    return _by_level(title, entry["levels"], errors=lambda method: method == "difference", digits=3)


def _by_level(
    title: str, levels: dict[str, list[dict[str, Any]]], errors: Callable[[str], bool], digits: int = 2
) -> str:
    rows = []
    for row in zip(*levels.values(), strict=True):
        method = row[0]["method"]
        rows.append(
            [
                method,
                *(f"{s['mean']:.{digits}f}" + (f" ({s['error']:.{digits}f})" if errors(method) else "") for s in row),
            ]
        )
    return _markdown(title, ["method", *(f"{float(level):g} dB" for level in levels)], rows)


def _markdown(title: str, head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([title, "", lines[0], "|---" * len(head) + "|", *lines[1:]]) + "\n"


def write_page(found: dict[str, Any]) -> None:
    """Write the tables between the marks of docs/speech.md."""
    page = PAGE.read_text(encoding="utf-8")
    start, end = "<!-- tables: made by benchmarks/speech.py -->\n", "<!-- end of tables -->"
    before, _, rest = page.partition(start)
    graphs = json.loads(GRAPHS.read_text()) if GRAPHS.exists() else None
    PAGE.write_text(
        before + start + "\n" + tables(found, graphs) + "\n" + end + rest.partition(end)[2], encoding="utf-8"
    )


def draw_curves() -> None:
    """Draw the validation SNR of both networks during training, three seeds."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.4), layout="constrained")
    for kind, color in (("local", "tab:green"), ("nonlocal", "tab:red")):
        for seed, records in enumerate(json.loads(CURVES.read_text())[kind]):
            steps, values = [r[0] for r in records], [r[1] for r in records]
            axes.plot(steps, values, color=color, lw=1, label=kind if seed == 0 else None)
    axes.set(xlabel="step", ylabel="validation SNR (dB)", ylim=(5.5, None))
    axes.legend()
    figure.savefig(PICTURES / "speech_curves.png", dpi=110)


def main() -> None:
    """Measure, or only draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="NAME=FOLDER")
    parser.add_argument("--runs", nargs="*", type=Path, default=[])
    parser.add_argument("--speed", action="store_true", help="also measure the speed")
    parser.add_argument("--parts", nargs="*", default=["paper", "tune", "levels", "all", "colours"])
    parser.add_argument("--every", type=int, default=1, help="use every so manyth test clip but for the paper's table")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--measure-only", action="store_true")
    parser.add_argument("--docs-only", action="store_true")
    options = parser.parse_args()
    for one in () if options.docs_only else options.sets:
        name, _, folder = one.partition("=")
        measure(name, Path(folder), options)
    if options.measure_only:
        return
    found = json.loads(RESULTS.read_text())
    if options.speed:
        found["real_time"] = speed()
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    PICTURES.mkdir(exist_ok=True)
    write_page(found)
    draw_curves()


if __name__ == "__main__":
    main()
