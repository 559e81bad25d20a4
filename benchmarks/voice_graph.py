"""Measure what a non-local graph adds to the speech model `voice`.

    python benchmarks/voice_graph.py DATA -o RUNS --kind similar --seed 0 [--device cuda] [--steps 800]
    python benchmarks/voice_graph.py DATA -o RUNS --kind local noise --seconds 30
    python benchmarks/voice_graph.py DATA -o RUNS --kind local noise --seconds 180 --steps 120
    python benchmarks/voice_graph.py DATA -o RUNS --table

The shipped network stays fixed. One layer is added before its last block, which starts as zero and is trained. All kinds
have the same layer, steps and mixtures; only the graph differs:

- local: the nearest frames in time; random: any frames
- similar: the frames with the most similar spectra
- noise: the most similar ones among the quiet frames, which hold little speech
- attention: the frames that a learned similarity finds, which also weighs the edges
- harmonics: bins of the same frame, one and two pitches away; bins: the nearest bins

The excerpts have 4 s. `--seconds 30` tries graphs that reach as far: each excerpt joins several recordings of speech, and
noises that are shorter are repeated, so a graph can find the same noise again under other speech. `--seconds 180` tries
graphs over minutes: the noise changes every 5 s, and each of 18 noises returns once, 90 s later.

DATA is a folder with `clean/` and `noise/`, or a packed file. `--table` compares the SI-SDR on the validation recordings.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as tf

from glocal.apps.speech.metrics import si_sdr
from glocal.apps.speech.mixing import RATE, Mixer, Recordings
from glocal.apps.speech.models import load_voice, shape_of
from glocal.apps.speech.voice import VoiceNet, on_lattice
from glocal.apps.speech.voice_loss import voice_loss
from glocal.apps.speech.voice_training import load_recordings, validation_set
from glocal.graph import Graph
from glocal.nn.conv import GraphConv

RESULTS = Path(__file__).resolve().parent / "results" / "voice_graph.json"
FRAMES = ("local", "random", "similar", "noise", "attention")
BINS = ("bins", "harmonics")
DEGREE, HIDDEN, MAPS = 9, 112, 6
SHORT = 4  # seconds of an excerpt
SOUND = 64  # seconds of sound in a step; at least one excerpt
PERIOD, PIECE = 90, 5  # seconds until a noise returns and seconds that it lasts, in excerpts of at least two periods


class GraphFrames(nn.Module):
    """Whole frames on a graph: (b, t, f, c) -> the same, zero at the start."""

    def __init__(self, kind: str, channels: int, bands: int) -> None:
        super().__init__()
        self.kind = kind
        self.norm = nn.LayerNorm(channels)
        self.gather, self.spread = GraphConv(channels, MAPS, 1), GraphConv(MAPS, channels, 1)
        self.first, self.third = GraphConv(bands * MAPS, HIDDEN, 1), GraphConv(HIDDEN, bands * MAPS, 1)
        self.second = GraphConv(HIDDEN, HIDDEN, DEGREE)
        self.embed = GraphConv(HIDDEN, 16, 1) if kind == "attention" else None
        nn.init.zeros_(self.spread.filters)
        self.seen = torch.empty(0)  # the features of the noisy spectrum, (b, t, bins, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Mix frames along the graph."""
        b, t, f, _ = x.shape
        y = tf.silu(on_lattice(self.gather, self.norm(x), (1, 1))).reshape(b, t, 1, -1)
        y = tf.silu(on_lattice(self.first, y, (1, 1)))
        y = tf.silu(self.second(y.reshape(b * t, -1), self.graph(y.reshape(b, t, -1)))).view(b, t, 1, -1)
        y = tf.silu(on_lattice(self.third, y, (1, 1))).reshape(b, t, f, -1)
        return on_lattice(self.spread, y, (1, 1))

    def graph(self, y: Tensor) -> Graph:
        """Return the graph of all frames of the batch, (b t, DEGREE); no edge leaves its recording."""
        b, t, _ = y.shape
        offset = torch.arange(b, device=y.device).view(b, 1, 1) * t
        if self.kind == "local":
            near = torch.arange(DEGREE, device=y.device) - DEGREE // 2
            found = (torch.arange(t, device=y.device)[:, None] + near).clamp(0, t - 1).expand(b, t, DEGREE)
            return Graph((found + offset).reshape(b * t, DEGREE))
        if self.kind == "attention":
            assert self.embed is not None
            e = on_lattice(self.embed, y.unsqueeze(2), (1, 1))[:, :, 0].float()
            best = (e @ e.transpose(1, 2) / math.sqrt(e.shape[-1])).topk(DEGREE, -1)
            weights = DEGREE * best.values.softmax(-1)
            return Graph((best.indices + offset).reshape(b * t, DEGREE), weights.reshape(b * t, DEGREE))
        if self.kind == "random":
            found = torch.randint(t, (b, t, DEGREE), device=y.device)
            return Graph((found + offset).reshape(b * t, DEGREE))
        bands = tf.avg_pool1d(self.seen[..., 2].flatten(0, 1).unsqueeze(1), 4)[:, 0].view(b, t, -1)
        far = torch.cdist(bands, bands)
        if self.kind == "noise":
            level = bands.mean(-1)
            far = far + 1e3 * (level > level.quantile(0.3, 1, keepdim=True)).float().unsqueeze(1)
        return Graph((far.topk(DEGREE, -1, largest=False).indices + offset).reshape(b * t, DEGREE))


