"""`glocal train image`: the denoising networks from a folder of photos."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.apps.denoise.options import DataOptions, DeepTrainOptions, TrainOptions
from glocal.atomic import make_folder
from glocal.cli.shell.console import Console, RunOptions
from glocal.jobs.failures import Stopped

if TYPE_CHECKING:
    from glocal.apps.denoise.data import Photos
    from glocal.training.ranks import Ranks

_NAMED = 5  # skipped files that are named one by one


def train_image(
    data: Annotated[Path, typer.Argument(help="A folder of photos, a .csv list, or prepared photos (.npz).")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for models, logs and checkpoints.")],
    options: TrainOptions,
    deep: DeepTrainOptions,
    photos: DataOptions,
    run: RunOptions,
) -> None:
    """Train a denoising network as the paper does. Run the same command again to continue a stopped training.

    Photos become gray squares of 128 x 128. OUTPUT receives NAME.jsonl (the validation curve), checkpoints, and the
    model, which `glocal denoise --model OUTPUT/image-NAME.safetensors` uses. With `torchrun --nproc-per-node N -m`
    before `glocal`, N processes share each batch.

    With --model a deep network is trained on photos of any size: DATA is a folder, or a .npz of benchmarks/pack_photos.py.
    """
    from glocal.apps.denoise.training import resolve, train, weights_file
    from glocal.training.loop import read_log
    from glocal.training.ranks import joined, local_device

    options = replace(options, batch=deep.batch or 1)
    with joined(local_device(resolve(options.device))) as ranks:
        console = Console(run if ranks.first else replace(run, quiet=True))
        make_folder(output)
        if deep.model is not None:
            _train_deep(data, output, options, deep, photos, console, ranks)
            return
        loaded = load(data, photos, console, ranks)
        counts = loaded.counts()
        console.say(f"{counts['train']} photos to train, {counts['validation']} to validate, {counts['test']} to test")
        try:
            with console.progress(f"train {options.recipe}") as tell:
                net = train(loaded, options, output, progress=lambda p: console.training(p, tell), ranks=ranks)
        except KeyboardInterrupt as stop:
            raise Stopped(f"the checkpoints in {output} stay; run the same command again to go on") from stop
        assert net is not None
        if not ranks.first:
            return
    last = read_log(output / f"{options.recipe}.jsonl")[-1]
    path = weights_file(output, options.recipe)
    summary: dict[str, Any] = {"weights": str(path), "validation_psnr": last.validation, "steps": last.step}
    console.result(summary | {"photos": counts, "skipped": len(loaded.skipped)}, str(path))


def _train_deep(
    data: Path,
    output: Path,
    options: TrainOptions,
    deep: DeepTrainOptions,
    photos: DataOptions,
    console: Console,
    ranks: Ranks,
) -> None:
    from glocal.apps.denoise.crops import PackedPhotos
    from glocal.apps.denoise.deep_recipe import train_deep
    from glocal.apps.denoise.training import resolve

    held = {"validation": photos.validation, "seed": photos.split_seed}
    packed = PackedPhotos.load(data) if data.suffix == ".npz" else PackedPhotos.of_folder(data, **held, ranks=ranks)
    console.say(f"{packed.parts.count('train')} photos to train, {packed.parts.count('validation')} to validate")
    try:
        with console.progress(f"train {deep.model}") as tell:
            path = train_deep(
                packed,
                deep,
                output,
                seed=options.seed,
                device=resolve(options.device),
                progress=lambda p: console.training(p, tell),
                ranks=ranks,
            )
    except KeyboardInterrupt as stop:
        raise Stopped(f"the checkpoints in {output} stay; run the same command again to go on") from stop
    if ranks.first:
        console.result({"weights": str(path)}, str(path))


def load(data: Path, options: DataOptions, console: Console, ranks: Ranks | None = None) -> Photos:
    """Read the photos, name the files that could not be read, and keep a prepared copy if that was asked for.

    Of several processes, each reads its share of the files, and the first one writes the copy.
    """
    from glocal.apps.denoise.data import corner_crops, load_photos, with_crops

    with console.progress("read photos") as tell:
        loaded = load_photos(
            data,
            test=options.test,
            validation=options.validation,
            seed=options.split_seed,
            progress=lambda done, count: tell(done / count),
            ranks=ranks,
        )
    for name, why in loaded.skipped[:_NAMED]:
        console.say(f"skipped {name}: {why}")
    if loaded.skipped:
        console.say(f"{len(loaded.skipped)} file(s) could not be read and were skipped")
    if options.prepared is not None and (ranks is None or ranks.first):
        loaded.save(Path(options.prepared))
    return with_crops(loaded, [corner_crops(Path(folder)) for folder in options.crops]) if options.crops else loaded
