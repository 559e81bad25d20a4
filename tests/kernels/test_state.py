"""What the kernels remember, keep and share: nothing stale, nothing handed out twice, nothing touched beyond its end."""

import gc
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch

from glocal import grid_graph
from glocal.kernels.cpu import threads
from glocal.kernels.cpu.reuse import reusing, room
from glocal.kernels.known import known
from glocal.nn import functional

GUARDED = """
import ctypes, mmap, sys
import numpy as np, torch
from glocal.kernels import reference, reference_search
from glocal.kernels.cpu import neighbor_pairs

libc, page, kept = ctypes.CDLL(None), mmap.PAGESIZE, []

def guarded(count, dtype):  # an array between pages that nobody may read
    size = -(-np.dtype(dtype).itemsize * count // page) * page
    memory = mmap.mmap(-1, size + 32 * page)
    kept.append(memory)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for place in (base, base + 16 * page + size):
        assert libc.mprotect(ctypes.c_void_p(place), 16 * page, 0) == 0
    return np.frombuffer(memory, dtype, count, 16 * page)

neighbor_pairs.room = guarded
for shape, patch in (((1, 24, 24), (5, 5)), ((1, 1, 900), (1, 5))):
    planes = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    found = neighbor_pairs.patch_neighbors(planes, 4, patch)
    expected = reference_search.patch_neighbors(planes, 4, patch, 0.0, None)
    assert all(torch.equal(a, b) for a, b in zip(found, expected))
"""

WRITTEN = """
import torch
from glocal import Graph
from glocal.errors import ArgumentError
from glocal.kernels import window_ops
from glocal.nn import functional

n, d = 4000, 5
make = torch.Generator().manual_seed(0)
steps = torch.randint(-30, 31, (n, d), generator=make)
x = {c: torch.rand(n, c, generator=make) for c in (3, 10)}
f = {c: torch.rand(d, c, 8, generator=make) for c in (3, 10)}
both = torch.stack([x[3], x[3]])
calls = {
    "narrow": lambda g: functional.graph_conv(x[3].clone().requires_grad_(), g, f[3]),
    "wide": lambda g: functional.graph_conv(x[10].clone().requires_grad_(), g, f[10].clone().requires_grad_()),
    "batch": lambda g: functional.graph_conv(both.clone().requires_grad_(), g, f[3]),
    "gram": lambda g: functional.gram(x[3].clone().requires_grad_(), g, f[3], torch.zeros(8)),
    "shared": lambda g: functional.shared_conv(both, g, torch.rand(d)),
    "taps": lambda g: functional.shared_conv(x[3], g, torch.rand(d, requires_grad=True)),
    "extract": lambda g: functional.extract(x[3], g),
    "runs": lambda g: functional.gram(x[3].clone().requires_grad_(), g, f[3], torch.zeros(8)),
    "similarities": lambda g: window_ops.similarities(x[3], g.neighbors),
    "ranked": lambda g: window_ops.ranked_conv(x[3], g.neighbors, torch.rand(n, d), f[3]),
}

def refuses(call, bad):
    try:
        call()
    except ArgumentError as error:
        assert f"holds the index {bad}," in str(error), error
        return True
    return False

writes = {2**30: lambda g: g.neighbors.numpy(), -1: lambda g: g.neighbors.data, n: lambda g: g.neighbors.numpy()}
for name, call in calls.items():
    for bad, write in writes.items():
        shifts = torch.arange(d) if name == "runs" else steps  # runs: neighbours of vertices in a row are in a row
        g = Graph((torch.arange(n).unsqueeze(1) + shifts).clamp(0, n - 1).int())
        y = call(g)
        if y.requires_grad:
            call(g).sum().backward()
        write(g)[1234, 2] = bad
        assert refuses(lambda: call(g), bad), name
        if y.requires_grad:
            assert refuses(lambda: y.sum().backward(), bad), name
        write(g)[:] = 0  # valid again, but other edges than before: their gradients too
        y, leaf = functional.graph_conv(x[3], g, f[3]), x[3].clone().requires_grad_()
        torch.testing.assert_close(y, (x[3][0] @ f[3].sum(0)).expand(n, 8))
        functional.graph_conv(leaf, g, f[3]).sum().backward()
        torch.testing.assert_close(leaf.grad[0], n * f[3].sum((0, 2)), rtol=1e-3, atol=0)
"""


