"""The benchmarks run at tiny sizes, tell what is missing, and their tables are generated."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from glocal.apps.style.options import PRESETS
from glocal.bench import conv, cuda, cuda_kernels, graph, grid, memory, presets, style, timing
from glocal.bench.options import BenchOptions
from glocal.errors import ArgumentError
from glocal.graphs.knn import knn_graph

ROOT = Path(__file__).parents[2]
QUICK = BenchOptions(quick=True)


@pytest.fixture(scope="module")
def table():
    """The script that writes tables, which is not part of the package."""
    spec = importlib.util.spec_from_file_location("bench_table", ROOT / "benchmarks" / "table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without(monkeypatch, *names: str) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name in names else found(name, *rest))


def signals() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    make = torch.Generator().manual_seed(0)
    return (torch.rand(size, generator=make) for size in ((16, 16, 3), (16, 16, 1), (200,)))


@pytest.fixture
def once(monkeypatch):
    """Time each work once, without warming up: what is tested here is not the time."""
    for module in (conv, cuda, graph, grid):
        monkeypatch.setattr(module, "interleave", lambda works, **_: timing.interleave(works, repeats=1, warmup=0))


def test_conv_measures_every_work_and_names_a_missing_peer(monkeypatch, once):
    without(monkeypatch, "torch_geometric")  # `test_geometric_layer_equals_indexing` compares with it
    lab, _, _ = signals()
    rows = conv.run(100 * lab, QUICK)
    assert len({row.work for row in rows}) == 14
    assert sum(row.peer == grid.CONV for row in rows) == 4
    assert [row.peer for row in rows if row.theirs is None] == [conv.GEOMETRIC] * 3
    for row in rows:
        assert row.ours > 0
        if row.theirs is not None:
            assert row.ratio == pytest.approx(row.theirs / row.ours)
            assert float(row.note.rpartition("differ by ")[2]) < 1e-4
        else:
            assert row.note == "not installed: pip install torch_geometric"


def test_graph_agrees_with_its_peers_and_names_a_missing_one(monkeypatch, once):
    without(monkeypatch, "faiss")
    lab, gray, speech = signals()
    rows = graph.run(100 * lab, gray, speech, 90 * lab, QUICK)
    assert [row.peer for row in rows] == [graph.TREE, *[graph.FLAT] * 4, graph.SHIFTS, graph.TILES]
    assert timing.text(rows).count("missing") == 4
    for row in rows[:-1]:
        if row.peer == graph.FLAT:
            assert (row.theirs, row.ratio, row.note) == (None, None, "not installed: pip install faiss-cpu")
        else:
            assert float(row.note.removeprefix("distances differ by ")) < 1e-5


def test_graph_agrees_with_faiss(once):
    pytest.importorskip("faiss", reason="faiss is not among the packages that the tests install")
    lab, gray, speech = signals()
    rows = graph.run(100 * lab, gray, speech, 90 * lab, QUICK)
    flat = [float(row.note.removeprefix("distances differ by ")) for row in rows if row.peer == graph.FLAT]
    assert len(flat) == 4
    assert max(flat) < 1e-2


def test_geometric_layer_equals_indexing():
    g = conv.local_graph(30, 4, reach=5)
    x, filters = torch.randn(30, 3), torch.randn(4, 3, 6)
    expected = conv.indexing(x, g.neighbors.long(), g.weights, filters)
    torch.testing.assert_close(conv.geometric_layer(g)(x, g.weights, filters), expected, rtol=1e-4, atol=1e-5)


def test_interleave_takes_turns_and_warms_up():
    seen: list[str] = []
    times = timing.interleave({"a": lambda: seen.append("a"), "b": lambda: seen.append("b")}, repeats=2, warmup=1)
    assert seen == ["a", "b", *["a", "a", "b", "b"] * 2]  # a short work runs once more before it is timed
    assert set(times) == {"a", "b"}


def test_interleave_repeats_no_long_work(monkeypatch):
    monkeypatch.setattr(timing, "_SHORT", 0.0)
    seen: list[str] = []
    timing.interleave({"a": lambda: seen.append("a")}, repeats=3, warmup=1)
    assert seen == ["a"] * 4


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are read from /proc")
def test_memory_counts_what_the_work_adds_and_nothing_else():
    held = torch.ones(1 << 20)

    def prepare(small: bool):
        size = 1 if small else 16 << 20  # 64 MiB of float32: so much never comes out of memory that was kept
        return lambda: torch.ones(size).sum() + held.sum()

    assert 60 < memory.measure(prepare) < 80


def test_a_failed_measurement_says_why():
    with pytest.raises(
        memory.MeasureError, match=r"the process that measures 'nothing:at_all' failed: ModuleNotFoundError"
    ):
        memory.peak_mib("nothing:at_all")


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are read from /proc")
def test_the_memory_of_a_graph_is_measured_in_a_fresh_process():
    assert 0.1 < memory.peak_mib("graph:memory_case", height=200, width=200) < 200


def test_tables_are_written_between_their_marks(table, tmp_path):
    rows = [timing.Row("sort", "list", "s", 0.5, 2.0, 4.0, 3.0), timing.Row("sort", "none", "s", 0.5, None, None, None)]
    timing.write_json(tmp_path / "demo.json", timing.document("demo", rows))
    text = "before\n<!-- bench:demo -->\nold\n<!-- /bench -->\nafter\n"
    new = table.filled(text, tmp_path)
    assert "| sort | list | 500 ms | 2.00 s | 4.0x | 3x |" in new
    assert "| sort | none | 500 ms | missing |  |  |" in new
    assert "old" not in new
    assert new.startswith("before\n")
    assert new.endswith("after\n")
    assert table.filled(new, tmp_path) == new
    assert "Not measured yet" in table.filled(text.replace("demo", "other"), tmp_path)


def test_the_tables_in_the_documentation_are_those_of_the_results(table):
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    assert table.main(["--check", *map(str, files)]) == 0


def test_the_document_names_the_machine():
    kept = json.loads(json.dumps(timing.document("demo", [])))
    assert kept["machine"]["cores"] >= 1
    assert kept["machine"]["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]


def test_cuda_measures_layers_searches_and_whole_runs(once):
    """On the CPU, since the GPU's work is what a GPU is needed for; the measuring is the same."""
    make = torch.Generator().manual_seed(0)
    pairs = [tuple(100 * torch.rand(32, 32, 3, generator=make) for _ in range(2))]
    rows = cuda.run(pairs, QUICK, device="cpu")
    works = [row.work.split(",")[0] for row in rows]
    assert works[-2:] == ["exact style graph 32x32", "style transfer 32x32"]
    assert rows[-1].peer == "plain PyTorch"
    for start in (
        "GraphConv 3->50",
        "GraphConv on a grid 32x32",
        "knn_graph of 512",
        "patch_graph 24x24",
        "patch_graph of a video 2x8x8",
        "window_graph of 1",
    ):
        mine = [row for row in rows if row.work.startswith(start)]
        assert mine
        assert all("floor" in row.note and "times that" in row.note for row in mine if row.theirs is not None)
    for row in rows:
        if row.theirs is None:
            assert "pip install" in row.note
        else:
            assert row.ratio == pytest.approx(row.theirs / row.ours)


