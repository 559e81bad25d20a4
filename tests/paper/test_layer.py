"""Section 2 on the page: equality with convolution, isotropy, neighbours."""

import numpy as np
import pytest
import torch

from glocal.paper import drawing, layer
from glocal.paper.source import Source

HERE = Source("this run", "test")


def test_grid_graphs_equal_convolution_to_rounding():
    table, errors = layer.equality(HERE, 0)
    assert len(errors) == 16
    assert max(error for name, error in errors.items() if "float64" in name) < 1e-13
    assert max(errors.values()) < 1e-4
    assert [row[0] for row in table.rows] == ["reflect", "replicate", "circular", "zero"]


def test_a_wrong_boundary_would_show(monkeypatch):
    monkeypatch.setitem(layer._PADDING, "reflect", "replicate")
    assert layer.equality(HERE, 0)[1]["reflect 2-D float64"] > 0.1


def test_polynomials_are_isotropic_and_ours_are_not():
    figure, changes = layer.impulse_responses(HERE, 0)
    assert changes["polynomial"] < 1e-12
    assert changes["random"] > 0.5
    assert changes["slanted"] == pytest.approx(2)  # an odd filter becomes its negative
    assert len(figure.plates) == 3


def test_neighbors_are_those_of_the_graphs():
    figure, groups = layer.neighbors(24, HERE)
    assert [len(group) for group in groups["local"]] == [25] * 4
    assert [len(group) for group in groups["denoising"]] == [9] * 4
    first = groups["local"][1]
    rows, columns = np.divmod(first, 24)
    assert max(np.ptp(rows), np.ptp(columns)) == 4
    assert all(len(set(group)) == len(group) for group in groups["style"])
    assert figure.plates[0].pixels.shape == (768, 768, 3)


def test_marks_lie_on_their_vertices():
    sheet = drawing.marked(np.zeros((8, 8, 3), np.uint8), [[0, 63]], factor=4)
    assert tuple(sheet[30, 30]) == drawing.MARKS[0]
    assert tuple(sheet[30, 2]) == (0, 0, 0)


def test_tiles_are_laid_out_row_by_row():
    sheet = drawing.tiles([np.full((2, 3), i, np.uint8) for i in (10, 20, 30)], 2, gap=1)
    assert sheet.shape == (5, 7, 3)
    assert (sheet[0, 0, 0], sheet[0, 4, 0], sheet[3, 0, 0], sheet[3, 4, 0]) == (10, 20, 30, 128)


def test_anisotropy_sees_a_mirrored_filter():
    assert layer.anisotropy(torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 1.0], [0.0, 0.0, 0.0]])) == 0.5
