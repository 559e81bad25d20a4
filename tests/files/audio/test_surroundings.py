"""What lies in an audio file besides the sound is kept where the new format has a place for it, and named elsewhere."""

import base64
import struct

import numpy as np
import pytest
import soundfile

from glocal.files.audio.audio_file import create_audio, open_audio, read_audio_recipe
from glocal.files.audio.cover import find_cover
from glocal.files.audio.riff import append_chunk
from glocal.files.provenance import build_recipe

SOUND = np.random.default_rng(0).normal(0, 0.1, (8000, 1)).clip(-1, 1)
CHUNKS = {
    b"bext": b"a broadcast description".ljust(602, b"\0"),
    b"cue ": struct.pack("<IIIIIII", 1, 1, 4000, 0x61746164, 0, 0, 4000),
    b"iXML": b"<BWFXML><SCENE>7</SCENE></BWFXML>",
    b"LIST": b"adtllabl" + struct.pack("<II", 8, 1) + b"word",
}
ART = b"\x89PNG not really a picture" * 3000
HEAD = struct.pack(">II", 3, 9) + b"image/png" + struct.pack(">I", 6) + "Hülle".encode() + bytes(16)
PICTURE = HEAD + struct.pack(">I", len(ART)) + ART


def wav(path):
    with create_audio(path, rate=16000, channels=1) as out:
        out.write(SOUND)
    with path.open("r+b") as file:
        for kind, body in CHUNKS.items():
            append_chunk(file, kind, body)
        append_chunk(file, b"LIST", b"INFO" + b"IENG" + struct.pack("<I", 4) + b"Ann\0")
        append_chunk(file, b"PEAK", bytes(16))
    return path


def through(source, target, change=0.5):
    with open_audio(source) as sound:
        info = sound.info
        with create_audio(target, like=info, recipe=build_recipe("speech", {}, seed=1)) as out:
            out.write(sound.read() * change)
    return info, out.notes


def test_chunks_of_wav_files_stay(tmp_path):
    info, notes = through(wav(tmp_path / "a.wav"), tmp_path / "b.wav")
    assert notes == ()
    with open_audio(tmp_path / "b.wav") as sound:
        np.testing.assert_allclose(sound.read(), SOUND * 0.5, atol=1e-4)
        assert sound.info.chunks == info.chunks
    kept = dict(info.chunks[:4])
    assert kept == CHUNKS
    assert info.chunks[4:] == ((b"LIST", b"INFOIENG" + struct.pack("<I", 4) + b"Ann\0"),)  # libsndfile has no such tag
    assert read_audio_recipe(tmp_path / "b.wav")["seed"] == 1
    through(tmp_path / "b.wav", tmp_path / "c.wav")  # the recipe of b is not kept beside that of c
    assert (tmp_path / "c.wav").read_bytes().count(b'"recipe":') == 1


def test_other_formats_name_the_chunks(tmp_path):
    _, notes = through(wav(tmp_path / "a.wav"), tmp_path / "b.flac")
    assert notes == ("FLAC has no place for the chunks LIST, bext, cue, iXML: dropped",)


@pytest.mark.parametrize(("suffix", "text"), [("au", ""), ("w64", ""), ("aiff", "a" * 1500)])
def test_a_format_without_a_place_for_the_recipe_says_so(tmp_path, suffix, text):
    with create_audio(
        tmp_path / f"a.{suffix}", rate=8000, channels=1, recipe=build_recipe("speech", {"text": text}, seed=1)
    ) as out:
        out.write(SOUND)
    assert out.notes == (f"{suffix.upper()} has no place for the recipe: dropped",)


def with_cover(path):
    with open_audio(wav(path.with_suffix(".wav"))) as sound:
        info = sound.info
    info = type(info)(
        info.path, "", "", 16000, 1, None, {"title": "A door"} if path.stem == "tagged" else {}, cover=(PICTURE,)
    )
    with create_audio(path, like=info) as out:
        out.write(SOUND)
    return path


@pytest.mark.parametrize("stem", ["plain", "tagged"])
@pytest.mark.parametrize("first", ["flac", "mp3"])
@pytest.mark.parametrize("second", ["flac", "mp3"])
def test_cover_art_stays(tmp_path, stem, first, second):
    info, notes = through(with_cover(tmp_path / f"{stem}.{first}"), tmp_path / f"b.{second}")
    assert (notes, info.cover) == ((), (PICTURE,))
    with open_audio(tmp_path / f"b.{second}") as sound:
        assert sound.info.cover == (PICTURE,)
        assert sound.info.tags.get("title", "") == ("A door" if stem == "tagged" else "")
        assert abs(len(sound.read()) - 8000) < 2500
    assert soundfile.info(str(tmp_path / f"b.{second}")).frames == pytest.approx(8000, abs=2500)


def test_formats_without_cover_art_say_so(tmp_path):
    _, notes = through(with_cover(tmp_path / "a.flac"), tmp_path / "b.ogg")
    assert notes == ("OGG gets no cover art: dropped",)


STAMP = struct.pack(">II", 3, 9) + b"image/png" + bytes(20) + struct.pack(">I", 60) + b"p" * 60


def ogg_with_cover(path, subtype):
    """Write an OGG file whose artist is then overwritten by a picture of the same length."""
    text = b"METADATA_BLOCK_PICTURE=" + base64.b64encode(STAMP)
    artist = b"ARTIST=" + b"x" * (len(text) - 7)
    with soundfile.SoundFile(path, "w", 16000, 1, format="OGG", subtype=subtype) as file:
        file.artist = artist[7:].decode()
        file.write(SOUND)
    data = path.read_bytes()
    at = data.lower().index(artist.lower())
    data = bytearray(data[:at] + text + data[at + len(text) :])
    at = 0
    while at < len(data):  # the sums of the pages
        end = at + 27 + data[at + 26] + sum(data[at + 27 : at + 27 + data[at + 26]])
        data[at + 22 : at + 26] = bytes(4)
        data[at + 22 : at + 26] = ogg_sum(data[at:end]).to_bytes(4, "little")
        at = end
    path.write_bytes(data)
    return path


def ogg_sum(page):
    total = 0
    for byte in page:
        total ^= byte << 24
        for _ in range(8):
            total = (total << 1) ^ 0x104C11DB7 if total & 0x80000000 else total << 1
    return total


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_cover_art_of_ogg_files_is_kept_or_named(tmp_path, subtype):
    source = ogg_with_cover(tmp_path / "a.ogg", subtype)
    info, notes = through(source, tmp_path / "b.flac")
    assert (notes, info.cover) == ((), (STAMP,))
    with open_audio(tmp_path / "b.flac") as sound:
        assert sound.info.cover == (STAMP,)
    assert through(source, tmp_path / "c.ogg")[1] == ("OGG gets no cover art: dropped",)


@pytest.mark.parametrize("cut", [5, 20, 60, 200, 3000])
@pytest.mark.parametrize("suffix", ["flac", "mp3"])
def test_damaged_cover_art_is_left_out(tmp_path, suffix, cut):
    data = with_cover(tmp_path / f"a.{suffix}").read_bytes()
    (tmp_path / "b").write_bytes(data[:cut])
    with (tmp_path / "b").open("rb") as file:
        assert find_cover(file) == ()
