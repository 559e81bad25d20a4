"""A graph shares the caller's tensors. Whatever is written to them later, no layer reads outside the signal."""

import subprocess
import sys

import pytest
import torch

import glocal
from glocal.errors import ArgumentError
from glocal.nn import functional

CALLS = {
    "graph_conv": lambda x, g: functional.graph_conv(x, g, torch.ones(9, 2, 3)),
    "shared_conv": lambda x, g: functional.shared_conv(x, g, torch.ones(9)),
    "extract": functional.extract,
    "gram": lambda x, g: functional.gram(x, g, torch.ones(9, 2, 3), torch.zeros(3)),
    "gram_pullback": lambda x, g: functional.gram_pullback(x, g, torch.ones(9, 2, 3), torch.zeros(3)),
    "reverse": lambda x, g: functional.reverse(g),
}


@pytest.fixture(params=["cpu", "reference"])
def backend(request, monkeypatch):
    monkeypatch.setenv("GLOCAL_BACKEND", request.param)


def neighbors():
    return torch.zeros(100, 9, dtype=torch.int32)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("index", [150, 100, -1, 2**31 - 1])
def test_an_index_written_later_is_an_error(call, index):
    nb, x = neighbors(), torch.rand(100, 2)
    g = glocal.Graph(nb)
    call(x, g)
    nb[0, 0] = index
    with pytest.raises(ArgumentError, match=f"holds the index {index}, but vertices are numbered 0 to 99"):
        call(x, g)
    nb[0, 0] = 99  # and once it is right again, it works again
    call(x, g)


@pytest.mark.usefixtures("backend")
def test_views_and_graphs_that_share_the_tensor():
    whole, x = torch.zeros(300, 9, dtype=torch.int32), torch.rand(100, 2)
    g = glocal.Graph(whole[100:200])
    other = g.with_weights(torch.rand(100, 9))
    functional.extract(x, g)
    whole.view(-1)[100 * 9 + 5] = 100
    for graph in (g, other):
        with pytest.raises(ArgumentError, match="holds the index 100"):
            functional.extract(x, graph)


@pytest.mark.usefixtures("backend")
def test_memory_that_numpy_shares_is_copied():
    """torch does not count what NumPy writes."""
    array, x = neighbors().numpy(), torch.rand(100, 2)
    shared = torch.from_numpy(array)
    graphs = [glocal.Graph(shared), glocal.Graph(shared[:100])]
    array[0, 0] = 150
    for graph in graphs:
        assert torch.equal(functional.extract(x, graph), functional.extract(x, glocal.Graph(neighbors())))


@pytest.mark.usefixtures("backend")
def test_between_forward_and_backward():
    nb, x = neighbors(), torch.rand(100, 2, requires_grad=True)
    y = functional.shared_conv(x, glocal.Graph(nb), torch.ones(9))
    nb[3, 3] = 1000
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):  # torch itself looks at what it saved
        y.sum().backward()


@pytest.mark.usefixtures("backend")
def test_inference_mode():
    x = torch.rand(100, 2)
    with torch.inference_mode():
        nb = neighbors()
        g = glocal.Graph(nb)
        functional.extract(x, g)
        nb[0, 0] = 150
        with pytest.raises(ArgumentError, match="holds the index 150"):
            functional.extract(x, g)
    nb = neighbors()
    g = glocal.Graph(nb)
    functional.extract(x, g)
    with torch.inference_mode():  # torch counts writes to an ordinary tensor here too
        nb[0, 0] = 150
        with pytest.raises(ArgumentError, match="holds the index 150"):
            functional.extract(x, g)


@pytest.mark.usefixtures("backend")
def test_tensors_that_were_made_smaller():
    x, weights = torch.rand(100, 2), torch.rand(100, 9)
    g = glocal.Graph(neighbors(), weights)
    functional.extract(x, g)
    weights.resize_(1, 9)
    with pytest.raises(ArgumentError, match=r"`weights` \(shape \(1, 9\)\) must have the shape of `neighbors`"):
        functional.extract(x, g)
    nb = neighbors()
    g = glocal.Graph(nb, torch.rand(100, 9))
    nb.resize_(50, 9)
    with pytest.raises(ArgumentError, match="must have the shape of `neighbors`"):
        functional.extract(x, g)


def test_a_loaded_graph_and_an_unflattened_one_are_checked(tmp_path, monkeypatch):
    from safetensors.torch import save_file

    save_file({"neighbors": neighbors() + 100}, tmp_path / "g", metadata={"format": "glocal-graph-1"})
    with pytest.raises(ArgumentError, match="holds the index 100"):
        glocal.Graph.load(tmp_path / "g")
    _, spec = torch.utils._pytree.tree_flatten(glocal.Graph(neighbors()))
    graph = torch.utils._pytree.tree_unflatten([neighbors() - 1], spec)
    with pytest.raises(ArgumentError, match="holds the index -1"):
        functional.extract(torch.rand(100, 2), graph)


def test_the_process_survives():
    """The example that ended the process: the neighbours are written to after the graph was made."""
    code = """
import torch, glocal
nb = torch.zeros(100, 9, dtype=torch.int32)
g = glocal.Graph(nb)
nb[:] = 2**30
layer = glocal.nn.GraphConv(3, 4, degree=9)
for graph in (g, g.with_weights(torch.ones(100, 9))):
    try:
        layer(torch.rand(100, 3, requires_grad=True), graph).sum().backward()
    except glocal.GlocalError as error:
        print(type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout.split()) == (0, ["ArgumentError"] * 2), done.stderr
