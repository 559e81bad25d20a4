"""The speech benchmark: mixtures of the stated level, the same for all methods; pairs by name; a table and JSON."""

import json

import numpy as np
import pytest
import soundfile

from glocal import samples
from glocal.apps.speech.data import read_mono
from glocal.bench import speech as bench
from glocal.cli.main import run
from glocal.errors import InputError


@pytest.fixture
def folders(tmp_path):
    """Two clean clips of 1.5 s, a noise that is shorter, and noisy versions of known level."""
    sentence = read_mono(samples.path("speech.wav"))[:48_000]
    draw = np.random.default_rng(0)
    for name in ("clean", "noise", "noisy"):
        (tmp_path / name).mkdir()
    for i, clip in enumerate(np.split(sentence, 2)):
        soundfile.write(tmp_path / "clean" / f"{i}.wav", clip, 16000, subtype="FLOAT")
        soundfile.write(tmp_path / "noisy" / f"{i}.wav", clip + 0.02 * draw.standard_normal(24_000), 16000, "FLOAT")
    soundfile.write(tmp_path / "noise" / "hiss.wav", 0.3 * draw.standard_normal(9_000), 16000, subtype="FLOAT")
    return tmp_path


@pytest.mark.parametrize("noise", [None, "noise"])
@pytest.mark.parametrize("snr", [0.0, 12.0])
def test_mixtures_have_their_level_and_repeat(folders, noise, snr):
    folder = None if noise is None else folders / noise
    made = bench.mixtures(folders / "clean", folder, snr=snr, seed=3)
    again = bench.mixtures(folders / "clean", folder, snr=snr, seed=3)
    other = bench.mixtures(folders / "clean", folder, snr=snr, seed=4)
    for x, y, sigma in zip(made.clean, made.noisy, made.sigmas, strict=True):
        assert 10 * np.log10(np.square(x).mean() / np.square(y - x).mean()) == pytest.approx(snr, abs=0.01)
        assert sigma == pytest.approx(np.sqrt(np.square(y - x).mean()), rel=1e-3)
        assert np.abs(y).max() <= 0.9901
    assert all(np.array_equal(a, b) for a, b in zip(made.noisy, again.noisy, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(made.noisy, other.noisy, strict=True))


def test_levels_take_turns(folders):
    made = bench.mixtures(folders / "clean", None, snr=(0, 10))
    found = [
        10 * np.log10(np.square(x).mean() / np.square(y - x).mean())
        for x, y in zip(made.clean, made.noisy, strict=True)
    ]
    assert found == pytest.approx([0, 10], abs=0.01)


def test_the_least_gain_shows_a_clip_that_became_worse(folders, monkeypatch):
    levels = iter([2.0, 3.0, 2.5, 2.9])  # the noisy clips, then the denoised ones
    monkeypatch.setitem(bench.MEASURES, "PESQ", lambda estimate, clean: next(levels))
    condition = bench.pairs(folders / "clean", folders / "noisy")
    row = bench.measure({"noisy": condition}, {"noisy": bench.unchanged})[0]
    assert row.least_gain == pytest.approx(-0.1)


def test_pairs_are_found_by_name(folders):
    found = bench.pairs(folders / "clean", folders / "noisy")
    assert found.sigmas == pytest.approx([0.02, 0.02], rel=0.05)
    assert len(bench.pairs(folders / "clean", folders / "noisy", clips=1).clean) == 1


def test_all_methods_get_the_same_sound_and_scores_are_right(folders):
    condition = bench.mixtures(folders / "clean", None, snr=5)
    seen = {"a": [], "b": []}
    methods = {name: lambda noisy, sigma, name=name: seen[name].append(noisy.copy()) or noisy for name in seen}
    rows = bench.measure({"white": condition}, methods)
    assert all(np.array_equal(a, b) for a, b in zip(seen["a"], seen["b"], strict=True))
    assert [row.si_sdr for row in rows] == pytest.approx([5.0, 5.0], abs=0.1)
    assert 4.5 < rows[0].lowest <= rows[0].si_sdr
    assert [(row.set, row.method, row.clips) for row in rows] == [("white", "a", 2), ("white", "b", 2)]


def test_a_measure_that_is_missing_is_none(folders, monkeypatch):
    monkeypatch.setitem(bench.MEASURES, "PESQ", lambda estimate, clean: float("nan"))
    row = bench.measure({"noisy": bench.pairs(folders / "clean", folders / "noisy")}, {"noisy": bench.unchanged})[0]
    assert row.pesq is None
    assert row.si_sdr > 0
    assert "-" in bench.text([row]).splitlines()[-1]


def test_command_writes_the_figures(folders, capsys):
    out = folders / "b.json"
    arguments = ["--clean", str(folders / "clean"), "--noise", "white", "--noise", str(folders / "noise")]
    assert run(["bench", "speech", *arguments, "--methods", "noisy", "--methods", "voice", "-o", str(out)]) == 0
    kept = json.loads(out.read_text())
    assert [(row["set"], row["method"]) for row in kept["rows"]] == [
        ("white", "noisy"), ("white", "voice"), ("noise", "noisy"), ("noise", "voice"),
    ]  # fmt: skip
    assert (kept["snr"], kept["seed"]) == ([5.0], 0)
    assert kept["rows"][1]["si_sdr"] > kept["rows"][0]["si_sdr"] + 5
    assert f"{kept['rows'][1]['si_sdr']:.2f}" in capsys.readouterr().out


@pytest.mark.parametrize("flags", [[], ["--clean", "a"], ["--clean", "a", "--noisy", "b", "--noise", "white"]])
def test_the_command_needs_pairs_or_mixtures(flags, capsys):
    assert run(["bench", "speech", *flags]) == 2
    assert "there is nothing to measure on" in capsys.readouterr().err


def test_messages(folders, capsys):
    pairs = ["--clean", str(folders / "clean"), "--noisy", str(folders / "noisy")]
    assert run(["bench", "speech", *pairs, "--methods", "magic"]) == 2
    assert "Try: choose from noisy, voice, frames" in capsys.readouterr().err
    with pytest.raises(InputError, match="holds no sound file"):
        bench.pairs(folders / "nowhere", folders / "noisy")
    soundfile.write(folders / "noise" / "hiss.wav", np.zeros(9_000), 16000)
    with pytest.raises(InputError, match=r"hiss\.wav' is silent"):
        bench.mixtures(folders / "clean", folders / "noise", snr=5)
    soundfile.write(folders / "noisy" / "0.wav", np.zeros(100), 16000)
    with pytest.raises(InputError, match="24000 clean and 100 noisy"):
        bench.pairs(folders / "clean", folders / "noisy")
    (folders / "noisy" / "0.wav").unlink()
    with pytest.raises(InputError, match=r"'0\.wav' of .* is not in"):
        bench.pairs(folders / "clean", folders / "noisy")
