"""`glocal speech`, `train speech` and `eval speech` through real files: formats, pipes, damage, exit codes, texts."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

import glocal
from glocal import samples
from glocal.cli.main import run
from glocal.files.audio.audio_file import read_audio_recipe

SAMPLE = samples.path("speech.wav")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    clean, rate = soundfile.read(SAMPLE, dtype="float32")
    noisy = clean + 0.02 * np.random.default_rng(0).standard_normal(len(clean)).astype(np.float32)
    soundfile.write(tmp_path / "noisy.wav", noisy[16000:32000], rate)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sound(name):
    return soundfile.read(name, dtype="float32")[0]


def test_a_file_and_its_residual(folder, capsys):
    assert run(["speech", "noisy.wav", "-o", "out.wav", "--residual", "rest.wav"]) == 0
    said = capsys.readouterr()
    assert said.out == "out.wav\n"
    assert "noise level 0.02" in said.err
    assert "(estimated), model voice" in said.err
    whole, out, rest = sound("noisy.wav"), sound("out.wav"), sound("rest.wav")
    np.testing.assert_allclose(out + rest, whole, atol=1e-4)
    assert 0.015 < rest.std() < 0.025
    assert soundfile.info("out.wav").subtype == "PCM_16"
    assert read_audio_recipe("out.wav")["command"] == "speech"


@pytest.mark.parametrize(
    ("name", "rate", "subtype"),
    [
        ("a.wav", 44100, "PCM_24"), ("a.wav", 22050, "PCM_32"), ("a.wav", 16000, "FLOAT"), ("a.flac", 48000, "PCM_24"),
        ("a.ogg", 16000, "VORBIS"), ("a.opus", 48000, "OPUS"), ("a.mp3", 44100, "MPEG_LAYER_III"), ("a.wav", 8000, "PCM_16"),
    ],
)  # fmt: skip
def test_formats_rates_and_lengths_stay(folder, name, rate, subtype):
    both = np.stack([sound("noisy.wav")] * 2, 1)
    kind = {"opus": "OGG"}.get(name[2:])
    soundfile.write(name, both, rate, subtype=subtype, format=kind)
    before = soundfile.info(name)
    assert run(["speech", name, "-o", "out/", "--quiet"]) == 0
    after = soundfile.info(f"out/{name}")
    assert (after.samplerate, after.channels, after.subtype, after.format) == (
        before.samplerate, before.channels, before.subtype, before.format)  # fmt: skip
    if name.endswith((".wav", ".flac")):
        assert after.frames == before.frames == len(both)


def test_a_given_sigma_a_strength_and_the_paper_s_model(folder, capsys):
    assert run(["speech", "noisy.wav", "-o", "a.wav", "--model", "local", "--sigma", "0.02", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["results"][0]
    assert (row["sigma"], row["sigma_estimated"], row["model"], row["rate"]) == (0.02, False, "local", 16000)
    assert run(["speech", "noisy.wav", "-o", "b.wav", "--model", "local", "--sigma", "auto"]) == 0
    assert run(["speech", "noisy.wav", "-o", "c.wav", "--strength", "0"]) == 0
    np.testing.assert_array_equal(sound("c.wav"), sound("noisy.wav"))


def test_standard_input_and_output(folder):
    here = {**os.environ, "PYTHONPATH": str(Path(glocal.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-m", "glocal", "speech", "-"],
        input=Path("noisy.wav").read_bytes(), capture_output=True, check=False, env=here,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder / "piped.wav").write_bytes(done.stdout)
    assert run(["speech", "noisy.wav", "-o", "named.wav", "--quiet"]) == 0
    np.testing.assert_allclose(sound("piped.wav"), sound("named.wav"), atol=4e-5)


def test_the_paper_s_models_need_sigma_from_a_pipe(folder, capsys):
    assert run(["speech", "-", "-o", "o.wav", "--model", "local"]) == 2
    assert (
        "error: speech (-): the model local needs the noise level before it starts. Try: give --sigma."
        in capsys.readouterr().err
    )


def test_a_residual_belongs_to_one_recording(folder, capsys):
    shutil.copy("noisy.wav", "other.wav")
    assert run(["speech", "noisy.wav", "other.wav", "--residual", "r.wav", "-o", "out/"]) == 2
    assert "speech: r.wav belongs to one input, and there are several" in capsys.readouterr().err


def test_silence_clipping_and_narrow_bands_are_told(folder, capsys):
    soundfile.write("silent.wav", np.zeros(5000), 16000)
    soundfile.write("loud.wav", np.clip(30 * sound("noisy.wav"), -1, 1), 16000)
    soundfile.write("phone.wav", sound("noisy.wav")[::2], 8000)
    assert run(["speech", "silent.wav", "loud.wav", "phone.wav", "-o", "out/"]) == 0
    said = capsys.readouterr().err
    assert "silent.wav: the sound is silent; nothing was done to it" in said
    assert "of the samples are clipped, which denoising does not repair" in said
    assert "8000 Hz: a narrow band" in said
    assert not sound("out/silent.wav").any()


def test_a_rate_that_no_speech_has_is_a_bad_file(folder, capsys):
    soundfile.write("slow.wav", np.zeros(500), 500)
    for more in ([], ["--dry-run"]):
        assert run(["speech", "slow.wav", "-o", "o.wav", *more]) == 3
        assert "its header declares 500 samples a second, and 1,000 to 1,536,000 can be used" in capsys.readouterr().err


def test_a_format_without_a_recipe_is_told(folder, capsys):
    assert run(["speech", "noisy.wav", "-o", "o.au"]) == 0
    assert "noisy.wav: AU has no place for the recipe: dropped" in capsys.readouterr().err


@pytest.mark.parametrize("n", [1, 10])
def test_very_short_files(folder, n):
    soundfile.write("short.wav", sound("noisy.wav")[:n], 16000)
    assert run(["speech", "short.wav", "-o", "o.wav"]) == 0
    assert soundfile.info("o.wav").frames == n


def without_channels(data):
    return data[:22] + b"\0\0" + data[24:]


def lying(data):
    return data[:40] + (10**8).to_bytes(4, "little") + data[44:]


@pytest.mark.parametrize("change", [lambda data: data[: len(data) // 2], lying])
def test_a_file_that_is_cut_short_is_used_as_far_as_it_goes(folder, capsys, change):
    Path("cut.wav").write_bytes(change(Path("noisy.wav").read_bytes()))
    assert run(["speech", "cut.wav", "-o", "o.wav"]) == 0
    assert "cut.wav: the file is cut short" in capsys.readouterr().err
    assert soundfile.info("o.wav").frames > 0


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("none.wav", without_channels, "none.wav"),
        ("text.wav", lambda data: b"this is not sound at all" * 9, "WAV, FLAC, OGG (Vorbis, Opus), MP3"),
        ("empty.wav", lambda data: b"", "the file is empty"),
    ],
)
def test_damaged_files_leave_nothing_behind(folder, capsys, name, change, text):
    Path(name).write_bytes(change(Path("noisy.wav").read_bytes()))
    assert run(["speech", name, "-o", "o.wav"]) == 3
    said = capsys.readouterr().err
    assert text in said
    assert "Try:" in said
    assert sorted(p.name for p in folder.iterdir()) == sorted([name, "noisy.wav"])


def test_nan_samples_are_told(folder, capsys):
    bad = sound("noisy.wav").copy()
    bad[100] = np.nan
    soundfile.write("nan.wav", bad, 16000, subtype="FLOAT")
    assert run(["speech", "nan.wav", "-o", "o.wav"]) == 3
    assert "sample 100 is NaN, infinite or above 1e+12" in capsys.readouterr().err
    assert not Path("o.wav").exists()


def test_a_full_disk_leaves_no_partial_file(folder, capsys, monkeypatch):
    from glocal.files.audio import output as audio_output

    def full(self, data):
        self.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return 0

    monkeypatch.setattr(audio_output._Noting, "write", full)
    assert run(["speech", "noisy.wav", "-o", "o.wav"]) == 4
    assert "the disk is full" in capsys.readouterr().err.lower()
    assert [p.name for p in folder.iterdir()] == ["noisy.wav"]


def test_a_missing_and_an_existing_file(folder, capsys):
    assert run(["speech", "none.wav", "-o", "o.wav"]) == 3
    assert run(["speech", "noisy.wav", "-o", "noisy.wav"]) == 4
    assert run(["speech", "noisy.wav", "--model", "huge"]) == 2
    assert run(["speech", "noisy.wav", "--sigma", "loud"]) == 2
    capsys.readouterr()


def test_training_and_evaluation(folder, capsys):
    rows = ["file,split,start"]
    for i, split in enumerate(["train", "val", "test", "test"]):
        soundfile.write(f"s{i}.wav", np.roll(sound("noisy.wav"), 1000 * i), 16000)
        rows.append(f"s{i}.wav,{split},0")
    Path("clips.csv").write_text("\n".join(rows) + "\n")
    assert run(["train", "speech", ".", "-o", "run", "--model", "local", "--steps", "4", "--every", "2"]) == 0
    assert capsys.readouterr().out == "run/speech-local.safetensors\n"
    assert (
        run(["train", "speech", ".", "-o", "run", "--model", "nonlocal", "--steps", "2", "--every", "2", "--json"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["model"] == "nonlocal"
    assert run(["eval", "speech", ".", "--runs", "run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [s["method"] for s in found["scores"]] == ["noisy", "Haar", "local", "nonlocal", "nonlocal - local"]
    assert (
        run(["speech", "s2.wav", "-o", "mine.wav", "--model", "local", "--weights", "run/speech-local.safetensors"])
        == 0
    )
    assert run(["speech", "s2.wav", "-o", "bad.wav", "--weights", "run/speech-local.safetensors"]) == 6
    assert "it is not a speech model on frames" in capsys.readouterr().err
    assert run(["eval", "speech", ".", "--clips", "1"]) == 0
    assert "nonlocal - local: SNR" in capsys.readouterr().out
    Path("clips.csv").write_text("file,split,start\ns0.wav,train,0\n")
    assert run(["eval", "speech", "."]) == 3
    assert "it holds no test or no validation clips" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_device_or_a_closed_pipe_behind_the_output(folder):
    here = {**os.environ, "PYTHONPATH": str(Path(glocal.__file__).parents[1])}
    soundfile.write("short.wav", sound("noisy.wav")[:2000], 16000)
    # one process, because starting it takes longest: first onto a full device, then into the pipe, which ends it
    program = """if True:
        import os, sys
        from glocal.cli.main import main
        command = "speech short.wav -o - --quiet --model local --sigma 0.02".split()
        pipe = os.dup(1)
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
        try:
            main(command)
        except SystemExit as end:
            print(end.code, file=sys.stderr)
        os.dup2(pipe, 1)
        main(command)
    """
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=write, stderr=subprocess.PIPE, text=True, check=False, env=here
    )
    os.close(write)
    assert done.returncode == 4
    assert done.stderr == "error: the disk is full. Try: free some space or choose another folder.\n4\n"