# The reversed graph is built by the backward pass, after the write. A filter gradient alone has no copies of the signal.
WRITTEN_BEFORE_BACKWARD = """
import torch
from glocal import Graph
from glocal.errors import ArgumentError
from glocal.nn import functional

def refused(y, bad):
    try:
        y.sum().backward()
    except ArgumentError as error:
        assert f"holds the index {bad}," in str(error), error
        return True
    return False

n, d = 4000, 5
for call in (functional.extract, lambda x, g: functional.shared_conv(x, g, torch.rand(d))):
    for bad in (2**30, n + 500, n):
        g = Graph(torch.randint(0, n, (n, d)).int())
        y = call(torch.rand(n, 3, requires_grad=True), g)
        g.neighbors.data[1234, 2] = bad
        assert refused(y, bad)
n = 160_000
upper = torch.arange(n).unsqueeze(1).repeat(1, 2)
upper[4 * n // 5 :] = torch.randint(n // 2, n, (n - 4 * n // 5, 2))
g = Graph(upper.int())
for needs_x in (False, True):
    x = torch.rand(n, 8, requires_grad=needs_x)
    y = functional.graph_conv(x, g, torch.rand(2, 8, 4, requires_grad=True))
    y.sum().backward(retain_graph=True)
    g.neighbors.data[-1, 0] = n + 5
    assert refused(y, n + 5)
    g.neighbors.data[-1, 0] = n - 1
"""


@pytest.mark.parametrize("script", [WRITTEN, WRITTEN_BEFORE_BACKWARD])
def test_an_index_out_of_range_is_an_error_even_if_torch_does_not_see_the_write(script):
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="protects pages by mprotect")
def test_the_pair_search_stays_within_its_limits():
    result = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_torch_has_one_thread_inside_and_its_own_again_outside():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with threads.undisturbed(), threads.undisturbed():
            assert (torch.get_num_threads(), threads.count()) == (1, 2)
        with pytest.raises(ZeroDivisionError), threads.undisturbed():
            1 / 0  # noqa: B018
        assert (torch.get_num_threads(), threads.count()) == (2, 2)
    finally:
        torch.set_num_threads(before)


