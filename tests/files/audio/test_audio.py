"""Audio files: round trips to the bit, streaming, lies in headers, full disks, standard input and output."""

import io
import resource
import signal
import struct
import subprocess
import sys

import numpy as np
import pytest
import soundfile

from glocal.errors import ArgumentError, InputError, OutputError
from glocal.files.audio.audio_file import AudioInfo, create_audio, open_audio, read_audio_recipe
from glocal.files.audio.formats import output_format
from glocal.files.provenance import build_recipe

EXACT = [
    ("wav", "PCM_U8"),
    ("wav", "PCM_16"),
    ("wav", "PCM_24"),
    ("wav", "PCM_32"),
    ("wav", "FLOAT"),
    ("wav", "DOUBLE"),
    ("flac", "PCM_16"),
    ("flac", "PCM_24"),
    ("aiff", "PCM_24"),
    ("caf", "PCM_16"),
    ("w64", "PCM_16"),
]


def noise(frames: int, channels: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (frames, channels))


def raw(path) -> np.ndarray:
    kind = soundfile.info(path).subtype
    return soundfile.read(path, dtype="float64" if kind in ("FLOAT", "DOUBLE") else "int32", always_2d=True)[0]


def copy(source, target, **settings) -> AudioInfo:
    with open_audio(source) as sound, create_audio(target, like=sound.info, **settings) as out:
        for block in sound.blocks(1000):
            out.write(block)
        return sound.info


@pytest.mark.parametrize(("suffix", "subtype"), EXACT)
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_round_trip_to_the_bit(tmp_path, suffix, subtype, channels):
    first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    with create_audio(first, rate=22050, channels=channels, subtype=subtype) as out:
        out.write(noise(3333, channels))
    info = copy(first, second)
    np.testing.assert_array_equal(raw(second), raw(first))
    after = soundfile.info(second)
    assert (after.samplerate, after.channels, after.frames, after.subtype) == (22050, channels, 3333, subtype)
    assert (info.rate, info.channels, info.frames, info.subtype) == (22050, channels, 3333, subtype)


@pytest.mark.parametrize(("suffix", "subtype"), [("wav", "PCM_16"), ("wav", "PCM_24"), ("flac", "PCM_24")])
def test_samples_are_rounded_to_the_nearest_and_clipped(tmp_path, suffix, subtype):
    step = 2.0 ** -(15 if subtype == "PCM_16" else 23)
    with create_audio(tmp_path / f"a.{suffix}", rate=8000, channels=1, subtype=subtype) as out:
        out.write(np.array([0.6 * step, -0.6 * step, 1.5, -1.5]))
    with open_audio(tmp_path / f"a.{suffix}") as sound:
        np.testing.assert_array_equal(sound.read()[:, 0], np.float32([step, -step, 1 - step, -1]))


@pytest.mark.parametrize(("suffix", "subtype"), [("ogg", "VORBIS"), ("opus", "OPUS"), ("mp3", "MPEG_LAYER_III")])
def test_lossy_formats_keep_length_rate_and_kind(tmp_path, suffix, subtype):
    time = np.arange(48000) / 48000
    tone = 0.5 * np.sin(2 * np.pi * 440 * time)[:, None].repeat(2, 1)
    with create_audio(tmp_path / f"a.{suffix}", rate=48000, channels=2) as out:
        out.write(tone)
    info = copy(tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}")
    assert info.subtype == subtype
    with open_audio(tmp_path / f"b.{suffix}") as sound:
        assert (sound.info.subtype, sound.info.frames) == (subtype, 48000)
        assert np.sqrt(np.mean((sound.read() - tone) ** 2)) < 0.02


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "opus", "mp3"])
def test_tags_and_recipe(tmp_path, suffix):
    recipe = build_recipe("speech", {"sigma": 0.1, "text": "ä" * 500}, seed=1)
    like = AudioInfo("", "WAV", "PCM_16", 16000, 1, None, {"title": "Rede", "comment": "mine"})
    with create_audio(tmp_path / f"a.{suffix}", like=like, recipe=recipe) as out:
        out.write(noise(16000, 1) * 0.1)
    assert read_audio_recipe(tmp_path / f"a.{suffix}") == recipe
    copy(tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}", recipe=recipe | {"seed": 2})
    assert read_audio_recipe(tmp_path / f"b.{suffix}")["seed"] == 2
    with open_audio(tmp_path / f"b.{suffix}") as sound:
        assert sound.info.tags["title"] == "Rede"
        assert sound.info.tags["comment"].startswith("mine")


