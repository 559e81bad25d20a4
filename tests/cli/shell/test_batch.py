"""Batches through a trivial command that copies pictures: outputs, trees, failures, jobs, plans, interruption."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
import typer

from glocal import atomic
from glocal.cli import main
from glocal.cli.shell.batch import BatchOptions, run_batch
from glocal.cli.shell.console import Console, RunOptions
from glocal.errors import ArgumentError, InputError
from glocal.files.images.formats import SUFFIXES
from glocal.files.images.picture import Picture
from glocal.files.images.read import image_size, read_image
from glocal.files.images.write import write_image
from glocal.jobs.job import Cost
from glocal.jobs.paths import Task, output_root, plan_tasks
from glocal.jobs.processes import threads_for, usable_cores
from glocal.progress import COMPILE, Progress


def work(task: Task, tell, *, overwrite: bool) -> dict:
    if "killer" in task.source.name:
        os.kill(os.getpid(), signal.SIGKILL)
    tell(0.5)
    write_image(task.target, read_image(task.source), overwrite=overwrite)
    return {"threads": os.environ.get("NUMBA_NUM_THREADS"), "process": os.getpid()}


def estimate(task: Task) -> Cost:
    h, w = image_size(task.source)
    return Cost(size=f"{w} x {h}", memory=h * w * 1000, seconds=h * w / 1000, parts="2 bands")


def copy(images: Annotated[list[str], typer.Argument()], batch: BatchOptions, run: RunOptions) -> None:
    """Copy pictures."""
    run_batch(
        "copy",
        images,
        functools.partial(work, overwrite=batch.overwrite),
        estimate=estimate,
        suffixes=SUFFIXES,
        options=batch,
        console=Console(run),
    )


@pytest.fixture
def call(monkeypatch):
    monkeypatch.setattr(main, "COMMANDS", {"copy": (f"{__name__}:copy", "Copy pictures.")})
    return lambda *arguments: main.run(["copy", *map(str, arguments)])


@pytest.fixture
def tree(tmp_path):
    """in/a.png, in/b.jpg, in/notes.txt, in/deep/c.png."""
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for name in ("a.png", "b.jpg", "deep/c.png"):
        write_image(tmp_path / "in" / name, Picture(np.full((8, 9, 3), 50, np.uint8)))
    (tmp_path / "in" / "notes.txt").write_text("no picture")
    return tmp_path


def files(folder: Path) -> set[str]:
    """Names below a folder, but for the hidden parts that a killed process may leave."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".glocal-part"]
    return {str(path.relative_to(folder)) for path in found}


def test_one_file_to_one_file(call, tree, capsys):
    assert call(tree / "in/a.png", "-o", tree / "out.tif") == 0
    assert read_image(tree / "out.tif").size == (8, 9)
    captured = capsys.readouterr()
    assert captured.out == f"{tree / 'out.tif'}\n"
    assert captured.err == ""


@pytest.mark.parametrize("name", ["out.xyz", "out", "{stem}.doc"])
def test_a_suffix_that_cannot_be_written_is_told_before_the_work(call, tree, capsys, monkeypatch, name):
    monkeypatch.setattr("glocal.files.images.read.read_image", lambda _: 1 / 0)
    assert call(tree / "in/a.png", "-o", tree / name) == 2
    suffix = Path(name).suffix
    wrong = f"the suffix `{suffix}` names no format" if suffix else "the name has no suffix, so the format is not known"
    assert f"{wrong}. Try: use one of .avif .bmp" in capsys.readouterr().err


def test_a_folder_keeps_its_tree(call, tree):
    assert call(tree / "in", "-o", tree / "out") == 0
    assert files(tree / "out") == {"a.png", "b.jpg"}
    assert call(tree / "in", "-o", tree / "all", "--recursive") == 0
    assert files(tree / "all") == {"a.png", "b.jpg", "deep/c.png"}


@pytest.mark.parametrize(("inputs", "output"), [("", "out"), ("in", "")])
def test_an_empty_name_is_not_the_current_folder(tree, monkeypatch, inputs, output):
    """As from a variable of the shell that is not set."""
    monkeypatch.chdir(tree)
    with pytest.raises(ArgumentError, match="a name is empty"):
        plan_tasks("denoise", [inputs], output=output, recursive=False, suffixes=SUFFIXES)


def test_patterns_and_globs(call, tree):
    assert call(tree / "in", "-o", str(tree / "out") + "/{stem}_{command}{ext}", "--recursive") == 0
    assert files(tree / "out") == {"a_copy.png", "b_copy.jpg", "deep/c_copy.png"}
    assert call(str(tree / "in") + "/**/*.png", "-o", tree / "globbed") == 0
    assert files(tree / "globbed") == {"a.png", "deep/c.png"}
    assert call(tree / "in/a.png", "-o", "{stem}-2.tif") == 0
    assert (tree / "in/a-2.tif").exists()
    assert call(tree / "in/a.png") == 0
    assert (tree / "in/a_copy.png").exists()


