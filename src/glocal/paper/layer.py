"""Section 2 of the paper: what the layer is. Equal to ordinary convolution, not isotropic, local and non-local."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv1d, conv2d, pad

from glocal.color_space import lab_from_rgb, luma
from glocal.graph import Graph
from glocal.graphs.grid import BOUNDARIES, grid_graph
from glocal.graphs.patch import patch_graph
from glocal.nn import GraphConv, spectral
from glocal.paper import drawing, squares
from glocal.paper.blocks import Figure, Plate, Section, Table, Text
from glocal.paper.job import Job
from glocal.paper.source import Number, Source

_PADDING = {"reflect": "reflect", "replicate": "replicate", "circular": "circular", "zero": "constant"}
# Places on the bridge photo, as fractions of its height and width: sky, tower, cables, water.
PLACES = ((0.15, 0.75), (0.45, 0.30), (0.60, 0.62), (0.88, 0.45))


def section(job: Job) -> Section:
    """Section 2: the table of equality, both impulse responses, the neighbours of chosen pixels."""
    table, errors = equality(job.source, job.seed)
    responses, isotropy = impulse_responses(job.source, job.seed)
    drawn, vertices = neighbors(job.effort.graph_size, job.source)
    lead = Text(
        (
            "Every layer takes two inputs, a signal and a graph. The three parts below check what section 2 of the "
            "paper claims about it.",
        )
    )
    return Section(
        "layer",
        "Section 2: one layer, local and non-local",
        [lead, table, responses, drawn],
        {"max_difference": errors, "isotropy": isotropy, "neighbors": vertices},
    )


def equality(source: Source, seed: int) -> tuple[Table, dict[str, float]]:
    """Return the largest difference between `GraphConv` on a grid graph and torch's convolution, for each boundary."""
    rows, errors = [], {}
    for boundary in BOUNDARIES:
        cells: list[str | Number] = [boundary]
        for dimensions in (1, 2):
            for dtype in (torch.float64, torch.float32):
                worst = max(_difference(dimensions, size, boundary, dtype, seed) for size in (3, 5))
                cells.append(Number(worst, source, digits=-1))
                errors[f"{boundary} {dimensions}-D {str(dtype).removeprefix('torch.')}"] = worst
        rows.append(cells)
    table = Table(
        "Grid graphs equal ordinary convolution",
        ("boundary", "conv1d, float64", "conv1d, float32", "conv2d, float64", "conv2d, float32"),
        rows,
        (
            "Largest absolute difference between GraphConv on a grid graph (equation 6 with g = 1) and torch's "
            "convolution with the same filters: 3 channels to 4 maps, sizes 3 and 5, signals drawn from N(0, 1). "
            "What remains is rounding.",
        ),
    )
    return table, errors


