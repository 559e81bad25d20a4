"""The pieces of the speech denoisers: measures, transforms, noises, the floor, the paper's networks, the frame layers."""

import math

import numpy as np
import pytest
import torch

from glocal import knn_graph
from glocal.apps.speech import noises
from glocal.apps.speech.floor import noise_floor, segment_levels, sigma_of
from glocal.apps.speech.frames import FrameNet, FrameShape, similar_frames
from glocal.apps.speech.metrics import si_sdr, snr
from glocal.apps.speech.networks import SampleNet
from glocal.apps.speech.stft import overlap_add, power_of, spectra, synthesis
from glocal.apps.speech.wiener import wiener
from glocal.errors import ArgumentError

TINY = FrameShape(
    window=128, hop=32, hidden=6, layers=2, maps=3, grid_layers=2, neighbors=3, radius=9, reach=24, step=6
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def speechlike(n, seed=0):
    """A voice of sorts: harmonics of a gliding pitch, in syllables."""
    t = np.arange(n) / 16000
    pitch = 2 * np.pi * np.cumsum(120 + 30 * np.sin(2 * np.pi * 0.7 * t + seed)) / 16000
    voice = sum(np.sin(h * pitch) / h for h in range(1, 15))
    return (0.2 * voice * np.clip(np.sin(2 * np.pi * 2.1 * t), 0, None)).astype(np.float32)


def test_snr_and_si_sdr_agree_with_their_definitions():
    x, e = torch.randn(4000, generator=seeded()), torch.randn(4000, generator=seeded(1))
    assert snr(x + 0.1 * e, x) == pytest.approx(20, abs=0.3)
    assert si_sdr(5 * (x + 0.1 * e), x) == pytest.approx(float(si_sdr(x + 0.1 * e, x)), abs=1e-3)
    assert snr(5 * x, x) == pytest.approx(-10 * math.log10(16), abs=1e-3)


@pytest.mark.parametrize(("n", "window", "hop"), [(1, 128, 32), (50, 128, 32), (1000, 128, 32), (999, 640, 160)])
def test_synthesis_undoes_spectra(n, window, hop):
    x = torch.randn(2, n, generator=seeded())
    back = synthesis(spectra(x, window=window, hop=hop), window=window, hop=hop, length=n)
    torch.testing.assert_close(back, x, atol=1e-5, rtol=1e-5)


def test_overlap_add_keeps_constants():
    follow = overlap_add(torch.full((1, 12), 0.3), window=128, hop=32, length=9 * 32)
    torch.testing.assert_close(follow, torch.full_like(follow, 0.3))


def test_floor_finds_the_power_of_white_noise_under_bursts():
    noise = 0.1 * torch.randn(1, 32000, generator=seeded())
    noise[:, 8000:20000] += 2 * torch.from_numpy(speechlike(12000))
    power = power_of(spectra(noise, window=640, hop=160))
    floor = noise_floor(power, reach=200, step=25)
    true = 0.01 * 320
    assert 0.6 < float(floor[:, :, 200:].median()) / true < 1.5
    assert 0.6 < float(floor[:, :60].median()) / true < 1.5


def test_floor_follows_the_gain_and_survives_silence():
    power = torch.rand(1, 80, 9, generator=seeded()) + 0.1
    torch.testing.assert_close(noise_floor(power * 16, reach=24, step=6), 16 * noise_floor(power, reach=24, step=6))
    assert torch.isfinite(noise_floor(torch.zeros(1, 80, 9), reach=24, step=6)).all()
    gaps = power.clone()
    gaps[:, 20:60] = 0  # muted parts say nothing about the noise
    assert float(noise_floor(gaps, reach=24, step=6).min()) > 0.05


@pytest.mark.parametrize("sigma", [0.001, 0.05, 0.3])
def test_sigma_of_white_noise_under_speech(sigma):
    y = torch.from_numpy(speechlike(48000)) + sigma * torch.randn(48000, generator=seeded())
    assert sigma_of(segment_levels(y)) == pytest.approx(sigma, rel=0.06)
    assert sigma_of(segment_levels(torch.zeros(48000))) == 0
    assert sigma_of(segment_levels(torch.zeros(1))) == 0


def test_noises_have_unit_power_and_their_colour():
    for make in (noises.white, noises.coloured, noises.hum):
        noise = make((4, 16000), seeded())
        torch.testing.assert_close(noise.square().mean(-1), torch.ones(4), atol=0.05, rtol=0)
    pink = torch.fft.rfft(noises.coloured((1, 16000), seeded(), slope=1.0)).abs().square()[0]
    assert float(pink[1000:2000].mean() / pink[4000:8000].mean()) == pytest.approx(4, rel=0.2)
    hum = torch.fft.rfft(noises.hum((1, 16000), seeded())).abs()[0]
    assert int(hum.argmax()) % 50 == 0 or int(hum.argmax()) % 60 == 0
    clean = torch.randn(3, 1000, generator=seeded())
    scaled = noises.at_snr(clean, torch.randn(3, 1000, generator=seeded(1)), torch.tensor([-5.0, 0.0, 15.0]))
    torch.testing.assert_close(snr(clean + scaled, clean), torch.tensor([-5.0, 0.0, 15.0]), atol=1e-3, rtol=0)
    mixed, is_white = noises.mixture((64, 256), seeded())
    assert mixed.shape == (64, 256)
    assert 0.3 < is_white.float().mean() < 0.8


def test_wiener_gains_several_decibels_on_a_voice():
    clean = torch.from_numpy(speechlike(16000))[None]
    noise = noises.at_snr(clean, noises.white((1, 16000), seeded()), 0.0)
    out = wiener(clean + noise, sigma=float(noise.std()))
    assert float(si_sdr(out, clean)) > 6


def test_paper_network_is_conv1d_with_a_soft_threshold():
    net = SampleNet("local", seed=3)
    with torch.no_grad():
        net.net.layers[1].upper.fill_(0.02)
        net.net.layers[1].lower.fill_(-0.01)
    y = torch.randn(1, 200, generator=seeded())
    first, middle, last = (net.net.layers[i].filters.permute(2, 1, 0) for i in (0, 2, 3))

    def convolve(x, h):
        return torch.conv1d(torch.nn.functional.pad(x, (2, 2), mode="reflect"), h)

    hidden = convolve(y[None], first)
    hidden = torch.relu(hidden - 0.02) - torch.relu(-0.01 - hidden)
    torch.testing.assert_close(net(y)[None], convolve(convolve(hidden, middle), last))


def test_paper_network_has_its_sizes_and_start():
    local, similar = SampleNet("local"), SampleNet("nonlocal")
    filters = [sum(p.numel() for p in net.net.parameters()) for net in (local, similar)]
    assert filters == [50 + 20 + 500 + 50] * 2
    assert float(similar.rule.alpha.detach()) == pytest.approx(1 / 0.12**2)
    assert float(similar.rule.beta.detach()) == 0
    torch.testing.assert_close(local.net.layers[0].filters[:, 0, 0], torch.full((5,), 0.2))
    middle = local.net.layers[2].filters.detach()
    torch.testing.assert_close(middle.diagonal(dim1=1, dim2=2), torch.full((5, 10), 0.2))
    assert float(middle[:, ~torch.eye(10, dtype=torch.bool)].std()) == pytest.approx(0.01, rel=0.2)
    y = torch.randn(2, 300, generator=seeded())
    assert similar(y).shape == (2, 300)
    with pytest.raises(ArgumentError, match=r"`middle` \(='far'\) is unknown. Choose one of local, nonlocal"):
        SampleNet("far")


def test_paper_network_is_homogeneous_once_thresholds_scale():
    """With thresholds at 0 the local network is linear; scaling by the noise level relies on it."""
    net = SampleNet("local", seed=1)
    y = torch.randn(1, 100, generator=seeded())
    torch.testing.assert_close(net(3 * y), 3 * net(y))


def plain_layer(layer, x, dilation):
    """A layer on the line (b, t, c) or the grid (b, t, f, c), as a convolution in torch."""
    d, c, m = layer.filters.shape
    axes = x.ndim - 2
    side = round(d ** (1 / axes))
    weight = layer.filters.permute(2, 1, 0).reshape(m, c, *[side] * axes)
    conv = torch.nn.functional.conv1d if axes == 1 else torch.nn.functional.conv2d
    y = conv(x.movedim(-1, 1), weight, layer.bias, padding=side // 2 * dilation, dilation=dilation)
    return y.movedim(1, -1)


def test_grid_layers_are_convolutions():
    torch.manual_seed(0)
    net = FrameNet(FrameShape(maps=5, grid_layers=5))
    x = torch.randn(2, 20, 11, 4)
    y = torch.nn.functional.leaky_relu(plain_layer(net.spread, x, 1), 0.1)
    for layer, dilation in zip(net.grid, (1, 2, 4, 8, 1), strict=True):
        y = y + torch.nn.functional.leaky_relu(plain_layer(layer, y, dilation), 0.1)
    expected = plain_layer(net.gain, y, 1)[..., 0] + x[..., 3]
    torch.testing.assert_close(net.grid_layers(x), expected, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(net.grid_layers(x), expected, rtol=1e-4, atol=1e-5)


def test_frame_layers_are_convolutions_and_a_layer_between_similar_frames():
    torch.manual_seed(0)
    net = FrameNet(TINY)
    x = torch.randn(2, 15, 3 * TINY.bins)
    graph = knn_graph(torch.randn(30, 4), k=3).with_weights(torch.rand(30, 3))
    y = torch.nn.functional.leaky_relu(plain_layer(net.enter, x, 1), 0.1)
    y = y + torch.nn.functional.leaky_relu(plain_layer(net.before[0], y, 1), 0.1)
    patches = y.reshape(30, -1)[graph.neighbors.long()] * graph.weights.unsqueeze(-1)
    between = torch.einsum("ndc,dcm->nm", patches, net.similar.filters) + net.similar.bias
    y = y + torch.nn.functional.leaky_relu(between, 0.1).view(2, 15, -1)
    y = y + torch.nn.functional.leaky_relu(plain_layer(net.after[0], y, 1), 0.1)
    torch.testing.assert_close(net.frame_layers(x, graph), plain_layer(net.leave, y, 1), rtol=1e-4, atol=1e-5)


def test_similar_frames_are_the_nearest_within_reach():
    above = torch.randn(2, 30, 16, generator=seeded())
    graph = similar_frames(above, k=4, radius=29, bands=16)
    smooth = torch.nn.functional.pad(above.transpose(1, 2), (1, 1), mode="replicate").unfold(2, 3, 1).mean(-1)
    for row in range(2):
        expected = knn_graph(smooth[row].T, k=4)
        assert graph.neighbors[row * 30 : row * 30 + 30].tolist() == (expected.neighbors + row * 30).tolist()
    near = similar_frames(above, k=4, radius=5, bands=16).neighbors
    assert int((near - torch.arange(60).unsqueeze(1)).abs().max()) <= 5
    assert similar_frames(above[:, :2], k=4, radius=5, bands=16).degree == 4


def test_frame_net_ignores_the_gain_and_the_tiling(monkeypatch):
    torch.manual_seed(0)
    net = FrameNet(TINY).eval()
    y = torch.randn(1, 4000, generator=seeded())
    with torch.no_grad():
        torch.testing.assert_close(net(1000 * y), 1000 * net(y), rtol=1e-3, atol=1e-2)
        small = net(y)
        monkeypatch.setattr("glocal.apps.speech.frames._TILE", 7)
        torch.testing.assert_close(net(y), small, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net(y), small, rtol=1e-4, atol=1e-5)  # with gradients: no tiles


def test_frame_net_learns_from_every_part():
    net = FrameNet(TINY)
    net(torch.randn(2, 1500, generator=seeded())).square().sum().backward()
    silent = [name for name, p in net.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert silent == []
    with torch.no_grad():
        net.rule.beta.fill_(-1)
    net.project()
    assert float(net.rule.beta.detach()) == 0
