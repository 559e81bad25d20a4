"""The floor of `keep_ambience`, and spectrograms in constant memory."""

import sys

import numpy as np
import pytest
import soundfile

import glocal
from glocal import samples
from glocal.apps.speech.ambience import AmbienceDenoiser
from glocal.apps.speech.blocks import Overlap, Plan
from glocal.apps.speech.data import read_mono
from glocal.apps.speech.spectrogram import Spectrogram, before_and_after
from glocal.cli.main import run
from glocal.errors import ArgumentError, MissingDependencyError
from glocal.files.images.read import read_image


class Gate:
    """Keeps samples above 5 and removes the others; surroundings do not matter."""

    plan = Plan(block=1024, context=0)

    def __call__(self, rows, first, last):
        kept = np.where(rows[first:last, :1] > 5, 1, 0).astype(np.float32)
        return np.concatenate([rows[first:last] * kept, kept], axis=1)


@pytest.fixture(scope="module")
def noisy():
    clean = read_mono(samples.path("speech.wav"))
    noise = np.random.default_rng(0).standard_normal(len(clean) + 16_000).astype(np.float32)
    return np.concatenate([np.zeros(16_000, np.float32), clean]) + np.float32(0.02) * noise


@pytest.mark.parametrize("decibels", [6.0, 20.0])
def test_what_is_removed_stays_at_the_floor_and_the_rest_is_untouched(decibels):
    noise = np.random.default_rng(0).standard_normal((12_000, 2)).astype(np.float32) * 0.1
    sound = np.concatenate([noise, noise + 10])
    out = AmbienceDenoiser(Gate(), decibels)(sound, 0, len(sound))
    quiet, loud = out[:11_000], out[13_000:]
    np.testing.assert_allclose(quiet[:, :2], 10 ** (-decibels / 20) * sound[:11_000], atol=1e-4)
    np.testing.assert_allclose(loud[:, :2], sound[13_000:], atol=1e-4)
    np.testing.assert_allclose(quiet[:, 2], 10 ** (-decibels / 20), rtol=1e-5)
    np.testing.assert_allclose(loud[:, 2], 1)


def test_cutting_into_blocks_changes_nothing():
    sound = np.random.default_rng(0).standard_normal((9_000, 1)).astype(np.float32) * 6
    denoiser = AmbienceDenoiser(Gate(), 10)
    cutting = Overlap(denoiser, denoiser.plan)
    parts = cutting.push(sound) + cutting.finish()
    assert len(parts) > 4
    np.testing.assert_allclose(np.concatenate(parts), denoiser(sound, 0, len(sound)), atol=1e-4)


@pytest.mark.parametrize("rate", [16000, 48000])
def test_pauses_of_the_shipped_model_keep_the_room(noisy, rate):
    plain = glocal.denoise_speech(noisy, rate).audio
    kept = glocal.denoise_speech(noisy, rate, keep_ambience=15).audio
    pause = slice(4000, 12_000)
    floor = 20 * np.log10(kept[pause].std() / noisy[pause].std())
    assert -15.5 < floor < -12
    assert plain[pause].std() < 0.6 * kept[pause].std()
    very_low = glocal.denoise_speech(noisy, rate, keep_ambience=100).audio
    np.testing.assert_allclose(very_low, plain, atol=1e-4)


def test_a_floor_that_is_refused():
    with pytest.raises(
        ArgumentError, match=r"`keep_ambience` \(=-3.0\) must be a number from 0 to 100. Use 20 for a quiet room"
    ):
        glocal.denoise_speech(np.zeros(9), 16000, keep_ambience=-3.0)


def test_a_spectrogram_shows_a_tone_where_it_is_whatever_the_pieces():
    rate, seconds = 8000, 6
    time = np.arange(seconds * rate) / rate
    tone = np.where(time < 3, np.sin(2 * np.pi * 1000 * time), 0.0)[:, None]
    found = []
    for size in (100, 7777, len(tone)):
        drawn = Spectrogram(rate)
        for i in range(0, len(tone), size):
            drawn.push(tone[i : i + size])
        found.append(drawn.decibels())
    np.testing.assert_allclose(found[0], found[1])
    np.testing.assert_allclose(found[0], found[2])
    bins, columns = found[0].shape
    assert np.argmax(found[0][:, : columns // 2 - 1].mean(1)) == round(1000 / (rate / 2) * (bins - 1))
    assert found[0][:, columns // 2 + 1 :].max() < -100
    assert drawn.seconds == pytest.approx(seconds, abs=0.04)


def test_the_columns_of_a_long_sound_stay_few_and_keep_the_mean():
    drawn = Spectrogram(1000)
    sound = np.random.default_rng(0).standard_normal((200_000, 1))
    drawn.push(sound)
    assert len(drawn.columns) < 2048 < 200_000 // drawn.size
    assert drawn.seconds == pytest.approx(200, rel=1e-3)
    expected = 10 * np.log10(np.square(drawn.window).sum())
    assert 10 * np.log10((10 ** (drawn.decibels() / 10)).mean()) == pytest.approx(expected, abs=0.2)


def test_a_picture_of_very_little_sound():
    drawn = Spectrogram(16000)
    drawn.push(np.zeros((3, 1)))
    picture = before_and_after(drawn, drawn)
    assert picture.dtype == np.uint8
    assert picture.ndim == 3


def test_the_command_draws_and_leaves_a_floor(tmp_path, monkeypatch, capsys, noisy):
    monkeypatch.chdir(tmp_path)
    soundfile.write("noisy.wav", noisy[:40_000], 16000)
    assert run(["speech", "noisy.wav", "-o", "a.wav", "--keep-ambience", "15", "--plot", "both.png"]) == 0
    pixels = read_image("both.png").pixels
    top, bottom = np.array_split(pixels.mean(2), 2)
    assert top[60:-60, 100:-200].mean() > bottom[60:-60, 100:-200].mean() + 5  # noise is bright, and it is gone
    out = soundfile.read("a.wav", dtype="float32")[0]
    assert -16 < 20 * np.log10(out[4000:12_000].std() / noisy[4000:12_000].std()) < -12
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # so that its import fails
    assert run(["speech", "noisy.wav", "-o", "b.wav", "--plot", "c.png"]) != 0
    assert "`plot` needs matplotlib, which cannot be imported (" in capsys.readouterr().err
    assert not (tmp_path / "b.wav").exists()
    from glocal.apps.speech.spectrogram import check_plotting

    with pytest.raises(MissingDependencyError):
        check_plotting()
