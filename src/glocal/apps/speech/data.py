"""Speech for training and testing: one-second clips with their split, and the whole training utterances.

Three layouts of a folder are recognised: with a `clips.csv` (columns file, split, start, length), TIMIT's
(`TRAIN/DR1/FCJF0/SA1.WAV`), and any tree of audio files, which is split by speaker folder.
"""

from __future__ import annotations

import csv
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glocal.errors import InputError

RATE = 16000
SPLITS = ("train", "val", "test")
SUFFIXES = (".wav", ".flac", ".ogg", ".mp3", ".opus")
_VALIDATION = 15  # tracks that the paper sets aside


@dataclass(frozen=True)
class SpeechData:
    """Clips of one second, peak 1, for each split (m, 16000), and the training utterances as int16."""

    train: NDArray[np.float32]
    val: NDArray[np.float32]
    test: NDArray[np.float32]
    utterances: tuple[NDArray[np.int16], ...] = field(default=(), repr=False)


def load_speech(folder: Path) -> SpeechData:
    """Read a folder of speech. Raises InputError if there is nothing to train or test on. Cost: reads every file once.

    Files at other rates than 16 kHz are resampled. Channels are averaged. Silent clips are left out.
    """
    if not folder.is_dir():
        message = f"load_speech: {str(folder)!r} is not a folder. Give the folder that holds the speech files."
        raise InputError(message)
    pick = _from_csv if (folder / "clips.csv").exists() else _from_timit if _timit_root(folder) else _from_tree
    clips: dict[str, list[NDArray[np.float32]]] = {split: [] for split in SPLITS}
    utterances: dict[str, NDArray[np.int16]] = {}
    for path, split, start, samples in pick(folder):
        clip = samples[start : start + RATE]
        peak = float(np.abs(clip).max(initial=0.0))
        if len(clip) == RATE and peak > 0:
            clips[split].append(clip / np.float32(peak))
        if split == "train" and path not in utterances:
            utterances[path] = np.round(samples * 32767).clip(-32768, 32767).astype(np.int16)
    if not any(clips.values()):
        message = f"load_speech: {str(folder)!r} holds no speech of a second or more. Supported: {', '.join(SUFFIXES)}."
        raise InputError(message)
    stacked = {name: np.stack(c) if c else np.zeros((0, RATE), np.float32) for name, c in clips.items()}
    return SpeechData(stacked["train"], stacked["val"], stacked["test"], tuple(utterances.values()))


def pack(data: SpeechData, path: Path) -> None:
    """Write the data as one compressed file of int16 arrays, for machines without audio libraries."""
    lengths = np.array([len(u) for u in data.utterances], dtype=np.int64)
    joined = np.concatenate(data.utterances) if data.utterances else np.zeros(0, np.int16)
    clips = {name: np.round(getattr(data, name) * 32767).astype(np.int16) for name in SPLITS}
    np.savez_compressed(path, lengths=lengths, utterances=joined, **clips)


def unpack(path: Path) -> SpeechData:
    """Read what `pack` wrote."""
    with np.load(path, allow_pickle=False) as file:
        clips = {name: file[name].astype(np.float32) / 32767 for name in SPLITS}
        utterances = np.split(file["utterances"], np.cumsum(file["lengths"])[:-1])
    return SpeechData(clips["train"], clips["val"], clips["test"], tuple(utterances))


_Found = Iterator[tuple[str, str, int, NDArray[np.float32]]]


def _from_csv(folder: Path) -> _Found:
    try:
        with (folder / "clips.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        message = (
            f"load_speech: cannot read clips.csv in {str(folder)!r}: {error}. It needs columns file, split, start."
        )
        raise InputError(message) from error
    last, samples = "", np.zeros(0, np.float32)
    for number, row in enumerate(rows, 1):
        try:
            name, split, start = str(Path(row["file"])), row["split"], int(row["start"])
        except (KeyError, TypeError, ValueError) as error:
            message = f"load_speech: row {number} of clips.csv in {str(folder)!r} needs the columns file, split, start ({error})."
            raise InputError(message) from error
        if split not in SPLITS:
            message = f"load_speech: clips.csv names the split {split!r}. Choose one of {', '.join(SPLITS)}."
            raise InputError(message)
        if name != last:
            last, samples = name, read_mono(_resolve(folder, name))
        yield name, split, start, samples


def _resolve(folder: Path, name: str) -> Path:
    """`name` may be relative to the folder of the list or to any folder above it."""
    for base in (folder, *folder.resolve().parents):
        if (base / name).exists():
            return base / name
    message = f"load_speech: {name!r} of clips.csv is not found in {str(folder)!r} or above. Check the list."
    raise InputError(message)


def _timit_root(folder: Path) -> Path | None:
    for root in (folder, folder / "TIMIT", folder / "timit"):
        names = {p.name.lower() for p in root.iterdir()} if root.is_dir() else set()
        if {"train", "test"} <= names:
            return root
    return None


def _from_timit(folder: Path) -> _Found:
    root = _timit_root(folder)
    assert root is not None
    tracks = [p for p in sorted(root.rglob("*")) if p.suffix.lower() in SUFFIXES and not p.name.endswith(".WAV.wav")]
    training = [p for p in tracks if p.relative_to(root).parts[0].lower() == "train"]
    held = {str(training[i]) for i in np.random.default_rng(0).permutation(len(training))[:_VALIDATION]}
    for path in tracks:
        samples = read_mono(path)
        split = "val" if str(path) in held else path.relative_to(root).parts[0].lower()
        yield str(path), split, max(0, (len(samples) - RATE) // 2), samples


def _from_tree(folder: Path) -> _Found:
    for path in sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES):
        speaker = path.parent.name if path.parent != folder else path.stem
        draw = zlib.crc32(speaker.encode()) % 10
        split = "test" if draw == 0 else "val" if draw == 1 else "train"
        samples = read_mono(path)
        for start in range(0, len(samples) - RATE + 1, RATE):
            yield str(path), split, start, samples


def read_mono(path: Path) -> NDArray[np.float32]:
    """Read a sound file at 16 kHz, channels averaged, (n,)."""
    import soundfile
    import soxr

    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (OSError, RuntimeError) as error:
        message = f"load_speech: cannot read {str(path)!r}: {error}. Remove it or convert it to WAV."
        raise InputError(message) from error
    mono = samples.mean(1)
    return mono if rate == RATE else np.asarray(soxr.resample(mono, rate, RATE), dtype=np.float32)
