"""What workers do for the page: look at uploads, estimate, run jobs and mix finished results. Functions of a module."""

from __future__ import annotations

import functools
import os
import pickle
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from glocal.errors import InputError
from glocal.jobs.flags import flags_for
from glocal.jobs.job import Cost, Inputs, Job
from glocal.studio.worker import Link, StoppedWork

CROP = (640, 480)  # what the page shows of a photo pixel by pixel


@dataclass(frozen=True)
class Order:
    """A job in a folder of its own. All names are relative to it, so that recipes contain nothing about this machine.

    kept : where a style result stays, for other strengths; None for other jobs.
    """

    job: Job
    folder: Path
    source: str
    target: str
    kept: Path | None = None

    def inputs(self, link: Link) -> Inputs:
        """Return what the job reads and where it writes."""
        return Inputs(self.source, self.job.others, Path(self.target), overwrite=True, say=link.message)

    def with_strength(self, strength: float) -> Order:
        """Return the same order with another strength."""
        return replace(self, job=replace(self.job, options=replace(self.job.options, strength=strength)))

    def command(self) -> str:
        """Return the command line that does the same in a folder with these files."""
        job = self.job
        values = vars(job.options) | vars(job.files) | vars(job.output)
        preset = {"preset": job.options.preset} if hasattr(job.options, "preset") else {}
        usual = vars(job.Options.given(preset))
        changed = {name: value for name, value in values.items() if name not in usual or value != usual[name]} | preset
        flags = flags_for([job.Options, job.Files, job.Output], changed)
        return shlex.join(["glocal", job.name, self.source, *job.others, *flags, "-o", self.target])


