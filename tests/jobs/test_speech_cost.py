"""What the speech job says about its memory before the work starts."""

import pytest

from glocal.apps.speech.options import SpeechOptions
from glocal.files.audio.formats import AudioInfo
from glocal.jobs.job import Header
from glocal.jobs.speech import SpeechJob


def memory(seconds, *, channels=1, **options):
    """Return the estimate in MiB for a recording at 16 kHz; `seconds` is None where the file does not say its length."""
    frames = None if seconds is None else 16000 * seconds
    info = AudioInfo("a.wav", "WAV", "PCM_16", 16000, channels, frames)
    return SpeechJob(SpeechOptions(**options)).cost(Header(sound=info)).memory / 2**20


# Peaks in MiB of whole commands: `benchmarks/speech_length.py`, and short files in the same way.
@pytest.mark.parametrize(
    ("seconds", "channels", "model", "peak"),
    [
        (5, 1, "voice", 444),
        (3600, 1, "voice", 823),
        (60, 2, "voice", 1138),
        (40, 6, "voice", 1409),
        (3600, 1, "frames", 477),
        (40, 6, "frames", 680),
    ],
)
def test_the_estimate_is_that_of_measured_runs(seconds, channels, model, peak):
    assert peak <= memory(seconds, channels=channels, model=model) < 1.5 * peak


def test_a_file_that_does_not_say_its_length_counts_as_a_long_one():
    assert memory(None) == memory(3600)


def test_the_estimate_is_that_of_the_model_that_runs():
    assert memory(60, sigma=0.1) == memory(60, weights="own.safetensors") == memory(60, model="frames") < memory(60)
