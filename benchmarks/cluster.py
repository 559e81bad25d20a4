"""What a cluster costs: one million files without work, and two workers compared with two jobs.

python benchmarks/cluster.py overhead [FILES]     a command that does nothing with the files of a folder, through local:2
python benchmarks/cluster.py efficiency [FILES]   files of one second of processor time: local:2 and --jobs 2 in turn
python benchmarks/cluster.py gigapixel [SIDE]     one picture of SIDE x SIDE pixels through local:2 and in one process

Each writes its rows into benchmarks/results/cluster.json and keeps the rows of the others.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from glocal.bench.timing import metadata
from glocal.cli.shell.batch import BatchOptions, run_batch
from glocal.cli.shell.console import Report, RunOptions
from glocal.cluster.folders import run_on_cluster
from glocal.cluster.manifest import NAME
from glocal.cluster.options import ClusterOptions
from glocal.jobs.job import Cost
from glocal.jobs.paths import Task
from glocal.jobs.processes import run_in_processes

RESULTS = Path(__file__).parent / "results" / "cluster.json"
LOCAL = ClusterOptions(cluster="local:2")


def nothing(task: Task, tell: Any) -> dict[str, Any]:
    """Do no work."""
    return {}


def one_second(task: Task, tell: Any) -> dict[str, Any]:
    """Compute until this process has used one more second of its processor."""
    end = time.process_time() + 1.0
    while time.process_time() < end:
        sum(range(1000))
    return {}


def seconds_of(task: Task, *, seconds: float) -> Cost:
    """Return the cost of a file."""
    return Cost("1", 1, seconds)


def tasks_in(folder: Path, count: int) -> list[Task]:
    """Return tasks whose files do not exist."""
    return [Task(folder / f"{number}.in", folder / f"{number}.out") for number in range(count)]


def on_cluster(
    folder: Path, count: int, work: Any, seconds: float, options: ClusterOptions = LOCAL
) -> dict[str, float]:
    """Run tasks on a local cluster; returns the seconds from the first to the last outcome and those with the start."""
    tasks = tasks_in(folder, count)
    said: list[float] = []
    began = time.perf_counter()
    outcomes = run_on_cluster(
        tasks,
        lambda progress: None,
        work=work,
        estimate=functools.partial(seconds_of, seconds=seconds),
        options=options,
        folder=folder,
        memory=None,
        overwrite=False,
        gpu=False,
        say=lambda text: said.append(time.perf_counter()),
    )
    done = sum(outcome.state == "done" for outcome in outcomes)
    assert done == count, (done, count)
    ended = time.perf_counter()
    return {"seconds": ended - said[0], "with_start": ended - began}


def overhead(count: int = 1_000_000) -> list[dict[str, Any]]:
    """Measure a command whose work is nothing, on a folder of empty files: listing, groups, outcomes, manifest, summary."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "in")
        folder.mkdir()
        for number in range(count):
            os.close(os.open(f"{folder}/{number:07}.txt", os.O_CREAT))
        watch, before, began = Watch(os.getpid()), _seconds(os.getpid()), time.perf_counter()
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            run_batch(
                "nothing", [str(folder)], nothing, estimate=functools.partial(seconds_of, seconds=1e-4),
                suffixes={".txt"}, options=BatchOptions(cluster="local:2", output=f"{place}/out"),
                report=Report(RunOptions(quiet=True)),
            )  # fmt: skip
        seconds = time.perf_counter() - began
        watch.stop.set()
        lines = (Path(place) / "out" / NAME).read_text().count('"done"')
        assert lines == count, (lines, count)
    client = watch.seconds.pop(os.getpid()) - before
    row = {"work": f"{count:,} files without work", "seconds": seconds, "client_cpu_seconds": client}
    return [row | {"worker_cpu_seconds": watch.cpu_seconds, "peak_mib": watch.peak}]


