"""`njit` for the kernels: Numba's, with a cache that cannot be stale and is not required.

Only kernels that Python calls are kept: those they call are part of their code. Where nothing can be written (a read-only
home, a full disk), kernels are compiled in memory, and one line in the log says so.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numba
from numba.core import caching, event

from glocal.kernels.cache import SETTING, cache_folder, source_hash
from glocal.kernels.compiling import Compiling, announce

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_log = logging.getLogger("glocal")
_WAIT = 60.0  # seconds that a process waits for another one to compile a kernel


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function with Numba; `cache=True` keeps it in the folder of `glocal.kernels.cache`.

    Other options are those of `numba.njit`.

    >>> @njit(nogil=True, cache=True)
    ... def double(x):
    ...     return 2 * x
    >>> double(21)
    42
    """
    kept = options.pop("cache", False)

    def decorate(function: Callable[..., Any]) -> Any:
        # Nothing calls a kernel from C; leaving that way out saves a twentieth of the time for compiling.
        dispatcher = numba.njit(**{"no_cfunc_wrapper": True, **options})(function)
        if kept:
            dispatcher._cache = KernelCache(function)
        return dispatcher

    return decorate


class _Locator(caching._CacheLocator):
    """Tells Numba the folder, and that its name says all about the sources."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.line = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(cache_folder().path)

    def get_source_stamp(self) -> str:
        return source_hash()

    def get_disambiguator(self) -> str:
        return str(self.line)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Locator:
        return cls(function)


class _Files(caching.CompileResultCacheImpl):
    _locator_classes = [_Locator]  # type: ignore[list-item]  # noqa: RUF012


class KernelCache(caching.FunctionCache):
    """Numba's cache of one function, which gives up quietly when the disk cannot be used."""

    _impl_class = _Files
    _turn: _Turn | None = None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled kernel, or None if there is none that can be read."""
        if _watch.gave_up():
            return None
        found = self._load(sig, target_context)
        if found is None and _watch.depth == 0:
            self._turn = _Turn(f"{self.cache_path}/{self._impl.filename_base}.turn")
            found = self._load(sig, target_context)  # another process may have compiled it meanwhile
            if found is not None:
                self._turn = None
        return found

    def _load(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # a damaged file may raise anything at all; it is compiled and written again
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write a compiled kernel, or keep all kernels in memory from now on."""
        if _watch.depth or _watch.gave_up():
            return
        try:
            with _locked(self.cache_path):
                super().save_overload(sig, data)
        except OSError as error:
            _watch.give_up((error.strerror or str(error)).lower())
        self._turn = None


class _Turn:
    """The right to compile a kernel: processes that need the same one wait for the first, at most a minute.

    It ends with the object, or with the process.
    """

    def __init__(self, path: str) -> None:
        self._handle = -1
        if fcntl is None:
            return
        with contextlib.suppress(OSError):  # some folders have no locks; then each process compiles
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            end = time.monotonic() + _WAIT
            while time.monotonic() < end:
                try:
                    fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    time.sleep(0.02)

    def __del__(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Hold the lock of a folder: two processes that save at the same time would give two kernels one file."""
    if fcntl is None:
        yield
        return
    handle = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o666)  # noqa: PTH118
    try:
        with contextlib.suppress(OSError):  # some network folders have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class _Watch(event.Listener):
    """Follows Numba's compiler: how deep it is in functions that call functions, and how long it takes."""

    def __init__(self) -> None:
        self.depth = self.count = 0
        self.seconds = self.started = 0.0
        self.problem: str | None = None

    def gave_up(self) -> bool:
        """Whether kernels stay in memory; says so once, when the first one has to be compiled."""
        if self.problem is None and cache_folder().problem:
            self.give_up(cache_folder().problem)
        return self.problem is not None

    def give_up(self, problem: str) -> None:
        """Keep kernels in memory from now on."""
        self.problem = problem
        _log.warning(
            "compiled kernels cannot be kept in %s (%s): each start compiles them again, which takes some seconds. "
            "Set %s to a folder that you may write to.",
            cache_folder().path,
            problem,
            SETTING,
        )

    def on_start(self, event: Any) -> None:
        self.depth += 1
        if self.depth == 1 and _ours(event):
            self.started = time.perf_counter()
            announce(Compiling(_name(event), False, self.count, self.seconds))

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if self.depth == 0 and _ours(event):
            self.count += 1
            self.seconds += time.perf_counter() - self.started
            announce(Compiling(_name(event), True, self.count, self.seconds))


def _ours(event: Any) -> bool:
    return isinstance(event.data["dispatcher"]._cache, KernelCache)


def _name(event: Any) -> str:
    function = event.data["dispatcher"].py_func
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"


_watch = _Watch()
event.register("numba:compile", _watch)
