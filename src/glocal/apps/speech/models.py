"""The trained speech denoisers with one interface: a block of samples in, the requested rows out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glocal.apps.speech.blocks import Plan
from glocal.apps.speech.frames import FrameNet, FrameShape
from glocal.apps.speech.networks import SIGMA, SampleNet, similar_segments
from glocal.apps.speech.stft import analysis_window
from glocal.apps.speech.voice import VoiceNet, VoiceShape
from glocal.errors import ModelError
from glocal.files.model_files import read_model, write_model
from glocal.kernels.cpu.threads import kernels_share, one_thread, undisturbed

RATE = 16000
SHIPPED = "speech-frames"
SHIPPED_VOICE = "speech-voice"
_REACH = 8000  # search radius of the paper's graph in signals longer than one second
_SECONDS = {"frames": 10, "voice": 12}  # of a block: more would need more memory, less would process more frames twice
_LEAST = 32  # shorter signals are padded with zeros


class Denoiser(Protocol):
    """The interface of a model in the pipeline."""

    plan: Plan

    def __call__(self, samples: NDArray[np.float32], first: int, last: int) -> NDArray[np.float32]:
        """Denoise samples (n, c) at 16 kHz -> rows `first` to `last` of (n, c + 1).

        The last column is the gain to use above 8 kHz.
        """


class FrameDenoiser:
    """The model on frames. One gain from the mean power is used for all channels, so the stereo image is kept."""

    def __init__(self, net: FrameNet, *, sigma: float | None) -> None:
        self.net, self.sigma = net.eval(), sigma
        grid = net.shape.hop * net.shape.step
        self.plan = Plan(0, context=-(-net.shape.context // grid) * grid, grid=grid).with_block(
            _SECONDS["frames"] * RATE
        )

    @torch.no_grad()
    def __call__(self, samples: NDArray[np.float32], first: int, last: int) -> NDArray[np.float32]:
        """Denoise rows `first` to `last` of (n, c). Cost: linear in n."""
        floor = None
        if self.sigma is not None:
            power = max(self.sigma, 1e-6) ** 2 * float(analysis_window(self.net.shape.window).square().sum())
            floor = torch.full((1, 1, 1), power)
        signal = torch.from_numpy(np.ascontiguousarray(samples.T))
        with undisturbed() if kernels_share() else one_thread():
            out, envelope = self.net.denoise_rows(signal, first, last, floor)
        return np.concatenate([out.T.numpy(), envelope.unsqueeze(1).numpy()], axis=1)


class VoiceDenoiser:
    """The model for real noise. One mask is used for all channels."""

    def __init__(self, net: VoiceNet) -> None:
        self.net = net.eval()
        hop = net.shape.hop
        self.plan = Plan(0, context=-(-net.shape.context // hop) * hop, grid=hop).with_block(_SECONDS["voice"] * RATE)

    @torch.no_grad()
    def __call__(self, samples: NDArray[np.float32], first: int, last: int) -> NDArray[np.float32]:
        """Denoise rows `first` to `last` of (n, c). Cost: linear in n."""
        signal = torch.from_numpy(np.ascontiguousarray(samples.T))
        out, envelope = self.net.denoise_rows(signal, first, last)
        return np.concatenate([out.T.numpy(), envelope.unsqueeze(1).numpy()], axis=1)


class SampleDenoiser:
    """A network of the paper. One graph, built on the mean of the channels, is used for all of them."""

    def __init__(self, net: SampleNet, *, sigma: float, everywhere: bool) -> None:
        self.net, self.sigma = net.eval(), sigma
        self.radius = None if everywhere else _REACH
        self.plan = Plan(block=4 * RATE, context=_REACH + 192)

    @torch.no_grad()
    def __call__(self, samples: NDArray[np.float32], first: int, last: int) -> NDArray[np.float32]:
        """Denoise rows `first` to `last` of (n, c), by homogeneity at the noise level `sigma`."""
        envelope = np.zeros((last - first, 1), np.float32)
        if self.sigma <= 0:
            return np.concatenate([samples[first:last], envelope + 1], axis=1)
        scaled = np.ascontiguousarray(samples.T) * np.float32(SIGMA / self.sigma)
        y = torch.from_numpy(np.pad(scaled, ((0, 0), (0, max(0, _LEAST - scaled.shape[1])))))
        graph = similar_segments(y.mean(0), search_radius=self.radius) if self.net.middle == "nonlocal" else None
        out: Tensor = self.net(y, graph)[:, first:last] * (self.sigma / SIGMA)
        return np.concatenate([out.T.numpy(), envelope], axis=1)


def save_trained(net: FrameNet | VoiceNet | SampleNet, name: str, folder: Path, *, info: Mapping[str, Any]) -> Path:
    """Write a trained network into `folder` and return the file. Large networks are stored in half precision."""
    dtype = np.float32 if isinstance(net, SampleNet) else np.float16
    arrays = {key: value.detach().cpu().numpy().astype(dtype) for key, value in net.state_dict().items()}
    sizes: dict[str, Any] = {"sigma": SIGMA} if isinstance(net, SampleNet) else {"shape": asdict(net.shape)}
    if isinstance(net, VoiceNet):
        sizes["network"] = "voice"
    return write_model(name, arrays, folder=folder, info={**info, **sizes, "rate": RATE})


@lru_cache(maxsize=4)
def load_frames(source: str | Path = SHIPPED) -> FrameNet:
    """Return a trained `FrameNet`: one that ships, or a file of `glocal train speech`. Raises ModelError if it is damaged."""
    weights = read_model(source)
    try:
        net = FrameNet(FrameShape(**weights.info["shape"]))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        message = (
            f"load model ({source}): it is not a speech model on frames ({error}). Use a file of `glocal train speech`."
        )
        raise ModelError(message) from error
    return _filled(net, weights.arrays, str(source))


def shape_of(stored: Mapping[str, Any]) -> VoiceShape:
    """Return the sizes of a stored `VoiceNet`. Older files do not say those of the output."""
    narrow = {"refined": 2 * stored["head"], "taps": 3, "side_taps": 0}
    sizes: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in (narrow | dict(stored)).items()}
    return VoiceShape(**sizes)


@lru_cache(maxsize=4)
def load_voice(source: str | Path = SHIPPED_VOICE) -> VoiceNet:
    """Return a trained `VoiceNet`: the one that ships, or a file of `glocal train speech`. Raises ModelError if it is damaged."""
    weights = read_model(source)
    try:
        net = VoiceNet(shape_of(weights.info["shape"]))
    except (AttributeError, KeyError, TypeError) as error:
        message = f"load model ({source}): it is not a `voice` model ({error}). Use a file of `glocal train speech`."
        raise ModelError(message) from error
    return _filled(net, weights.arrays, str(source))


@lru_cache(maxsize=4)
def load_samples(middle: str, source: str | Path | None = None) -> SampleNet:
    """Return a trained network of the paper, "local" or "nonlocal". Raises ModelError if it is missing or damaged."""
    name = f"speech-{middle}" if source is None else source
    return _filled(SampleNet(middle), read_model(name).arrays, str(name))


@lru_cache(maxsize=4)
def network_in(path: str) -> str:
    """Return which network is in a file of `glocal train speech`: "voice", "frames", "local" or "nonlocal".

    Raises
    ------
    ModelError
        If the file is missing or damaged, or has none of these networks.
    """
    weights = read_model(path)
    if "shape" in weights.info:
        return "voice" if weights.info.get("network") == "voice" else "frames"
    for middle in ("local", "nonlocal"):
        expected = {name: tuple(value.shape) for name, value in SampleNet(middle).state_dict().items()}
        if expected == {name: value.shape for name, value in weights.arrays.items()}:
            return middle
    message = f"load model ({path}): it has no network for speech. Use a file of `glocal train speech`."
    raise ModelError(message)


def _filled(net: Any, arrays: Mapping[str, NDArray[Any]], name: str) -> Any:
    try:
        net.load_state_dict({key: torch.from_numpy(value.astype(np.float32)) for key, value in arrays.items()})
    except RuntimeError as error:
        message = f"load model ({name}): its arrays do not fit the network. Install glocal again or train again."
        raise ModelError(message) from error
    return net.eval().requires_grad_(False)