def test_blocks_have_the_size_that_was_asked_for(tmp_path):
    with create_audio(tmp_path / "a.wav", rate=8000, channels=2) as out:
        for part in np.array_split(noise(1050, 2), 7):
            out.write(part)
    with open_audio(tmp_path / "a.wav") as sound:
        assert [len(block) for block in sound.blocks(500)] == [500, 500, 50]


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("a.wav", ("WAV", "FLOAT"), ("WAV", "FLOAT")),
        ("a.wav", ("WAVEX", "PCM_24"), ("WAVEX", "PCM_24")),
        ("a.flac", ("WAV", "FLOAT"), ("FLAC", "PCM_24")),
        ("a.wav", ("MP3", "MPEG_LAYER_III"), ("WAV", "PCM_16")),
        ("a.ogg", ("OGG", "OPUS"), ("OGG", "OPUS")),
        ("a.opus", ("OGG", "VORBIS"), ("OGG", "OPUS")),
        ("a.mp3", ("WAV", "PCM_16"), ("MP3", "MPEG_LAYER_III")),
        ("-", ("FLAC", "PCM_24"), ("WAV", "PCM_24")),
    ],
)
def test_kind_of_the_output(name, source, expected):
    assert output_format(name, source, None) == expected


def wav_bytes(frames: int = 1000, channels: int = 1) -> bytearray:
    stream = io.BytesIO()
    soundfile.write(stream, noise(frames, channels) * 0.5, 16000, format="WAV", subtype="PCM_16")
    return bytearray(stream.getvalue())


def changed(data: bytearray, at: int, form: str, value: int) -> bytes:
    struct.pack_into(form, data, at, value)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "the file is empty. Use a file with sound in it."),
        (changed(wav_bytes(), 22, "<H", 0), "its header declares 0 channels, and 1 to 64 can be used."),
        (changed(wav_bytes(), 22, "<H", 60000), "its header declares 60000 channels, and 1 to 64 can be used."),
        (
            changed(wav_bytes(), 24, "<I", 0),
            "its header declares 0 samples a second, and 1,000 to 1,536,000 can be used.",
        ),
        (bytes(wav_bytes()[:30]), "the file is cut short: the WAV header is followed by no sound."),
        (
            b"a text that is called sound" * 9,
            "it is not audio that can be read here, or it is damaged. Use one of WAV, FLAC",
        ),
        (bytes(wav_bytes(0)), "it holds no samples or is cut short. Use a file with sound in it."),
    ],
)
def test_headers_that_lie(tmp_path, data, why):
    (tmp_path / "a.wav").write_bytes(data)
    with pytest.raises(InputError) as caught, open_audio(tmp_path / "a.wav") as sound:
        sound.read()
    assert str(caught.value).startswith(f"read audio ({tmp_path / 'a.wav'}): ")
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("data", "frames", "declared", "there"),
    [
        (bytes(wav_bytes()[:1000]), 478, "2,000", "956"),
        (bytes(wav_bytes()[:999]), 477, "2,000", "955"),
        (changed(wav_bytes(), 40, "<I", 3 << 30), 1000, "3,221,225,472", "2,000"),
    ],
)
def test_what_is_there_of_a_wav_file_that_was_cut_short_is_used(tmp_path, data, frames, declared, there):
    (tmp_path / "a.wav").write_bytes(data)
    with open_audio(tmp_path / "a.wav") as sound:
        assert sound.info.notes == (
            f"the file is cut short: its header declares {declared} bytes of sound and {there} are there, which are used",
        )
        found = sound.read()
    (tmp_path / "b.wav").write_bytes(wav_bytes())
    with open_audio(tmp_path / "b.wav") as whole:
        assert whole.info.notes == ()
        np.testing.assert_array_equal(found, whole.read()[:frames])


def test_header_of_a_stream_that_did_not_know_its_length(tmp_path):
    data = changed(wav_bytes(), 40, "<I", 0xFFFFFFFF)
    (tmp_path / "a.wav").write_bytes(data)
    with open_audio(tmp_path / "a.wav") as sound:
        assert len(sound.read()) == 1000


@pytest.mark.parametrize("suffix", ["flac", "ogg", "opus", "mp3"])
def test_files_that_are_cut_short(tmp_path, suffix):
    with create_audio(tmp_path / f"a.{suffix}", rate=48000, channels=1) as out:
        out.write(noise(48000, 1) * 0.3)
    data = (tmp_path / f"a.{suffix}").read_bytes()
    (tmp_path / f"b.{suffix}").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError), open_audio(tmp_path / f"b.{suffix}") as sound:
        sound.read()


def test_missing_and_folder(tmp_path):
    with pytest.raises(InputError, match=r"there is no such file\. Check the name\."):
        open_audio(tmp_path / "a.wav")
    with pytest.raises(InputError, match=r"it is a folder\."):
        open_audio(tmp_path)


