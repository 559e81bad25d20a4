"""Training of `VoiceNet`, in pieces: a run that stops and continues ends with the same numbers.

It needs only torch and numpy if `pack_recordings` has prepared the data.
"""

from __future__ import annotations

import json
import math
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glocal.apps.speech.data import SUFFIXES, read_mono
from glocal.apps.speech.metrics import si_sdr
from glocal.apps.speech.mixing import RATE, Mixer, Recordings
from glocal.apps.speech.voice import VoiceNet, VoiceShape
from glocal.apps.speech.voice_loss import voice_loss
from glocal.atomic import write_whole
from glocal.errors import ArgumentError, InputError
from glocal.optim.recording import recorded
from glocal.training.loop import repeat

_LEAST_GAIN = 0.25
_PARTS = ("speech", "noise", "speech_val", "noise_val")


@dataclass(frozen=True)
class VoicePlan:
    """The settings of a training. All of them affect the result."""

    steps: int = 34_400
    batch: int = 32
    seconds: float = 4.0
    rate: float = 2e-3
    warmup: int = 500
    hold: float = 0.4
    decay: float = 0.01
    clip: float = 1.0
    average: float = 0.9995
    seed: int = 0

    @classmethod
    def of(cls, *, steps: int | None, seed: int, fresh: bool) -> VoicePlan:
        """Return the plan of so many steps (None: the default). A trained network is continued with half the step size."""
        return cls(steps=cls.steps if steps is None else steps, seed=seed, rate=cls.rate if fresh else cls.rate / 2)

    def rate_at(self, step: int) -> float:
        """Return the step size: a linear start, constant up to the fraction `hold`, then half a cosine to a hundredth.

        >>> [round(VoicePlan(steps=1000, warmup=100, rate=1.0).rate_at(step), 3) for step in (0, 99, 400, 700, 1000)]
        [0.01, 1.0, 1.0, 0.505, 0.01]
        """
        if step < self.warmup:
            return self.rate * (step + 1) / self.warmup
        first = max(self.warmup, self.hold * self.steps)
        done = max(0.0, step - first) / max(1.0, self.steps - first)
        return self.rate * (0.01 + 0.99 * 0.5 * (1 + float(np.cos(np.pi * min(1.0, done)))))


