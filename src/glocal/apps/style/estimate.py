"""Estimate the memory and time of a style transfer before it starts. This module does not import torch."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from glocal.apps.style.options import StyleOptions

# Fitted to runs at 256 to 2048 pixels; see `docs/style.md`.
_BASE = 600 << 20  # torch, Numba and their code
_GIGAFLOPS = 85.0  # arithmetic of the networks on one core
_SECONDS_A_PIXEL = 2e-7  # everything else in an iteration, on one core
_SECONDS_A_START = 12e-6  # graphs, Gram matrices and balance, for each pixel of a level
_SECONDS_A_STEP = 3e-3  # an iteration on a very small picture
_LEAST_SIZE = 64  # a smaller picture is no use

# The preset `patches`
SEARCHED = 384  # levels of up to this many pixels search the whole painting
_ROUNDS = (6, 4, 2, 1)
_SECONDS_A_PLACE = 1.2e-5  # a round, for each pixel of a level; from one run at 512 pixels on two quiet cores


# On a GPU, fitted to runs on an H200: all presets at 256 pixels, `paper` also at 1024; another GPU may take longer.
_GPU_HOST = 3 << 30  # the computer's own memory, most of it the GPU's libraries
_GPU_START = 6.0  # load the libraries and compile the kernels
_GPU_STEP = 1.65e-4  # one network of an iteration, or half an average of the anchor, on a small picture
_GPU_FLOPS = 9e12
_GPU_PIECES = 0.5  # the preset `patches`, at 256 to 1024 pixels
_GPU_MEMORY = 1.5  # times the arrays of a run on the CPU


@dataclass(frozen=True)
class Cost:
    """Peak memory in bytes, seconds, the shape of the result, the number of levels, and bytes on the GPU if it is used."""

    memory: int
    seconds: float
    shape: tuple[int, int]
    levels: int
    gpu: int = 0


def shape_of(photo: tuple[int, int], size: int | str) -> tuple[int, int]:
    """Return the height and width of the result: those of the photo, or with the longer side `size`.

    >>> shape_of((300, 400), 512)
    (384, 512)
    """
    if size == "keep":
        return photo
    factor = float(size) / max(photo)
    h, w = (max(8, round(side * factor)) for side in photo)
    return h, w


def iterations_at(options: StyleOptions, level: int) -> int:
    """Return the number of L-BFGS steps at a level, counted from the coarsest."""
    return max(1, round(options.iterations * options.ease**level)) if options.iterations else 0


def count_levels(shape: tuple[int, int], coarsest: int) -> int:
    """Return how often the shape can be halved until its longer side is about `coarsest`, plus one."""
    count = 1
    while max(shape) / 2**count >= coarsest * 0.75:
        count += 1
    return count


def cost(photo: tuple[int, int], paintings: list[tuple[int, int]], options: StyleOptions) -> Cost:
    """Estimate memory and time for a photo and paintings of these sizes (height, width).

    Memory: graphs (neighbours, weights, distances and the reversed edges of each network: `20 d` bytes per pixel), the
    maps of one network and their patches, the history of L-BFGS and its copy in a checkpoint, and the pictures.
    """
    shape = shape_of(photo, options.size)
    n = shape[0] * shape[1]
    longer = max(shape) * options.style_scale
    sources = [h * w * min(1.0, longer / max(h, w)) ** 2 for h, w in paintings]
    if options.method == "patches":
        return _cost_of_pieces(shape, photo, paintings, sources, options)
    degrees = degrees_of(options)
    edges = sum(degrees) + (options.degree if options.anchor else 0)
    a_pixel = 12 * edges + 8 * options.degree + 8 * options.maps + 12 * 48 + 60
    files = 40 * sum(h * w for h, w in [photo, *paintings])
    memory = _BASE + files + int(a_pixel * n + (20 * max(degrees) + 4 * options.maps) * max(sources))
    levels = count_levels(shape, options.coarsest)
    sizes = [n / 4 ** (levels - 1 - k) for k in range(levels)]
    if options.device != "cpu":
        seconds = sum(iterations_at(options, k) * gpu_seconds(size, options) for k, size in enumerate(sizes))
        return Cost(_GPU_HOST, _GPU_START + seconds, shape, levels, int(_GPU_MEMORY * (memory - _BASE)))
    work = sum(iterations_at(options, k) * step_seconds(size, options) for k, size in enumerate(sizes))
    return Cost(memory, 2 + work + _SECONDS_A_START * sum(sizes), shape, levels)


def largest_size(photo: tuple[int, int], paintings: list[tuple[int, int]], options: StyleOptions, memory: int) -> int:
    """Return the largest `size` whose run takes at most this memory; 0 if it is below 64 pixels or not below the asked one."""

    def fits(size: int) -> bool:
        return cost(photo, paintings, replace(options, size=size)).memory <= memory

    low, high = _LEAST_SIZE, max(shape_of(photo, options.size))
    if high <= low or not fits(low):
        return 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _cost_of_pieces(
    shape: tuple[int, int],
    photo: tuple[int, int],
    paintings: list[tuple[int, int]],
    sources: list[float],
    options: StyleOptions,
) -> Cost:
    """Estimate the preset `patches`. Memory: the patches of the paintings and of the places, and the chunks of a search."""
    n, m = shape[0] * shape[1], sum(sources)
    memory = _BASE + 40 * sum(h * w for h, w in [photo, *paintings]) + int(147 * 4 * (m + n) + 200 * n) + (200 << 20)
    levels = count_levels(shape, options.coarsest)
    work = 0.0
    for level in range(levels):
        side = [length / 2 ** (levels - 1 - level) for length in shape]
        small = int(side[0]), int(side[1])
        work += sum(rounds for _, rounds in piece_rounds(small, level)) * side[0] * side[1]
    if options.device != "cpu":
        return Cost(_GPU_HOST, _GPU_START + _GPU_PIECES, shape, levels, int(_GPU_MEMORY * (memory - _BASE)))
    return Cost(memory, 2 + _SECONDS_A_PLACE * work, shape, levels)


def piece_rounds(shape: tuple[int, int], level: int) -> list[tuple[int, int]]:
    """Return the sizes of patches at a level of the preset `patches`, each with its number of rounds.

    >>> [piece_rounds((side, side), level) for level, side in enumerate((64, 128, 256, 512))]
    [[(9, 6)], [(9, 4)], [(9, 2), (5, 2)], [(7, 1)]]
    """
    rounds = _ROUNDS[min(level, len(_ROUNDS) - 1)]
    if max(shape) > SEARCHED:
        return [(7, 1)]
    return [(9, rounds), (5, rounds)] if level == 2 else [(9, rounds)]


def step_seconds(pixels: float, options: StyleOptions) -> float:
    """Estimate the seconds of one iteration at a level with this many pixels, on this many cores."""
    degrees = degrees_of(options)
    flops = sum(4 * options.maps * (3 * d + options.maps) for d in degrees)
    rest = _SECONDS_A_PIXEL * (
        len(degrees) + (options.anchor_reach + (options.anchor_edges > 0)) * (options.anchor > 0)
    )
    return _SECONDS_A_STEP + pixels * (flops / (_GIGAFLOPS * 1e9) + rest) / (os.cpu_count() or 1)


def gpu_seconds(pixels: float, options: StyleOptions) -> float:
    """Estimate the seconds of one iteration on an H200 at a level with this many pixels."""
    degrees = degrees_of(options)
    flops = sum(4 * options.maps * (3 * d + options.maps) for d in degrees)
    averages = (options.anchor_reach + (options.anchor_edges > 0)) * (options.anchor > 0)
    return _GPU_STEP * (len(degrees) + 2 * averages) + pixels * flops / _GPU_FLOPS


def done_before(options: StyleOptions, shape: tuple[int, int], level: int, iteration: int) -> float:
    """Return the fraction of the estimated time that has passed after `iteration` steps of a level, counted from 0."""
    levels = count_levels(shape, options.coarsest)
    n = shape[0] * shape[1]
    steps = [step_seconds(n / 4 ** (levels - 1 - k), options) for k in range(levels)]
    each = [max(1, iterations_at(options, k)) * seconds for k, seconds in enumerate(steps)]
    over = sum(each[:level]) + min(iteration, max(1, iterations_at(options, level))) * steps[min(level, levels - 1)]
    return min(1.0, over / sum(each))


def degrees_of(options: StyleOptions) -> list[int]:
    """Return the degree of the graph of each network."""
    local = [side * side for side, _ in options.filters] + [min(options.degree, s * s) for s in options.scattered]
    local = [] if options.networks == "nonlocal" else local
    return local + ([] if options.networks == "local" else [options.degree])