def efficiency(count: int = 200) -> list[dict[str, Any]]:
    """Measure files of one second with two workers and two jobs, in turn, two times half of the files."""
    part, cluster, running, jobs = max(2, count // 2), 0.0, 0.0, 0.0
    for _ in range(2):
        with tempfile.TemporaryDirectory() as place:
            took = on_cluster(Path(place), part, one_second, 1.0)
            cluster, running = cluster + took["with_start"], running + took["seconds"]
        with tempfile.TemporaryDirectory() as place:
            began = time.perf_counter()
            tasks = tasks_in(Path(place), part)
            estimate = functools.partial(seconds_of, seconds=1.0)
            found = list(run_in_processes(tasks, one_second, estimate, jobs=2, tell=lambda progress: None))
            assert len(found) == part
            jobs += time.perf_counter() - began
    row = {"work": f"{2 * part} files of 1 s", "seconds": cluster, "running_seconds": running, "jobs_seconds": jobs}
    return [row | {"efficiency": jobs / cluster, "running_efficiency": jobs / running}]


def synthetic(path: Path, side: int) -> None:
    """Write an RGB picture as a tiled BigTIFF without compression: a photo, repeated with other brightness."""
    import numpy as np
    import tifffile

    from glocal import samples
    from glocal.files.images.read import read_image

    photo = read_image(samples.path("citrus.jpg")).pixels[:512, :512].astype(np.float32)
    draw = np.random.default_rng(0)

    def tiles() -> Any:
        for _ in range((side // 512) ** 2):
            yield np.clip(photo * draw.uniform(0.4, 1.0) + draw.uniform(0, 60), 0, 255).astype(np.uint8)

    tifffile.imwrite(
        path, tiles(), shape=(side, side, 3), dtype=np.uint8, tile=(512, 512), photometric="rgb", bigtiff=True
    )


class Watch(threading.Thread):
    """Look at a process and all its descendants until it ends or `stop` is set: their memory together, and their time."""

    def __init__(self, process: int, every: float = 0.25) -> None:
        super().__init__(daemon=True)
        self.process, self.every, self.stop = process, every, threading.Event()
        self.peak, self.seconds = 0.0, dict[int, float]()
        self.start()

    def run(self) -> None:
        """Look again and again."""
        while not self.stop.wait(self.every):
            family = _family(self.process)
            self.peak = max(self.peak, sum(map(_pss, family)) / 1024)
            self.seconds |= {one: spent for one in family if (spent := _seconds(one))}

    @property
    def cpu_seconds(self) -> float:
        """Processor time of all of them."""
        return sum(self.seconds.values())


def watched(arguments: list[str]) -> tuple[float, Watch]:
    """Run a command on one thread; returns its seconds, and the memory (PSS, MiB) and processor time of its processes."""
    command = [sys.executable, "-m", "glocal", *arguments]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"})
    watch = Watch(process.pid)
    assert process.wait() == 0, arguments
    watch.stop.set()
    return time.perf_counter() - began, watch


def _family(process: int) -> list[int]:
    found = [process]
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += _family(int(child))
    return found


def _pss(process: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def _seconds(process: int) -> float:
    with contextlib.suppress(OSError, ValueError):
        user, system = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return 0.0


def gigapixel(side: int = 32768) -> list[dict[str, Any]]:
    """Measure `glocal color` on one picture, through local:2 and in one process with one thread."""
    from glocal import samples

    megapixels = side * side / 1e6
    with tempfile.TemporaryDirectory(dir=os.environ.get("GLOCAL_BENCH_FOLDER")) as place:
        folder = Path(place)
        synthetic(folder / "scan.tif", side)
        base = ["color", str(folder / "scan.tif"), str(samples.path("sunset.jpg")), "--quiet", "-o"]
        two, both = watched([*base, str(folder / "two.zarr"), "--cluster", "local:2", "--worker-threads", "1"])
        one, alone = watched([*base, str(folder / "one.zarr")])
        files = [
            path.relative_to(folder / "one.zarr") for path in (folder / "one.zarr").rglob("c/**/*") if path.is_file()
        ]
        same = all(
            (folder / "one.zarr" / path).read_bytes() == (folder / "two.zarr" / path).read_bytes() for path in files
        )
    row = {"work": f"color, {megapixels / 1000:.2f} gigapixels", "megapixels": megapixels, "same_bytes": same}
    row |= {"seconds": two, "peak_mib": both.peak, "one_seconds": one, "one_peak_mib": alone.peak}
    row |= {"cpu_seconds": both.cpu_seconds, "one_cpu_seconds": alone.cpu_seconds, "efficiency": one / two / 2}
    return [row | {"cpu_efficiency": alone.cpu_seconds / both.cpu_seconds}]


def store(rows: list[dict[str, Any]]) -> None:
    """Replace the rows about the same work in the stored results."""
    kept = {"benchmark": "cluster", "rows": []}
    with contextlib.suppress(OSError):
        kept = json.loads(RESULTS.read_text())
    names = {row["work"] for row in rows}
    load = os.getloadavg()[0]
    for row in rows:
        row |= {"date": metadata()["date"], "load": round(load, 1)}
    kept["rows"] = [row for row in kept["rows"] if row["work"] not in names] + rows
    kept["machine"] = metadata()
    RESULTS.write_text(json.dumps(kept, indent=2) + "\n")


def main(arguments: list[str]) -> None:
    """Measure and store."""
    measure = {"overhead": overhead, "efficiency": efficiency, "gigapixel": gigapixel}[arguments[0]]
    rows = measure(*(int(text) for text in arguments[1:]))
    store(rows)
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
