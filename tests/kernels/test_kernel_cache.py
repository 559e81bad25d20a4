"""Compiled kernels have a folder of their own, are never stale, and are not needed."""

import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import glocal.kernels.cpu
from glocal.kernels import cache

SOURCES = Path(glocal.kernels.__path__[0]).parent
USE = """
import sys
from glocal.kernels.compiling import compiling
from glocal.kernels.cpu.compiled import njit

@njit(cache=True)
def doubled(x):
    return x + x

@njit(cache=True)
def kernel(x):
    return doubled(x) + 1

seen = []
with compiling(seen.append):
    values = [kernel(x) for x in (20, 21)]
sys.stdout.write(f"{values[0]} {len(seen)} {seen[-1] if seen else None}\\n")
"""


def run(code, folder=None, *, limit=None, source=SOURCES.parent, **settings):
    """Run code in a fresh process; returns what it wrote to stdout and stderr."""
    names = ("GLOCAL_CACHE_DIR", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "PYTHONPATH",
             "COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START")  # fmt: skip
    env = {name: value for name, value in os.environ.items() if name not in names}
    env |= {"PYTHONPATH": str(source)} | ({"GLOCAL_CACHE_DIR": str(folder)} if folder else {}) | settings
    if limit is not None:
        code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n{code}"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def names(folder: Path) -> set[str]:
    return {path.name.split("-")[0] for path in folder.rglob("*.nb?")}


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A cache with one kernel in it, and what compiling it reported."""
    folder = tmp_path_factory.mktemp("cache")
    return folder, run(USE, folder)


def test_compiling_is_reported_and_happens_once(filled):
    folder, (first, errors) = filled
    assert errors == ""
    value, count, event = first.split(maxsplit=2)
    assert int(count) == 2  # one kernel: before and after
    assert "kernel='__main__.kernel', done=True, count=1" in event
    again, errors = run(USE, folder)
    assert (again, errors) == (f"{value} 0 None\n", "")


def test_only_what_python_calls_is_kept(filled):
    folder, _ = filled
    assert names(folder) == {"string.kernel"}  # Numba names a file for code without one
    assert [path.parent.name for path in folder.rglob("*.nbi")] == [cache.source_hash()]


def test_damaged_files_are_compiled_again(filled, tmp_path):
    folder, (first, _) = filled
    shutil.copytree(folder, tmp_path / "copy")
    for suffix in (".nbi", ".nbc"):
        for path in (tmp_path / "copy").rglob(f"*{suffix}"):
            path.write_bytes(path.read_bytes()[:100])
        again, errors = run(USE, tmp_path / "copy")
        assert (again.split()[:2], errors) == (first.split()[:2], "")
    assert run(USE, tmp_path / "copy")[0].split()[1] == "0"


@pytest.mark.parametrize("reason", ["no place", "no space"])
def test_without_a_place_kernels_are_compiled_in_memory_and_one_line_says_so(filled, tmp_path, reason):
    _, (first, _) = filled
    if reason == "no place":
        (tmp_path / "file").write_text("no folder can be made below a file")
        folder, limit, words = tmp_path / "file" / "cache", None, "not a directory"
    else:
        folder, limit, words = tmp_path, 100, "file too large"
    again, errors = run(USE, folder, limit=limit)
    assert again.split()[:2] == first.split()[:2]
    place = folder / "kernels" / cache.source_hash()
    assert errors == (
        f"compiled kernels cannot be kept in {place} ({words}): each start compiles them again, which takes some "
        "seconds. Set GLOCAL_CACHE_DIR to a folder that you may write to.\n"
    )


def test_a_change_of_any_source_asks_for_new_kernels(tmp_path):
    """Numba looks at the function's own file alone, and a constant may come from another."""
    shutil.copytree(SOURCES, tmp_path / "glocal", ignore=shutil.ignore_patterns("models", "paper", "__pycache__"))
    code = "from glocal.kernels.cache import cache_folder; print(cache_folder().path.name)"
    before, _ = run(code, tmp_path / "cache", source=tmp_path)
    assert before.strip() == cache.source_hash()
    with (tmp_path / "glocal" / "kernels" / "cpu" / "rows.py").open("a") as file:
        file.write("ONE_MORE_CONSTANT = 1\n")
    after, _ = run(code, tmp_path / "cache", source=tmp_path)
    assert after != before


def test_every_kernel_uses_this_cache():
    from numba.core.dispatcher import Dispatcher

    from glocal.kernels.cpu import compiled

    found = 0
    for module in pkgutil.iter_modules(glocal.kernels.cpu.__path__, "glocal.kernels.cpu."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, Dispatcher):
                found += 1
                assert isinstance(value._cache, compiled.KernelCache), f"{module.name}.{name}: use compiled.njit"
    assert found > 40


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"GLOCAL_CACHE_DIR": "/a", "NUMBA_CACHE_DIR": "/b"}, "/a/kernels"),
        ({"NUMBA_CACHE_DIR": "/b", "XDG_CACHE_HOME": "/c"}, "/b/glocal-kernels"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/glocal/kernels"),
        ({}, "/home/x/.cache/glocal/kernels"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other places")
def test_where_the_folder_lies(settings, place, monkeypatch):
    monkeypatch.setenv("HOME", "/home/x")
    assert cache.place_of(settings) == Path(place)


def test_folders_of_old_versions_are_removed(tmp_path):
    old = time.time() - 10 * 86400
    for number in range(7):
        (tmp_path / f"version{number}").mkdir()
        (tmp_path / f"version{number}" / "a.nbc").write_text("x")
        os.utime(tmp_path / f"version{number}", (old + number, old + number))
    (tmp_path / "today").mkdir()
    cache.remove_old(tmp_path, keep=tmp_path / "version0")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "today", "version0", "version4", "version5", "version6",
    ]  # fmt: skip


def test_a_kernel_is_compiled_by_one_process_and_loaded_by_the_others(tmp_path):
    """Two processes need it at the same moment."""
    start = "import time, pathlib, os\nfrom glocal.kernels.cpu.compiled import njit\n" + (
        f"folder = pathlib.Path({str(tmp_path)!r}); (folder / f'ready{{os.getpid()}}').touch()\n"
        "while len(list(folder.glob('ready*'))) < 2: time.sleep(0.001)\n"
    )
    env = os.environ | {"GLOCAL_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(SOURCES.parent)}
    started = [
        subprocess.Popen([sys.executable, "-c", start + USE], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = sorted(process.communicate()[0].split()[:2] for process in started)
    assert said == [["41", "0"], ["41", "2"]]  # two messages: compiling begins, compiling ends


def test_two_processes_do_not_share_a_file(tmp_path):
    """Saving at the same time, each gives its kernels files of their own."""
    one, two = USE, USE.replace("(20, 21)", "(20.0, 21.0)")
    command = [sys.executable, "-c"]
    env = os.environ | {"GLOCAL_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(SOURCES.parent)}
    started = [subprocess.Popen([*command, code], env=env, stdout=subprocess.DEVNULL) for code in (one, two)]
    assert [process.wait() for process in started] == [0, 0]
    assert [run(code, tmp_path)[0].split()[1] for code in (one, two)] == ["0", "0"]
    assert len(list(tmp_path.rglob("*.nbc"))) == 2
