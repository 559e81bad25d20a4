"""`glocal speech`: remove steady noise from recordings."""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import typer

from glocal.apps.speech.options import SpeechOptions
from glocal.cli.shell.batch import BatchOptions, Estimate, run_batch
from glocal.cli.shell.console import Report, RunOptions, Tell
from glocal.cli.shell.paths import Task, plan_tasks
from glocal.errors import ArgumentError
from glocal.files.audio.formats import SUFFIXES


@dataclass(frozen=True)
class SpeechFiles:
    """Files of a denoised recording beside the recording itself."""

    residual: str | None = field(
        default=None, metadata={"help": "Write what was removed into this file.", "writes": True}
    )
    subtype: str | None = field(
        default=None, metadata={"help": "How samples are stored, such as PCM_24 or FLOAT. Default: as in the input."}
    )


def speech(
    inputs: Annotated[list[str], typer.Argument(help="Recordings, folders or patterns; - is the standard input.")],
    options: SpeechOptions,
    files: SpeechFiles,
    batch: BatchOptions,
    run: RunOptions,
) -> None:
    """Remove steady noise (hiss, hum, fans) from speech, at any length, rate and number of channels.

    WAV, FLAC, OGG, Opus and MP3 keep their format, length and level. `-o -` writes WAV to the standard output.
    """
    if inputs == ["-"] and batch.output is None:
        batch = BatchOptions(**{**asdict(batch), "output": "-"})
    if files.residual is not None and len(_planned(inputs, batch)) > 1:
        raise ArgumentError("speech: --residual names one file, and there are several recordings. Give one recording.")
    report = Report(run)
    work = functools.partial(_work, options=options, files=files, overwrite=batch.overwrite, report=report)
    run_batch(
        "speech",
        inputs,
        work,
        estimate=_estimate,
        suffixes=tuple(SUFFIXES),
        options=batch,
        report=report,
        also=[files.residual],
    )


def _planned(inputs: list[str], batch: BatchOptions) -> list[Task]:
    return plan_tasks("speech", inputs, output=None, recursive=batch.recursive, suffixes=tuple(SUFFIXES))


def _estimate(task: Task) -> Estimate:
    """The memory of the libraries and of one block; time at a tenth of the recording's, and the start."""
    if str(task.source) == "-":
        return Estimate("standard input", memory=450 << 20, seconds=3)
    from glocal.files.audio.audio_file import open_audio

    with open_audio(task.source) as sound:
        info = sound.info
    seconds = info.seconds or 0.0
    size = f"{seconds:.1f} s, {info.rate} Hz, {info.channels} channel{'s' * (info.channels > 1)}"
    return Estimate(size, memory=(400 + 20 * info.channels) << 20, seconds=3 + 0.1 * seconds)


def _work(
    task: Task, tell: Tell, *, options: SpeechOptions, files: SpeechFiles, overwrite: bool, report: Report
) -> dict[str, Any]:
    """One recording from file to file."""
    from glocal.apps.speech.sound_files import denoise_file
    from glocal.files.provenance import build_recipe

    sources = [] if str(task.source) == "-" else [task.source]
    arguments = {"positional": [str(source) for source in sources], "subtype": files.subtype}
    own = [options.weights] if options.weights is not None else []
    recipe = build_recipe("speech", options, inputs=[*sources, *own], arguments=arguments)
    done = denoise_file(
        task.source, task.target, options, residual=files.residual, subtype=files.subtype, recipe=recipe,
        overwrite=overwrite, progress=tell,
    )  # fmt: skip
    how = "estimated" if done.estimated else "given"
    report.say(f"{task.source}: noise level {done.sigma:.3g} of full scale ({how}), model {done.model}")
    for note in done.notes:
        report.say(f"{task.source}: {note}")
    return {"sigma": done.sigma, "sigma_estimated": done.estimated, "model": done.model,
            "seconds_of_sound": done.seconds, "rate": done.rate, "channels": done.channels,
            "notes": list(done.notes)}  # fmt: skip
