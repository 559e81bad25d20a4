"""`glocal bench speech`: quality and time of speech denoising compared with the peers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glocal.cli.shell.console import Console, RunOptions
from glocal.errors import ArgumentError
from glocal.options import option


@dataclass(frozen=True)
class SpeechBenchOptions:
    """What is measured, and where the figures go."""

    clean: Path | None = option(None, "A folder of clean recordings.")
    noisy: Path | None = option(None, "A folder with noisy recordings of the same names.")
    noise: tuple[str, ...] = option(
        (), "A folder of noises to add instead, or the word white; may be given several times, each is a set."
    )
    snr: tuple[float, ...] = option(
        (5.0,), "Speech to added noise, in decibels; if given several times, the recordings take turns."
    )
    clips: int | None = option(None, "Only so many recordings, drawn by the seed.", min=1)
    seed: int = option(0, "Draws recordings and noises.", min=0)
    methods: tuple[str, ...] = option((), "Only methods whose names contain this text; may be given several times.")
    output: Path | None = option(None, "Write the figures as JSON.", short="-o")


def speech(options: SpeechBenchOptions, run: RunOptions) -> None:
    """SI-SDR, PESQ, STOI and real-time factor of our models, Wiener, RNNoise and noisereduce on your recordings.

    Give pairs (--clean and --noisy) or mixtures (--clean and --noise). Peers and measures that are not installed are left out;
    `pip install glocal[speech-peers]` brings them.
    """
    if options.clean is None or (options.noisy is None) == (not options.noise):
        raise ArgumentError(
            "bench speech: there is nothing to measure on. Give --clean and --noisy, or --clean and --noise."
        )
    from glocal.bench import speech as bench
    from glocal.bench import timing

    clips, seed = options.clips, options.seed
    compared = {
        name: method
        for name, method in bench.methods().items()
        if not options.methods or any(part in name for part in options.methods)
    }
    if not compared:
        known = ", ".join(bench.methods())
        raise ArgumentError(f"bench speech: `methods` (={options.methods}) fits none. Choose from {known}.")
    if options.noisy is not None:
        conditions = {options.noisy.name: bench.pairs(options.clean, options.noisy, clips=clips, seed=seed)}
    else:
        conditions = {}
        for given in options.noise:
            folder = None if given == "white" else Path(given)
            conditions[Path(given).name] = bench.mixtures(
                options.clean, folder, snr=options.snr, clips=clips, seed=seed
            )
    console = Console(run)
    with console.progress("bench speech") as tell:
        rows = bench.measure(conditions, compared, progress=tell)
    kept: dict[str, Any] = {"benchmark": "speech", "machine": timing.metadata(), "rows": [asdict(row) for row in rows]}
    if options.noisy is None:
        kept |= {"snr": list(options.snr), "seed": seed}
    if options.output is not None:
        timing.write_json(options.output, kept)
    console.result(kept, bench.text(rows))
