"""`glocal color`: the colours of one photo on another, and the map behind them as a file, a LUT or a drawing."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from glocal.apps.color.options import ColorOptions
from glocal.cli.shell.batch import BatchOptions, Estimate, ImageFileOptions, run_batch
from glocal.cli.shell.console import Report, RunOptions, Tell
from glocal.cli.shell.paths import Task
from glocal.errors import ArgumentError
from glocal.files.images.formats import SUFFIXES

if TYPE_CHECKING:
    from torch import Tensor

    from glocal.apps.color.recolor import Fit


@dataclass(frozen=True)
class ColorFiles:
    """Files of a colour transfer beside the pictures themselves."""

    reference: tuple[str, ...] = field(
        default=(), metadata={"help": "Where the colours come from, for many photos; may be given several times."}
    )
    map: str | None = field(
        default=None, metadata={"help": "Apply a map of --save-map, a .cube or a HaldCLUT .png to all inputs."}
    )
    save_map: str | None = field(default=None, metadata={"help": "Save the map, such as look.glocal.", "writes": True})
    mask: str | None = field(default=None, metadata={"help": "A picture that is white where the photo changes."})
    lut: tuple[str, ...] = field(
        default=(),
        metadata={"help": "Export the map as a 3-D LUT: look.cube, or a HaldCLUT look.png.", "writes": True},
    )
    lut_size: Literal["33", "65"] = field(default="33", metadata={"help": "Points along an axis of a .cube."})
    palette_out: str | None = field(
        default=None,
        metadata={"help": "Draw the palettes and the way of every colour into a picture.", "writes": True},
    )

    @property
    def single(self) -> tuple[str, ...]:
        """The outputs that belong to one photo, so that only one may be given."""
        named = (self.save_map, self.palette_out, *self.lut)
        return tuple(name for name in named if name is not None)


@dataclass(frozen=True)
class _Job:
    """What is the same for all photos of a call."""

    references: tuple[str, ...]
    options: ColorOptions
    files: ColorFiles
    batch: BatchOptions
    image: ImageFileOptions
    run: RunOptions


def color(
    inputs: Annotated[
        list[str],
        typer.Argument(help="PHOTO REFERENCE...; or with --map or --reference: photos, folders, patterns."),
    ],
    options: ColorOptions,
    files: ColorFiles,
    batch: BatchOptions,
    image: ImageFileOptions,
    run: RunOptions,
) -> None:
    """Give a photo the colours of another.

    glocal color PHOTO REFERENCE -o OUT: the palette of REFERENCE on PHOTO; several references share one palette.

    glocal color PHOTOS... --reference REFERENCE -o FOLDER/: each photo gets its own map.

    glocal color FRAMES... --map look.glocal -o FOLDER/: all frames get the same map, so a sequence does not flicker.
    """
    photos, references = _roles(inputs, files)
    _check_map(files, options)
    if files.single and not batch.dry_run and _several(photos, batch):
        raise ArgumentError(
            f"color: {files.single[0]} belongs to one photo, and there are several. "
            "Make it from one photo, then use --map for all."
        )
    job = _Job(references, options, files, batch, image, run)
    work = functools.partial(_work, job=job)
    run_batch(
        "color", photos, work, estimate=_estimate, suffixes=SUFFIXES, options=batch, report=Report(run),
        also=files.single,
    )  # fmt: skip


def _roles(inputs: Sequence[str], files: ColorFiles) -> tuple[list[str], tuple[str, ...]]:
    """Which inputs are photos and which are references."""
    if files.map is not None:
        if files.reference:
            raise ArgumentError("color: --map and --reference contradict each other. Give one of them.")
        return list(inputs), ()
    if files.reference:
        return list(inputs), files.reference
    if len(inputs) < 2:
        raise ArgumentError("color: there is no reference. Name a photo and a reference, or use --map.")
    return [inputs[0]], tuple(inputs[1:])


def _check_map(files: ColorFiles, options: ColorOptions) -> None:
    """A map carries its settings, so flags that would change them have no effect: say so instead of ignoring them."""
    if files.map is None:
        return
    default = ColorOptions()
    changed = [f.name for f in fields(ColorOptions) if getattr(options, f.name) != getattr(default, f.name)]
    idle = [name for name in changed if name != "strength"]
    if idle:
        raise ArgumentError(
            f"color: --{idle[0]} has no effect with --map, which carries its own settings. "
            "Leave it out, or make another map."
        )
    if files.save_map or files.palette_out:
        raise ArgumentError("color: --map has no palettes to save or draw. Leave --save-map and --palette-out out.")


def _several(photos: Sequence[str], batch: BatchOptions) -> bool:
    from glocal.cli.shell.paths import plan_tasks

    return len(plan_tasks("color", photos, output=None, recursive=batch.recursive, suffixes=SUFFIXES)) > 1


def _estimate(task: Task) -> Estimate:
    """Memory for the file, its encoder, float copies of the photo and the libraries; a third of a second a megapixel."""
    from glocal.files.images.read import image_size

    height, width = image_size(task.source)
    pixels = height * width
    return Estimate(f"{width} x {height}", memory=(500 << 20) + 80 * pixels, seconds=3 + 0.35e-6 * pixels)


def _work(task: Task, tell: Tell, *, job: _Job) -> dict[str, Any]:
    """One photo from file to file."""
    import torch

    from glocal.apps.color.recolor import applied, counted, mask_for
    from glocal.files.images.colors import from_srgb, to_srgb
    from glocal.files.images.read import read_image
    from glocal.files.images.write import write_image

    photo = read_image(task.source)
    cover = mask_for(photo, read_image(job.files.mask)) if job.files.mask else None
    rgb = torch.from_numpy(to_srgb(photo))
    tell(0.1)
    found = _fitted(rgb, counted(photo, cover), job, job.options) if job.files.map is None else None
    look = found.map if found is not None else _loaded(str(job.files.map), job.options.strength)
    tell(0.4)
    changed = applied(look, rgb, cover)
    tell(0.8)
    told = _exports(rgb, counted(photo, cover), look, found, job)
    notes = write_image(
        task.target, from_srgb(photo, changed.numpy(), depth=job.image.depth), recipe=_recipe(task, job), overwrite=job.batch.overwrite,
        **asdict(job.image),
    )  # fmt: skip
    notes = (*photo.notes, *(found.notes if found else ()), *notes)
    for note in notes:
        Report(job.run).say(f"{task.source.name}: {note}")
    if found is not None:
        told |= {"method": job.options.method, "losses": [found.losses[0], found.losses[-1]]}
    return told | {"notes": list(notes)}


def _recipe(task: Task, job: _Job) -> dict[str, Any]:
    """How this picture was made: one photo of many with --reference is the same call as that photo alone."""
    from glocal.files.provenance import build_recipe

    positional = [str(task.source), *job.references]
    sources = [*positional, *(name for name in (job.files.mask, job.files.map) if name)]
    arguments = {"positional": positional, "mask": job.files.mask, "map": job.files.map, **asdict(job.image)}
    return build_recipe("color", job.options, inputs=sources, arguments=arguments)


def _fitted(rgb: Tensor, weights: Tensor | None, job: _Job, options: ColorOptions) -> Fit:
    from glocal.apps.color.recolor import fit, weighed
    from glocal.files.images.read import read_image

    return fit(rgb, [weighed(read_image(path)) for path in job.references], options, weights)


def _loaded(path: str, strength: float) -> Any:
    """The map in a file, by its suffix, at the strength asked for."""
    from glocal.apps.color.look import ColorMap
    from glocal.apps.color.lut import read_lut

    if Path(path).suffix.lower() not in (".cube", ".png"):
        look = ColorMap.load(path)
        return look.with_strength(min(2.0, look.options.strength * strength))
    lut = read_lut(path)
    if strength == 1:
        return lut
    return lambda rgb: lut(rgb).sub_(rgb).mul_(strength).add_(rgb).clamp_(0, 1)


def _exports(rgb: Tensor, weights: Tensor | None, look: Any, found: Fit | None, job: _Job) -> dict[str, Any]:
    """Write what was asked for beside the picture, and tell how well each LUT repeats the map on this photo."""
    from glocal.apps.color.lut import write_lut
    from glocal.apps.color.measures import difference_of_maps

    told: dict[str, Any] = {}
    files, overwrite = job.files, job.batch.overwrite
    if files.save_map and found is not None:
        found.map.save(files.save_map, overwrite=overwrite)
        told["map"] = files.save_map
    for path in files.lut:
        lut = write_lut(path, look, size=int(files.lut_size), overwrite=overwrite)
        mean, largest = difference_of_maps(look, lut, rgb)
        told.setdefault("luts", []).append({"path": path, "size": lut.size, "mean": mean, "max": largest})
        if not job.run.json:
            text = f"{path}: {lut.size} points, differs from the map by {mean:.2f} on average and {largest:.2f} at most"
            Report(job.run).result({}, f"{text} (CIE76, on this photo)")
    if files.palette_out:
        _draw(rgb, weights, files.palette_out, job)
        told["palettes"] = files.palette_out
    return told


def _draw(rgb: Tensor, weights: Tensor | None, path: str, job: _Job) -> None:
    """The palettes of both methods, whichever made the picture."""
    from glocal.apps.color.draw import palette_sheet
    from glocal.files.images.picture import Picture
    from glocal.files.images.write import write_image

    graph = _fitted(rgb, weights, job, replace(job.options, method="graph")).palettes
    transport = _fitted(rgb, weights, job, replace(job.options, method="transport")).palettes
    sheet = palette_sheet(graph.photo, graph.result, transport.result, graph.reference)
    write_image(path, Picture(sheet), overwrite=job.batch.overwrite)