@pytest.fixture
def two_threads(monkeypatch):
    """Two threads for torch, and a helper for the second one, whatever the machine has."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_works_apart_have_one_thread_each_and_the_callers_gradients(two_threads):
    together = threading.Barrier(2)

    def work(name):
        together.wait(10)  # breaks unless both run at the same time
        return name, torch.get_num_threads(), torch.is_grad_enabled(), threading.get_ident()

    with torch.no_grad():
        first, second = threads.apart([partial(work, "first"), partial(work, "second")])
    assert first[:3] == ("first", 1, False)
    assert second[:3] == ("second", 1, False)
    assert first[3] != second[3]
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("count", [1, 2])
def test_more_works_than_threads_and_errors_of_any_of_them(two_threads, count):
    torch.set_num_threads(count)
    assert threads.apart([lambda i=i: i for i in range(5)]) == list(range(5))
    for broken in range(3):
        with pytest.raises(ZeroDivisionError):
            threads.apart([lambda i=i: 1 // i for i in range(-broken, 3 - broken)])
    assert torch.get_num_threads() == count


def test_works_run_in_the_caller_where_there_can_be_no_more_threads(two_threads, monkeypatch):
    ended = ThreadPoolExecutor(1)
    ended.shutdown()
    monkeypatch.setattr(threads, "workers", lambda: ended)
    assert threads.apart([threading.get_ident, threading.get_ident]) == [threading.get_ident()] * 2


def test_threads_that_overlap_inside_leave_nothing_behind():
    entered, left, seen = threading.Event(), threading.Event(), []

    def first():
        with threads.undisturbed():
            entered.set()
            left.wait(10)
            seen.append(threads.count())

    before = threads.count()
    other = threading.Thread(target=first)
    other.start()
    entered.wait(10)
    with threads.undisturbed():
        pass
    left.set()
    other.join()
    assert seen == [before]
    torch.set_num_threads(before + 1)
    try:
        assert threads.count() == before + 1  # it follows torch again
    finally:
        torch.set_num_threads(before)


def test_a_thread_that_begins_inside_leaves_all_threads_to_later_ones(two_threads):
    """What a thread sets is also the number of threads that begin later."""
    inside, begun, left, seen = threading.Event(), threading.Event(), threading.Event(), []

    def first():
        with threads.one_thread():
            inside.set()
            begun.wait(10)
        left.set()

    def second():
        with threads.one_thread():
            begun.set()
            left.wait(10)

    for work in (first, second):
        thread = threading.Thread(target=work)
        thread.start()
        inside.wait(10)
    left.wait(10)
    thread.join()
    later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert seen == [2]


def test_a_thread_that_helps_apart_had_more_threads_before(two_threads):
    """One that began outside of `apart` has as many as torch."""
    together = threading.Barrier(2)

    def work():
        together.wait(10)
        return torch.get_num_threads()

    assert threads.workers().submit(lambda: torch.set_num_threads(2)).result() is None
    assert threads.apart([work, work]) == [1, 1]


def test_torch_keeps_its_threads_where_the_kernels_do_not_run(monkeypatch):
    monkeypatch.setenv("GLOCAL_BACKEND", "reference")
    before = torch.get_num_threads()
    with threads.undisturbed():
        assert torch.get_num_threads() == before


def test_memory_is_handed_out_once():
    with reusing():
        first, second = room(1000, np.float32), room(1000, np.float32)
        assert not np.shares_memory(first, second)
        place = first.ctypes.data
        tensor = torch.from_numpy(first)
        del first
        gc.collect()
        third = room(1000, np.float32)
        assert third.ctypes.data != place  # the tensor has it
        del tensor
        gc.collect()
        fourth, fifth = room(1000, np.float32), room(1000, np.float32)
        assert fourth.ctypes.data == place  # it is free again, and taken again
        assert fifth.ctypes.data != place
    assert room(3, np.float64).shape == (3,)


def test_what_is_known_of_a_tensor_ends_with_its_state():
    x = torch.arange(4)
    assert known(x, "sum", lambda: int(x.sum())) == 6
    x[0] = 10
    assert known(x, "sum", lambda: int(x.sum())) == 16
    x.data = torch.zeros(2)
    assert known(x, "sum", lambda: int(x.sum())) == 0


def test_gram_of_filters_that_change_unseen_and_in_inference_mode():
    graph, bias = grid_graph((5, 6)), torch.zeros(4)
    generator = torch.Generator().manual_seed(0)
    x, filters = torch.rand(30, 3, generator=generator), torch.rand(9, 3, 4, generator=generator)
    first = functional.gram(x, graph, filters, bias)
    filters.data.mul_(2)
    torch.testing.assert_close(functional.gram(x, graph, filters, bias), 4 * first)
    with torch.inference_mode():
        torch.testing.assert_close(functional.gram(x, grid_graph((5, 6)), filters, bias), 4 * first)


FREED = """
import torch, glocal
make = torch.Generator().manual_seed(0)
for c, m in ((57, 52), (8, 3), (10, 10), (130, 7)):
    neighbors = torch.randint(0, 149, (149, 5), generator=make)
    x, f = (torch.randn(*shape, generator=make, requires_grad=True) for shape in ((149, c), (5, c, m)))
    y, expected = glocal.nn.functional.graph_conv(x, glocal.Graph(neighbors), f), torch.einsum("ndc,dcm->nm", x[neighbors], f)
    g = torch.randn(149, m, generator=make)
    for found, right in zip(torch.autograd.grad(y, (x, f), g), torch.autograd.grad(expected, (x, f), g)):
        torch.testing.assert_close(found, right, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(y, expected, rtol=1e-3, atol=1e-3)
"""


def test_no_memory_is_read_after_it_was_freed():
    tunables = "glibc.malloc.perturb=165:glibc.malloc.tcache_count=0"  # overwrites what is freed, at once
    environment = os.environ | {"GLIBC_TUNABLES": tunables}
    result = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
