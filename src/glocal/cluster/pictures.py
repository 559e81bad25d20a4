"""One large picture in tiles, on one machine or many.

What depends on the whole picture is decided once. Then each tile is computed and written as one chunk of a Zarr store, in
any order, by any worker. At the end the smaller levels for viewers are made. A TIFF output is written from the store. A run
that was interrupted continues with the tiles that are missing.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from glocal.cluster.options import ZARR
from glocal.cluster.sources import is_tiff, open_source
from glocal.cluster.stores import create_store, finish_store, level_shapes, state_of
from glocal.cluster.tiles import compute_tile, reduce_cost, reduce_tile, tile_cost, tile_tasks
from glocal.errors import ArgumentError, OutputError
from glocal.files.provenance import build_recipe, file_state, to_json
from glocal.jobs.batch import Outcome, Work
from glocal.jobs.job import Cost, Job
from glocal.jobs.paths import Task
from glocal.jobs.tiles import Source, Tiles

Run = Callable[[list[Task], Work, Callable[[Task], Cost], str], Iterator[Outcome]]
"""Does tasks: `run(tasks, work, estimate, title)`."""


def plan_text(source: Path, tile: int) -> str:
    """Return what `--dry-run` says: size, tiles and levels of a picture."""
    height, width, _ = open_source(source).pixels.shape
    count = -(-height // tile) * -(-width // tile)
    return f"{source}: {width} x {height}, {count} tiles of {tile} x {tile}, {len(level_shapes((height, width, 1), tile))} levels"


def run_picture(
    job: Job,
    source: Path,
    target: Path,
    run: Run,
    *,
    tile: int,
    skip: bool,
    overwrite: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Do a job for one large picture; returns what `--json` shows.

    Parameters
    ----------
    run : callable
        Does the tasks, in this process or on a cluster.
    tile : int
        The side of a tile. It changes the chunks of the output, never its pixels.
    skip, overwrite : bool
        What to do if the output exists: leave a finished one, continue an unfinished one; or replace it.

    Raises
    ------
    ArgumentError
        The job cannot be done in tiles, or the output is neither Zarr nor TIFF.
    OutputError
        The output exists, or some tiles failed.
    """
    if target.suffix.lower() != ZARR and not is_tiff(target):
        raise ArgumentError(
            f"-o ({target}): a picture in tiles is written as .zarr or .tif. Use one of these suffixes."
        )
    mask = getattr(job.files, "mask", None)
    opened = open_source(source, mask)
    store = target if target.suffix.lower() == ZARR else target.with_name(f"{target.name}.tiles{ZARR}")
    state = _state(job, source, tile)
    if not _prepare(store, target, state, skip=skip, overwrite=overwrite):
        return {"state": "skipped"}
    tiles = job.tiled(opened, overwrite=overwrite or skip)
    channels = opened.pixels.shape[2] + (opened.alpha is not None)
    shapes = level_shapes((*opened.pixels.shape[:2], channels), tile)
    for line in tiles.shown.get("lines", ()):
        say(f"{source.name}: {line}")
    if state_of(store) is None:
        create_store(store, shapes[0], tiles.dtype, tile, state)
    _compute(opened, tiles, store, shapes, run, tile)
    recipe = _recipe(job, source)
    about = {"recipe": recipe, **({"icc": opened.icc.hex()} if opened.icc else {})}
    finish_store(store, shapes, name=source.name, about=about)
    if store != target:
        from glocal.cluster.pyramids import write_pyramid
        from glocal.files.metadata import xmp

        packet = xmp.with_recipe(None, to_json(recipe)) if job.output.metadata == "keep" else None
        write_pyramid(target, store, len(shapes), icc=opened.icc, xmp=packet, overwrite=overwrite)
        shutil.rmtree(store)
    shown = {key: value for key, value in tiles.shown.items() if key != "lines"}
    return {"state": "done", "levels": len(shapes), "size": list(shapes[0][:2]), **shown}


def _compute(
    source: Source, tiles: Tiles, store: Path, shapes: list[tuple[int, int, int]], run: Run, tile: int
) -> None:
    """Compute all tiles, then the smaller levels one after the other."""
    for level, shape in enumerate(shapes):
        tasks = tile_tasks(source.path, store, shape, level=level, tile=tile)
        if not tasks:
            continue
        if level == 0:
            work: Work = functools.partial(compute_tile, source=source, tiles=tiles, tile=tile)
            estimate: Any = functools.partial(tile_cost, tiles=tiles, tile=tile)
        else:
            work = functools.partial(reduce_tile, shape=shape, tile=tile)
            estimate = functools.partial(reduce_cost, tile=tile)
        title = f"{len(tasks)} tiles" if level == 0 else f"level {level}, {len(tasks)} tiles"
        failed = [one for one in run(tasks, work, estimate, title) if one.state == "failed"]
        if failed:
            raise OutputError(
                f"{source.path}: {len(failed)} tile(s) failed; the first: {failed[0].message} "
                "Run it again with --skip-existing for those that are missing."
            )


def _prepare(store: Path, target: Path, state: dict[str, Any], *, skip: bool, overwrite: bool) -> bool:
    """Decide what happens to an output that exists; returns whether there is anything to do."""
    found = state_of(store)
    if found == state and (skip or not overwrite):
        if skip:
            return True
        raise OutputError(
            f"write image ({store}): an interrupted run left it. Add --skip-existing to go on, or --overwrite to start again."
        )
    if target.exists() and skip and found is None:
        return False
    if store.exists():
        if not overwrite:
            other = " by a run with other settings" if found is not None else ""
            raise OutputError(
                f"write image ({store}): it exists already{other}. Add --overwrite or choose another name."
            )
        if found is None and "glocal" not in _attributes(store):
            raise OutputError(f"write image ({store}): it was not made by glocal, so it stays. Choose another name.")
        shutil.rmtree(store)
    if target != store and target.exists() and not overwrite:
        raise OutputError(f"write image ({target}): it exists already. Add --overwrite or choose another name.")
    return True


def _attributes(store: Path) -> dict[str, Any]:
    from glocal.cluster.stores import zarr_library

    try:
        return dict(zarr_library().open_group(store, mode="r").attrs)
    except Exception:  # not a store at all
        return {}


def _state(job: Job, source: Path, tile: int) -> dict[str, Any]:
    """Return what decides the content of a store: the settings, and the size and time of the source."""
    recipe = _recipe(job, source)
    where = source / "zarr.json" if source.is_dir() else source
    kept = {key: recipe[key] for key in ("command", "options", "arguments", "inputs", "versions")}
    return kept | {"tile": tile, "source": list((file_state(where) or (0, 0, 0))[1:])}


def _recipe(job: Job, source: Path) -> dict[str, Any]:
    """Return the recipe. The picture itself is named without a hash: that would be one more pass over all of it."""
    files = {one.name: value for one in fields(job.files) if (value := getattr(job.files, one.name)) != one.default}
    arguments = {"positional": [str(source)], **files, **asdict(job.output)}
    return build_recipe(job.name, job.options, inputs=job.others, arguments=arguments)
