"""What others rely on: the names, and what importing them costs."""

import subprocess
import sys

import glocal

PROMISED = {
    "Graph", "GlocalError", "block_diagonal", "denoise", "denoise_speech", "grid_graph", "interop", "knn_graph", "nn", "optimize",
    "SpeechStream", "patch_graph", "recolor", "samples", "stylize", "testing", "weights", "window_graph", "__version__",
}  # fmt: skip
LAYERS = {
    "BiasedReLU",
    "Downsample",
    "GraphConv",
    "GraphResidualBlock",
    "GraphSequential",
    "RankedGraphConv",
    "ResidualBlock",
    "SharedGraphConv",
    "SoftThreshold",
    "Upsample",
    "functional",
    "init",
    "spectral",
}


def test_the_inventory():
    assert set(glocal.__all__) == PROMISED
    assert set(glocal.nn.__all__) == LAYERS
    for name in PROMISED:
        assert getattr(glocal, name) is not None
    assert set(dir(glocal)) == PROMISED


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(glocal, "no_such_name")


def test_importing_glocal_takes_no_torch_and_the_layers_no_heavy_library():
    code = (
        "import sys, glocal; assert 'torch' not in sys.modules\n"
        "glocal.grid_graph; glocal.patch_graph; glocal.nn.GraphConv; glocal.weights\n"
        "heavy = 'numba', 'matplotlib', 'scipy', 'networkx', 'dask', 'gradio', 'torch._dynamo'\n"
        "assert not [m for m in heavy if m in sys.modules]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