class VoiceTraining:
    """The state of a training: network, its running average, optimiser and step. `start` gives the first parameters."""

    def __init__(self, plan: VoicePlan, shape: VoiceShape, device: str, start: VoiceNet | None = None) -> None:
        torch.manual_seed(plan.seed)
        torch.backends.cudnn.deterministic = True
        self.plan, self.device, self.step = plan, device, 0
        self.net = VoiceNet(shape).to(device)
        if start is not None:
            _start_from(self.net, start)
        self.mean = VoiceNet(shape).to(device)
        self.mean.load_state_dict(self.net.state_dict())
        self.optimiser = torch.optim.AdamW(
            self.net.parameters(), lr=plan.rate, weight_decay=plan.decay, betas=(0.9, 0.98), fused=device == "cuda"
        )
        self._recorded: tuple[torch.cuda.CUDAGraph, tuple[Tensor, Tensor]] | None = None
        self._loss = torch.zeros(())

    def advance(self, clean: Tensor, noisy: Tensor) -> Tensor:
        """One step on a batch; returns the loss."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.plan.rate_at(self.step)
        loss = self._replayed(clean, noisy) if self.device == "cuda" else self._gradients(clean, noisy)
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.plan.clip)
        self.optimiser.step()
        self.step += 1
        weight = min(self.plan.average, self.step / (self.step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.mean.parameters()), list(self.net.parameters()), 1 - weight)
        return loss

    def _gradients(self, clean: Tensor, noisy: Tensor) -> Tensor:
        """Compute the gradients of all parameters; returns the loss."""
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            out = self.net(noisy)
        loss = voice_loss(out.float(), clean, noisy)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        return loss.detach()

    def _replayed(self, clean: Tensor, noisy: Tensor) -> Tensor:
        """Compute `_gradients` by a CUDA graph: the GPU runs 1,500 small kernels without waiting for Python."""
        if self._recorded is None:
            given = clean.clone(), noisy.clone()

            def work() -> None:
                self._loss = self._gradients(*given)

            self._recorded = recorded(work), given
        graph, given = self._recorded
        for mine, new in zip(given, (clean, noisy), strict=True):
            mine.copy_(new)
        graph.replay()
        return self._loss

    def _settings(self) -> str:
        return json.dumps({"plan": asdict(self.plan), "shape": asdict(self.net.shape)})

    def save(self, path: Path) -> None:
        """Write everything that the training needs to continue."""
        arrays: dict[str, NDArray[np.generic]] = {
            "step": np.array(self.step),
            "plan": np.array(self._settings()),
        }
        for name, net in (("net", self.net), ("mean", self.mean)):
            arrays |= {f"{name}.{key}": value.detach().cpu().numpy() for key, value in net.state_dict().items()}
        for number, state in self.optimiser.state_dict()["state"].items():
            arrays |= {f"optimiser.{number}.{key}": value.detach().cpu().numpy() for key, value in state.items()}
        with write_whole(path, overwrite=True) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    def load(self, path: Path) -> None:
        """Continue from a file that `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        self.step = int(arrays.pop("step"))
        stored = str(arrays.pop("plan"))
        if stored != self._settings():
            message = f"train speech: {str(path)!r} belongs to a training with other settings ({stored}). Choose another folder."
            raise InputError(message)
        for name, net in (("net", self.net), ("mean", self.mean)):
            net.load_state_dict({key: torch.from_numpy(arrays[f"{name}.{key}"]) for key in net.state_dict()})
        given = self.optimiser.state_dict()
        numbers = {int(key.split(".")[1]) for key in arrays if key.startswith("optimiser.")}
        given["state"] = {
            n: {key: torch.from_numpy(arrays[f"optimiser.{n}.{key}"]) for key in ("step", "exp_avg", "exp_avg_sq")}
            for n in numbers
        }
        self.optimiser.load_state_dict(given)


def _start_from(net: VoiceNet, start: VoiceNet) -> None:
    """Copy parameters into a network with the same sizes, or with more maps and offsets at the output."""
    own, wide, narrow = net.state_dict(), net.shape, start.shape
    same = replace(narrow, refined=wide.refined, taps=wide.taps, side_taps=wide.side_taps) == wide
    if not same or narrow.refined > wide.refined or not set(narrow.offsets) <= set(wide.offsets):
        message = (
            f"train_voice: `start` has other sizes ({narrow}) than the network to train ({wide}). "
            "Use the same, with at least as many maps and offsets at the output."
        )
        raise ArgumentError(message)
    given = {name: value.to(own[name].device) for name, value in start.state_dict().items()}
    places = [net.shape.offsets.index(offset) for offset in start.shape.offsets]
    columns = torch.tensor(places + [len(net.shape.offsets) + place for place in places])
    filters, bias = (torch.zeros_like(own[name]) for name in ("mask.filters", "mask.bias"))
    filters[:, : start.shape.refined, columns], bias[columns] = given["mask.filters"], given["mask.bias"]
    for name in ("refine.filters", "refine.bias"):
        own[name][..., : start.shape.refined] = given[name]
        given[name] = own[name]
    net.load_state_dict({**given, "mask.filters": filters, "mask.bias": bias})


def validation_set(
    speech: list[NDArray[np.int16]], noise: list[NDArray[np.int16]], count: int = 48, length: int = 48_000
) -> tuple[Tensor, Tensor]:
    """Return fixed pairs (count, length) at 5 dB; the last third has white noise."""
    draw = np.random.default_rng(0)
    clean, noisy = [], []
    for i in range(count):
        s = _cut(speech[i % len(speech)], length, draw)
        e = _cut(noise[i % len(noise)], length, draw) if i < count * 2 // 3 else draw.standard_normal(length)
        e = e * (np.sqrt((s**2).mean() / max(1e-12, (e**2).mean())) * 10 ** (-5 / 20))
        clean.append(s)
        noisy.append(s + e)
    return torch.tensor(np.stack(clean), dtype=torch.float32), torch.tensor(np.stack(noisy), dtype=torch.float32)


def _cut(sound: NDArray[np.int16], length: int, draw: np.random.Generator) -> NDArray[np.float64]:
    sound = np.resize(sound, max(len(sound), length))
    first = int(draw.integers(0, len(sound) - length + 1))
    return sound[first : first + length].astype(np.float64) / 32768 + 1e-9


@torch.no_grad()
def validate(net: VoiceNet, clean: Tensor, noisy: Tensor) -> tuple[float, float]:
    """Mean SI-SDR in dB with real and with white noise."""
    scores = torch.cat([si_sdr(net(y), x) for x, y in zip(clean.split(16), noisy.split(16), strict=True)])
    real = len(scores) * 2 // 3
    return float(scores[:real].mean()), float(scores[real:].mean())


@torch.no_grad()
def level(net: VoiceNet, clean: Tensor) -> float:
    """Scale the last layer so that clean speech (b, n) keeps its level, and return the gain that the network had.

    The SI-SDR in the loss does not depend on the level, so a trained network has some gain. All factors of the mask are
    linear in the last layer, so dividing it by the gain changes nothing else. A network with a gain near 0 is not changed.
    """
    rows = [(net(x), x) for x in clean.split(16)]
    gain = float(sum((y * x).sum() for y, x in rows) / sum(x.square().sum() for _, x in rows))
    if gain > _LEAST_GAIN:
        for parameter in net.mask.parameters():
            parameter.div_(gain)
    return gain


def train_voice(
    data: dict[str, list[NDArray[np.int16]]],
    folder: Path,
    plan: VoicePlan,
    shape: VoiceShape | None = None,
    *,
    device: str = "cpu",
    seconds: float = math.inf,
    every: int = 1000,
    start: VoiceNet | None = None,
    callback: Callable[[dict[str, float]], None] | None = None,
) -> VoiceNet:
    """Train until the plan or the time is over, and return the averaged network.

    Called again with the same folder, the training continues from there and ends with the same numbers.

    Parameters
    ----------
    data : dict
        Speech and noise, as `load_recordings` returns them.
    folder : Path
        Receives `voice.jsonl`, a line for each validation, and `voice-checkpoint.npz`.
    plan, shape : VoicePlan, VoiceShape
        The settings of the training and the sizes of the network.
    device : str
        "cpu" or "cuda".
    seconds : float
        The time limit of this call, not of the training.
    every : int
        Steps between two validations.
    start : VoiceNet, optional
        A trained network to start from. If `shape` has a wider output, the new factors start as zero.
    callback : callable, optional
        Called with each line of the log.

    Returns
    -------
    VoiceNet
        The running average of the parameters, scaled so that clean speech keeps its level.

    Raises
    ------
    InputError
        If the folder has the checkpoint of a training with other settings.
    """
    began = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    run = VoiceTraining(plan, shape or (VoiceShape() if start is None else start.shape), device, start)
    checkpoint = folder / "voice-checkpoint.npz"
    if checkpoint.exists():
        run.load(checkpoint)
    mixer = Mixer(
        Recordings(data["speech"], device), Recordings(data["noise"], device), int(plan.seconds * RATE), plan.seed
    )
    clean, noisy = (t.to(device) for t in validation_set(data["speech_val"], data["noise_val"]))
    losses, last = torch.zeros((), device=device), run.step

    def advance(step: int) -> None:
        losses.add_(run.advance(*mixer.draw(plan.batch, step)))

    def each(done: int, spent: float) -> None:
        nonlocal last
        real, white = validate(run.mean, clean, noisy)
        line = {"step": done, "loss": float(losses) / (done - last), "real": real, "white": white, "seconds": spent}
        losses.zero_()
        last = done
        run.save(checkpoint)
        with (folder / "voice.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
        if callback is not None:
            callback(line)

    left = seconds - (time.perf_counter() - began)
    repeat(advance, done=run.step, steps=plan.steps, every=every, each=each, seconds=left, device=losses.device)
    run.save(checkpoint)
    level(run.mean, clean)  # after saving: a training continues from the parameters that it had
    return run.mean.eval().requires_grad_(False)


def load_recordings(path: Path) -> dict[str, list[NDArray[np.int16]]]:
    """Read speech and noise: a folder with `clean/` and `noise/` in it, or a file of `pack_recordings`.

    If one of the two folders has a folder `train`, only that one is read. One speaker and one noise in twenty are kept for
    validation. The speaker is the part of a file's name before the last underscore.

    Returns
    -------
    Lists of int16 arrays at 16 kHz: "speech", "noise", "speech_val" and "noise_val".
    """
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return {name: np.split(file[name], np.cumsum(file[f"{name}_lengths"])[:-1]) for name in _PARTS}
    parts: dict[str, list[NDArray[np.int16]]] = {name: [] for name in _PARTS}
    for part, folder in (("speech", "clean"), ("noise", "noise")):
        room = path / folder / "train" if (path / folder / "train").is_dir() else path / folder
        for sound in sorted(p for p in room.rglob("*") if p.suffix.lower() in SUFFIXES):
            name = sound.stem.rpartition("_")[0] if part == "speech" else sound.stem
            held = zlib.crc32(name.encode()) % 20 == 0
            samples = np.round(read_mono(sound) * 32767).clip(-32768, 32767).astype(np.int16)
            parts[f"{part}_val" if held else part].append(samples)
    empty = [name for name, sounds in parts.items() if not sounds]
    if empty:
        message = (
            f"train speech: {str(path)!r} has no recordings for {', '.join(empty)}. "
            "Give a folder with more files in its folders `clean` and `noise`."
        )
        raise InputError(message)
    return parts


def pack_recordings(parts: dict[str, list[NDArray[np.int16]]], path: Path) -> None:
    """Write what `load_recordings` found into one .npz file, for machines without audio libraries."""
    arrays = {name: np.concatenate(sounds) for name, sounds in parts.items()}
    lengths = {f"{name}_lengths": np.array([len(s) for s in sounds]) for name, sounds in parts.items()}
    np.savez(path, **arrays, **lengths)  # type: ignore[arg-type]
