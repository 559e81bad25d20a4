"""Training of the deep denoiser: one recorded step, a schedule that can be continued, and exact resumption.

The step size increases, stays constant, and decreases to 0 over the last `decay` steps. The state at the beginning of the
decay is the trunk of the training: a later session continues from there with a longer plan, and repeats only the decay.
The step (crops, noise, loss, gradient, update, moving average) is recorded once as a CUDA graph and replayed. On the CPU it
is not recorded, and a resumed training equals an uninterrupted one bit for bit. On both, every run gives the same bits.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.apps.denoise.camera_pairs import CameraPairs
from glocal.apps.denoise.crops import DRAWS, Array, Crops
from glocal.apps.denoise.deep import DeepDenoiser, DeepShape
from glocal.atomic import write_whole
from glocal.errors import ArgumentError, InputError
from glocal.optim.muon import FlatMuon
from glocal.optim.recording import recorded
from glocal.training.loop import repeat
from glocal.training.ranks import ALONE, Ranks

LEVELS = (15 / 255, 25 / 255, 50 / 255)
_PIECE = 3_500_000  # numbers in one file of a checkpoint: 14 MB
_TOLD = 1000  # steps between reports of the loss
_PLAIN = ("head.weight", "tail.weight")


@dataclass(frozen=True)
class Plan:
    """The plan of a training: its steps, its data and its step size.

    Attributes
    ----------
    steps, decay, warm
        The number of all steps, of the last steps with a decreasing rate, and of the first with an increasing rate.
    rate, batch, side
        The step size, the number of crops per step, and their side.
    sigma
        The highest noise level. The level of each crop is uniform between 0 and this.
    power
        The loss is the mean over the crops of `RMSE / sigma^power`.
    matrix_decay
        How much a step shrinks the matrices, see `FlatMuon`.
    """

    steps: int
    decay: int
    warm: int = 500
    rate: float = 1e-3
    batch: int = 32
    side: int = 128
    sigma: float = 55 / 255
    power: float = 0.55
    matrix_decay: float = 0.0

    def rate_at(self, step: int) -> float:
        """Return the step size of a step, counted from 0.

        >>> plan = Plan(steps=1000, decay=400, warm=100, rate=1.0)
        >>> [plan.rate_at(step) for step in (0, 99, 599, 800, 1000)]
        [0.01, 1.0, 1.0, 0.5, 0.0]
        """
        up = min(1.0, (step + 1) / self.warm) if self.warm else 1.0
        down = min(1.0, (self.steps - step) / self.decay) if self.decay else 1.0
        return self.rate * min(up, max(0.0, down))


class Training:
    """The state of a training: a deep denoiser, its optimiser, its random numbers and the step.

    Parameters
    ----------
    shape : DeepShape
        The sizes of the network.
    crops : Crops or CameraPairs
        The photos, on the device that trains: clean ones, which get white noise, or pairs of synthetic cameras.
    plan : Plan
        The steps and step sizes.
    seed : int
        The seed of the initial parameters and of all random numbers.
    dtype : torch.dtype
        The dtype in which the network computes. Parameters and moments are float32.
    start : mapping or None
        Parameters of a network that differs at most in the number of noise maps. The training begins with them.
    ranks : Ranks
        The processes that share each batch. All draw the numbers of the whole batch, and each uses its part. The result is
        the same for any number of processes, up to rounding.

    Raises
    ------
    ArgumentError
        The batch is not a multiple of the number of processes.
    """

    def __init__(
        self,
        shape: DeepShape,
        crops: Crops | CameraPairs,
        plan: Plan,
        *,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        start: Mapping[str, Tensor] | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        ranks.share(plan.batch)
        self.ranks = ranks
        device = crops.pixels.device
        torch.manual_seed(seed)
        self.shape, self.crops, self.plan, self.seed = shape, crops, plan, seed
        self.net = DeepDenoiser(shape)
        if start is not None:
            _start_from(self.net, start)
        self.net.to(device)
        self.optimizer = FlatMuon(self.net, dtype=dtype, plain=_PLAIN, matrix_decay=plan.matrix_decay)
        self.generator = torch.Generator(device).manual_seed(seed)
        self.draws = torch.empty(plan.batch, DRAWS, device=device)
        self.noise = torch.empty(plan.batch, crops.channels, plan.side, plan.side, device=device)
        self.rate = torch.zeros((), device=device)
        self.total = torch.zeros((), device=device)  # of the loss, since it was last read
        self.done = 0
        self.history: list[dict[str, Any]] = []
        self._recorded: torch.cuda.CUDAGraph | None = None

    def step(self) -> None:
        """Do one step of the plan."""
        self.draws.uniform_(generator=self.generator)
        self.noise.normal_(generator=self.generator)
        self.rate.fill_(self.plan.rate_at(self.done))
        if self._recorded is None:
            self._update()
        else:
            self._recorded.replay()
        self.done += 1

    def _update(self) -> None:
        plan = self.plan
        with torch.no_grad():
            mine = slice(self.ranks.rank, None, self.ranks.count)
            crop = self.crops.example(self.draws[mine], self.noise[mine], plan.sigma)
        found = self.net(crop.noisy, crop.noise)
        errors = ((found - crop.clean).square().mean((1, 2, 3)) + 1e-8).sqrt()
        loss = (errors / crop.level.clamp(min=1 / 255) ** plan.power).mean()
        self.optimizer.step(loss, self.rate, mean=self.ranks.mean if self.ranks.count > 1 else None)
        self.total += self.ranks.mean(loss.detach())

    def record(self) -> None:
        """Record the step as a CUDA graph. The state is restored after the trial steps that this needs.

        With several processes the step is not recorded: they wait for each other within it.
        """
        if self.ranks.count > 1:
            return
        kept = {name: value.clone() for name, value in self.optimizer.state().items()}
        self.draws.uniform_()
        self.noise.normal_()
        self._recorded = recorded(self._update)
        self.optimizer.restore(kept)
        self.total.zero_()

    def save(self, folder: Path) -> None:
        """Write the state as `state-STEP-0.npz`, `state-STEP-1.npz`, ... of at most 14 MB each, and `training.json`.

        The last file names the others. So a process that is killed while it writes leaves the older state. Of several
        processes, the first one writes.
        """
        if not self.ranks.first:
            return
        folder.mkdir(parents=True, exist_ok=True)
        pieces: list[tuple[str, Array]] = []
        for name, value in self.optimizer.state().items():
            flat = value.detach().cpu().numpy().reshape(-1)
            pieces += [
                (f"{name}.{start}", flat[start : start + _PIECE]) for start in range(0, max(1, flat.size), _PIECE)
            ]
        pieces.append(("generator", self.generator.get_state().cpu().numpy()))
        pieces.append(("total", self.total.cpu().numpy()))
        files = {f"state-{self.done}-{k}.npz": dict(group) for k, group in enumerate(_packed(pieces))}
        for name, group in files.items():
            with write_whole(folder / name, overwrite=True) as temporary, temporary.open("wb") as file:
                np.savez(file, allow_pickle=False, **group)
        about = {
            "shape": asdict(self.shape),
            "plan": asdict(self.plan),
            "seed": self.seed,
            "done": self.done,
            "history": self.history,
            "files": list(files),
        }
        with write_whole(folder / "training.json", overwrite=True) as temporary:
            temporary.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        for path in folder.glob("state-*.npz"):
            if path.name not in files:
                path.unlink()

    def load(self, folder: Path) -> None:
        """Continue from a state that `save` wrote, with this training's own plan.

        Raises
        ------
        InputError
            If the files are missing, damaged, or belong to another network or seed.
        """
        try:
            about = json.loads((folder / "training.json").read_text(encoding="utf-8"))
            arrays: dict[str, Array] = {}
            for name in about.get("files") or sorted(path.name for path in folder.glob("state-*.npz")):
                with np.load(folder / name, allow_pickle=False) as file:
                    arrays |= dict(file)
            if DeepShape(**about["shape"]) != self.shape or about["seed"] != self.seed:
                raise ValueError(f"it is of {about['shape']} and seed {about['seed']}")
            state = {}
            for name, value in self.optimizer.state().items():
                starts = sorted(int(key.split(".")[1]) for key in arrays if key.split(".")[0] == name)
                flat = np.concatenate([arrays[f"{name}.{start}"] for start in starts])
                state[name] = torch.from_numpy(flat).view(value.shape)
            self.generator.set_state(torch.from_numpy(arrays["generator"]))
            self.total.fill_(float(arrays["total"]))
        except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            message = f"Training: {str(folder)!r} does not hold a state of this training ({error}). Start a new one."
            raise InputError(message) from error
        self.optimizer.restore(state)
        self.done, self.history = about["done"], about["history"]

    def run(self, until: int, *, seconds: float = math.inf, told: Callable[[int, float], None] | None = None) -> bool:
        """Do steps up to number `until` or for this many seconds. Returns True if `until` was reached.

        `told(step, mean loss)` is a callback, called every 1,000 steps. The steps done are added to `history`.
        """
        if until > self.plan.steps:
            message = (
                f"Training.run: `until` (={until}) lies beyond the plan's {self.plan.steps} steps. Plan more steps."
            )
            raise ArgumentError(message)
        started, first, device = time.perf_counter(), self.done, self.draws.device

        def each(done: int, seconds: float) -> None:
            if done % _TOLD == 0 and told is not None:
                told(done, float(self.total) / _TOLD)
                self.total.zero_()

        repeat(
            lambda step: self.step(), done=first, steps=until, every=_TOLD, each=each, seconds=seconds, device=device
        )
        where = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
        spent = round(time.perf_counter() - started, 1)
        self.history.append({"steps": [first, self.done], "seconds": spent, "device": where, "plan": self.plan.steps})
        return self.done >= until

    @torch.no_grad()
    def validate(self, pictures: Sequence[Array], *, seed: int = 1) -> list[float]:
        """Return the mean PSNR of the averaged parameters at sigma 15, 25 and 50 of 255, on centre crops (h, w, c) uint8."""
        self.optimizer.use(self.optimizer.mean)
        device = self.draws.device
        generator = torch.Generator().manual_seed(seed)
        scores = np.zeros((len(LEVELS), len(pictures)))
        for number, picture in enumerate(pictures):
            clean = torch.from_numpy(_centre(picture)).permute(2, 0, 1)[None].float() / 255
            for row, sigma in enumerate(LEVELS):
                noisy = clean + sigma * torch.randn(clean.shape, generator=generator)
                found = self.net(noisy.to(device), torch.tensor([sigma], device=device)).cpu()
                scores[row, number] = -10 * math.log10(float((found - clean).square().mean()))
        self.optimizer.use(self.optimizer.values)
        return [float(mean) for mean in scores.mean(1)]

    @torch.no_grad()
    def validate_pairs(self, pairs: CameraPairs) -> list[float]:
        """Return the mean PSNR of camera pairs before and after denoising with the averaged parameters."""
        self.optimizer.use(self.optimizer.mean)
        side, scores = pairs.side // 4 * 4, np.zeros((len(pairs), 2))
        noise = torch.empty(1, 3, side, side, device=pairs.pixels.device)
        draws = torch.ones(1, DRAWS, device=noise.device)  # no flip
        for number in range(len(pairs)):
            draws[0, 0], draws[0, 1:3] = (number + 0.5) / len(pairs), 0
            crop = pairs.example(draws, noise, 0)
            found = self.net(crop.noisy, crop.noise)
            for column, picture in enumerate((crop.noisy, found.clamp(0, 1))):
                scores[number, column] = -10 * math.log10(float((picture - crop.clean).square().mean()) + 1e-10)
        self.optimizer.use(self.optimizer.values)
        return [float(mean) for mean in scores.mean(0)]

    def averaged(self) -> dict[str, Tensor]:
        """Return the averaged parameters by name, in float32 on the CPU, with the shapes that `DeepDenoiser` has."""
        found = self.optimizer.named(self.optimizer.mean)
        return {name: found[name].to("cpu", copy=True).contiguous() for name, _ in self.net.named_parameters()}


def _start_from(net: DeepDenoiser, parameters: Mapping[str, Tensor]) -> None:
    """Copy parameters into a network. The weights of one noise map are shared equally among all of them."""
    head = parameters["head.weight"]
    channels, maps = net.shape.channels, net.shape.maps
    if head.shape[1] == channels + 1:
        head = torch.cat([head[:, :channels], (head[:, channels:] / maps).expand(-1, maps, -1, -1)], 1)
    net.load_state_dict({**parameters, "head.weight": head})


def _centre(picture: Array, side: int = 256) -> Array:
    height, width = (min(side, n) // 4 * 4 for n in picture.shape[:2])
    top, left = (picture.shape[0] - height) // 2, (picture.shape[1] - width) // 2
    return picture[top : top + height, left : left + width].copy()


def _packed(pieces: list[tuple[str, Array]]) -> list[list[tuple[str, Array]]]:
    """Distribute pieces to files of at most `_PIECE` numbers, in order."""
    files: list[list[tuple[str, Array]]] = [[]]
    room = _PIECE
    for name, piece in pieces:
        if piece.size > room:
            files.append([])
            room = _PIECE
        files[-1].append((name, piece))
        room -= piece.size
    return files
