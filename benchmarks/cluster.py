"""What a cluster costs: one million files without work, and two workers compared with two jobs.

python benchmarks/cluster.py overhead [FILES]     files that do nothing, in groups, through local:2
python benchmarks/cluster.py efficiency [FILES]   files of one second of processor time each: local:2 and --jobs 2 in turn
python benchmarks/cluster.py gigapixel [SIDE]     one picture of SIDE x SIDE pixels through local:2 and in one process

Each writes its rows into benchmarks/results/cluster.json and keeps the rows of the others.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from glocal.bench.timing import metadata
from glocal.cluster.folders import run_on_cluster
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
    """Measure files without work."""
    with tempfile.TemporaryDirectory() as place:
        before = time.process_time()
        took = on_cluster(Path(place), count, nothing, 1e-4)
        client = time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [{"work": f"{count:,} files without work", **took, "client_cpu_seconds": client, "client_peak_mib": peak}]


def efficiency(count: int = 200) -> list[dict[str, Any]]:
    """Measure files of one second with two workers and two jobs, in turn, three times half of the files."""
    part, cluster, jobs = max(2, count // 4), 0.0, 0.0
    for _ in range(4):
        with tempfile.TemporaryDirectory() as place:
            cluster += on_cluster(Path(place), part, one_second, 1.0)["with_start"]
        with tempfile.TemporaryDirectory() as place:
            began = time.perf_counter()
            tasks = tasks_in(Path(place), part)
            estimate = functools.partial(seconds_of, seconds=1.0)
            found = list(run_in_processes(tasks, one_second, estimate, jobs=2, tell=lambda progress: None))
            assert len(found) == part
            jobs += time.perf_counter() - began
    work = f"{4 * part} files of 1 s"
    return [{"work": work, "seconds": cluster, "jobs_seconds": jobs, "efficiency": jobs / cluster}]


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
    measure = {"overhead": overhead, "efficiency": efficiency}[arguments[0]]
    rows = measure(*(int(text) for text in arguments[1:]))
    store(rows)
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
