"""The `glocal` command: a table of commands, and what happens when one of them fails.

To add a command, write one file with a function (see `glocal.cli.commands.doctor` for a small one and `glocal.cli.shell.flags` for its
options) and one line in `COMMANDS`. Nothing that imports torch may be imported when such a file is imported: import it
inside the function.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from glocal.cli.shell.lazy import LazyGroup, Table
from glocal.jobs.failures import show_failure

BENCHMARKS: Table = {
    "graph": ("glocal.cli.commands.bench:graph", "Exact neighbour search compared with cKDTree and FAISS."),
    "denoise": ("glocal.cli.commands.bench_denoise:denoise", "Denoising compared with NL-means, wavelets and BM3D."),
    "speech": (
        "glocal.cli.commands.bench_speech:speech",
        "Denoising speech compared with RNNoise, noisereduce and Wiener.",
    ),
    "conv": (
        "glocal.cli.commands.bench:conv",
        "The graph convolution compared with torch indexing and PyTorch Geometric.",
    ),
    "style": ("glocal.cli.commands.bench:style", "The whole style transfer compared with plain PyTorch."),
    "presets": ("glocal.cli.commands.bench:presets", "Every preset of the style transfer: time and memory."),
    "cuda": ("glocal.cli.commands.bench:cuda", "Style transfer on a GPU compared with plain PyTorch."),
}

TRAIN: Table = {
    "image": ("glocal.cli.commands.train_image:train_image", "The networks that denoise photos."),
    "speech": ("glocal.cli.commands.train_speech:train_speech", "The networks that denoise speech."),
}
EVAL: Table = {
    "image": ("glocal.cli.commands.eval_image:eval_image", "The networks that denoise photos, and the Haar baseline."),
    "speech": ("glocal.cli.commands.eval_speech:eval_speech", "The networks that denoise speech, and their peers."),
}
COMMANDS: Table = {
    "style": ("glocal.jobs.style:StyleJob", "Give a photo the strokes and colours of a painting."),
    "color": ("glocal.jobs.color:ColorJob", "Give a photo the colours of another."),
    "speech": ("glocal.jobs.speech:SpeechJob", "Remove noise from speech."),
    "denoise": ("glocal.jobs.denoise:DenoiseJob", "Remove noise from photos."),
    "studio": ("glocal.cli.commands.studio:studio", "Open the jobs on a page in the browser."),
    "train": (TRAIN, "Train the denoising networks."),
    "eval": (EVAL, "Measure the denoising networks on test data."),
    "reproduce": ("glocal.cli.commands.reproduce:reproduce", "Run the paper's figures and tables again, on a page."),
    "replay": ("glocal.cli.commands.replay:replay", "Run again what made a file and compare the results."),
    "bench": (BENCHMARKS, "Measure speed and memory compared with peers."),
    "doctor": ("glocal.cli.commands.doctor:doctor", "Check this installation and say what to fix."),
}

_HELP = """Signals on graphs: stylise, recolour and denoise photos, denoise speech.

Results go to stdout, messages and progress to stderr. `glocal COMMAND --help` explains a command; `glocal --version` shows the version.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    # Between its own parallel loops torch's threads would spin on the cores that our kernels need: a quarter of their
    # time on two cores. Read when torch is loaded, which is later.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    code = run(list(sys.argv[1:] if arguments is None else arguments))
    try:
        sys.stdout.flush()
    except OSError as error:
        # The reader of a pipe has ended, or the device is full. The rest must not be written again when Python ends.
        code = code or show_failure(error, debug=False)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code: 0 done, 1 some inputs failed, 2 and on see `glocal.errors`."""
    debug, bare = "--debug" in arguments, not arguments
    if arguments in (["--version"], ["-V"]):
        from glocal import __version__

        sys.stdout.write(f"glocal {__version__}\n")
        return 0
    try:
        invoke(arguments or ["--help"])
    except typer.Exit as leave:
        return 2 if bare else int(leave.exit_code)  # without a command nothing was done
    except (Exception, KeyboardInterrupt) as error:
        return show_failure(error, debug=debug)
    return 0


def invoke(arguments: list[str]) -> None:
    """Run one command and let its errors through, for commands that call another one."""
    group = LazyGroup(COMMANDS, name="glocal", help=_HELP)
    with group.make_context("glocal", arguments) as context:
        group.invoke(context)
