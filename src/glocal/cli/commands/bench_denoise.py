"""`glocal bench denoise`: quality and time of denoising compared with peers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from glocal.cli.shell.console import Console, RunOptions
from glocal.errors import ArgumentError
from glocal.options import option


@dataclass(frozen=True)
class DenoiseBenchOptions:
    """What is measured, and where the figures go."""

    data: tuple[Path, ...] = option((), "A folder of pictures, such as Set12; may be given several times.")
    color: bool = option(False, "Keep the colours of the pictures; else they are made gray.")
    pairs: tuple[Path, ...] = option(
        (), "A folder of real pairs, A_real.jpg (noisy) and A_mean.jpg; may be given several times."
    )
    methods: tuple[str, ...] = option((), "Only methods whose names contain this text; may be given several times.")
    quick: bool = option(False, "Measure on one of the shipped photos if --data names no folder.")
    first: int | None = option(None, "Only the first so many pictures of each folder.")
    output: Path | None = option(None, "Write the figures as JSON.", short="-o")


def denoise(options: DenoiseBenchOptions, run: RunOptions) -> None:
    """Measure PSNR, SSIM and time on pictures with noise of 15, 25 and 50 of 255, compared with scikit-image and BM3D.

    On real pairs every model estimates the noise by itself.

    Rows marked "0.07 scaled" use the paper's one level and homogeneity; the others use the network of the nearest level.
    """
    import functools

    from glocal.apps.denoise.image import denoise as remove_noise
    from glocal.apps.denoise.models import SHIPPED
    from glocal.apps.denoise.options import MODELS
    from glocal.bench import denoise as bench
    from glocal.bench import timing
    from glocal.samples import path as sample

    if not options.data and not options.pairs and not options.quick:
        raise ArgumentError(
            "bench denoise: there is no picture to measure on. Name folders with --data or --pairs, or use --quick."
        )
    folders = options.data or (() if options.pairs else (sample("bridge.jpg").parent,))
    first = 1 if options.quick and not (options.data or options.pairs) else options.first

    def ours(noisy: bench.Array, sigma: float, model: str) -> bench.Array:
        found: bench.Array = remove_noise(noisy, sigma, model=model).image
        return found

    methods = bench.peers()
    for name in ("local", "nonlocal"):
        scaled = str(SHIPPED / f"image-{name}.safetensors")
        methods[f"{name}, 0.07 scaled"] = functools.partial(ours, model=scaled)
    methods |= {name: functools.partial(ours, model=name) for name in MODELS if name != "photo"}

    def wanted(name: str) -> bool:
        return not options.methods or any(part in name for part in options.methods)

    def blind(noisy: bench.Array, model: str) -> bench.Array:
        found: bench.Array = remove_noise(noisy, model=model).image
        return found

    methods = {name: work for name, work in methods.items() if wanted(name)}
    blinds = {name: functools.partial(blind, model=name) for name in ("auto", *MODELS) if wanted(name)}
    console = Console(run)
    with console.progress("bench denoise") as tell:
        scores = bench.run(folders, methods, color=options.color, first=first, progress=tell)
        scores += bench.run_pairs(options.pairs, {"noisy": lambda noisy: noisy, **blinds}, first=first, progress=tell)
    kept = {"benchmark": "denoise", "machine": timing.metadata(), "rows": [asdict(score) for score in scores]}
    if options.output is not None:
        timing.write_json(options.output, kept)
    console.result(kept, bench.text(scores))