_LAZY = """
class LazyTensor:
    def __init__(self, x):
        self.x = x
    def __sub__(self, other):
        return LazyTensor(self.x - other.x)
    def __pow__(self, power):
        return LazyTensor(self.x**power)
    def sum(self, axis):
        return LazyTensor(self.x.sum(axis))
    def argKmin(self, k, dim):
        return self.x.argsort(dim)[:, :k]
"""


def test_keops_is_a_peer_of_the_nearest_vectors_where_it_is_installed(tmp_path, monkeypatch):
    """A stand-in with the few operations that are used; the search must be the same."""
    top, found = cuda_kernels.Ceilings(1e9, 1e9, 1e9, 1e9), []
    with monkeypatch.context() as patch:
        without(patch, "pykeops")
        lines = cuda_kernels._knn_rows(64, top, 1, "cpu")
    (line,) = [row for row in lines if row.peer == "KeOps"]
    assert line.theirs is None
    assert "pip install pykeops" in line.note
    (tmp_path / "pykeops").mkdir()
    (tmp_path / "pykeops/__init__.py").write_text("")
    (tmp_path / "pykeops/torch.py").write_text(_LAZY)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.startswith("pykeops")]:
        monkeypatch.delitem(sys.modules, name)
    search = cuda_kernels._lazy_search
    monkeypatch.setattr(cuda_kernels, "_lazy_search", lambda x, k: found.append((x, k, search(x, k)())) or search(x, k))
    (line,) = [row for row in cuda_kernels._knn_rows(64, top, 1, "cpu") if row.peer == "KeOps"]
    assert line.ratio == pytest.approx(line.theirs / line.ours)
    ((x, k, neighbors),) = found
    assert torch.equal(knn_graph(x, k=k).neighbors.long(), neighbors)