class GraphBins(nn.Module):
    """The network's layer on single bins plus one on a graph within each frame, zero at the start."""

    def __init__(self, kind: str, refine: GraphConv) -> None:
        super().__init__()
        self.kind, self.refine = kind, refine
        self.first, self.second = GraphConv(refine.in_channels, 16, 5), GraphConv(16, refine.out_channels, 1)
        nn.init.zeros_(self.second.filters)
        self.seen = torch.empty(0)

    def forward(self, x: Tensor, lattice: Graph) -> Tensor:
        """Map (b, t bins, c) to the maps of `refine` plus those of the graph."""
        b, n, c = x.shape
        y = tf.silu(self.first(x.reshape(b * n, c), self.graph()))
        return self.refine(x, lattice) + on_lattice(self.second, y.view(b, n, 1, -1), (1, 1))[:, :, 0]

    def graph(self) -> Graph:
        """Connect each bin to itself, and to those one and two steps up and down; a step is 1 or the pitch."""
        magnitude = self.seen[..., 2]
        b, t, f = magnitude.shape
        step = torch.ones(b, t, 1, device=magnitude.device)
        if self.kind == "harmonics":
            centred = magnitude - tf.avg_pool1d(magnitude.flatten(0, 1).unsqueeze(1), 15, 1, 7)[:, 0].view_as(magnitude)
            lags = torch.fft.irfft(torch.fft.rfft(centred[..., :128], n=512).abs().square())[..., 3:14]
            lags = lags * (1 - 0.04 * torch.arange(11, device=lags.device))  # the pitch, not its multiples
            best = lags.argmax(-1, keepdim=True).clamp(1, lags.shape[-1] - 2)
            below, at, above = (lags.gather(-1, best + i) for i in (-1, 0, 1))
            step = 3 + best + 0.5 * (below - above) / (below - 2 * at + above).clamp(max=-1e-9)
        shifts = torch.tensor([-2, -1, 0, 1, 2], device=step.device) * step
        found = (torch.arange(f, device=step.device).view(f, 1) + shifts.round().long().unsqueeze(2)).clamp(0, f - 1)
        return Graph((found + f * torch.arange(b * t, device=step.device).view(b, t, 1, 1)).reshape(b * t * f, 5))


