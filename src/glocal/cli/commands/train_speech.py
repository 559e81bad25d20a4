"""`glocal train speech`: the speech denoisers from a folder of speech."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from glocal.apps.speech.options import SpeechTraining
from glocal.atomic import make_folder
from glocal.cli.shell.console import Console, RunOptions
from glocal.jobs.failures import Stopped


def train_speech(
    data: Annotated[
        Path,
        typer.Argument(
            help="A folder of speech: with clips.csv, in TIMIT's layout, or any tree; for voice: clean/ and noise/"
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for models, logs and checkpoints.")],
    options: SpeechTraining,
    run: RunOptions,
) -> None:
    """Train a speech denoiser. Run the same command again to continue a training that was stopped.

    OUTPUT receives the validation curve (.jsonl), checkpoints, and speech-MODEL.safetensors with an index.
    """
    from glocal.apps.speech.data import load_speech
    from glocal.apps.speech.models import save_trained
    from glocal.apps.speech.train import train_model

    console = Console(run)
    make_folder(output)
    if options.model == "voice":
        _train_voice(data, output, options, console)
        return
    loaded = load_speech(data)
    console.say(f"{len(loaded.train)} clips to train, {len(loaded.val)} to validate, {len(loaded.test)} to test")
    try:
        with console.progress(f"train {options.model}") as tell:
            net, last = train_model(loaded, options, output, progress=lambda p: console.training(p, tell))
    except KeyboardInterrupt as stop:
        raise Stopped(f"the checkpoints in {output} stay; run the same command again to go on") from stop
    info = {"seed": options.seed, "validation": round(last.validation, 3)}
    path = save_trained(net, f"speech-{options.model}", output, info=info)
    summary: dict[str, Any] = {"weights": str(path), "validation": last.validation, "model": options.model}
    console.result(summary, str(path))


def _train_voice(data: Path, output: Path, options: SpeechTraining, console: Console) -> None:
    from glocal.apps.speech.models import load_voice, save_trained
    from glocal.apps.speech.voice_training import VoicePlan, load_recordings, train_voice

    start = None if options.start is None else load_voice(options.start)
    parts = load_recordings(data)
    console.say(", ".join(f"{len(sounds)} of {name}" for name, sounds in parts.items()))
    plan = VoicePlan.of(steps=options.steps, seed=options.seed, fresh=start is None)
    last: dict[str, float] = {}

    def note(line: dict[str, float]) -> None:
        last.update(line)
        console.say(
            f"step {line['step']}/{plan.steps}: SI-SDR {line['real']:.2f} dB, white noise {line['white']:.2f} dB"
        )

    try:
        net = train_voice(parts, output, plan, device=options.device, every=options.every, start=start, callback=note)
    except KeyboardInterrupt as stop:
        raise Stopped(f"the checkpoint in {output} stays; run the same command again to go on") from stop
    path = save_trained(
        net, "speech-voice", output, info={"seed": options.seed, "validation": round(last.get("real", 0.0), 3)}
    )
    console.result({"weights": str(path), "validation": last, "model": "voice"}, str(path))
