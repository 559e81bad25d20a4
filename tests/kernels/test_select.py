import pytest
import torch

from glocal.errors import ArgumentError, DeviceError
from glocal.kernels import portable, reference, reference_search, select


def test_the_variable_overrides_the_choice(monkeypatch):
    monkeypatch.setenv("GLOCAL_BACKEND", "reference")
    assert select.pick("patch_neighbors", "cpu") is reference_search.patch_neighbors
    monkeypatch.setenv("GLOCAL_BACKEND", "portable")
    assert select.pick("patch_neighbors", "cpu") is portable.patch_neighbors
    assert select.pick("graph_conv", "cpu") is reference.graph_conv  # portable leaves this to the definition


def test_an_unknown_or_impossible_backend_is_refused(monkeypatch):
    monkeypatch.setenv("GLOCAL_BACKEND", "tpu")
    with pytest.raises(
        ArgumentError, match=r"GLOCAL_BACKEND \(='tpu'\) is not a backend. Choose one of cuda, cpu, portable, reference"
    ):
        select.pick("knn", "cpu")
    monkeypatch.setenv("GLOCAL_BACKEND", "cuda")
    with pytest.raises(DeviceError, match=r"GLOCAL_BACKEND \(='cuda'\) cannot run here: the tensors are on cpu"):
        select.pick("knn", "cpu")


def test_explain_names_what_keeps_each_earlier_backend_from_running(monkeypatch):
    rows = {operation: (backend, why) for operation, backend, why in select.explain("cpu")}
    assert rows["graph_conv"] == ("cpu", "cuda: the tensors are on cpu")
    assert rows["knn"] == ("portable", "cuda: the tensors are on cpu; cpu: does not have this operation")
    monkeypatch.setenv("GLOCAL_BACKEND", "reference")
    rows = {operation: (backend, why) for operation, backend, why in select.explain("cpu")}
    backend, why = rows["graph_conv"]
    assert backend == "reference"
    assert "cpu: GLOCAL_BACKEND is 'reference'" in why


def test_a_triton_without_float64_is_refused(monkeypatch):
    triton = pytest.importorskip("triton")
    gpu = torch.device("cuda")
    for version, why in (
        ("3.4.0", "multiplies no float64; 3.5 does"),
        ("3.5.0", None),
        ("3.10.0+git", None),
        ("4.0", None),
        ("3.5rc1", None),
        ("3.4+git20", "multiplies no float64; 3.5 does"),
    ):
        monkeypatch.setattr(triton, "__version__", version)
        select.forget()
        backend = select.chosen("graph_conv", gpu)
        assert backend.name == ("cuda" if why is None else "reference")
        refusal = next(b for b in select.BACKENDS if b.name == "cuda").refuses(gpu)
        assert refusal is None if why is None else f"triton {version} {why}" in refusal
    select.forget()


def test_without_numba_everything_still_runs(monkeypatch):
    monkeypatch.setattr(select.importlib.util, "find_spec", lambda name: None)
    select.forget()
    try:
        names = {operation: backend for operation, backend, _ in select.explain("cpu")}
        assert names["patch_neighbors"] == "portable"
        assert names["graph_conv"] == "reference"
        assert set(names) == set(select.OPERATIONS)
        assert any("numba is not installed" in why for _, _, why in select.explain("cpu"))
    finally:
        select.forget()


def test_window_sum_adds_the_largest_block_first():
    x = torch.tensor([1e8, 1.0, -1e8, 1.0, 1.0, 1.0, 1.0])
    expected = (((x[0] + x[1]) + (x[2] + x[3])) + (x[4] + x[5])) + x[6]
    assert torch.equal(reference_search.window_sum(x, 7, 0), expected.reshape(1))