def _difference(dimensions: int, size: int, boundary: str, dtype: torch.dtype, seed: int) -> float:
    shape = (17,) if dimensions == 1 else (12, 15)
    generator = torch.Generator().manual_seed(seed)
    layer = GraphConv(3, 4, size**dimensions, bias=False).to(dtype)
    with torch.no_grad():
        layer.filters.copy_(torch.randn(layer.filters.shape, generator=generator, dtype=torch.float64))
        x = torch.randn(*shape, 3, generator=generator, dtype=torch.float64).to(dtype)
        ours = layer(x.reshape(-1, 3), grid_graph(shape, size=size, boundary=boundary))
        image = pad(x.movedim(-1, 0).unsqueeze(0), (size // 2,) * (2 * dimensions), mode=_PADDING[boundary])
        kernel = layer.filters.permute(2, 1, 0).reshape(4, 3, *(size,) * dimensions)
        usual = (conv1d if dimensions == 1 else conv2d)(image, kernel)[0].movedim(0, -1).reshape(-1, 4)
    return float((ours - usual).abs().max())


def impulse_responses(source: Source, seed: int, *, side: int = 11) -> tuple[Figure, dict[str, float]]:
    """Answers to one bright pixel: a polynomial of the Laplacian (equation 2) and two filters of ours (equation 6)."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.zeros(side, side, dtype=torch.float64)
    x[side // 2, side // 2] = 1
    x = x.reshape(-1, 1)
    lattice = grid_graph((side, side), size=3, boundary="zero")
    lap = spectral.laplacian(spectral.adjacency(lattice).double(), normalized=True)
    polynomial = spectral.polynomial_filter(x, lap, torch.randn(3, generator=generator, dtype=torch.float64))
    along = torch.linspace(-2, 2, 5, dtype=torch.float64)
    rows, columns = torch.meshgrid(along, along, indexing="ij")
    slanted = (rows + 2 * columns) * torch.exp(-(rows**2 + columns**2) / 3)
    answers = {
        "polynomial": polynomial,
        "random": _ours(x, side, torch.randn(25, generator=generator, dtype=torch.float64)),
        "slanted": _ours(x, side, slanted.reshape(-1)),
    }
    captions = {
        "polynomial": "polynomial filter, degree 2, random coefficients; change under symmetry ",
        "random": "ours, 25 random taps; change under symmetry ",
        "slanted": "ours, a slanted edge detector; change under symmetry ",
    }
    changes = {name: anisotropy(answer.reshape(side, side)) for name, answer in answers.items()}
    plates = [
        Plate(
            f"impulse-{name}",
            drawing.enlarged(drawing.signed(answer.reshape(side, side).numpy()), 16),
            f"Impulse response: {captions[name].partition(';')[0]}",
            (captions[name], Number(changes[name], source, digits=-1 if changes[name] < 1e-3 else 2)),
            crisp=True,
        )
        for name, answer in answers.items()
    ]
    caption = (
        "Impulse responses on a lattice: red positive, blue negative. A polynomial of the lattice's Laplacian cannot "
        "tell its directions apart; a filter with one tap a neighbour can. Below each: the largest change when the "
        "response is turned or mirrored in the eight ways that keep a square, relative to its largest value "
        "(0: isotropic).",
    )
    return Figure("Polynomial filters are isotropic, ours are not", plates, 3, caption, source), changes


def _ours(x: Tensor, side: int, taps: Tensor) -> Tensor:
    layer = GraphConv(1, 1, len(taps), bias=False).double()
    with torch.no_grad():
        layer.filters.copy_(taps.view(-1, 1, 1))
        answer: Tensor = layer(x, grid_graph((side, side), size=5, boundary="zero"))
    return answer


def anisotropy(response: Tensor) -> float:
    """`max_g |h - g h| / max |h|` over the rotations and mirrorings `g` of the square; 0 for an isotropic filter.

    >>> anisotropy(torch.ones(3, 3)), anisotropy(torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
    (0.0, 1.0)
    """
    turned = [torch.rot90(h, quarter) for h in (response, response.flip(0)) for quarter in range(4)]
    return float(max((response - h).abs().max() for h in turned) / response.abs().max())


def neighbors(size: int, source: Source) -> tuple[Figure, dict[str, Any]]:
    """Return the neighbours of chosen pixels on the bridge photo: the 5x5 grid, and the two non-local graphs of the paper."""
    photo = squares.photo("bridge", size)
    rgb = torch.from_numpy(photo / np.float32(255))
    graphs = {
        "local": (grid_graph((size, size), size=5), "local: the 5 x 5 grid, 25 neighbours"),
        "style": (
            patch_graph(lab_from_rgb(rgb), k=25, patch=3, coords=1.0),
            "non-local, as in style transfer: 3 x 3 Lab patches and coordinates, 25 neighbours",
        ),
        "denoising": (
            patch_graph(luma(rgb).unsqueeze(-1), k=9, patch=7),
            "non-local, as in denoising: 7 x 7 gray patches, no coordinates, 9 neighbours",
        ),
    }
    vertices = [round(y * (size - 1)) * size + round(x * (size - 1)) for y, x in PLACES]
    groups = {name: [_group(graph, v) for v in vertices] for name, (graph, _) in graphs.items()}
    factor = max(1, 768 // size)
    plates = [
        Plate(f"neighbors-{name}", drawing.marked(photo, groups[name], factor=factor), f"Neighbours, {words}", (words,))
        for name, (_, words) in graphs.items()
    ]
    caption = (
        f"Four pixels (in the rings) of a photo of {size} x {size} pixels and their neighbours, in the same colour. "
        "The local graph is the same everywhere; the non-local ones follow edges, cables and lights.",
    )
    return Figure("The neighbours of a few pixels, local and non-local", plates, 3, caption, source), groups


def _group(graph: Graph, vertex: int) -> list[int]:
    """Return a vertex, then its other neighbours in the graph's order."""
    return [vertex, *(int(v) for v in graph.neighbors[vertex] if int(v) != vertex)]
