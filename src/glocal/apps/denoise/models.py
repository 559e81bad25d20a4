"""Load the networks that ship with the package, and the user's own networks.

The paper's networks and `wide` have one file for each noise level. A deep network works for all levels and has one file for
gray pictures and one for colour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glocal.apps.denoise.deep import DeepDenoiser, DeepShape
from glocal.apps.denoise.networks import ImageDenoiser
from glocal.apps.denoise.options import DEEP_MODELS, MODELS, Architecture
from glocal.errors import ArgumentError, ModelError
from glocal.files.model_files import MODELS as SHIPPED
from glocal.files.model_files import ModelFile, read_index, read_model, write_model


def save_model(net: ImageDenoiser, name: str, folder: Path, *, info: Mapping[str, Any]) -> Path:
    """Write a network into a folder of models. Its index entry records what it was trained for."""
    arrays = {key: value.detach().cpu().numpy() for key, value in net.state_dict().items()}
    about = {**info, "kind": "image", "sigma": net.sigma, "architecture": asdict(net.architecture)}
    return write_model(name, arrays, folder=folder, info=about)


def load_model(model: str, sigma: float, *, folder: Path = SHIPPED) -> ImageDenoiser:
    """Return the network for a model and a noise level, scaled to that level.

    The network trained at the nearest level (in ratio) is used, and scaled by homogeneity.

    Parameters
    ----------
    model : "local", "nonlocal", "wide", or the path of a `.safetensors` file that `glocal train image` wrote
    sigma : float
        Noise of the picture it is for, in units of [0, 1].

    Raises
    ------
    ModelError
        If the model is missing or damaged.
    """
    return _network(read_model(_nearest(model, sigma, folder), folder=folder)).at_sigma(sigma)


def save_deep(net: DeepDenoiser, name: str, folder: Path, *, info: Mapping[str, Any]) -> Path:
    """Write a deep network into a folder of models, its parameters as float16."""
    arrays = {key: value.detach().cpu().numpy().astype(np.float16) for key, value in net.state_dict().items()}
    return write_model(name, arrays, folder=folder, info={**info, "kind": "image", "shape": asdict(net.shape)})


def load_deep(model: str, channels: int, *, folder: Path = SHIPPED) -> DeepDenoiser | None:
    """Return the deep network of this name for pictures with this many channels, or None if the model is not deep.

    Parameters
    ----------
    model : a name of `DEEP_MODELS`, or the path of a `.safetensors` file

    Raises
    ------
    ModelError
        If the model is missing or damaged.
    ArgumentError
        If the network is for pictures with another number of channels.
    """
    own = model.endswith(".safetensors")
    if not own and model not in DEEP_MODELS:
        return None
    name = (
        model if own else "image-photo" if model == "photo" else f"image-{model}-{'gray' if channels == 1 else 'color'}"
    )
    if not own and name not in read_index(folder):
        raise _missing(model, folder)
    weights = read_model(name, folder=folder)
    if own and "shape" not in weights.info:
        return None
    try:
        net = DeepDenoiser(DeepShape(**weights.info["shape"]))
        net.load_state_dict(
            {name: torch.from_numpy(array.astype(np.float32)) for name, array in weights.arrays.items()}
        )
    except (KeyError, TypeError, RuntimeError, ValueError) as error:
        message = f"denoise: {weights.name!r} does not hold a deep denoiser ({error}). Train it again."
        raise ModelError(message) from error
    if net.shape.channels != channels and net.shape.maps == 1:  # a network of cameras takes gray pictures as colour
        names = {1: "gray", 3: "colour"}
        message = (
            f"denoise: `model` (={model!r}) is for {names[net.shape.channels]} pictures, and this one is {names[channels]}. "
            "Use the other file of that training."
        )
        raise ArgumentError(message)
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return net.requires_grad_(False)


def levels(model: str, *, folder: Path = SHIPPED) -> dict[str, float]:
    """Return the files of a shipped model and the noise level each was trained at."""
    entries = read_index(folder).items()
    return {
        name: float(entry["info"]["sigma"])
        for name, entry in sorted(entries)
        if entry.get("info", {}).get("kind") == "image"
        and entry["info"].get("model") == model
        and "sigma" in entry["info"]
    }


def _nearest(model: str, sigma: float, folder: Path) -> str:
    if model.endswith(".safetensors"):
        return model
    if model not in MODELS:
        message = (
            f"denoise: `model` (={model!r}) is unknown. Choose one of {', '.join(MODELS)}, or a .safetensors file."
        )
        raise ArgumentError(message)
    found = levels(model, folder=folder)
    if not found:
        raise _missing(model, folder)
    return min(found, key=lambda name: abs(math.log(found[name] / sigma)))


def _missing(model: str, folder: Path) -> ModelError:
    return ModelError(
        f"denoise: the files of the model {model!r} are missing from {str(folder)!r}. Install glocal again."
    )


def _network(weights: ModelFile) -> ImageDenoiser:
    try:
        net = ImageDenoiser(Architecture(**weights.info["architecture"]), sigma=float(weights.info["sigma"]))
        net.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.arrays.items()})
    except (KeyError, TypeError, RuntimeError, ValueError) as error:
        message = f"denoise: {weights.name!r} does not hold a denoising network for pictures ({error}). Train it again."
        raise ModelError(message) from error
    return net.requires_grad_(False)