def test_a_run_that_skips_everything_removes_what_a_killed_one_left(call, tree):
    assert call(tree / "in", "-o", tree / "out") == 0
    left = (
        tree / "out" / ".b.jpg.12345678.glocal-part"
    )  # killed after it named its last output, before it removed its claim
    left.touch()
    assert call(tree / "in", "-o", tree / "out", "--skip-existing", "--dry-run") == 0
    assert left.exists()
    atomic.remove_unfinished.cache_clear()  # another process
    assert call(tree / "in", "-o", tree / "out", "--skip-existing") == 0
    assert not left.exists()


def test_existing_outputs_are_refused_skipped_or_replaced(call, tree, capsys):
    old = Picture(np.zeros((3, 3, 3), np.uint8))
    (tree / "out").mkdir()
    write_image(tree / "out/a.png", old)
    assert call(tree / "in/a.png", "-o", tree / "out") == 4
    assert "exists already. Try: add --overwrite, --skip-existing or another -o." in capsys.readouterr().err
    assert call(tree / "in", "-o", tree / "out") == 1
    assert files(tree / "out") == {"a.png", "b.jpg", "failed.json"}
    assert read_image(tree / "out/a.png").size == (3, 3)
    assert call(tree / "in", "-o", tree / "out", "--skip-existing", "--json") == 0
    states = [row["state"] for row in json.loads(capsys.readouterr().out.split("\n", 1)[1])["results"]]
    assert states == ["skipped", "skipped"]
    assert read_image(tree / "out/a.png").size == (3, 3)
    assert call(tree / "in", "-o", tree / "out", "--overwrite") == 0
    assert read_image(tree / "out/a.png").size == (8, 9)
    assert call(tree / "in", "-o", tree / "out", "--overwrite", "--skip-existing") == 2


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_bad_file_is_reported_and_the_rest_go_on(call, tree, capsys, jobs):
    (tree / "in/bad.png").write_text("this is text")
    assert call(tree / "in", tree / "missing.png", "-o", tree / "out", "--jobs", jobs) == 1
    assert files(tree / "out") == {"a.png", "b.jpg", "failed.json"}
    failed = json.loads((tree / "out/failed.json").read_text())
    assert failed["glocal"] == "copy"
    assert {(Path(row["input"]).name, row["exit_code"]) for row in failed["failed"]} == {
        ("bad.png", 3),
        ("missing.png", 3),
    }
    shown = capsys.readouterr()
    assert "2 done, 0 skipped, 2 failed" in shown.err
    assert "bad.png): its content is not an image that can be read here. Try: use one of" in shown.err


def test_failed_json_goes_when_nothing_fails_any_more(call, tree):
    (tree / "in/bad.png").write_text("this is text")
    assert call(tree / "in", "-o", tree / "out") == 1
    (tree / "in/bad.png").unlink()
    assert call(tree / "in", "-o", tree / "out", "--skip-existing") == 0
    assert files(tree / "out") == {"a.png", "b.jpg"}


