"""What the speech job says about its memory before the work starts."""

import pytest

from glocal.apps.speech.options import SpeechOptions
from glocal.files.audio.formats import AudioInfo
from glocal.jobs.job import Header
from glocal.jobs.speech import SpeechJob


def memory(seconds, *, channels=1, rate=16000, **options):
    """Return the estimate in MiB for a recording; `seconds` is None where the file does not say its length."""
    frames = None if seconds is None else rate * seconds
    info = AudioInfo("a.wav", "WAV", "PCM_16", rate, channels, frames)
    return SpeechJob(SpeechOptions(**options)).cost(Header(sound=info)).memory / 2**20


# Peaks in MiB of whole commands: `benchmarks/speech_length.py`, and short files in the same way.
@pytest.mark.parametrize(
    ("seconds", "channels", "rate", "model", "peak"),
    [
        (5, 1, 16000, "voice", 444),
        (3600, 1, 16000, "voice", 780),
        (60, 2, 48000, "voice", 1138),
        (40, 6, 16000, "voice", 1409),
        (40, 8, 192000, "voice", 1878),
        (3600, 1, 16000, "frames", 477),
        (40, 6, 16000, "frames", 680),
        (40, 8, 96000, "frames", 854),
        (40, 8, 192000, "frames", 1132),
    ],
)
def test_the_estimate_is_that_of_measured_runs(seconds, channels, rate, model, peak):
    assert 1.04 * peak <= memory(seconds, channels=channels, rate=rate, model=model) < 1.5 * peak


def test_a_file_that_does_not_say_its_length_counts_as_a_long_one():
    assert memory(None) == memory(3600)


def test_the_estimate_is_that_of_the_model_that_runs():
    assert memory(60, sigma=0.1) == memory(60, weights="own.safetensors") == memory(60, model="frames") < memory(60)
