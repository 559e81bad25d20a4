"""A denoiser for real noise: graph layers on the lattice of time and frequency, a complex mask at the end.

1. Frames of 32 ms, one every 16 ms. Each is divided by the level of the two seconds around it, and magnitudes are
   compressed by the power 0.3. So quiet and loud recordings give the same input.
2. Four neighbouring bins become one vertex with more channels. Blocks of `GraphConv` on the 3 x 3 lattice and on the line
   of time, with growing dilation, see 2.4 s of sound.
3. Two layers between the blocks read whole frames, so that they can use all harmonics of a voice together.
4. The head returns to single bins. Each bin is a sum of bins around it with complex factors: of the same bin in five frames, and
   of its two neighbours in the same frame. So the mask changes the phase too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as tf

from glocal.apps.speech.stft import overlap_add, power_of, spectra, synthesis
from glocal.graphs.grid import grid_graph
from glocal.kernels.cpu.threads import apart
from glocal.nn.conv import GraphConv

_POWER = 0.3


@dataclass(frozen=True)
class VoiceShape:
    """The sizes of a `VoiceNet`; stored with its parameters."""

    window: int = 512
    hop: int = 256
    stem: int = 12
    fold: int = 4
    channels: int = 56
    dilations: tuple[int, ...] = (1, 2, 4, 8, 16, 24)
    frame_dilations: tuple[int, ...] = (2, 8)
    frame_maps: int = 6
    hidden: int = 112
    head: int = 8
    refined: int = 24
    taps: int = 5
    side_taps: int = 2
    level_reach: int = 62

    @property
    def bins(self) -> int:
        """Bins that the network sees; the last one (Nyquist) shares the mask of its neighbour."""
        return self.window // 2

    @property
    def offsets(self) -> tuple[tuple[int, int], ...]:
        """Where the bins lie of which a bin of the result is a sum: frames later and bins higher.

        >>> VoiceShape().offsets
        ((-2, 0), (-1, 0), (0, 0), (1, 0), (2, 0), (0, -1), (0, 1))
        """
        time, side = self.taps // 2, self.side_taps // 2
        frames = tuple((t, 0) for t in range(-time, time + 1))
        return frames + tuple((0, f) for f in range(-side, side + 1) if f)

    @property
    def frames_around(self) -> int:
        """Frames before and after one on which its mask depends."""
        layers = sum(1 + d for d in self.dilations) + sum(self.frame_dilations)
        return 3 + layers + self.level_reach + 1 + self.taps // 2

    @property
    def context(self) -> int:
        """Samples before and after a block on which its result depends."""
        return self.frames_around * self.hop + 2 * self.window


class VoiceNet(nn.Module):
    """Denoise samples by a complex mask on the spectrogram.

    Examples
    --------
    >>> VoiceNet(VoiceShape(channels=8, dilations=(1,), hidden=8))(torch.randn(1, 16000)).shape
    torch.Size([1, 16000])
    """

    def __init__(self, shape: VoiceShape | None = None) -> None:
        super().__init__()
        self.shape = shape = shape or VoiceShape()
        c, bands = shape.channels, shape.bins // shape.fold
        self.stem = GraphConv(3, shape.stem, 9)
        self.enter = GraphConv(shape.stem * shape.fold, c, 1)
        self.blocks = nn.ModuleList(_Block(c, d) for d in shape.dilations)
        self.frames = nn.ModuleList(
            _FrameLayer(c, bands, shape.frame_maps, shape.hidden, d) for d in shape.frame_dilations
        )
        self.leave = GraphConv(c, shape.head * shape.fold, 1)
        self.refine = GraphConv(shape.head + 3, shape.refined, 9)
        self.mask = GraphConv(shape.refined, 2 * len(shape.offsets), 1)
        with torch.no_grad():  # start near the identity
            self.mask.filters.mul_(0.1)
            assert self.mask.bias is not None
            self.mask.bias.zero_()
            self.mask.bias[shape.taps // 2] = 1.0

    def forward(self, samples: Tensor) -> Tensor:
        """Denoise samples (b, n) -> (b, n). Cost: linear in n."""
        shape = self.shape
        spectrum = spectra(samples, window=shape.window, hop=shape.hop)
        masked = self.filtered(spectrum, self.taps(spectrum, power_of(spectrum)))
        return synthesis(masked, window=shape.window, hop=shape.hop, length=samples.shape[-1])

    def denoise_rows(self, samples: Tensor, first: int, last: int) -> tuple[Tensor, Tensor]:
        """Denoise channels (c, n) with one common mask: samples `first` to `last`, (c, last - first), and the gain near 8 kHz.

        Two grids of frames, half a hop apart, give two results, and their mean is closer to the clean speech than each.
        Each grid has a thread of its own.
        """
        parts = apart([partial(self._on_grid, samples, first, last, shift) for shift in (0, self.shape.hop // 2)])
        out, gain = (torch.stack(part).mean(0) for part in zip(*parts, strict=True))
        return out, gain

    def _on_grid(self, samples: Tensor, first: int, last: int, shift: int) -> tuple[Tensor, Tensor]:
        """`denoise_rows` on frames that start `shift` samples earlier.

        The mask is the mean of those of the channels, loud ones counting more, so the stereo image stays.
        """
        shape, n = self.shape, samples.shape[-1] + shift
        spectrum = spectra(tf.pad(samples, (shift, 0)), window=shape.window, hop=shape.hop)
        power = power_of(spectrum)
        taps, share = self.taps(spectrum, power), self.levels(power)
        taps = (taps * (share / share.sum(0))[..., None, None]).sum(0, keepdim=True)
        out = synthesis(self.filtered(spectrum, taps), window=shape.window, hop=shape.hop, length=n)
        own = sum(side == 0 for _, side in shape.offsets)  # the same bin in other frames, not its neighbours
        high = taps[..., 3 * shape.bins // 4 :, :].unflatten(-1, (2, -1))[..., :own]
        top = high.sum(-1).square().sum(-1).sqrt().mean(-1)
        gain = overlap_add(top.clamp(max=1), window=shape.window, hop=shape.hop, length=n)
        return out[:, first + shift : last + shift], gain[0, first + shift : last + shift]

    def filtered(self, spectrum: Tensor, taps: Tensor) -> Tensor:
        """Apply the mask: complex spectra (b, t, bins + 1) -> the same shape."""
        offsets, (_, t, f) = self.shape.offsets, spectrum.shape
        factors = torch.complex(taps[..., : len(offsets)], taps[..., len(offsets) :])
        time, side = self.shape.taps // 2, self.shape.side_taps // 2
        padded = tf.pad(spectrum, (side, side, time, time))
        parts = [padded[:, time + dt : time + dt + t, side + df : side + df + f] for dt, df in offsets]
        out = parts[0] * factors[..., 0]
        for number, part in enumerate(parts[1:], 1):
            out = out + part * factors[..., number]
        return out

    def taps(self, spectrum: Tensor, power: Tensor) -> Tensor:
        """Return the factors of each bin, (b, t, bins + 1, 2 k): real parts for the k `offsets`, then imaginary parts."""
        x = self.features(spectrum, power)
        b, t, f, _ = x.shape
        fold = self.shape.fold
        y = tf.silu(on_lattice(self.stem, x, (3, 3)))
        y = on_lattice(self.enter, y.reshape(b, t, f // fold, -1), (1, 1))
        half, last = len(self.blocks) // 2, len(self.blocks) - 1
        for i, block in enumerate(self.blocks):
            for j, layer in enumerate(self.frames):
                if i == min(half + 2 * j, last):
                    y = y + layer(y)
            y = block(y)
        y = tf.silu(on_lattice(self.leave, y, (1, 1))).reshape(b, t, f, -1)
        y = tf.silu(on_lattice(self.refine, torch.cat([y, x.to(y.dtype)], -1), (3, 3)))
        taps = on_lattice(self.mask, y, (1, 1)).float()
        return torch.cat([taps, taps[:, :, -1:]], 2)

    def features(self, spectrum: Tensor, power: Tensor) -> Tensor:
        """Compressed spectra, free of the recording's level: (b, t, bins, 3)."""
        scaled = _real(spectrum[..., :-1]) / self.levels(power).sqrt()[..., None, None]
        size2 = scaled.square().sum(-1, keepdim=True) + 1e-8
        magnitude = size2 ** (_POWER / 2)
        return torch.cat([scaled * (magnitude / size2.sqrt()), magnitude], -1)

    def levels(self, power: Tensor) -> Tensor:
        """Return the mean power around each frame, (b, t)."""
        reach = self.shape.level_reach
        frames = power.mean(-1)
        both = torch.stack([frames, torch.ones_like(frames)], 1)
        total, count = tf.avg_pool1d(both, 2 * reach + 1, stride=1, padding=reach).unbind(1)
        return total / count + 1e-12


