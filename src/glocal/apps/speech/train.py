"""Training of the speech denoisers: the paper's protocol for the networks on samples, a longer one for the frames."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glocal.apps.speech import noises
from glocal.apps.speech.data import SpeechData
from glocal.apps.speech.floor import noise_floor
from glocal.apps.speech.frames import FrameNet, FrameShape
from glocal.apps.speech.metrics import si_sdr, snr
from glocal.apps.speech.networks import SIGMA, SampleNet
from glocal.apps.speech.options import SpeechTraining
from glocal.apps.speech.stft import analysis_window, power_of, spectra
from glocal.errors import InputError
from glocal.training.draws import Draws
from glocal.training.loop import Fitted, Record, Stage, StepCallback, fit

STEPS = 4618  # one epoch of TIMIT
DEFAULT_SHAPE = FrameShape()
FRAME_STAGES = ((6000, 1e-3), (3000, 3e-4), (2000, 1e-4))  # steps and step sizes, in turn
_LEVELS = (-5.0, 0.0, 5.0, 10.0, 15.0)


def train_samples(
    data: SpeechData,
    middle: str,
    *,
    seed: int = 0,
    steps: int = STEPS,
    every: int = 100,
    validation: int = 15,
    folder: Path | None = None,
    device: str = "cpu",
    progress: StepCallback | None = None,
) -> tuple[SampleNet, Fitted]:
    """Train a network of the paper: ADAM at 1e-3, one clip a step, fresh noise of sigma 0.12 each time.

    The loss is the Euclidean distance `|x - f(x + noise)|`. The log holds the mean SNR on the first
    `validation` clips set aside. Cost: a graph and three passes for each step.
    """
    _need(data.train, "training clips")
    _need(data.val, "validation clips")
    net = SampleNet(middle, seed=seed).to(device)
    clips = torch.from_numpy(data.train).to(device)
    held = torch.from_numpy(data.val[:validation]).to(device)
    held_noise = torch.stack([Draws(0, "validation").normal(i, (held.shape[1],)) for i in range(len(held))]).to(device)
    order, noise = Draws(seed, "order"), Draws(seed, "noise")

    def loss(step: int) -> Tensor:
        clean = clips[order.example(step, len(clips))].unsqueeze(0)
        noisy = clean + SIGMA * noise.normal(step, (clean.shape[1],)).to(device)
        return torch.linalg.vector_norm(net(noisy) - clean)

    @torch.no_grad()
    def validate() -> float:
        scores = [snr(net((x + SIGMA * e).unsqueeze(0))[0], x) for x, e in zip(held, held_noise, strict=True)]
        return float(torch.stack(scores).mean())

    stage = Stage(f"speech-{middle}-{seed}", steps, 1e-3, every)
    return net, fit(net, loss, stage, validate=validate, folder=folder, progress=progress)


def train_frames(
    data: SpeechData,
    *,
    network: type[FrameNet] = FrameNet,
    shape: FrameShape = DEFAULT_SHAPE,
    seed: int = 0,
    stages: tuple[tuple[int, float], ...] = FRAME_STAGES,
    batch: int = 24,
    seconds: float = 2.0,
    dropout: float = 0.1,
    every: int = 500,
    folder: Path | None = None,
    device: str = "cpu",
    progress: StepCallback | None = None,
) -> tuple[FrameNet, tuple[Fitted, ...]]:
    """Train the denoiser on frames: excerpts of the training utterances with noise at -8 to 22 dB.

    `network` is its class; a subclass may look at another graph. The loss is minus the SNR in dB, averaged over the
    batch. `stages` are (steps, step size) in turn. Excerpts are played up to 12 % faster or slower,
    equalised by up to 6 dB and sometimes band-limited, against over-fitting.
    The log holds the mean SI-SDR on the validation clips with white noise at -5, 0, 5, 10 and 15 dB.
    """
    _need(data.val, "validation clips")
    torch.manual_seed(seed)
    net = network(shape, dropout=dropout).to(device)
    excerpts = _Excerpts(data, int(seconds * noises.RATE), seed, device)
    clean = torch.from_numpy(data.val).to(device)
    white = noises.white((len(clean), clean.shape[1]), torch.Generator().manual_seed(0)).to(device)

    def loss_of(offset: int) -> Callable[[int], Tensor]:
        def loss(step: int) -> Tensor:
            x, noise, is_white = excerpts.draw(batch, offset + step)
            floor = noise.square().mean(1) * analysis_window(shape.window).square().sum().item()
            known = is_white & (torch.rand(len(x), generator=excerpts.generator, device=x.device) < 0.25)
            spectral = net(x + noise, blend(net, x + noise, floor, known))
            return -snr(spectral, x).mean()

        return loss

    @torch.no_grad()
    def validate() -> float:
        net.eval()
        scores = []
        for level in _LEVELS:
            noisy = clean + noises.at_snr(clean, white, level)
            scores += [si_sdr(net(y), x).mean() for y, x in zip(noisy.split(32), clean.split(32), strict=True)]
        net.train()
        return float(torch.stack(scores).mean())

    done, fits = 0, []
    for number, (steps, rate) in enumerate(stages):
        stage = Stage(f"speech-frames-{seed}-{number + 1}", steps, rate, every)
        fits.append(fit(net, loss_of(done), stage, validate=validate, folder=folder, progress=progress))
        done += steps
        if not fits[-1].finished:
            break
    return net.eval(), tuple(fits)


def train_model(
    data: SpeechData, options: SpeechTraining, folder: Path, *, progress: StepCallback | None = None
) -> tuple[SampleNet | FrameNet, Record]:
    """Train what the options ask for; returns the network and the last line of its log."""
    if options.model == "frames":
        stages = FRAME_STAGES
        if options.steps is not None:
            first, second = max(1, options.steps * 55 // 100), max(1, options.steps // 4)
            stages = ((first, 1e-3), (second, 3e-4), (max(1, options.steps - first - second), 1e-4))
        net, fits = train_frames(
            data, seed=options.seed, stages=stages, every=options.every, folder=folder, device=options.device,
            progress=progress,
        )  # fmt: skip
        return net, fits[-1].records[-1]
    paper, run = train_samples(
        data, options.model, seed=options.seed, steps=options.steps or STEPS, every=options.every, folder=folder,
        device=options.device, progress=progress,
    )  # fmt: skip
    return paper, run.records[-1]


def blend(net: FrameNet, noisy: Tensor, power: Tensor, known: Tensor) -> Tensor:
    """Return the noise floor of a batch: what the network would estimate, or the true `power` in the rows where it is `known`."""
    power_spectra = power_of(spectra(noisy, window=net.shape.window, hop=net.shape.hop))
    floor = noise_floor(power_spectra, reach=net.shape.reach, step=net.shape.step)
    return torch.where(known.view(-1, 1, 1), power.view(-1, 1, 1), floor)


class _Excerpts:
    """Random excerpts of utterances and their noise, drawn on the device from (seed, step) alone."""

    def __init__(self, data: SpeechData, length: int, seed: int, device: str) -> None:
        longest = int(length * 1.15) + 1
        usable = [u for u in data.utterances if len(u) >= longest]
        if not usable:
            message = (
                f"train_frames: no training utterance is longer than {longest / noises.RATE:.1f} s. Add longer ones."
            )
            raise InputError(message)
        self.samples = torch.from_numpy(np.concatenate(usable)).to(device)
        self.lengths = torch.tensor([len(u) for u in usable], device=device)
        self.starts = self.lengths.cumsum(0) - self.lengths
        self.length, self.draws = length, Draws(seed, "excerpts")
        self.generator = torch.Generator(device)

    def draw(self, batch: int, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Clean excerpts (b, n), their noise (b, n), and which noises are white (b,)."""
        g = self.generator.manual_seed(self.draws.generator(step).initial_seed())
        device = self.samples.device
        stretch = 1 + 0.12 * (2 * float(torch.rand((), generator=self.draws.generator(step))) - 1)
        taken = int(self.length * stretch)
        which = torch.multinomial(self.lengths.float(), batch, replacement=True, generator=g)
        room = (self.lengths[which] - taken).float()
        first = self.starts[which] + (torch.rand(batch, generator=g, device=device) * room).long()
        cells = self.samples[first.unsqueeze(1) + torch.arange(taken, device=device)].float() / 32768
        noise, is_white = noises.mixture((batch, self.length), g)
        clean = self._coloured(cells, g)
        cut = torch.rand((batch, 1), generator=g, device=device) < 0.1  # telephone and other narrow bands
        clean = torch.where(cut, _narrow(clean), clean)
        noise = torch.where(cut, _narrow(noise), noise)
        level = -8 + 30 * torch.rand(batch, generator=g, device=device)
        return clean, noises.at_snr(clean, noise, level), is_white & ~cut[:, 0]

    def _coloured(self, cells: Tensor, g: torch.Generator) -> Tensor:
        """Resample to the excerpt's length in the Fourier domain, with a smooth random gain of up to 6 dB."""
        spectrum = torch.fft.rfft(cells)
        bins = self.length // 2 + 1
        spectrum = (
            spectrum[:, :bins]
            if spectrum.shape[1] > bins
            else torch.nn.functional.pad(spectrum, (0, bins - spectrum.shape[1]))
        )
        points = 0.3 * (2 * torch.rand((len(cells), 1, 8), generator=g, device=cells.device) - 1)
        gain = torch.nn.functional.interpolate(points, size=bins, mode="linear", align_corners=True)[:, 0]
        return torch.fft.irfft(spectrum * 10**gain, n=self.length) * (self.length / cells.shape[1])


def _narrow(x: Tensor) -> Tensor:
    spectrum = torch.fft.rfft(x)
    spectrum[:, spectrum.shape[1] // 2 :] = 0
    return torch.fft.irfft(spectrum, n=x.shape[1])


def _need(clips: object, what: str) -> None:
    if len(clips) == 0:  # type: ignore[arg-type]
        message = f"train speech: the data hold no {what}. Give a folder with more speakers or a clips.csv with splits."
        raise InputError(message)
