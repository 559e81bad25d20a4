"""glocal: signals on graphs. Every layer takes a signal and a graph, so one convolution does local and non-local work."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glocal import nn as nn
    from glocal.apps.color.recolor import recolor as recolor
    from glocal.apps.denoise.image import denoise as denoise
    from glocal.apps.speech.speech import denoise_speech as denoise_speech
    from glocal.apps.speech.stream import SpeechStream as SpeechStream
    from glocal.apps.style.transfer import stylize as stylize
    from glocal.errors import GlocalError as GlocalError
    from glocal.graph import Graph as Graph
    from glocal.graphs import weights as weights
    from glocal.graphs.batch import block_diagonal as block_diagonal
    from glocal.graphs.grid import grid_graph as grid_graph
    from glocal.graphs.knn import knn_graph as knn_graph
    from glocal.graphs.patch import patch_graph as patch_graph
    from glocal.graphs.window import window_graph as window_graph

__version__ = "0.2.0"

# Where each public name lives. Names are fetched when first used, so that the command line starts without torch.
_HOMES = {
    "Graph": "glocal.graph:Graph",
    "GlocalError": "glocal.errors:GlocalError",
    "SpeechStream": "glocal.apps.speech.stream:SpeechStream",
    "block_diagonal": "glocal.graphs.batch:block_diagonal",
    "denoise_speech": "glocal.apps.speech.speech:denoise_speech",
    "denoise": "glocal.apps.denoise.image:denoise",
    "grid_graph": "glocal.graphs.grid:grid_graph",
    "interop": "glocal.graphs.interop",
    "knn_graph": "glocal.graphs.knn:knn_graph",
    "nn": "glocal.nn",
    "optimize": "glocal.optimize",
    "patch_graph": "glocal.graphs.patch:patch_graph",
    "recolor": "glocal.apps.color.recolor:recolor",
    "samples": "glocal.samples",
    "stylize": "glocal.apps.style.transfer:stylize",
    "testing": "glocal.testing",
    "weights": "glocal.graphs.weights",
    "window_graph": "glocal.graphs.window:window_graph",
}

__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        message = f"module 'glocal' has no attribute {name!r}"
        raise AttributeError(message)
    module, _, attribute = home.partition(":")
    value = importlib.import_module(module)
    value = getattr(value, attribute) if attribute else value
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
