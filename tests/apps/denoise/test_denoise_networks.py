"""The denoising networks: against a forward pass written by hand, gradients, homogeneity, constraints."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glocal.apps.denoise.networks import ImageDenoiser
from glocal.apps.denoise.options import RECIPES, Architecture, TrainOptions, chain
from glocal.errors import ArgumentError

SMALL = {
    "none": Architecture("none", maps=3),
    "local": Architecture("local", maps=3),
    "nonlocal": Architecture("nonlocal", maps=3, patch=3, neighbors=4),
    "5 x 5": Architecture("nonlocal", size=5, maps=2, patch=5, neighbors=6),
}


def trained(architecture, seed=0):
    """A network whose parameters are all away from where they start."""
    net = ImageDenoiser(architecture, sigma=0.1, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in (net.analysis.filters, net.synthesis.filters):
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
        net.threshold.upper.copy_(0.2 * torch.rand(net.threshold.upper.shape, generator=generator))
        net.threshold.lower.copy_(-0.1 * torch.rand(net.threshold.lower.shape, generator=generator))
        if net.middle is not None:
            net.middle.taps.add_(0.2 * torch.randn(net.middle.taps.shape, generator=generator))
        if net.rule is not None:
            net.rule.alpha.fill_(40.0)
            net.rule.beta.fill_(0.03)
    return net


def picture(h=9, w=8, seed=3):
    return torch.rand(h, w, generator=torch.Generator().manual_seed(seed))


def by_hand(net, y):
    """Appendix B in loops, from the equations and nothing else."""
    sizes, (h, w) = net.architecture, y.shape
    y = y.double().numpy()
    half = sizes.size // 2
    h1, h2 = net.analysis.filters.detach().double().numpy(), net.synthesis.filters.detach().double().numpy()
    up, low = net.threshold.upper.detach().double().numpy(), net.threshold.lower.detach().double().numpy()
    taps = None if net.middle is None else net.middle.taps.detach().double().numpy()

    def window(plane, i, j):
        return np.pad(plane, half, mode="reflect")[i : i + sizes.size, j : j + sizes.size].reshape(-1)

    z = np.zeros((h, w, sizes.maps))
    for i in range(h):
        for j in range(w):
            for m in range(sizes.maps):
                a = float(window(y, i, j) @ h1[:, 0, m])
                z[i, j, m] = a - up[m] if a >= up[m] else a - low[m] if a <= low[m] else 0.0
    if sizes.middle == "local":
        z = np.stack(
            [[[window(z[..., m], i, j) @ taps for j in range(w)] for i in range(h)] for m in range(sizes.maps)], -1
        )
    if sizes.middle == "nonlocal":
        q, r = sizes.patch // 2, sizes.patch**2
        padded = np.pad(y, q, mode="reflect")
        f = np.array([padded[i : i + sizes.patch, j : j + sizes.patch].reshape(-1) for i in range(h) for j in range(w)])
        alpha, beta = float(net.rule.alpha.detach()), float(net.rule.beta.detach())
        flat, out = z.reshape(-1, sizes.maps), np.zeros((h * w, sizes.maps))
        for i in range(h * w):
            d2 = ((f - f[i]) ** 2).sum(1)
            near = np.argsort(d2, kind="stable")[: sizes.neighbors]
            weights = np.exp(-alpha * np.maximum(d2[near] / r - beta, 0))
            g = sizes.neighbors * weights / weights.sum()
            out[i] = sum(taps[k] * g[k] * flat[near[k]] for k in range(sizes.neighbors))
        z = out.reshape(h, w, sizes.maps)
    x = [[sum(window(z[..., m], i, j) @ h2[:, m, 0] for m in range(sizes.maps)) for j in range(w)] for i in range(h)]
    return torch.tensor(x)


@pytest.mark.parametrize("name", SMALL)
def test_forward_equals_the_equations_in_loops(name):
    net, y = trained(SMALL[name]), picture()
    found = net(y.reshape(-1, 1), net.graphs(y)).reshape(y.shape)
    torch.testing.assert_close(found.double(), by_hand(net, y), rtol=1e-4, atol=1e-5)


def test_gradients_of_everything_learned_alpha_and_beta_included():
    net, y = trained(SMALL["nonlocal"]).double(), picture(6, 5)
    graphs = net.graphs(y)
    names = [name for name, _ in net.named_parameters()]
    assert {"rule.alpha", "rule.beta", "middle.taps"} <= set(names)

    def run(noisy, *values):
        return torch.func.functional_call(net, dict(zip(names, values)), (noisy, graphs))

    inputs = [y.double().reshape(-1, 1), *(p.detach() for p in net.parameters())]
    assert torch.autograd.gradcheck(run, [t.clone().requires_grad_() for t in inputs], eps=1e-7, atol=1e-5)
    run(*(t.requires_grad_() for t in inputs)).sum().backward()
    for name, value in zip(names, inputs[1:]):
        assert float(value.grad.abs().max()) > 0, name


@given(scale=st.floats(0.05, 20), seed=st.integers(0, 50), name=st.sampled_from(sorted(SMALL)))
@settings(max_examples=20, deadline=None)
def test_scaling_the_noise_scales_the_result(scale, seed, name):
    net, y = trained(SMALL[name], seed).double(), picture(8, 7, seed).double()
    plain = net(y.reshape(-1, 1), net.graphs(y))
    other = net.at_sigma(scale * net.sigma)
    graphs = net.graphs(y)
    if "similar" in graphs:  # the graph itself does not change; its distances do
        similar = graphs["similar"]
        moved = type(similar)(similar.neighbors, None, similar.distances * scale)
        graphs = {**graphs, "similar": moved}
    torch.testing.assert_close(other(scale * y.reshape(-1, 1), graphs), scale * plain, rtol=1e-5, atol=1e-6 * scale)


def test_neighbours_stay_when_the_picture_is_scaled_by_a_power_of_two():
    net, y = trained(SMALL["nonlocal"]), picture()
    a, b = net.graphs(y)["similar"], net.graphs(4 * y)["similar"]
    assert torch.equal(a.neighbors, b.neighbors)
    assert torch.equal(4 * a.distances, b.distances)


def test_start_is_the_papers():
    net = ImageDenoiser(Architecture("nonlocal"), sigma=0.07, seed=1)
    assert torch.equal(net.analysis.filters[:, 0, 0], torch.full((9,), 1 / 9))
    assert torch.equal(net.synthesis.filters[:, 0, 0], torch.full((9,), 1 / 9))
    others = net.analysis.filters[:, 0, 1:]
    assert 0.008 < float(others.detach().std()) < 0.012
    assert torch.equal(net.middle.taps, torch.full((9,), 1 / 9))
    assert net.rule.alpha.item() == pytest.approx(1 / (0.40 * 0.07**2))
    assert net.rule.beta.item() == pytest.approx(2 * 0.07**2)
    assert not net.threshold.upper.any()
    assert not net.threshold.lower.any()
    assert sum(p.numel() for p in net.parameters()) == 2 * 9 * 18 + 2 * 18 + 9 + 2


def test_projection_restores_every_constraint():
    net = ImageDenoiser(Architecture("nonlocal"))
    with torch.no_grad():
        net.threshold.upper.fill_(-1.0)
        net.threshold.lower.fill_(1.0)
        net.rule.beta.fill_(-0.5)
    net.project()
    assert float(net.threshold.upper.max()) == 0 == float(net.threshold.lower.min())
    assert net.rule.beta.item() == 0


def test_recipes_end_in_networks_of_one_size():
    for name in RECIPES:
        sizes = {(RECIPES[step].architecture.size, RECIPES[step].architecture.maps) for step in chain(name)}
        assert len(sizes) == 1
    assert chain("wide") == ("wide-pretrain", "wide-start", "wide")


def test_messages():
    with pytest.raises(ArgumentError, match=r"`middle` \(='both'\) is unknown. Choose one of none, local, nonlocal"):
        Architecture("both")
    with pytest.raises(ArgumentError, match=r"`sigma` \(=0\) must be positive"):
        ImageDenoiser(Architecture("none"), sigma=0)
    with pytest.raises(ArgumentError, match=r"`recipe` \(='deep'\) must be one of pretrain, local"):
        TrainOptions("deep")
    with pytest.raises(ArgumentError, match=r"`sigma` \(=-1\) must be above 0"):
        TrainOptions(sigma=-1)
    with pytest.raises(ArgumentError, match=r"`epochs` \(=0\) must be a whole number of at least 1"):
        TrainOptions(epochs=0)
    with pytest.raises(ArgumentError, match=r"`every` \(=0\) must be a whole number of at least 1"):
        TrainOptions(every=0)
