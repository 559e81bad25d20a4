"""`glocal.denoise_speech`: shipped weights, rates, channels, levels, blocks, and what it refuses."""

import dataclasses

import numpy as np
import pytest
import soundfile
import soxr
import torch

import glocal
from glocal import samples
from glocal.apps.speech.blocks import Overlap, Plan, Resampler
from glocal.apps.speech.metrics import si_sdr, snr
from glocal.apps.speech.models import FrameDenoiser, SampleDenoiser, load_frames, load_samples
from glocal.apps.speech.wiener import wiener
from glocal.errors import ArgumentError, InputError, ModelError
from glocal.files.model_files import MODELS
from glocal.kernels.cpu import threads

SAMPLE = samples.path("speech.wav")


@pytest.fixture(scope="module")
def clean():
    return soundfile.read(SAMPLE, dtype="float32")[0]


@pytest.fixture(scope="module")
def noisy(clean):
    return noise_on(clean, 0.03)


def noise_on(clean, sigma, seed=0):
    return (clean + sigma * np.random.default_rng(seed).standard_normal(len(clean))).astype(np.float32)


def decibels(measure, estimate, clean):
    return float(measure(torch.from_numpy(np.asarray(estimate, np.float32)), torch.from_numpy(clean)))


def test_frames_beats_the_wiener_filter_that_knows_sigma(clean):
    clean = clean[:32000]
    for sigma in (0.01, 0.15):
        noisy = noise_on(clean, sigma)
        known = wiener(torch.from_numpy(noisy)[None], sigma=sigma, memory=0.94)[0].numpy()
        blind = glocal.denoise_speech(noisy, 16000).audio
        assert decibels(si_sdr, blind, clean) > decibels(si_sdr, known, clean) + 0.5
        told = glocal.denoise_speech(noisy, 16000, sigma=sigma).audio
        assert decibels(si_sdr, told, clean) > decibels(si_sdr, known, clean) + 0.5


def test_paper_models_gain_and_nonlocal_gains_more(clean):
    one = clean[16000:32000]
    noisy = noise_on(one, 0.12 * np.abs(one).max())
    before = decibels(snr, noisy, one)
    local = decibels(snr, glocal.denoise_speech(noisy, 16000, model="local").audio, one)
    similar = decibels(snr, glocal.denoise_speech(noisy, 16000, model="nonlocal").audio, one)
    assert local > before + 4
    assert similar > local


@pytest.mark.parametrize("model", ["voice", "frames", "local", "nonlocal"])
def test_level_does_not_matter(noisy, model):
    short = noisy[:12000]
    loud = glocal.denoise_speech(short * np.float32(8), 16000, model=model).audio
    np.testing.assert_allclose(loud / 8, glocal.denoise_speech(short, 16000, model=model).audio, atol=1e-5)


@pytest.mark.parametrize(("model", "gain"), [("frames", 4), ("voice", 2)])
@pytest.mark.parametrize("rate", [8000, 22050, 44100, 48000])
def test_other_rates_keep_length_time_and_level(clean, rate, model, gain):
    wide = np.asarray(soxr.resample(clean, 16000, rate), np.float32)
    noisy = noise_on(wide, 0.02)
    out = glocal.denoise_speech(noisy, rate, model=model).audio
    assert out.shape == noisy.shape
    assert decibels(snr, out, wide) > decibels(snr, noisy, wide) + gain
    lags = [float(np.dot(out[50:-50], wide[50 + lag : len(wide) - 50 + lag])) for lag in range(-3, 4)]
    assert int(np.argmax(lags)) == 3


