"""`glocal denoise`: white noise out of photos."""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

import typer

from glocal.apps.denoise.options import DenoiseOptions
from glocal.cli.shell.batch import BatchOptions, Estimate, ImageFileOptions, run_batch
from glocal.cli.shell.console import Report, RunOptions, Tell
from glocal.cli.shell.paths import Task
from glocal.errors import ArgumentError
from glocal.files.images.formats import SUFFIXES


@dataclass(frozen=True)
class DenoiseFiles:
    """Files beside the denoised picture."""

    residual: str | None = field(
        default=None,
        metadata={
            "help": "Also write what was removed, magnified around middle gray, to this picture.",
            "writes": True,
        },
    )


def denoise(
    inputs: Annotated[list[str], typer.Argument(help="Photos, folders or patterns.")],
    options: DenoiseOptions,
    files: DenoiseFiles,
    batch: BatchOptions,
    image: ImageFileOptions,
    run: RunOptions,
) -> None:
    """Remove white noise from photos, gray or colour, 8 bit, 16 bit or float, of any size.

    Models: local and nonlocal are the paper's networks, wide is larger and mostly better.
    """
    if files.residual is not None and _several(inputs, batch):
        raise ArgumentError(
            f"denoise: --residual {files.residual} belongs to one photo, and there are several. Leave it out."
        )
    work = functools.partial(_work, options=options, files=files, batch=batch, image=image, run=run)
    run_batch(
        "denoise", inputs, work, estimate=_estimate, suffixes=SUFFIXES, options=batch, report=Report(run),
        also=[files.residual],
    )  # fmt: skip


def _several(inputs: list[str], batch: BatchOptions) -> bool:
    from glocal.cli.shell.paths import plan_tasks

    return len(plan_tasks("denoise", inputs, output=None, recursive=batch.recursive, suffixes=SUFFIXES)) > 1


def _estimate(task: Task) -> Estimate:
    """Ten float planes of the picture, one band and the libraries; a few seconds a megapixel."""
    from glocal.files.images.read import image_size

    height, width = image_size(task.source)
    pixels = height * width
    bands = -(-height // max(32, (1 << 19) // width))
    band = min(pixels, 1 << 19) * 1600
    memory = (450 << 20) + 100 * pixels + band
    return Estimate(f"{width} x {height}", memory=memory, seconds=3 + 4e-6 * pixels, parts=f"{bands} band(s)")


def _work(
    task: Task,
    tell: Tell,
    *,
    options: DenoiseOptions,
    files: DenoiseFiles,
    batch: BatchOptions,
    image: ImageFileOptions,
    run: RunOptions,
) -> dict[str, Any]:
    """One photo from file to file."""
    from glocal.apps.denoise.image import denoise as remove_noise
    from glocal.apps.denoise.image import residual_picture
    from glocal.files.images.picture import to_depth
    from glocal.files.images.read import read_image
    from glocal.files.images.write import write_image
    from glocal.files.provenance import build_recipe

    photo = read_image(task.source)
    if image.depth in ("16", "float"):  # before the work, so that its result is not rounded to fewer bits first
        photo = replace(photo, pixels=to_depth(photo.pixels, image.depth))
    result = remove_noise(
        photo, options.sigma, model=options.model, strength=options.strength, search_radius=options.search_radius,
        device=options.device, progress=tell,
    )  # fmt: skip
    how = "estimated" if result.estimated else "given"
    Report(run).say(f"{task.source.name}: sigma {result.sigma:.4f} ({255 * result.sigma:.1f} of 255, {how})")
    own = [options.model] if options.model.endswith(".safetensors") else []
    arguments = {"positional": [str(task.source)], **asdict(image)}
    recipe = build_recipe("denoise", options, inputs=[task.source, *own], arguments=arguments)
    notes = write_image(
        task.target, result.picture, depth=image.depth, quality=image.quality, metadata=image.metadata, recipe=recipe,
        overwrite=batch.overwrite,
    )  # fmt: skip
    told: dict[str, Any] = {"sigma": result.sigma, "estimated": result.estimated, "model": result.model}
    if files.residual is not None:
        write_image(files.residual, residual_picture(result), overwrite=batch.overwrite)
        told["residual"] = files.residual
    notes = (*photo.notes, *notes)
    for note in notes:
        Report(run).say(f"{task.source.name}: {note}")
    return told | {"notes": list(notes)}