def test_samples_that_are_no_numbers(tmp_path):
    sound = noise(100, 1)
    sound[42] = np.nan
    soundfile.write(tmp_path / "a.wav", sound, 8000, subtype="FLOAT")
    with (
        pytest.raises(InputError, match="sample 42 is NaN, infinite or above 1e"),
        open_audio(tmp_path / "a.wav") as opened,
    ):
        opened.read()
    with (
        pytest.raises(OutputError, match="a sample is NaN"),
        create_audio(tmp_path / "b.wav", rate=1, channels=1) as out,
    ):
        out.write(sound)
    assert not (tmp_path / "b.wav").exists()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: create_audio(d / "a.wav"), "create_audio: `rate` and `channels` are needed. Give them, or `like`."),
        (
            lambda d: create_audio(d / "a.xyz", rate=1, channels=1),
            "the suffix `.xyz` names no audio format. Use one of",
        ),
        (lambda d: create_audio(d / "a.flac", rate=1, channels=1, subtype="FLOAT"), "FLAC has no sample type 'FLOAT'."),
        (
            lambda d: create_audio(d / "a.opus", rate=44100, channels=1),
            "Opus has no rate of 44100 Hz. Use one of 8000,",
        ),
        (
            lambda d: create_audio(d / "a.mp3", rate=44100, channels=7).__enter__(),
            "cannot hold 7 channels at 44100 Hz.",
        ),
    ],
)
def test_outputs_that_cannot_be(tmp_path, call, message):
    with pytest.raises(ArgumentError) as caught:
        call(tmp_path)
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_error_leaves_no_file(tmp_path):
    with pytest.raises(ZeroDivisionError), create_audio(tmp_path / "a.wav", rate=8000, channels=1) as out:
        out.write(np.zeros(100) if out.frames else 1 // out.frames)
    assert list(tmp_path.iterdir()) == []


def test_existing_output(tmp_path):
    (tmp_path / "a.wav").write_text("precious")
    with pytest.raises(OutputError), create_audio(tmp_path / "a.wav", rate=8000, channels=1):
        pass
    assert (tmp_path / "a.wav").read_text() == "precious"
    with create_audio(tmp_path / "a.wav", rate=8000, channels=1, overwrite=True) as out:
        out.write(noise(100, 1))
    assert soundfile.info(tmp_path / "a.wav").frames == 100


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg"])
def test_full_disk_leaves_no_file(tmp_path, suffix):
    """A limit on the size of files stands for the full disk: the system refuses to write, just the same."""

    def fill() -> None:
        with create_audio(tmp_path / f"a.{suffix}", rate=48000, channels=2) as out:
            for _ in range(100):
                out.write(noise(4800, 2))

    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OutputError, match="the disk is full"):
            fill()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []


def test_standard_input_and_output():
    code = (
        "from glocal.files.audio.audio_file import open_audio, create_audio\n"
        "with open_audio('-') as sound, create_audio('-', like=sound.info) as out:\n"
        "    [out.write(block) for block in sound.blocks(300)]\n"
    )
    data = bytes(wav_bytes(1000, 2))
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    before, rate = soundfile.read(io.BytesIO(data), dtype="int16")
    after, rate_after = soundfile.read(io.BytesIO(done.stdout), dtype="int16")
    np.testing.assert_array_equal(after, before)
    assert rate_after == rate


def without_length(data: bytes) -> bytes:
    """An MP3 file without its first frame, which holds no sound but says how many frames there are."""
    from glocal.files.audio.mpeg import Frame

    first = Frame.at(data, 0)
    assert first is not None
    assert b"Xing" in data[: first.size]
    return data[first.size :]


@pytest.mark.parametrize(("rate", "channels"), [(44100, 1), (16000, 1), (48000, 2), (8000, 1)])
@pytest.mark.parametrize("before", [b"", b"ID3\4\0\0\0\0\1\0" + bytes(128)])
def test_mp3_files_that_do_not_say_how_long_they_are(tmp_path, rate, channels, before):
    time = np.arange(3 * rate) / rate
    sound = np.repeat(0.3 * np.sin(2 * np.pi * (200 + 60 * time) * time)[:, None], channels, 1)
    with create_audio(tmp_path / "a.mp3", rate=rate, channels=channels) as out:
        out.write(sound)
    (tmp_path / "b.mp3").write_bytes(before + without_length((tmp_path / "a.mp3").read_bytes()))
    with open_audio(tmp_path / "a.mp3") as whole, open_audio(tmp_path / "b.mp3") as other:
        expected, found = whole.read(), other.read()
        assert (other.info.rate, other.info.channels, other.info.format) == (rate, channels, "MP3")
        assert abs(other.info.frames - len(expected)) < 4000
    delay = int(np.correlate(found[: rate // 2, 0], expected[: rate // 4, 0], "valid").argmax())  # known to the encoder
    length = len(expected) - 4000
    np.testing.assert_allclose(found[delay : delay + length], expected[:length], atol=1e-3)


def test_an_mp3_file_from_the_middle_of_a_stream(tmp_path):
    """Its first frames need what came before; that is no damage."""
    with create_audio(tmp_path / "a.mp3", rate=44100, channels=1) as out:
        out.write(np.random.default_rng(0).normal(0, 0.1, (3 * 44100, 1)))
    data = (tmp_path / "a.mp3").read_bytes()
    (tmp_path / "b.mp3").write_bytes(data[len(data) // 3 :])
    with open_audio(tmp_path / "b.mp3") as sound:
        assert len(sound.read()) == pytest.approx(2 * 44100, rel=0.05)