def test_above_8_khz_noise_falls_too_and_nothing_is_cut_from_loud_speech(clean):
    wide = np.asarray(soxr.resample(clean, 16000, 48000), np.float32)
    noisy = noise_on(wide, 0.03)
    removed = noisy - glocal.denoise_speech(noisy, 48000).audio
    top = np.abs(np.fft.rfft(removed))[len(removed) // 4 :]  # 12 kHz and above
    all_of_it = np.abs(np.fft.rfft(noisy - wide))[len(removed) // 4 :]
    assert 0.7 < np.square(top).sum() / np.square(all_of_it).sum() < 1.1


@pytest.mark.parametrize("model", ["frames", "local", "nonlocal"])
def test_stereo_image_stays(noisy, model):
    left = noisy[:14000]
    both = glocal.denoise_speech(np.stack([left, 0.25 * left], 1), 16000, model=model, sigma=0.03).audio
    assert both.shape == (14000, 2)
    if model == "frames":
        np.testing.assert_allclose(both[:, 1], 0.25 * both[:, 0], atol=1e-6)
    same = glocal.denoise_speech(np.stack([left, left], 1), 16000, model=model, sigma=0.03).audio
    np.testing.assert_allclose(same[:, 0], same[:, 1], atol=1e-6)
    np.testing.assert_allclose(same[:, 0], glocal.denoise_speech(left, 16000, model=model, sigma=0.03).audio, atol=1e-5)


def test_opposite_channels_do_not_cancel(clean, noisy):
    out = glocal.denoise_speech(np.stack([noisy, -noisy], 1), 16000).audio
    assert decibels(snr, out[:, 0], clean) > decibels(snr, noisy, clean) + 4


@pytest.mark.parametrize("kind", [np.int16, np.int32, np.float32, np.float64])
def test_result_has_the_input_s_type(noisy, kind):
    scale = np.iinfo(kind).max if np.issubdtype(kind, np.integer) else 1
    out = glocal.denoise_speech((noisy[:4000] * scale).astype(kind), 16000).audio
    assert out.dtype == kind
    as_float = glocal.denoise_speech(noisy[:4000], 16000).audio
    np.testing.assert_allclose(out / scale, as_float, atol=1e-4)
    assert isinstance(glocal.denoise_speech(torch.from_numpy(noisy[:400]), 16000).audio, torch.Tensor)


def test_strength_mixes(noisy):
    short = noisy[:8000]
    full = glocal.denoise_speech(short, 16000).audio
    np.testing.assert_allclose(
        glocal.denoise_speech(short, 16000, strength=0.25).audio, short + 0.25 * (full - short), atol=1e-6
    )
    np.testing.assert_array_equal(glocal.denoise_speech(short, 16000, strength=0.0).audio, short)


@pytest.mark.parametrize("model", ["frames", "local", "nonlocal"])
@pytest.mark.parametrize("n", [1, 2, 10, 700])
def test_short_sounds(noisy, model, n):
    out = glocal.denoise_speech(noisy[5000 : 5000 + n], 16000, model=model).audio
    assert out.shape == (n,)
    assert np.isfinite(out).all()


@pytest.mark.parametrize("model", ["frames", "local", "nonlocal"])
@pytest.mark.parametrize("rate", [8000, 16000, 44100])
def test_silence_stays_silent(model, rate):
    assert not glocal.denoise_speech(np.zeros((3000, 2), np.float32), rate, model=model).audio.any()


def test_clipped_speech_stays_in_range(clean):
    loud = np.clip(20 * noise_on(clean, 0.02), -1, 1)
    out = glocal.denoise_speech(loud[:32000], 16000).audio
    assert np.abs(out).max() < 1.6
    assert decibels(si_sdr, out, clean[:32000]) > 0


@pytest.mark.parametrize(
    ("model", "block", "length"), [("frames", 20000, 160_000), ("local", 16000, 160_000), ("nonlocal", 16000, 50_000)]
)
def test_blocks_equal_the_whole_signal(clean, model, block, length):
    y = noise_on(np.tile(clean, 3)[:length], 0.03)[:, None]
    paper = None if model == "frames" else SampleDenoiser(load_samples(model), sigma=0.03, everywhere=False)
    denoiser = paper or FrameDenoiser(load_frames(), sigma=None)
    whole = denoiser(y, 0, len(y))[:, 0]
    plan = dataclasses.replace(denoiser.plan, block=block)
    cutting = Overlap(denoiser, plan)
    parts = [part for i in range(0, len(y), 7777) for part in cutting.push(y[i : i + 7777])] + cutting.finish()
    assert len(parts) > 2
    cut = np.concatenate(parts)[:, 0]
    assert len(cut) == len(whole)
    assert 10 * np.log10(np.square(cut - whole).sum() / np.square(whole).sum()) < -100


@pytest.mark.parametrize(("backend", "sharing"), [("cpu", 2), ("portable", 1)])
def test_frames_leave_the_threads_to_the_kernels(clean, monkeypatch, backend, sharing):
    monkeypatch.setenv("GLOCAL_BACKEND", backend)
    net, seen, before = load_frames(), [], torch.get_num_threads()
    inner = net.denoise_rows

    def watched(*args):
        seen.append((torch.get_num_threads(), threads.count()))
        return inner(*args)

    monkeypatch.setattr(net, "denoise_rows", watched)
    try:
        torch.set_num_threads(2)
        FrameDenoiser(net, sigma=None)(clean[:16000, None].astype(np.float32), 0, 16000)
    finally:
        torch.set_num_threads(before)
    assert seen == [(1, sharing)]


def test_the_number_of_threads_is_put_back(noisy):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    glocal.denoise_speech(noisy[:2000], 16000)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


def test_overlap_covers_every_row_once_whatever_the_chunks():
    x = np.arange(1000, dtype=np.float32)[:, None]
    seen = []

    def process(rows, first, last):
        seen.append(len(rows))
        return rows[first:last]

    for size in (1, 7, 333, 1000):
        cutting = Overlap(process, Plan(block=64, context=32, fade=8))
        out = [part for i in range(0, 1000, size) for part in cutting.push(x[i : i + size])]
        np.testing.assert_allclose(np.concatenate(out + cutting.finish()), x, rtol=1e-6)
    assert max(seen[:10]) < 300


def test_resampled_streams_equal_one_call():
    x = np.random.default_rng(0).standard_normal((30000, 2)).astype(np.float32)
    change = Resampler(44100, 16000)
    out = np.concatenate([*map(change.push, (x[:100], x[100:7000], x[7000:])), *change.finish()])
    np.testing.assert_allclose(out, soxr.resample(x, 44100, 16000), atol=1e-4)


@pytest.mark.parametrize(
    ("samples", "rate", "settings", "error", "text"),
    [
        (np.zeros(0), 16000, {}, InputError, r"`samples` \(shape \(0,\)\) is empty. Give at least one sample"),
        (
            np.zeros((9, 0)),
            16000,
            {},
            InputError,
            r"\(shape \(9, 0\)\) is empty. Give at least one sample and one channel",
        ),
        (np.array([0.0, np.nan]), 16000, {}, InputError, r"has 1 value\(s\) that are NaN, infinite or above 1e\+12"),
        (np.array([0.0, 1e13]), 16000, {}, InputError, r"has 1 value\(s\) that are NaN, infinite or above 1e\+12"),
        (np.zeros((2, 2, 2)), 16000, {}, ArgumentError, r"shape \(2, 2, 2\), but must be \(n,\) or \(n, channels\)"),
        (np.zeros((2, 99)), 16000, {}, ArgumentError, "has 99 channels, more than 64. Put samples first"),
        (np.zeros(9, np.uint8), 16000, {}, ArgumentError, "has the type uint8. Give signed integers or floats"),
        (np.zeros(9), 0, {}, ArgumentError, r"`rate` \(=0\) must be a whole number of at least 1000"),
        (
            np.zeros(9),
            16000,
            {"model": "big"},
            ArgumentError,
            r"`model` \(='big'\) is unknown. Choose one of auto, voice, frames",
        ),
        (np.zeros(9), 16000, {"sigma": -1.0}, ArgumentError, r"`sigma` \(=-1.0\) must be finite and not negative"),
        (np.zeros(9), 16000, {"strength": 2.0}, ArgumentError, r"`strength` \(=2.0\) must be a number from 0 to 1"),
    ],
)
def test_what_is_refused(samples, rate, settings, error, text):
    with pytest.raises(error, match=text):
        glocal.denoise_speech(samples, rate, **settings)


def test_weights_are_small_and_a_wrong_file_is_told(tmp_path):
    assert sum(path.stat().st_size for path in MODELS.glob("speech-*")) < 4_000_000
    with pytest.raises(ModelError, match="it is not a speech model on frames"):
        load_frames(MODELS / "speech-local.safetensors")
    with pytest.raises(ModelError, match="its arrays do not fit the network"):
        load_samples("local", MODELS / "speech-nonlocal.safetensors")
