"""The non-local graph of section 2.2.3: every pixel or sample is joined to those with the most similar patches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.errors import ArgumentError, DeviceError
from glocal.graph import Graph
from glocal.graphs.signals import as_signal, square_root
from glocal.kernels import known, select
from glocal.kernels.cpu.threads import undisturbed
from glocal.kernels.matching import Matching, Sizes

_MOST_CHANNELS = 16  # of a 1-D signal: an array with more columns is more likely a gray picture


@undisturbed()
def patch_graph(
    signal: Any,
    *,
    source: Any = None,
    k: int = 25,
    patch: int | Sequence[int] = 3,
    coords: float = 0.0,
    search_radius: int | Sequence[int] | None = None,
    stride: int | Sequence[int] = 1,
    source_stride: int | Sequence[int] = 1,
    progress: Callable[[float], None] | None = None,
) -> Graph:
    """Connect every vertex of a signal to its `k` nearest patches in the same or in another signal. Exact search.

    `dist(i, j)^2 = |p_i - p_j|^2 + coords^2 |pos_i - pos_j|^2`, where `p_i` is the patch around `i` with all channels,
    reflected at the border, and `pos_i` is the position of `i` in samples, pixels or frames.

    Parameters
    ----------
    signal : (n,) or (n, c) 1-D signal, (h, w, c) image, (t, h, w, c) video or volume
        A tensor or array. A gray picture is (h, w, 1). Because an array (h, w) could be both, a 1-D signal may have at
        most 16 channels; with more, give it as a picture (n, 1, c) and the patch as (size, 1).
        Distances are computed in float32. The scale of the values decides how much they count compared with `coords`:
        style transfer uses Lab with L from 0 to 100 and `coords=1`.
    source : like `signal`, or None
        The signal in which neighbours are searched. Its axes may have other lengths. The graph then joins the n
        vertices of `signal` to the m vertices of `source`, and layers take a signal (m, c). None searches `signal`
        itself.
    k : int
        The number of neighbours of each vertex. The nearest comes first; ties go to the smaller vertex index. Without
        `source` column 0 is the vertex itself. With `source`, or if the two strides differ, no column is special.
        All backends and thread counts give the same graph, bit for bit.
    patch : odd int, or one for each axis
        The side of the patch: `(1, 7, 7)` compares single frames of a video.
    coords : float >= 0
        The weight of the position; 0 ignores it. It needs signals of the same size, as `search_radius` does.
    search_radius : int, one for each axis, or None
        Search only `|dy|, |dx| <= search_radius`, or `(dt, dy, dx)` for a video; None searches everywhere.
    stride, source_stride : int >= 1, or one for each axis
        Use only every `stride`-th position along each axis as a vertex of the graph, and every `source_stride`-th
        position as a candidate. Patches, positions and the radius still count in samples, pixels and frames.
    progress : callable or None
        Called with the fraction done, from 0 to 1.

    Returns
    -------
    Graph
        With `distances` (n, k) and no weights; `glocal.weights` computes weights from distances. Memory: O(n k + m).
        Time: O(n c) for each shift that must be examined. With `coords` these are usually a few hundred, with
        `search_radius` the product of `2 radius + 1`. A search of the whole source takes O(n m c) at worst, and far
        less for natural signals.

    Raises
    ------
    ArgumentError, InputError, DeviceError
        If a signal or an option cannot be used. The message recognises a picture given as (3, h, w).

    Examples
    --------
    >>> g = patch_graph(torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0, 5.0]), k=2, patch=1)
    >>> g.neighbors.tolist()
    [[0, 2], [1, 3], [2, 0], [3, 1], [4, 0], [5, 1]]
    >>> g = patch_graph(torch.tensor([0.0, 1.0, 6.0]), source=torch.tensor([5.0, 1.0, 0.0, 1.0]), k=2, patch=1)
    >>> g.neighbors.tolist(), g.num_sources
    ([[2, 1], [1, 3], [0, 1]], 4)
    """
    query, axes = _as_frames(signal, "signal")
    other, other_axes = (query, axes) if source is None else _as_frames(source, "source")
    if axes != other_axes:
        message = f"patch_graph: `signal` has {axes} axes without the channels and `source` {other_axes}. Give two signals with the same axes."
        raise ArgumentError(message)
    matching = Matching(
        _sizes("patch", patch, axes, 1, 1),
        float(coords),
        None if search_radius is None else _sizes("search_radius", search_radius, axes, 0, 0),
        _sizes("stride", stride, axes, 1, 1),
        _sizes("source_stride", source_stride, axes, 1, 1),
    )
    matching = matching._replace(own=source is None and matching.stride == matching.source_stride)
    _check(query, other, k, matching, search_radius)
    neighbors, squared = _search(query, other, k, matching, progress)
    if progress is not None:
        progress(1.0)
    m = math.prod(_lattice(other, matching.source_stride))
    known.trust_range(neighbors, m)
    return Graph(neighbors, None, square_root(squared), num_sources=m)


def _search(
    query: Tensor, source: Tensor, k: int, matching: Matching, progress: Callable[[float], None] | None
) -> tuple[Tensor, Tensor]:
    """Choose between the search of one image in itself and the general search."""
    lengths, radius = query.shape[:3], matching.radius
    if (
        radius is not None
        and not _places_count(matching)
        and all(r >= n - 1 for r, n in zip(radius, lengths, strict=True))
    ):
        matching = matching._replace(radius=None)
    radius = matching.radius
    one_image = source is query and lengths[0] == 1 and matching.stride == matching.source_stride == (1, 1, 1)
    even = radius is None or len({r for r, n in zip(radius, lengths, strict=True) if n > 1}) < 2
    if one_image and even:
        planes = pad_frames(query, matching.patch)[0]
        search = select.pick("patch_neighbors", query.device)
        reach = None if radius is None else max((r for r, n in zip(radius, lengths, strict=True) if n > 1), default=0)
        found: tuple[Tensor, Tensor] = search(planes, k, matching.patch[1:], matching.coords, reach, progress)
        return found
    frames = pad_frames(query, matching.patch)
    other = frames if source is query else pad_frames(source, matching.patch)
    general: tuple[Tensor, Tensor] = select.pick("match_patches", query.device)(frames, other, k, matching, progress)
    return general


def _places_count(matching: Matching) -> bool:
    """Whether positions have a weight that float32 can represent."""
    return bool(np.float32(matching.coords * matching.coords) > 0)


def pad_frames(frames: Tensor, patch: Sizes) -> Tensor:
    """Move the channels of (t, h, w, c) before h and reflect half a patch at each border, repeatedly if needed."""
    padded = frames.permute(0, 3, 1, 2)
    for axis, size in zip((0, 2, 3), patch, strict=True):
        places = torch.from_numpy(np.pad(np.arange(padded.shape[axis]), size // 2, mode="reflect"))
        padded = padded.index_select(axis, places.to(padded.device))
    return padded.contiguous()


def _as_frames(signal: Any, name: str) -> tuple[Tensor, int]:
    """Check a signal and give it the axes (t, h, w, c). Also return the number of axes it had before the channels."""
    x = as_signal(signal, caller="patch_graph", name=name, ndim=(1, 2, 3, 4)).detach().to(torch.float32)
    if x.ndim > 2 and x.shape[-3] in (1, 3, 4) and x.shape[-1] > 4:
        axes, order = ("(c, h, w)", "1, 2, 0") if x.ndim == 3 else ("(t, c, h, w)", "0, 2, 3, 1")
        message = (
            f"patch_graph: `{name}` (shape {tuple(x.shape)}) looks like {axes}, but channels come last. "
            f"Use {name}.permute({order})."
        )
        raise ArgumentError(message)
    if x.ndim == 2 and x.shape[1] > _MOST_CHANNELS:
        message = (
            f"patch_graph: `{name}` (shape {tuple(x.shape)}) may be a gray picture (h, w) or a 1-D signal (n, c) with "
            f"{x.shape[1]} channels. Use {name}[:, :, None] for the picture, {name}[:, None] and patch=(size, 1) for the signal."
        )
        raise ArgumentError(message)
    if x.ndim < 3:
        return x.reshape(1, 1, len(x), -1), 1
    return (x, 3) if x.ndim == 4 else (x.unsqueeze(0), 2)


def _sizes(name: str, value: int | Sequence[int], axes: int, least: int, fill: int) -> Sizes:
    """Expand an option to one number for each of (t, h, w)."""
    given = tuple(value) if isinstance(value, Sequence | np.ndarray) else (value,) * axes
    if len(given) != axes:
        message = (
            f"patch_graph: `{name}` (={value}) must be one number, or one for each of the {axes} axes. Use an int."
        )
        raise ArgumentError(message)
    if not all(isinstance(size, int | np.integer) and not isinstance(size, bool) for size in given):
        message = f"patch_graph: `{name}` (={value}) must be a whole number, or one for each axis. Use an int."
        raise ArgumentError(message)
    if name == "patch" and any(size < 1 or size % 2 == 0 for size in given):
        message = (
            f"patch_graph: `patch` (={value}) must be odd and positive, so that the vertex is its centre. Use 3 or 7."
        )
        raise ArgumentError(message)
    if min(given) < least:
        message = f"patch_graph: `{name}` (={value}) must be at least {least}. Use {max(1, least)} or more."
        raise ArgumentError(message)
    full = (fill,) * (3 - axes) + tuple(int(size) for size in given)
    return full[0], full[1], full[2]


def _lattice(frames: Tensor, stride: Sizes) -> list[int]:
    return [-(-length // step) for length, step in zip(frames.shape[:3], stride, strict=True)]


def _check(query: Tensor, source: Tensor, k: int, matching: Matching, radius: Any) -> None:
    if query.device != source.device:
        message = (
            f"patch_graph: `signal` is on {query.device}, `source` on {source.device}. Move both with .to(device)."
        )
        raise DeviceError(message)
    if query.shape[3] != source.shape[3]:
        message = (
            f"patch_graph: `signal` has {query.shape[3]} channels and `source` {source.shape[3]}. "
            "Give both the same channels."
        )
        raise ArgumentError(message)
    if not isinstance(k, int | np.integer):
        message = f"patch_graph: `k` (={k}) must be a whole number. Use an int."
        raise ArgumentError(message)
    if not (matching.coords >= 0 and math.isfinite(matching.coords)):
        message = (
            f"patch_graph: `coords` (={matching.coords}) must be finite and not negative. Use 0 to leave positions out."
        )
        raise ArgumentError(message)
    for frames in (query, source):
        if frames[..., 0].numel() >= 2**31:
            message = f"patch_graph: a signal has {frames[..., 0].numel()} vertices, more than 2^31 - 1. Split it."
            raise ArgumentError(message)
    m = math.prod(_lattice(source, matching.source_stride))
    if k < 1 or k > m:
        message = (
            f"patch_graph: `k` (={k}) must be between 1 and the number of vertices (={m}). "
            "Use a larger image or a smaller k."
        )
        raise ArgumentError(message)
    if query.shape[:3] != source.shape[:3] and (matching.coords or matching.radius is not None):
        given = "search_radius" if matching.radius is not None else "coords"
        message = (
            f"patch_graph: `{given}` compares positions, but `signal` {tuple(query.shape[:3])} and `source` "
            f"{tuple(source.shape[:3])} have different sizes (t, h, w). Resize one of them, or leave `{given}` out."
        )
        raise ArgumentError(message)
    fewest = m if matching.radius is None else _fewest(query, matching)
    if k > fewest:
        message = (
            f"patch_graph: `search_radius` (={radius}) leaves a vertex only {fewest} candidates, fewer than `k` (={k}). "
            "Use a larger search_radius or a smaller k."
        )
        raise ArgumentError(message)


def _fewest(query: Tensor, matching: Matching) -> int:
    """Return the number of candidates of the vertex that has the fewest."""
    assert matching.radius is not None
    found = 1
    for axis, length in enumerate(query.shape[:3]):
        at = np.arange(0, length, matching.stride[axis])
        step, reach = matching.source_stride[axis], matching.radius[axis]
        first = -(-np.maximum(at - reach, 0) // step)
        found *= int((np.minimum(at + reach, length - 1) // step - first + 1).min())
    return found
