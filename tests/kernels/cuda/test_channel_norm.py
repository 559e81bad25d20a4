"""The GPU's normalisation over channels equals torch's, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import layer_norm

pytest.importorskip("triton", reason="the GPU's kernels are written in Triton")
from glocal.kernels.cuda import channel_norm as kernels

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(("shape", "programs"), [((3, 70, 12), 1024), ((300, 56), 2), ((1, 1), 1)])
def test_it_equals_layer_norm(shape, programs, monkeypatch):
    monkeypatch.setattr(kernels, "_PROGRAMS", programs)
    c = shape[-1]
    x, slope = 3 + torch.randn(shape, device=DEVICE), torch.randn(shape, device=DEVICE)
    inputs = [x.requires_grad_(), *(torch.randn(c, device=DEVICE, requires_grad=True) for _ in range(2))]
    found, wanted = kernels.channel_norm(*inputs), layer_norm(inputs[0], (c,), inputs[1], inputs[2])
    torch.testing.assert_close(found, wanted)
    for mine, theirs in zip(*(torch.autograd.grad(y, inputs, slope) for y in (found, wanted)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_bfloat16_is_summed_in_float32():
    x = (5 + torch.randn(100, 32, device=DEVICE)).bfloat16().requires_grad_()
    scale, shift = torch.ones(32, device=DEVICE), torch.zeros(32, device=DEVICE)
    found, wanted = kernels.channel_norm(x, scale, shift), layer_norm(x.float(), (32,))
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), wanted, rtol=1e-2, atol=1e-2)
    mine, theirs = (torch.autograd.grad(y.float().square().sum() * y.float().mean(), x)[0] for y in (found, wanted))
    assert mine.dtype == torch.bfloat16
    assert (mine.float() - theirs.float()).norm() < 0.02 * theirs.float().norm() + 0.02