class GraphVoice(VoiceNet):
    """A trained `VoiceNet` that stays as it is, with one more layer."""

    def __init__(self, base: VoiceNet, kind: str) -> None:
        super().__init__(base.shape)
        self.load_state_dict(base.state_dict())
        self.requires_grad_(False)
        shape = base.shape
        self.added: GraphFrames | GraphBins
        if kind in FRAMES:
            self.added = GraphFrames(kind, shape.channels, shape.bins // shape.fold)
            self.frames.append(self.added)
        else:
            self.added = GraphBins(kind, self.refine)
            self.refine = self.added  # type: ignore[assignment]

    def features(self, spectrum: Tensor, power: Tensor) -> Tensor:
        """Show the features to the added layer."""
        self.added.seen = super().features(spectrum, power)
        return self.added.seen


def base_of(checkpoint: Path | None) -> VoiceNet:
    """Return the network that ships, or the averaged one of a `voice-checkpoint.npz`."""
    if checkpoint is None:
        return load_voice()
    with np.load(checkpoint, allow_pickle=False) as file:
        arrays = {key[5:]: torch.from_numpy(file[key]) for key in file.files if key.startswith("mean.")}
        net = VoiceNet(shape_of(json.loads(str(file["plan"]))["shape"]))
    net.load_state_dict(arrays)
    return net.eval().requires_grad_(False)


def joined(sounds: list, length: int) -> list:
    """Join neighbouring recordings until each has at least `length` samples; what is left over at the end is dropped."""
    groups: list = [[]]
    for sound in sounds:
        groups[-1].append(sound)
        if sum(map(len, groups[-1])) >= length:
            groups.append([])
    return [np.concatenate(group) for group in groups[:-1]]


def series(sounds: list, length: int, count: int, seed: int) -> list:
    """Return `count` joins of the recordings in random orders, `length` samples each."""
    draw = np.random.default_rng(seed)
    return [np.concatenate([sounds[i] for i in draw.permutation(len(sounds))])[:length] for _ in range(count)]


def returning(noises: list, count: int, seed: int) -> list:
    """Return `count` sounds of two periods in which the noise changes every `PIECE` seconds, all pieces equally loud."""
    size = PIECE * RATE
    pieces = [np.resize(s, max(size, len(s) // size * size)).reshape(-1, size) for s in noises]
    samples = np.concatenate(pieces).astype(np.float64)
    samples *= 2000 / np.sqrt(np.square(samples).mean(1, keepdims=True)).clip(min=1)
    rounded = samples.clip(-32768, 32767).astype(np.int16)
    return [np.tile(sound, 2) for sound in series(list(rounded), PERIOD * RATE, count, seed)]


def train(data: dict, base: VoiceNet, kind: str, seed: int, *, steps: int, seconds: int, device: str) -> dict:
    """Train the added layer; returns the SI-SDR of every validation pair, with the layer and without."""
    torch.manual_seed(seed)
    base = base.to(device)
    net = GraphVoice(base, kind).to(device)
    learned = [p for p in net.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(learned, lr=2e-3, weight_decay=0.01, betas=(0.9, 0.98))
    length, batch = RATE * seconds, max(1, SOUND // seconds)
    speech, held, noise, held_noise = (data[part] for part in ("speech", "speech_val", "noise", "noise_val"))
    count = 96 if seconds <= SHORT else 48
    if seconds > SHORT:
        speech, held = joined(speech, length * 6 // 5), joined(held, length)  # a recording may be played faster
    if seconds >= 2 * PERIOD:
        count = 24
        held = series(data["speech_val"], length, count, 0)
        noise, held_noise = returning(noise, 64, seed), returning(held_noise, count, 0)
    mixer = Mixer(Recordings(speech, device), Recordings(noise, device), length, 1000 + seed)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = 2e-3 * min(1, (step + 1) / 50) * (0.01 + 0.99 * (1 - step / steps))
        clean, noisy = mixer.draw(batch, step)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            out = net(noisy)
        optimiser.zero_grad()
        voice_loss(out.float(), clean, noisy).backward()
        nn.utils.clip_grad_norm_(learned, 1.0)
        optimiser.step()
    # 5 dB: two thirds with real noise, one third with white noise
    length = 48_000 if seconds <= SHORT else length
    pairs = [part.to(device).split(batch) for part in validation_set(held, held_noise, count, length)]
    with torch.no_grad():
        scores = [torch.cat([si_sdr(f(y), x) for x, y in zip(*pairs, strict=True)]).tolist() for f in (net, base)]
    size = sum(p.numel() for p in learned)
    return {"kind": kind, "seed": seed, "steps": steps, "seconds": seconds, "parameters": size, "scores": scores}


def table(folder: Path) -> None:
    """Write the gains of each kind over the fixed network, for each seed, to benchmarks/results/voice_graph.json."""
    rows = []
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    for seconds in sorted({run["seconds"] for run in runs}):
        for kind in (*FRAMES, *BINS):
            found = [run for run in runs if (run["kind"], run["seconds"]) == (kind, seconds)]
            if not found:
                continue
            gains = [np.subtract(*run["scores"]) for run in found]
            real = [float(g[: len(g) * 2 // 3].mean()) for g in gains]
            white = [float(g[len(g) * 2 // 3 :].mean()) for g in gains]
            same = {name: found[0][name] for name in ("kind", "seconds", "steps", "parameters")}
            errors = [float(g[: len(g) * 2 // 3].std() / (len(g) * 2 // 3) ** 0.5) for g in gains]
            rows.append(same | {"real": real, "white": white, "error": errors})
    kept = {"benchmark": "voice_graph", "rows": rows}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    for row in rows:
        print(row)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--kind", choices=(*FRAMES, *BINS), nargs="+", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seconds", type=int, default=SHORT, help="of an excerpt")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--checkpoint", type=Path, help="of a training, instead of the shipped network")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    data = load_recordings(given.data) if given.kind else {}
    for kind in given.kind:
        base = base_of(given.checkpoint)
        found = train(data, base, kind, given.seed, steps=given.steps, seconds=given.seconds, device=given.device)
        (given.output / f"{kind}-{given.seconds}-{given.seed}.json").write_text(json.dumps(found))
        print(kind, given.seed, np.subtract(*found["scores"]).mean(), flush=True)
    if given.table:
        table(given.output)


if __name__ == "__main__":
    main()
