"""Residual blocks and the convolution over ranked neighbours."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from glocal import Graph, grid_graph, window_graph
from glocal.errors import ArgumentError
from glocal.nn.functional import graph_conv
from glocal.nn.ranked import GraphResidualBlock, RankedGraphConv, rank_weights
from glocal.nn.residual import Downsample, ResidualBlock, Upsample, conv3x3, lattice_filters


def unit(*shape: int) -> torch.Tensor:
    return nn.functional.normalize(torch.randn(*shape, dtype=torch.float64), dim=-1)


def test_a_convolution_equals_graph_conv_on_the_lattice() -> None:
    conv = conv3x3(4, 6).double()
    x = torch.randn(2, 4, 5, 7, dtype=torch.float64)
    graph = grid_graph((5, 7), size=3, boundary="zero")
    found = graph_conv(x.flatten(2).transpose(1, 2).contiguous(), graph, lattice_filters(conv).contiguous())
    torch.testing.assert_close(found.transpose(1, 2).reshape(2, 6, 5, 7), conv(x))


def test_ranked_conv_equals_its_equation() -> None:
    torch.manual_seed(0)
    x, e = torch.randn(30, 4, dtype=torch.float64), unit(1, 5, 6, 3)
    graph, similarities = window_graph(e, radius=2, k=3, exclude=0)
    layer = RankedGraphConv(4, 2, degree=3, channels=5).double()
    layer.logits.data.normal_()
    found = layer(x, graph, similarities)
    for i in range(30):
        scores = [torch.zeros((), dtype=torch.float64)]
        for place in range(3):
            s = e.view(30, 3)[i] @ e.view(30, 3)[graph.neighbors[i, place]]
            scores.append(layer.temperature[0] * (s - 1) + layer.logits[place])
        weights = torch.softmax(torch.stack(scores), 0)[1:]
        u = x @ layer.value.T
        wanted = sum(weights[p] * (u[graph.neighbors[i, p]] - u[i]) @ layer.filters[p] for p in range(3))
        torch.testing.assert_close(found[i], wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n", [1, 40, 8192 + 37])
def test_without_gradients_the_result_is_the_same(n: int) -> None:
    layer = RankedGraphConv(4, 6, degree=3, channels=5)
    x, graph = torch.randn(n, 4), Graph(torch.randint(n, (n, 3)))
    similarities = torch.rand(n, 3)
    wanted = layer(x, graph, similarities)
    with torch.no_grad():
        torch.testing.assert_close(layer(x, graph, similarities), wanted)
        short = layer.bfloat16()(x.bfloat16(), graph, similarities)
    assert short.dtype == torch.bfloat16
    torch.testing.assert_close(short.float(), wanted, rtol=0.02, atol=0.02 * float(wanted.abs().max() + 0.1))


def test_a_value_that_is_not_finite_stays_so_in_bfloat16() -> None:
    x = torch.zeros(4, 1, dtype=torch.bfloat16)
    x[0] = torch.tensor([0x7FFF], dtype=torch.int16).view(torch.bfloat16)  # the NaN with the largest bits
    x[1] = torch.inf
    graph, layer = Graph(torch.tensor([[0], [1], [2], [1]])), RankedGraphConv(1, 1, 1, channels=1, dtype=torch.bfloat16)
    with torch.no_grad():
        found = layer(x, graph, torch.ones(4, 1, dtype=torch.bfloat16))[:, 0]
    assert found[:2].isnan().all()  # inf - inf is not a number either
    assert found[2] == 0
    assert found[3].isinf()


def test_similarities_without_gradients_are_the_same() -> None:
    vectors = unit(1, 9, 7, 5).float().requires_grad_()
    wanted = window_graph(vectors, radius=3, k=4)
    with torch.no_grad():
        found = window_graph(vectors, radius=3, k=4)
    assert torch.equal(found.graph.neighbors, wanted.graph.neighbors)
    torch.testing.assert_close(found.similarities, wanted.similarities)


def test_gradients_reach_the_embedding() -> None:
    torch.manual_seed(0)
    x = torch.randn(16, 2, dtype=torch.float64, requires_grad=True)
    vectors = torch.randn(1, 4, 4, 3, dtype=torch.float64, requires_grad=True)
    layer = RankedGraphConv(2, 2, degree=2, channels=3).double()

    def run(x: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        e = nn.functional.normalize(vectors, dim=-1)
        return layer(x, *window_graph(e, radius=1, k=2, exclude=0))

    assert torch.autograd.gradcheck(run, (x, vectors), atol=1e-4)


def test_constants_give_nothing() -> None:
    layer = RankedGraphConv(3, 4, degree=2)
    window = window_graph(unit(1, 4, 4, 3).float(), radius=2, k=2)
    assert layer(torch.ones(16, 3), *window).abs().max() == 0


def test_rank_weights_leave_room_for_the_vertex() -> None:
    weights = rank_weights(torch.tensor([[1.0, -1.0]]), torch.tensor([5.0]), torch.zeros(2))
    assert 0.49 < float(weights[0, 0]) < 0.51
    assert float(weights[0, 1]) < 1e-4


def test_blocks_are_homogeneous() -> None:
    x = torch.randn(1, 8, 8, 8)
    window = window_graph(unit(1, 8, 8, 4).float(), radius=2, k=3, exclude=0)
    for block, more in ((ResidualBlock(8), ()), (GraphResidualBlock(8, degree=3), window)):
        torch.testing.assert_close(block(3 * x, *more), 3 * block(x, *more))


def test_autocast_keeps_the_precision_of_what_blocks_add_to() -> None:
    """Otherwise a network of many blocks rounds its signal to bfloat16 in each of them."""
    x = torch.rand(1, 4, 6, 6)
    with torch.autocast("cpu", torch.bfloat16):
        for y in (ResidualBlock(4)(x), GraphResidualBlock(4, 3)(x, *window_graph(torch.rand(6, 6, 2), radius=2, k=3))):
            assert y.dtype == torch.float32


def test_down_and_up_change_the_size_by_two() -> None:
    assert Upsample(4, 2)(Downsample(2, 4)(torch.zeros(1, 2, 6, 8))).shape == (1, 2, 6, 8)


def test_messages() -> None:
    with pytest.raises(ArgumentError, match=r"RankedGraphConv: `degree` \(=0\) must be positive"):
        RankedGraphConv(1, 1, degree=0)
    layer, graph, x = RankedGraphConv(1, 1, degree=3), Graph(torch.zeros(4, 3, dtype=torch.int32)), torch.zeros(4, 1)
    with pytest.raises(ArgumentError, match=r"`x` \(shape \(3, 1\)\) must be a tensor \(n, c\) = \(4, 1\)"):
        layer(torch.zeros(3, 1), graph, torch.ones(4, 3))
    for wrong in (torch.ones(4, 2), torch.ones(3), torch.ones(1, 3), np.ones((4, 3))):
        with pytest.raises(ArgumentError, match=r"`similarities` .* must be a tensor \(n, k\) = \(4, 3\). Use"):
            layer(x, graph, wrong)
    with pytest.raises(ArgumentError, match=r"`graph` is a NoneType, not a Graph. Build one with window_graph"):
        layer(x, None, torch.ones(4, 3))
    with pytest.raises(ArgumentError, match="the layer has degree 3, the graph 2"):
        layer(torch.zeros(4, 1), *window_graph(torch.rand(2, 2, 1), radius=1, k=2))


def test_blocks_take_a_device_and_a_dtype_and_can_be_drawn_again():
    layers = (RankedGraphConv(3, 4, 5), GraphResidualBlock(4, 5), ResidualBlock(4), Downsample(2, 4), Upsample(4, 2))
    for layer in layers:
        sizes = (layer.in_channels, layer.out_channels)
        graph = (5,) if type(layer) in (RankedGraphConv, GraphResidualBlock) else ()
        given = (*(sizes[:1] if type(layer) in (GraphResidualBlock, ResidualBlock) else sizes), *graph)
        other = type(layer)(*given, device="meta", dtype=torch.float64)
        assert {(p.device.type, p.dtype) for p in other.parameters()} == {("meta", torch.float64)}
        assert [p.shape for p in other.parameters()] == [p.shape for p in layer.parameters()]
        filters = max(layer.parameters(), key=torch.Tensor.numel)
        before = filters.detach().clone()
        layer.reset_parameters()
        assert not torch.equal(filters, before)
        assert filters.std().item() == pytest.approx(before.std().item(), rel=0.7)
