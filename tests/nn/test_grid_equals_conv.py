"""GraphConv on grid graphs is the ordinary convolution, for every dimension, boundary and dilation."""

import pytest
import torch
from torch.nn import functional as F

import glocal

PAD = {"reflect": "reflect", "replicate": "replicate", "circular": "circular", "zero": "constant"}
CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("boundary", PAD)
@pytest.mark.parametrize(("shape", "size"), [((11,), 5), ((9, 12), 3), ((9, 12), 5), ((6, 5, 7), 3), ((9, 12), (3, 5))])
def test_equals_conv(shape, size, boundary, dilation, dtype):
    torch.manual_seed(0)
    sizes = (size,) * len(shape) if isinstance(size, int) else size
    x = torch.randn(2, 3, *shape, dtype=dtype)
    kernel = torch.randn(4, 3, *sizes, dtype=dtype)
    pads = [p for s in reversed(sizes) for p in 2 * [s // 2 * dilation]]
    expected = CONV[len(shape)](F.pad(x, pads, mode=PAD[boundary]), kernel, dilation=dilation)

    g = glocal.grid_graph(shape, size=size, dilation=dilation, boundary=boundary)
    filters = kernel.flatten(2).permute(2, 1, 0)
    y = glocal.nn.functional.graph_conv(x.flatten(2).transpose(1, 2), g, filters)

    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    ours = y.transpose(1, 2).reshape(expected.shape)
    assert float((ours - expected).abs().max()) <= tolerance * float(expected.abs().max())


def test_dilation_beyond_the_signal_reflects_again():
    g = glocal.grid_graph((3,), size=3, dilation=7)
    assert g.neighbors.tolist() == [[1, 0, 1], [2, 1, 0], [1, 2, 1]]


def test_the_module_equals_conv2d_with_bias():
    layer = glocal.nn.GraphConv(3, 8, degree=9)
    torch.nn.init.normal_(layer.bias)
    x = torch.randn(20, 3)
    kernel = layer.filters.permute(2, 1, 0).reshape(8, 3, 3, 3)
    expected = F.conv2d(F.pad(x.T.reshape(1, 3, 4, 5), (1, 1, 1, 1), mode="reflect"), kernel, layer.bias)
    y = layer(x, glocal.grid_graph((4, 5), size=3))
    torch.testing.assert_close(y.T.reshape(1, 8, 4, 5), expected, rtol=1e-5, atol=1e-5)