@dataclass(frozen=True)
class Made:
    """What a job made: the real file, what the page shows, further files, and what is worth knowing.

    views : name to file; "before" and "after" belong together.
    facts : what `--json` shows.
    """

    order: Order
    file: Path
    views: dict[str, Path]
    files: tuple[Path, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    stopped: bool = False


@dataclass(frozen=True)
class Look:
    """An upload as the page shows it: a small picture as an address (or none), and its properties in words."""

    url: str
    text: str


def look_at_picture(link: Link, path: Path, max_pixels: int) -> Look:
    """Read an uploaded picture with all checks.

    Raises
    ------
    InputError
        It is no picture that can be read, or larger than the studio takes.
    """
    from glocal.files.images.colors import to_srgb
    from glocal.files.images.read import read_image
    from glocal.studio.views import data_url

    check_pixels(link, [path], max_pixels)
    picture = _named(path, lambda: read_image(path))
    h, w = picture.size
    depth = "float" if picture.depth == "float" else f"{picture.depth} bit"
    return Look(data_url(to_srgb(picture).clip(0, 1)), f"{path.name}: {w} x {h}, {depth}")


def check_pixels(link: Link, pictures: list[Path], max_pixels: int) -> None:
    """Check the sizes of uploaded pictures, from their headers alone.

    Raises
    ------
    InputError
        One is no picture, or larger than the studio takes.
    """
    from glocal.files.images.read import image_size

    for path in pictures:
        height, width = _named(path, functools.partial(image_size, path))
        if height * width > max_pixels:
            message = (
                f"upload ({path.name}): it has {width} x {height} pixels, more than {max_pixels:,}. Make it smaller."
            )
            raise InputError(message)


def look_at_sound(link: Link, path: Path) -> Look:
    """Read the properties of an uploaded recording.

    Raises
    ------
    InputError
        It is no sound file that can be read.
    """
    from glocal.files.audio.audio_file import open_audio

    def look() -> Look:
        with open_audio(path) as sound:
            info = sound.info
        length = f"{info.seconds:.1f} s" if info.seconds is not None else "unknown length"
        return Look("", f"{path.name}: {length}, {info.rate} Hz, {info.channels} channel(s)")

    return _named(path, look)  # type: ignore[no-any-return]


def look_at_map(link: Link, path: Path, max_pixels: int) -> Look:
    """Read an uploaded colour map.

    Raises
    ------
    InputError
        It is no map that can be read.
    """
    from glocal.apps.color.recolor import loaded

    if path.suffix.lower() == ".png":
        check_pixels(link, [path], max_pixels)

    def look() -> Look:
        points = getattr(loaded(path, 1.0), "size", None)
        return Look("", f"{path.name}: " + ("a map" if points is None else f"a LUT with {points} points along an axis"))

    return _named(path, look)  # type: ignore[no-any-return]


def _named(path: Path, work: Any) -> Any:
    """Let errors name the file as the user knows it, without its folder."""
    try:
        return work()
    except InputError as error:
        raise InputError(str(error).replace(str(path), path.name)) from error


def estimate(link: Link, order: Order) -> Cost:
    """Estimate memory and time from the headers of the files."""
    os.chdir(order.folder)
    return order.job.cost(order.job.header(order.inputs(link)))


def run_order(link: Link, order: Order) -> Made:
    """Run a job and write the real file and what the page shows.

    Raises
    ------
    StoppedWork
        The job was stopped and kept the best so far.
    """
    os.chdir(order.folder)
    inputs = order.inputs(link)
    if order.job.name == "speech":
        return _run_speech(link, order, inputs)
    result: Any = order.job.run(inputs, link.progress)
    facts = order.job.write(result, inputs)
    made = _made(order, result, facts)
    if order.kept is not None:
        order.kept.write_bytes(pickle.dumps(result, protocol=5))
    if result.stopped:
        raise StoppedWork(replace(made, stopped=True))
    return made


def _made(order: Order, result: Any, facts: dict[str, Any]) -> Made:
    """Write the views of a picture next to it."""
    from glocal.files.images.colors import to_srgb
    from glocal.studio.views import LONGEST, read_rgb, save_view, view_size

    folder = order.folder
    exact = order.job.name == "denoise"  # noise is looked at pixel by pixel
    rgb = to_srgb(result.picture).clip(0, 1)
    before = to_srgb(result.original).clip(0, 1)
    suffix = ".png" if exact else ".webp"
    views = {
        "before": save_view(scaled(before, rgb.shape), folder / f"before{suffix}", longest=None if exact else LONGEST),
        "after": save_view(rgb, folder / f"after-{result.recipe['options'].get('strength', 1):.3f}{suffix}",
                           longest=None if exact else LONGEST),
    }  # fmt: skip
    extra = [folder / name for name in order.job.more_outputs()]
    for path in extra:
        if path.stem.endswith(("residual", "palettes")):
            name = path.stem.rpartition("_")[2]
            views[name] = save_view(read_rgb(path), path.with_suffix(".view.webp"))
            facts[f"{name}_size"] = view_size(views[name])
    return Made(order, folder / order.target, views, tuple(extra), _page_facts(facts))


def _page_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that the page shows."""
    names = ("sigma", "estimated", "sigma_estimated", "model", "lines", "residual_size")
    return {name: facts[name] for name in names if name in facts}


def scaled(rgb: Any, shape: tuple[int, ...]) -> Any:
    """Scale a picture (h, w, 3) in [0, 1] to another height and width."""
    if rgb.shape[:2] == tuple(shape[:2]):
        return rgb
    import torch

    from glocal.apps.style.levels import resized

    return resized(torch.from_numpy(rgb), (shape[0], shape[1])).clamp(0, 1).numpy()


def restyle(link: Link, made: Made, strength: float) -> Made:
    """Mix a finished style result at another strength, and write the file again."""
    assert made.order.kept is not None
    os.chdir(made.order.folder)
    result = pickle.loads(made.order.kept.read_bytes()).at_strength(strength)  # written by our own worker, privately
    options = replace(made.order.job.options, strength=strength)
    order = replace(made.order, job=replace(made.order.job, options=options))
    facts = order.job.write(result, order.inputs(link))
    return replace(_made(order, result, facts), stopped=made.stopped)


def preview_colors(link: Link, made: Made, strength: float) -> Path:
    """Draw the page's picture of a colour transfer at another strength, from the map that was saved."""
    import torch

    from glocal.apps.color.look import ColorMap
    from glocal.apps.color.recolor import applied, loaded
    from glocal.files.images.image_like import mask_values
    from glocal.files.images.read import read_image
    from glocal.studio.views import read_rgb, save_view

    os.chdir(made.order.folder)
    files = made.order.job.files
    rgb = torch.from_numpy(read_rgb(made.views["before"]))
    cover = None
    if files.mask is not None:
        size = (rgb.shape[0], rgb.shape[1])
        cover = torch.from_numpy(mask_values(read_image(files.mask), size, call="recolor"))
    if files.map is not None:
        look: Any = loaded(files.map, strength)
    else:
        look = ColorMap.load(files.save_map).with_strength(strength)
    return save_view(applied(look, rgb, cover).numpy(), made.order.folder / f"live-{strength:.3f}.webp")


def crop(link: Link, made: Made, x: float, y: float) -> tuple[Path, Path]:
    """Cut a part of the page's size out of both pictures, around a place given as shares of width and height."""
    from PIL import Image

    found = []
    for name in ("before", "after"):
        with Image.open(made.views[name]) as whole:  # our own PNG
            width, height = min(CROP[0], whole.width), min(CROP[1], whole.height)
            left = min(max(0, round(x * whole.width - width / 2)), whole.width - width)
            top = min(max(0, round(y * whole.height - height / 2)), whole.height - height)
            path = made.order.folder / f"{made.views[name].stem}-{left}-{top}.png"
            whole.crop((left, top, left + width, top + height)).save(path, compress_level=1)
        found.append(path)
    return found[0], found[1]


def _run_speech(link: Link, order: Order, inputs: Inputs) -> Made:
    from glocal.studio.views import playable, save_view, spectrogram_view

    facts = order.job.run_file(inputs, link.progress)
    folder = order.folder
    residual = order.job.files.residual
    before, top = spectrogram_view(order.source)
    views = {"spectrum_before": save_view(before, folder / "before.webp")}
    views["spectrum_after"] = save_view(spectrogram_view(order.target, top)[0], folder / "after.webp")
    views["spectrum_residual"] = save_view(spectrogram_view(residual, top)[0], folder / "residual.webp")
    for name, path in (("before", order.source), ("after", order.target), ("residual", residual)):
        views[name] = playable(path, folder / f"play-{name}.wav")
    return Made(order, folder / order.target, views, (folder / residual,), _page_facts(facts))
