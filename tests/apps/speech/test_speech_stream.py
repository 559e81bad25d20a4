"""`SpeechStream`: blocks of any size give what the whole recording gives, within the stated latency."""

import numpy as np
import pytest

import glocal
from glocal import samples
from glocal.apps.speech.blocks import Plan, Rows
from glocal.apps.speech.data import read_mono
from glocal.apps.speech.models import VoiceDenoiser
from glocal.apps.speech.options import SpeechOptions
from glocal.apps.speech.stream import SpeechStream
from glocal.apps.speech.voice import VoiceNet, VoiceShape
from glocal.errors import ArgumentError, InputError

# Small and with short surroundings, so that many blocks are cheap.
TINY = VoiceDenoiser(VoiceNet(VoiceShape(channels=8, dilations=(1, 2), hidden=8, level_reach=4)).requires_grad_(False))


@pytest.fixture(scope="module")
def noisy():
    clean = read_mono(samples.path("speech.wav"))
    return clean + np.float32(0.02) * np.random.default_rng(0).standard_normal(len(clean)).astype(np.float32)


def streamed(stream, sound, size):
    """What comes out, and how many samples at most were inside."""
    parts, inside, most = [], 0, 0
    for i in range(0, len(sound), size):
        piece = sound[i : i + size]
        parts.append(stream.push(piece))
        inside += len(piece) - len(parts[-1])
        most = max(most, inside)
    return np.concatenate([*parts, stream.finish()]), most


@pytest.mark.parametrize("size", [37, 800, 16_001, 10**9])
@pytest.mark.parametrize("rate", [8000, 16000, 44100])
def test_the_size_of_blocks_does_not_matter_and_the_latency_holds(noisy, size, rate):
    sound = noisy[:40_000]
    whole, _ = streamed(SpeechStream(rate, denoiser=TINY, block=60), sound, len(sound))
    stream = SpeechStream(rate, denoiser=TINY, block=0.1)
    out, most = streamed(stream, sound, size)
    assert out.shape == sound.shape
    assert np.abs(whole - sound).max() > 1e-3
    np.testing.assert_allclose(out, whole, atol=2e-5)
    assert most <= stream.latency * rate
    if size < len(sound):
        assert most > 0.5 * stream.latency * rate  # the stated latency is no wild guess
    assert len(stream.finish()) == 0


@pytest.mark.parametrize(
    "options", [SpeechOptions(), SpeechOptions(model="frames"), SpeechOptions(model="local", sigma=0.02)]
)
def test_the_shipped_models_give_the_same_as_one_call(noisy, options):
    sound = np.tile(np.stack([noisy, 0.5 * noisy], 1), (2, 1))
    whole = glocal.denoise_speech(sound, 16000, options=options).audio
    out, most = streamed(SpeechStream(16000, options=options, block=1.5), sound, 1600)
    assert most < len(sound)  # some of it came out before the end
    assert 10 * np.log10(np.square(out - whole).sum() / np.square(whole).sum()) < -90


def test_strength_and_float64_stay(noisy):
    sound = noisy[:9000].astype(np.float64)
    stream = SpeechStream(16000, denoiser=TINY, options=SpeechOptions(strength=0.0))
    out, _ = streamed(stream, sound, 1000)
    assert out.dtype == np.float64
    np.testing.assert_array_equal(out, sound)


def test_an_empty_stream_returns_nothing():
    stream = SpeechStream(48000, denoiser=TINY)
    assert stream.push(np.zeros((0, 2), np.float32)).shape == (0, 2)
    assert stream.finish().shape == (0, 2)


def test_rows_come_out_in_order():
    rows = Rows()
    for start in range(0, 10, 3):
        rows.push(np.arange(start, start + 3)[:, None])
    assert [rows.take(size)[:, 0].tolist() for size in (1, 4, 2)] == [[0], [1, 2, 3, 4], [5, 6]]
    assert rows.count == 5


def test_blocks_lie_on_the_grid_of_the_model():
    assert Plan(2560, 512, grid=256).with_block(1000).block == 1024
    assert Plan(2560, 512, grid=256).with_block(3).block == 256


@pytest.mark.parametrize(
    ("block", "error", "text"),
    [
        (
            np.zeros(9, np.int16),
            ArgumentError,
            r"shape \(9,\) and the dtype int16, but must be \(n,\) or \(n, channels\)",
        ),
        (np.zeros((9, 2, 2), np.float32), ArgumentError, r"shape \(9, 2, 2\) and the dtype float32"),
        (
            np.zeros((9, 3), np.float32),
            ArgumentError,
            r"shape \(9, 3\), but the first one had \(n, 2\). Make a new stream",
        ),
        (np.full((9, 2), np.nan, np.float32), InputError, "holds values that are NaN, infinite or above"),
        (np.full((9, 2), 1e13, np.float32), InputError, "holds values that are NaN, infinite or above"),
    ],
)
def test_blocks_that_are_refused(block, error, text):
    stream = SpeechStream(16000, denoiser=TINY)
    stream.push(np.zeros((4, 2), np.float32))
    with pytest.raises(error, match=text):
        stream.push(block)


def test_streams_that_are_refused():
    with pytest.raises(ArgumentError, match=r"SpeechStream: `rate` \(=10\) must be a whole number of at least 1000"):
        SpeechStream(10)
    with pytest.raises(ArgumentError, match=r"`block` \(=0\) must be above 0 and at most 600 seconds"):
        SpeechStream(16000, block=0)
    with pytest.raises(ArgumentError, match=r"`block` \(='a'\) must be above 0"):
        SpeechStream(16000, block="a")
    with pytest.raises(ArgumentError, match="block"):
        SpeechStream(16000, block=True)
    with pytest.raises(ArgumentError, match=r"the model local needs the noise level before it starts. Give `sigma`"):
        SpeechStream(16000, options=SpeechOptions(model="local"))
    with pytest.raises(ArgumentError, match=r"16,000 channels, more than 64. Put samples first .* with block\.T"):
        SpeechStream(16000, denoiser=TINY).push(np.zeros((2, 16000), np.float32))
    stream = SpeechStream(16000, denoiser=TINY)
    stream.finish()
    with pytest.raises(ArgumentError, match=r"the stream is finished. Make a new one"):
        stream.push(np.zeros(4, np.float32))