def test_jobs_divide_the_threads(call, tree, capsys):
    assert call(tree / "in", "-o", tree / "out", "--recursive", "--jobs", 2, "--json") == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert {row["threads"] for row in results} == {str(threads_for(2))}
    assert os.getpid() not in {row["process"] for row in results}
    assert threads_for(2) == max(1, usable_cores() // 2)


def test_a_process_that_is_killed_costs_only_its_file(call, tree, capsys):
    write_image(tree / "in/killer.png", Picture(np.zeros((8, 9, 3), np.uint8)))
    assert call(tree / "in", "-o", tree / "out", "--recursive", "--jobs", 2) == 1
    assert files(tree / "out") == {"a.png", "b.jpg", "deep/c.png", "failed.json"}
    assert "killer.png: its process was killed" in capsys.readouterr().err


def test_the_plan(call, tree, capsys):
    write_image(tree / "b.jpg", Picture(np.zeros((3, 3, 3), np.uint8)))
    assert call(tree / "in", "-o", tree / "out", "--dry-run", "--json") == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert [(row["size"], row["parts"], row["memory"], row["seconds"]) for row in plan] == [
        ("9 x 8", "2 bands", 72_000, 0.072)
    ] * 2
    assert [row["output"] for row in plan] == [str(tree / "out/a.png"), str(tree / "out/b.jpg")]
    assert not (tree / "out").exists()
    assert call(tree / "in/a.png", "-o", tree, "--dry-run") == 0
    assert capsys.readouterr().out == (
        f"run {tree / 'in/a.png'} -> {tree / 'a.png'}: 9 x 8, 2 bands, 72.0 kB, about 0.1 s\n"
    )
    assert call(tree / "in/b.jpg", "-o", tree, "--dry-run") == 4  # as without --dry-run
    assert "exists already" in capsys.readouterr().err
    assert call(tree / "in/a.png", tree / "in/b.jpg", "-o", tree, "--dry-run") == 1
    assert "exists already" in capsys.readouterr().out
    assert call(tree / "in/a.png", "-o", tree, "--dry-run", "--max-memory", "50K") == 0
    assert "(more than the 51.2 kB there are)" in capsys.readouterr().out


def test_memory_is_respected(call, tree, capsys):
    assert call(tree / "in/a.png", "-o", tree / "a.png", "--max-memory", "50K") == 5
    assert capsys.readouterr().err.endswith(
        "a.png): the work needs 72.0 kB, and it may take 51.2 kB. "
        "Try: use a smaller input, fewer --jobs or a larger --max-memory.\n"
    )
    assert call(tree / "in", "-o", tree / "out", "--max-memory", "100K", "--jobs", 2) == 0
    assert "1 jobs instead of 2: one may need 72.0 kB of 102.4 kB" in capsys.readouterr().err


def test_single_missing_input_has_its_own_exit_code(call, tree, capsys):
    assert call(tree / "nothing.png", "-o", tree / "out.png") == 3
    assert capsys.readouterr().err == (
        f"error: read file ({tree / 'nothing.png'}): there is no such file. Try: check the name.\n"
    )


def test_output_that_cannot_be_written(call, tree, capsys):
    (tree / "blocked").write_text("a file where a folder should be")
    assert call(tree / "in/a.png", "-o", tree / "blocked/x.png") == 4
    assert "error: make folder" in capsys.readouterr().err


def test_an_interrupted_batch_says_how_to_go_on(call, tree, capsys, monkeypatch):
    honest = work

    def interrupted(task, tell, *, overwrite):
        if task.source.name == "b.jpg":
            raise KeyboardInterrupt
        return honest(task, tell, overwrite=overwrite)

    monkeypatch.setattr(f"{__name__}.work", interrupted)
    assert call(tree / "in", "-o", tree / "out") == 130
    assert capsys.readouterr().err == "stopped: 1 of 2 done; go on with --skip-existing\n"
    assert files(tree / "out") == {"a.png"}


@pytest.mark.parametrize(
    ("inputs", "output", "message"),
    [
        (
            ["a.png", "b.jpg"],
            "out.png",
            "-o: `out.png` names one file, and there are several inputs. Name a folder or a",
        ),
        (["a.png", "b.jpg"], "-", "-o: `-` takes one result, and there are several inputs. Name a folder."),
        (["a.png"], "{what}.png", "-o: the pattern `{what}.png` cannot be filled in. Use {stem}, {ext}, {name} and"),
        (["a.png", "deep/../a.jpg"], "{command}.png", "would both be written to"),
    ],
)
def test_outputs_that_make_no_sense(tree, monkeypatch, inputs, output, message):
    monkeypatch.chdir(tree / "in")
    with pytest.raises(ArgumentError) as caught:
        plan_tasks("copy", inputs, output=output, recursive=False, suffixes=SUFFIXES)
    assert message in str(caught.value)


def test_a_folder_without_pictures(tmp_path):
    with pytest.raises(InputError) as caught:
        plan_tasks("copy", [str(tmp_path)], output=None, recursive=False, suffixes=SUFFIXES)
    assert str(caught.value) == (
        f"copy ({tmp_path}): there are no files of a known format. Name files, or add --recursive."
    )


def test_results_of_other_inputs_are_left_out_with_a_line(tmp_path):
    for name in ("a.png", "a_new.png", "b.png"):
        (tmp_path / name).touch()
    lines = []
    settings = {"output": str(tmp_path / "{stem}_new{ext}"), "recursive": False, "suffixes": SUFFIXES}
    tasks = plan_tasks("copy", [str(tmp_path)], **settings, say=lines.append)
    assert [task.source.name for task in tasks] == ["a.png", "b.png"]
    left_out = tmp_path / "a_new.png"
    assert lines == [f"copy: 1 of 3 inputs are left out, since other inputs are written there: {left_out}"]


def test_output_root():
    assert output_root(None) == Path()
    assert output_root("out/x.png") == output_root("out/{stem}.png") == output_root("out/") == Path("out")


def test_plain_progress_lines(capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    record = Progress(0.6, level=1, levels=4, iteration=5, iterations=10, loss=0.5, seconds_left=75.0)
    with Console().progress("photo.png") as tell:
        now = 6.0
        tell(0.5)
        tell(Progress(0.5, step=COMPILE))  # at once, so that nobody wonders about the silence
        tell(Progress(0.5, step=COMPILE))  # and not for every kernel
        now = 12.0
        tell(record)
    assert capsys.readouterr().err == (
        "photo.png: 50% 6.0 s left\nphoto.png: compiling kernels, once for this machine\n"
        "photo.png: 60% level 2/4, iteration 5/10, loss 0.5, 1 min 15 s left\n"
    )
    with Console(RunOptions(quiet=True)).progress("photo.png") as tell:
        tell(0.5)
    assert capsys.readouterr().err == ""


def slow_copy(images: Annotated[list[str], typer.Argument()], batch: BatchOptions, run: RunOptions) -> None:
    """Copy pictures, and take a long time over the one called b.jpg."""
    run_batch("copy", images, slow_work, estimate=estimate, suffixes=SUFFIXES, options=batch, console=Console(run))


def slow_work(task: Task, tell) -> dict:
    if task.source.name == "b.jpg":
        (task.target.parent / "started").touch()
        time.sleep(60)
    return work(task, tell, overwrite=False)


@contextlib.contextmanager
def a_batch(tree, jobs):
    """Start a batch of two files as at a terminal; the second one takes a minute."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from glocal.cli import main\n"
        f"main.COMMANDS = {{'copy': ('{Path(__file__).stem}:slow_copy', 'Copy.')}}\n"
        "if __name__ == '__main__': main.main(sys.argv[1:])\n"
    )
    (tree / "run.py").write_text(code)
    command = [sys.executable, tree / "run.py", "copy", tree / "in", "-o", tree / "out", "--jobs", str(jobs)]
    # A job of a shell that runs in the background inherits an ignored SIGINT; a person at a terminal does not.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_real_interrupt(tree, jobs):
    """Ctrl-C reaches every process of the terminal's group, as here: the batch ends with 130 and leaves whole files."""
    with a_batch(tree, jobs) as process:
        while not ((tree / "out" / "started").exists() and (tree / "out" / "a.png").exists()):
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(0.2)
        os.killpg(process.pid, signal.SIGINT)
        _, shown = process.communicate(timeout=30)
    assert process.returncode == 130
    assert shown.splitlines()[-1] == "stopped: 1 of 2 done; go on with --skip-existing"
    assert "Traceback" not in shown
    assert files(tree / "out") == {"a.png", "started"}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc, as on Linux")
def test_an_interrupt_while_processes_start(tree):
    with a_batch(tree, 2) as process:
        while b"spawn_main" not in started_by(process.pid):
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        _, shown = process.communicate(timeout=30)
    assert process.returncode == 130
    assert shown.splitlines()[-1].startswith("stopped: 0 of 2 done")
    assert "Traceback" not in shown


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="Windows has no masks of signals")
@pytest.mark.parametrize(
    ("before", "steps", "shown"),
    [
        ("default_int_handler", "raise_signal(INT); print('later')", "later\nstopped\n"),  # it waits for the end
        ("default_int_handler", "start()", "went on\n"),
        ("default_int_handler", "raise_signal(INT); start()", ""),  # a process ends that finds one: exit code 130
        ("SIG_IGN", "raise_signal(INT); print(INT in pthread_sigmask(SIG_BLOCK, []))", "False\nwent on\n"),
    ],
)
def test_interrupts_wait_while_processes_start(before, steps, shown):
    code = (
        "from signal import *\n"
        "from glocal.jobs import processes\n"
        "INT, start = SIGINT, lambda: processes._start(1)\n"
        f"signal(SIGINT, {before})\n"
        "try:\n"
        f"    with processes._interrupts_wait(): {steps}\n"
        "    print('went on')\n"
        "except KeyboardInterrupt: print('stopped')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0 if shown else 130, shown, "")


def started_by(pid):
    """Return the command lines of the processes that a process has started."""
    lines = []
    for number in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            lines.append(Path(f"/proc/{number}/cmdline").read_bytes())
    return b" ".join(lines)


def test_a_second_signal_while_the_first_is_handled():
    """Ctrl-C reaches a worker from the terminal and from its parent. SIGHUP, which is handled first, replaces the handler."""
    code = (
        "import os, signal\n"
        "from glocal.jobs import processes\n"
        "both = {signal.SIGHUP, signal.SIGINT}\n"
        "for number in both: signal.signal(number, processes.stop_once)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, both)\n"
        "for number in both: os.kill(os.getpid(), number)\n"
        "try: signal.pthread_sigmask(signal.SIG_UNBLOCK, both)\n"
        "except KeyboardInterrupt: print('stopped')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")
