"""A denoiser whose vertices are the frames of a spectrogram: local in time and frequency, non-local between frames.

1. Frames of 40 ms, one every 10 ms; `a = log10` of each band's power over the noise floor, `b` = the shape of that floor. Both ignore
   the level of the recording.
2. The graph joins each frame to the most similar ones within a second; one filter shared by all bands averages `a`
   over them, with the NL-means weights of equation B.2 (learned alpha and beta): the paper's non-local image layer.
3. Frame layers work on whole spectra: `GraphConv` on the local graph in time, and on the graph of similar frames.
4. Grid layers work on single bands: `GraphConv` on the 3x3 grid of time and frequency, at several dilations.
   Their output is a gain between 0 and 1 for each band.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as tf

from glocal.apps.speech.floor import noise_floor
from glocal.apps.speech.stft import overlap_add, power_of, spectra, synthesis
from glocal.errors import ArgumentError
from glocal.graph import Graph
from glocal.graphs.grid import grid_graph
from glocal.graphs.weights import NLMeans, normalize
from glocal.nn.conv import GraphConv, SharedGraphConv

_ROWS = 256  # frames whose neighbours are searched at a time
_LARGEST = 65536  # limit of every size: a larger one means a damaged file
_TILE = 512  # frames that pass the grid layers at a time, to bound the memory


@dataclass(frozen=True)
class FrameShape:
    """The sizes of a `FrameNet`; stored with its parameters."""

    window: int = 640
    hop: int = 160
    hidden: int = 160
    layers: int = 4
    maps: int = 16
    grid_layers: int = 5
    neighbors: int = 8
    radius: int = 100
    reach: int = 200
    step: int = 25
    bands: int = 32

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or not 1 <= value <= _LARGEST:
                message = (
                    f"FrameShape: `{field.name}` (={value!r}) must be a whole number from 1 to {_LARGEST}. "
                    f"The model that ships has {field.default}."
                )
                raise ArgumentError(message)

    @property
    def bins(self) -> int:
        """Frequency bins of a frame."""
        return self.window // 2 + 1

    @property
    def frames_around(self) -> int:
        """The number of frames before and after one on which its gains depend, without the noise floor."""
        lines = 2 * sum(2**i for i in range(self.layers // 2))
        return 2 * self.radius + lines + self.grid_around + 2  # and the smoothing before each search

    @property
    def grid_around(self) -> int:
        """The number of frames before and after one that the grid layers read."""
        return 2 + sum(2 ** (i % 4) for i in range(self.grid_layers))

    @property
    def context(self) -> int:
        """The number of samples before and after a block on which its result depends."""
        return (self.frames_around + self.reach + 2 * self.step) * self.hop + 2 * self.window


class FrameNet(nn.Module):
    """Denoise samples by a gain for each frame and band.

    >>> FrameNet(FrameShape(hidden=8, layers=2, maps=4, grid_layers=2))(torch.randn(1, 16000)).shape
    torch.Size([1, 16000])
    """

    def __init__(self, shape: FrameShape | None = None, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = shape = shape or FrameShape()
        bins, hidden, maps, k = shape.bins, shape.hidden, shape.maps, shape.neighbors
        self.average = SharedGraphConv(k)
        self.rule = NLMeans(r=shape.bands, alpha=4.0, beta=0.0)
        self.enter = GraphConv(3 * bins, hidden, 1)
        self.before = nn.ModuleList(GraphConv(hidden, hidden, 3) for _ in range(shape.layers // 2))
        self.similar = GraphConv(hidden, hidden, k)
        self.after = nn.ModuleList(GraphConv(hidden, hidden, 3) for _ in range(shape.layers // 2))
        self.leave = GraphConv(hidden, bins, 1)
        self.spread = GraphConv(4, maps, 9)
        self.grid = nn.ModuleList(GraphConv(maps, maps, 9) for _ in range(shape.grid_layers))
        self.gain = GraphConv(maps, 1, 9)
        self.dropout = nn.Dropout(dropout)

    def forward(self, samples: Tensor, floor: Tensor | None = None) -> Tensor:
        """Denoise samples (b, n) -> (b, n). `floor` (b, t, bins) or broadcastable: the noise power, if it is known."""
        spectrum = spectra(samples, window=self.shape.window, hop=self.shape.hop)
        gains = self.gains(power_of(spectrum), floor)
        return synthesis(spectrum * gains, window=self.shape.window, hop=self.shape.hop, length=samples.shape[-1])

    def denoise_rows(self, samples: Tensor, first: int, last: int, floor: Tensor | None) -> tuple[Tensor, Tensor]:
        """Channels (c, n) with one common gain: samples `first` to `last`, (c, last - first), and the gain near 8 kHz.

        The noise floor is taken from all of `samples`; the layers run only on the frames that the result depends on.
        """
        shape = self.shape
        spectrum = spectra(samples, window=shape.window, hop=shape.hop)
        power = power_of(spectrum).mean(0, keepdim=True)
        floor = noise_floor(power, reach=shape.reach, step=shape.step) if floor is None else floor.expand_as(power)
        over = shape.window // shape.hop
        low = max(0, first // shape.hop - shape.frames_around)
        high = min(power.shape[1], -(-last // shape.hop) + over + shape.frames_around)
        gains = self.gains(power[:, low:high], floor[:, low:high])
        whole = torch.ones_like(power)
        whole[:, low:high] = gains
        n = samples.shape[-1]
        out = synthesis(spectrum * whole, window=shape.window, hop=shape.hop, length=n)[:, first:last]
        top = whole[..., 3 * shape.bins // 4 :].mean(-1)
        return out, overlap_add(top, window=shape.window, hop=shape.hop, length=n)[0, first:last]

    def gains(self, power: Tensor, floor: Tensor | None = None) -> Tensor:
        """Return the gain of every band, from power spectra (b, t, bins) to (b, t, bins). Cost: O(b t) layers."""
        if floor is None:
            floor = noise_floor(power, reach=self.shape.reach, step=self.shape.step)
        above, colour = features(power, floor.expand_as(power))
        graph = self.graph(above)
        assert graph.distances is not None
        graph = graph.with_weights(normalize(self.rule(graph.distances)))
        b, t, f = power.shape
        typical = self.average(above.reshape(b * t, f), graph).view(b, t, f)
        logits = self.frame_layers(torch.cat([above, typical, colour], -1), graph)
        return self.grid_layers(torch.stack([above, typical, colour, logits], -1)).sigmoid()

    def graph(self, above: Tensor) -> Graph:
        """Return the graph of the non-local layers, from `features` (b, t, bins): b t vertices, with distances."""
        return similar_frames(above, k=self.shape.neighbors, radius=self.shape.radius, bands=self.shape.bands)

    def frame_layers(self, x: Tensor, graph: Graph) -> Tensor:
        """(b, t, 3 bins) -> (b, t, bins)."""
        b, t, _ = x.shape
        alone = grid_graph((t,), size=1, device=x.device)
        lines = [grid_graph((t,), dilation=2**i, boundary="zero", device=x.device) for i in range(len(self.before))]
        x = tf.leaky_relu_(self.enter(x, alone), 0.1)
        for layer, line in zip(self.before, lines, strict=True):
            x = x + tf.leaky_relu_(layer(self.dropout(x), line), 0.1)
        y = self.similar(self.dropout(x).reshape(b * t, -1), graph)
        x = x + tf.leaky_relu_(y, 0.1).view(b, t, -1)
        for layer, line in zip(self.after, lines, strict=True):
            x = x + tf.leaky_relu_(layer(self.dropout(x), line), 0.1)
        logits: Tensor = self.leave(self.dropout(x), alone)
        return logits

    def grid_layers(self, x: Tensor) -> Tensor:
        """(b, t, bins, 4) -> (b, t, bins). Without gradients, in tiles of bounded memory."""
        if torch.is_grad_enabled():
            return self._grid_tile(x)
        around, t = self.shape.grid_around, x.shape[1]
        parts = []
        for start in range(0, t, _TILE):
            low, high = max(0, start - around), min(t, start + _TILE + around)
            parts.append(self._grid_tile(x[:, low:high])[:, start - low : start - low + _TILE])
        return torch.cat(parts, 1)

    def _grid_tile(self, x: Tensor) -> Tensor:
        b, t, f, _ = x.shape
        grids = [grid_graph((t, f), dilation=2**i, boundary="zero", device=x.device) for i in range(4)]
        skip = x[..., 3]
        x = tf.leaky_relu_(self.spread(x.reshape(b, t * f, -1), grids[0]), 0.1)
        for i, layer in enumerate(self.grid):
            y = tf.leaky_relu_(layer(x, grids[i % 4]), 0.1)
            x = x + y if torch.is_grad_enabled() else y.add_(x)
        return self.gain(x, grids[0]).view(b, t, f) + skip

    def project(self) -> None:
        """Move alpha and beta of the edge weights back to allowed values. Call it after each optimiser step."""
        self.rule.project()


def features(power: Tensor, floor: Tensor) -> tuple[Tensor, Tensor]:
    """`log10` of the power over the floor, and of the floor over its own level; neither changes with the gain."""
    above = torch.log10(power / floor + 0.01).clamp(max=6.0)
    colour = torch.log10(floor)
    return above, (colour - colour.mean(-1, keepdim=True)).clamp(-3.0, 3.0)


def similar_frames(above: Tensor, *, k: int, radius: int, bands: int) -> Graph:
    """Join every frame to the `k` most similar within `radius` frames, itself first: (b, t, f) -> b t vertices.

    Frames are compared by the mean of `above` in `bands` equal bands, each smoothed over 3 frames. Frames of
    different rows of the batch are never joined. Cost: O(b t radius bands).
    """
    b, t, _ = above.shape
    coarse = tf.adaptive_avg_pool1d(above.detach(), bands)
    coarse = tf.avg_pool1d(tf.pad(coarse.transpose(1, 2), (1, 1), mode="replicate"), 3, stride=1).transpose(1, 2)
    parts = [_nearest(coarse, start, k, radius) for start in range(0, t, _ROWS)]
    kept, found = (torch.cat(part, 1) for part in zip(*parts, strict=True))
    if k > t:  # fewer frames than neighbours: repeat the farthest
        kept = torch.cat([kept, kept[..., -1:].expand(-1, -1, k - t)], 2)
        found = torch.cat([found, found[..., -1:].expand(-1, -1, k - t)], 2)
    found = found + torch.arange(b, device=above.device).view(b, 1, 1) * t
    return Graph(found.reshape(b * t, k), None, kept.clamp(min=0).reshape(b * t, k))


def _nearest(coarse: Tensor, start: int, k: int, radius: int) -> tuple[Tensor, Tensor]:
    """Distances and frame numbers of the `k` nearest of `_ROWS` frames; each distance is summed in one order."""
    t = coarse.shape[1]
    first, last = max(0, start - radius), min(t, start + _ROWS + radius)
    rows = coarse[:, start : start + _ROWS]
    distances = torch.cdist(rows, coarse[:, first:last], compute_mode="donot_use_mm_for_euclid_dist")
    distances = distances + _band(start - first, rows.shape[1], last - first, radius, coarse.device)
    kept, found = distances.topk(min(k, t), dim=2, largest=False, sorted=True)
    return kept, found + first


@lru_cache(maxsize=8)
def _band(offset: int, rows: int, columns: int, radius: int, device: torch.device) -> Tensor:
    """Return a term for the distances, so that the frame itself comes first and frames beyond the radius never do."""
    apart = torch.arange(columns) - torch.arange(rows).unsqueeze(1) - offset
    band = torch.zeros(rows, columns).masked_fill(apart.abs() > radius, torch.inf).masked_fill(apart == 0, -1.0)
    return band.to(device)
