"""Make the sound samples of docs/speech.md: the shipped sentence with synthesised noise, before and after denoising.

    python benchmarks/speech_sounds.py

Writes docs/sounds/NOISE-noisy.ogg and NOISE-clean.ogg, the picture docs/pictures/speech_sounds.jpg, and the table between
the marks of docs/speech.md. All noises are computed here; nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray
from scipy.signal import lfilter

from glocal import denoise_speech, samples
from glocal.apps.speech.peers import pesq, stoi

DOCS = Path(__file__).resolve().parent.parent / "docs"
SNR = 3.0  # decibels
RATE = 16000
START, END = "<!-- sounds: made by benchmarks/speech_sounds.py -->\n", "<!-- end of sounds -->"
Sound = NDArray[np.float64]


def hiss(n: int, draw: np.random.Generator) -> Sound:
    """White noise."""
    return draw.standard_normal(n)


def rain(n: int, draw: np.random.Generator) -> Sound:
    """Soft noise with 300 drops a second."""
    drops = (draw.random(n) < 300 / RATE) * draw.exponential(1.0, n)
    ring = np.exp(-np.arange(160) / 5) * np.sin(2 * np.pi * 0.21 * np.arange(160))
    return 0.05 * draw.standard_normal(n) + np.convolve(drops, ring)[:n]


def engine(n: int, draw: np.random.Generator) -> Sound:
    """Harmonics of a speed that wanders around 45 Hz, and rumble."""
    speed = 45 + 6 * np.sin(2 * np.pi * np.arange(n) / (1.7 * RATE))
    phase = 2 * np.pi * np.cumsum(speed) / RATE
    tones = sum(draw.uniform(0.3, 1) / k**0.7 * np.sin(k * phase + draw.uniform(0, 6)) for k in range(1, 40))
    return np.asarray(tones) + 0.4 * lfilter([1], [1, -0.95], draw.standard_normal(n))


def keyboard(n: int, draw: np.random.Generator) -> Sound:
    """About seven keystrokes a second, each with two clicks."""
    out = np.zeros(n + 4000)
    at = 0
    while at < n:
        for late, size in ((0, 1.0), (int(draw.uniform(900, 1600)), 0.6)):
            length = int(draw.uniform(300, 900))
            decay = np.exp(-np.arange(length) / draw.uniform(40, 160))
            tone = 1 + np.sin(2 * np.pi * draw.uniform(0.06, 0.3) * np.arange(length))
            out[at + late : at + late + length] += size * decay * tone * draw.standard_normal(length)
        at += int(draw.exponential(0.14) * RATE) + 500
    return out[:n] + 0.01 * draw.standard_normal(n)


def crowd(n: int, draw: np.random.Generator) -> Sound:
    """Eight voices: the sentence itself backwards, shifted, faster and slower."""
    voice, total = soundfile.read(samples.path("speech.wav"))[0][::-1], np.zeros(n)
    for _ in range(8):
        places = (np.arange(n) * draw.uniform(0.8, 1.3) + draw.integers(len(voice))) % (len(voice) - 1)
        total += draw.uniform(0.4, 1) * np.interp(places, np.arange(len(voice)), voice)
    return total


def music(n: int, draw: np.random.Generator) -> Sound:
    """Three plucked strings that play notes of a scale."""
    total = np.zeros(n + RATE)
    for _ in range(3):
        at = int(draw.uniform(0, 4000))
        while at < n:
            pitch = 440 * 2 ** (draw.choice([-21, -17, -14, -9, -5, -2, 3, 7]) / 12)
            time = np.arange(RATE) / RATE
            tone = sum(np.sin(2 * np.pi * k * pitch * time) / k**1.5 for k in range(1, 8))
            total[at : at + RATE] += np.exp(-4 * time) * np.asarray(tone)
            at += int(draw.choice([4000, 6000, 8000]))
    return total[:n]


NOISES: dict[str, Callable[[int, np.random.Generator], Sound]] = {
    function.__name__: function for function in (hiss, rain, engine, keyboard, crowd, music)
}


def mixtures() -> dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Return the noisy and the denoised sentence for each noise."""
    clean = soundfile.read(samples.path("speech.wav"))[0]
    found = {}
    for name, make in NOISES.items():
        noise = make(len(clean), np.random.default_rng(0))
        noise *= clean.std() / noise.std() * 10 ** (-SNR / 20)
        noisy = (clean + noise).astype(np.float32)
        noisy *= np.float32(min(1.0, 0.95 / np.abs(noisy).max()))
        found[name] = noisy, denoise_speech(noisy, RATE, model="voice").audio
    return found


def table(found: dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]) -> str:
    """Return the rows of the page: the players and two measures."""
    clean = soundfile.read(samples.path("speech.wav"), dtype="float32")[0]
    lines = ["| noise | before | after | PESQ | STOI |", "|---|---|---|---|---|"]
    for name, pair in found.items():
        files = [f"sounds/{name}-{which}.ogg" for which in ("noisy", "clean")]
        players = [f'<audio controls preload="none" src="{file}"></audio> [file]({file})' for file in files]
        scores = [[f"{measure(sound, clean):.2f}" for sound in pair] for measure in (pesq, stoi)]
        lines.append(f"| {name} | {' | '.join(players)} | {' | '.join(' -> '.join(s) for s in scores)} |")
    return "\n".join(lines) + "\n"


def draw(found: dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]], path: Path) -> None:
    """Draw the spectrograms: before above, after below."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(found), figsize=(12, 3.6), layout="constrained", sharex=True, sharey=True)
    for column, (name, pair) in zip(axes.T, found.items(), strict=True):
        for place, sound in zip(column, pair, strict=True):
            place.specgram(sound + 1e-9, NFFT=512, noverlap=384, Fs=RATE, vmin=-130, vmax=-40, cmap="magma")
        column[0].set(title=name)
        column[1].set(xlabel="s", xlim=(0, len(pair[0]) / RATE))
    axes[0, 0].set_ylabel("before (Hz)")
    axes[1, 0].set_ylabel("after (Hz)")
    figure.savefig(path, dpi=80, pil_kwargs={"quality": 80})


def main() -> None:
    """Write the sounds, the picture and the table."""
    found = mixtures()
    (DOCS / "sounds").mkdir(exist_ok=True)
    for name, pair in found.items():
        for which, sound in zip(("noisy", "clean"), pair, strict=True):
            soundfile.write(
                DOCS / "sounds" / f"{name}-{which}.ogg", sound, RATE, subtype="VORBIS", compression_level=0.7
            )
    draw(found, DOCS / "pictures" / "speech_sounds.jpg")
    page = (DOCS / "speech.md").read_text(encoding="utf-8")
    before, _, rest = page.partition(START)
    (DOCS / "speech.md").write_text(
        before + START + "\n" + table(found) + "\n" + END + rest.partition(END)[2], encoding="utf-8"
    )


if __name__ == "__main__":
    main()
