"""Random calls of the library for a while, under a memory limit: `python random_calls.py SECONDS SEED`.

A state machine keeps graphs and signals and makes new ones from them with random arguments, good and bad. Every call
returns, or raises a `GlocalError`; nothing else is allowed. Prints the memory after a quarter of the time and at the end.
"""

import gc
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, multiple, rule, run_state_machine_as_test

import glocal
from glocal.errors import GlocalError
from glocal.nn import GraphConv, SharedGraphConv
from glocal.progress import Progress

MEMORY = 6 << 30  # of addresses; the libraries reserve more than they use
CALLS: dict[str, int] = {}
END = [0.0]
SMALL = st.integers(-1, 12)
SIDE = st.integers(1, 14)


def call(name, function, *arguments, **options):
    """The result of a call, or None if it was refused as it should be, or the time is over."""
    if time.monotonic() > END[0]:
        return None
    CALLS[name] = CALLS.get(name, 0) + 1
    try:
        return function(*arguments, **options)
    except GlocalError:
        CALLS[f"{name} refused"] = CALLS.get(f"{name} refused", 0) + 1
        return None


class Calls(RuleBasedStateMachine):
    graphs = Bundle("graphs")

    @rule(target=graphs, h=SIDE, w=SIDE, size=SMALL, boundary=st.sampled_from(["zero", "reflect", "circular", "what"]))
    def grid(self, h, w, size, boundary):
        return self.kept(call("grid_graph", glocal.grid_graph, (h, w), size=size, boundary=boundary))

    @rule(target=graphs, h=SIDE, w=SIDE, k=SMALL, patch=SMALL, radius=st.none() | SMALL, seed=st.integers(0, 99))
    def patches(self, h, w, k, patch, radius, seed):
        signal = torch.rand(h, w, 2, generator=torch.Generator().manual_seed(seed))
        return self.kept(call("patch_graph", glocal.patch_graph, signal, k=k, patch=patch, search_radius=radius))

    @rule(target=graphs, n=st.integers(0, 40), m=st.integers(0, 40), k=SMALL, both=st.booleans(), bad=st.booleans())
    def knn(self, n, m, k, both, bad):
        features = torch.full((n, 3), float("nan")) if bad else torch.rand(n, 3)
        more = {"source": torch.rand(m, 3)} if both else {}
        return self.kept(call("knn_graph", glocal.knn_graph, features, k=k, **more))

    @rule(target=graphs, n=st.integers(0, 30), d=st.integers(0, 6), top=st.integers(-3, 40),
          dtype=st.sampled_from([torch.int32, torch.int64, torch.int16, torch.float32]))  # fmt: skip
    def raw(self, n, d, top, dtype):
        neighbors = torch.randint(min(0, top), max(1, top), (n, d)).to(dtype)
        return self.kept(call("Graph", glocal.Graph, neighbors))

    @rule(target=graphs, graph=graphs, which=st.integers(0, 3))
    def derived(self, graph, which):
        if which == 0:
            weights = torch.rand(graph.num_vertices, graph.degree)
            return self.kept(call("with_weights", graph.with_weights, weights))
        if which == 1:
            return self.kept(call("block_diagonal", glocal.block_diagonal, [graph, graph]))
        path = Path(self.folder.name) / "a.graph"
        call("save", graph.save, path)
        if which == 3:
            data = bytearray(path.read_bytes())
            data[len(data) * 2 // 3] ^= 0x40
            path.write_bytes(data)
        return self.kept(call("load", glocal.Graph.load, path))

    @rule(
        graph=graphs, inputs=st.integers(1, 3), outputs=st.integers(1, 3), rows=st.integers(-1, 1), grad=st.booleans()
    )
    def layer(self, graph, inputs, outputs, rows, grad):
        if graph.degree == 0:
            return
        x = torch.rand(max(0, graph.num_sources + rows), inputs, requires_grad=grad)
        layer = call("GraphConv", GraphConv, inputs, outputs, graph.degree)
        y = call("GraphConv()", layer, x, graph)
        if y is not None:
            assert y.shape == (graph.num_vertices, outputs)
            if grad and y.requires_grad:
                y.sum().backward()
        call("SharedGraphConv()", SharedGraphConv(graph.degree), x.detach(), graph)

    @rule(graph=consumes(graphs), index=st.integers(-5, 100))
    def changed_behind_its_back(self, graph, index):
        """An index that is written later is an error of the next call, never a read outside of the signal."""
        if graph.num_vertices and graph.degree:
            neighbors = graph.neighbors
            if neighbors.numel():
                neighbors.view(-1)[0] = index
            layer = GraphConv(1, 1, graph.degree)
            call("changed graph", layer, torch.rand(graph.num_sources, 1), graph)

    @rule(h=st.integers(1, 40), w=st.integers(1, 40), c=st.sampled_from([1, 3, 4, 5]), model=st.sampled_from(["local", "nonlocal", "small", "none"]),
          strength=st.sampled_from([0.0, 0.5, 1.0, 2.0]), stop=st.booleans())  # fmt: skip
    def denoise(self, h, w, c, model, strength, stop):
        noisy = np.random.default_rng(h).random((h, w, c), np.float32)
        found = call("denoise", glocal.denoise, noisy, 0.1, model=model, strength=strength, progress=told(stop))
        assert found is None or found.image.shape == noisy.shape

    @rule(h=st.integers(1, 20), colors=st.integers(0, 40), method=st.sampled_from(["graph", "transport"]))
    def recolor(self, h, colors, method):
        photo = np.random.default_rng(h).integers(0, 256, (h, 9, 3), np.uint8)
        found = call("recolor", glocal.recolor, photo, photo[..., ::-1].copy(), colors=colors, method=method)
        assert found is None or found.image.shape == photo.shape

    @rule(n=st.integers(0, 9000), channels=st.integers(1, 2), rate=st.sampled_from([0, 8000, 16000, 44100]))
    def speech(self, n, channels, rate):
        sound = np.random.default_rng(n).normal(0, 0.1, (n, channels)).astype(np.float32)
        found = call("denoise_speech", glocal.denoise_speech, sound, rate=rate)
        assert found is None or found.audio.shape == sound.shape

    @rule(
        h=st.integers(4, 20),
        iterations=st.integers(0, 2),
        preset=st.sampled_from(["paper", "painterly"]),
        stop=st.booleans(),
    )
    def style(self, h, iterations, preset, stop):
        photo = np.random.default_rng(h).random((h, 16, 3), np.float32)
        found = call("stylize", glocal.stylize, photo, photo[::-1].copy(), preset=preset, size="keep",
                     iterations=iterations, progress=told(stop))  # fmt: skip
        assert found is None or found.image.shape == photo.shape

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)  # what a rule draws must not depend on the runs before
        self.folder = tempfile.TemporaryDirectory()

    def teardown(self):
        self.folder.cleanup()

    @staticmethod
    def kept(graph):
        return multiple() if graph is None or graph.num_vertices > 500 else graph


def told(stop):
    def callback(now: Progress) -> bool:
        assert 0 <= now <= 1
        return stop

    return callback


def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def main(seconds, seed):
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    torch.manual_seed(seed)
    began, early, round_ = time.monotonic(), None, 0
    END[0] = began + seconds
    while time.monotonic() - began < seconds:
        round_ += 1
        machine = type("Calls", (Calls,), {})
        machine._hypothesis_internal_use_seed = seed * 100_000 + round_
        try:
            run_state_machine_as_test(machine, settings=settings(
                max_examples=4, stateful_step_count=40, deadline=None, database=None, phases=[Phase.generate],
                suppress_health_check=list(HealthCheck), print_blob=False))  # fmt: skip
        except FlakyStrategyDefinition:  # the end of the time changed what calls returned
            if time.monotonic() < END[0]:
                raise
        if early is None and time.monotonic() - began > seconds / 4:
            early = resident()
    late = resident()
    sys.stdout.write(f"{sum(CALLS.values()):,} calls in {time.monotonic() - began:.0f} s: {CALLS}\n")
    sys.stdout.write(f"memory: {early or late:.0f} MiB after a quarter, {late:.0f} MiB at the end\n")
    return 0 if late < (early or late) * 1.15 + 20 else 3


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2])))