def test_presets_measures_every_preset_at_every_size(table, tmp_path):
    rng = np.random.default_rng(0)
    photo, painting = (rng.integers(0, 255, (24, 32, 3), dtype=np.uint8) for _ in range(2))
    rows = presets.run(photo, painting, QUICK)
    assert [(row.preset, row.size) for row in rows] == [(name, size) for size in (16, 32) for name in PRESETS]
    assert all(row.seconds > 0 and row.gpu_mib is None for row in rows)
    assert len(presets.text(rows).splitlines()) == len(rows)
    timing.write_json(tmp_path / "presets.json", timing.document("presets", rows))
    lines = table.filled("<!-- bench:presets -->\n<!-- /bench -->", tmp_path).splitlines()
    assert lines[1] == "| preset | 16 pixels | 32 pixels |"
    assert [line.split("`")[1] for line in lines if "`" in line] == list(PRESETS)


def test_presets_measures_no_size_above_that_of_the_photo(monkeypatch):
    monkeypatch.setattr(presets, "SIZES", (8, 16, 32))
    monkeypatch.setattr(presets, "PRESETS", {"patches": PRESETS["patches"]})
    rng = np.random.default_rng(0)
    photo, painting = (rng.integers(0, 255, (12, 16, 3), dtype=np.uint8) for _ in range(2))
    rows = presets.run(photo, painting, BenchOptions(repeats=1))
    assert [(row.size, row.target) for row in rows] == [(8, None), (16, None)]
    monkeypatch.setattr(presets, "SIZES", (32,))
    with pytest.raises(ArgumentError, match="16 x 12 pixels, but the smallest size is 32"):
        presets.run(photo, painting, BenchOptions(repeats=1))


def test_style_measures_the_whole_run_and_its_phases():
    make = torch.Generator().manual_seed(0)
    photo, painting = (100 * torch.rand(32, 32, 3, generator=make) for _ in range(2))
    rows = style.run(photo, painting, QUICK)
    assert [row.target for row in rows] == [8, None, None]
    for row in rows:
        assert row.ratio == pytest.approx(row.theirs / row.ours)
    assert "at levels 32" in rows[0].note
    assert "L-BFGS and line search" in rows[2].note
    assert rows[1].ours + rows[2].ours <= rows[0].ours


def test_the_table_of_speech_has_a_column_for_each_set(table):
    row = {"method": "voice", "si_sdr": 15.74, "pesq": 2.114, "stoi": 0.8801, "real_time": 0.04}
    lines = table.speech([row | {"set": "white"}, row | {"set": "rain", "pesq": None, "real_time": 0.02}])
    assert lines[0] == "| method | white | rain | real-time factor |"
    assert lines[2] == "| voice | 15.7 / 2.11 / 0.880 | 15.7 / - / 0.880 | 0.03 |"
