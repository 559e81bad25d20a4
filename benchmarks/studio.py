"""How long the studio takes to open and to answer a click.

python benchmarks/studio.py start [TIMES]   until the page is sent, compared with `import gradio` alone, in turn
python benchmarks/studio.py click [TIMES]   the neighbours of a pixel at 512 pixels: the first with new settings, and the next

Each writes its rows into benchmarks/results/studio.json and keeps the rows of the others. The row of fifty jobs comes from
GLOCAL_STUDIO_RESULTS=benchmarks/results/studio.json python -m pytest -m slow tests/studio/test_studio_slow.py -k fifty
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from glocal import samples
from glocal.bench.timing import metadata
from glocal.studio.graph_view import GraphOptions, open_signal, show_neighbors

RESULTS = Path(__file__).parent / "results" / "studio.json"
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the studio's processes have it; read when torch is imported
_TICK = os.sysconf("SC_CLK_TCK")


def cpu_of(pid: int) -> float:
    """Return the processor seconds of a process, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def opened() -> tuple[float, float]:
    """Start a studio, fetch its page as a browser does, and return seconds and processor seconds until then."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "glocal", "studio", "--no-open", "--port=0", "--quiet"],
            stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": folder},
        )  # fmt: skip
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().strip())
        cookie = _get(address.netloc, f"/?{address.query}").headers["set-cookie"].split(";")[0]
        page = _get(address.netloc, "/", cookie=cookie)
        assert b"gradio_config" in page.read()
        found = time.perf_counter() - began, cpu_of(process.pid)
        process.terminate()
        process.wait()
    return found


def _get(host: str, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(host, timeout=120)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def imported() -> tuple[float, float]:
    """Return seconds and processor seconds of `import gradio`."""
    script = "import time, gradio; print(time.process_time())"
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return time.perf_counter() - began, float(done.stdout)


def start(times: int = 5) -> list[dict[str, Any]]:
    """Measure both in turn, after one of each that warms the files."""
    opened(), imported()
    pairs = [(opened(), imported()) for _ in range(times)]
    return [
        {"work": name, "seconds": median(pair[i][0] for pair in pairs), "cpu": median(pair[i][1] for pair in pairs)}
        for i, name in enumerate(("the studio, until its page is sent", "`import gradio` alone"))
    ]


def click(times: int = 9) -> list[dict[str, Any]]:
    """Measure clicks into the sample photo, in the process that answers them."""
    rows = []
    photo = samples.path("bridge.jpg")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        open_signal(None, Path(photo), place, GraphOptions())  # type: ignore[arg-type]
        for patch in (3, 7, 31):
            first, following = [], []
            for number in range(times):
                options = GraphOptions(patch=patch, coords=0.5 + number)  # settings that were not used before
                first.append(_clicked(Path(photo), place, options, 100 + number))
                following.append(_clicked(Path(photo), place, options, 200 + number))
            for name, found in (("the first click with new settings", first), ("the next", following)):
                rows.append(
                    {"work": f"patch {patch}: {name}", "seconds": median(f[0] for f in found),
                     "cpu": median(f[1] for f in found)}
                )  # fmt: skip
    return rows


def _clicked(photo: Path, place: Path, options: GraphOptions, x: int) -> tuple[float, float]:
    began, cpu = time.perf_counter(), time.process_time()
    show_neighbors(None, photo, place, options, x, 150)  # type: ignore[arg-type]
    return time.perf_counter() - began, time.process_time() - cpu


def main() -> None:
    """Measure what the command line names."""
    which, times = sys.argv[1], [int(number) for number in sys.argv[2:]]
    rows = {"start": start, "click": click}[which](*times)
    for row in rows:
        row |= {"kind": which, "date": metadata()["date"], "load": round(os.getloadavg()[0], 1)}
        sys.stdout.write(f"{row['work']}: {row['seconds']:.2f} s, {row['cpu']:.2f} CPU s\n")
    kept = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    rows = [row for row in kept if row["kind"] != which] + rows
    RESULTS.write_text(json.dumps({"benchmark": "studio", "rows": rows, "machine": metadata()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