class _Norm(nn.LayerNorm):
    """Layer normalisation over the channels; on a GPU by a kernel that is made for few channels."""

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda:
            from glocal.kernels.cuda.channel_norm import channel_norm

            return channel_norm(x, self.weight, self.bias, self.eps)
        return super().forward(x)


class _Block(nn.Module):
    """A residual block: 3 x 3 on the lattice, then three steps of `dilation` in time."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.norm = _Norm(channels)
        self.near = GraphConv(channels, channels, 9)
        self.far = GraphConv(channels, channels, 3)
        self.dilation = dilation
        with torch.no_grad():
            self.far.filters.mul_(0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = tf.silu(on_lattice(self.near, self.norm(x), (3, 3)))
        return x + on_lattice(self.far, y, (3, 1), self.dilation)


class _FrameLayer(nn.Module):
    """Whole frames: all bands of a frame become the channels of one vertex on the line of time."""

    def __init__(self, channels: int, bands: int, maps: int, hidden: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.norm = _Norm(channels)
        self.gather = GraphConv(channels, maps, 1)
        self.first = GraphConv(bands * maps, hidden, 1)
        self.second = GraphConv(hidden, hidden, 3)
        self.third = GraphConv(hidden, bands * maps, 1)
        self.spread = GraphConv(maps, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        b, t, f, _ = x.shape
        y = tf.silu(on_lattice(self.gather, self.norm(x), (1, 1))).reshape(b, t, 1, -1)
        y = tf.silu(on_lattice(self.first, y, (1, 1)))
        y = tf.silu(on_lattice(self.second, y, (3, 1), self.dilation))
        y = tf.silu(on_lattice(self.third, y, (1, 1))).reshape(b, t, f, -1)
        return on_lattice(self.spread, y, (1, 1))


def on_lattice(layer: GraphConv, x: Tensor, size: tuple[int, int], dilation: int = 1) -> Tensor:
    """Apply a layer on the lattice of time and frequency: x (b, t, f, c) -> (b, t, f, maps); zeros outside."""
    shape = x.shape[1], x.shape[2]
    graph = grid_graph(shape, size=size, dilation=dilation, boundary="zero", device=x.device)
    y: Tensor = layer(x.flatten(1, 2), graph)
    return y.unflatten(1, shape)


def _real(z: Tensor) -> Tensor:
    return torch.view_as_real(z)
