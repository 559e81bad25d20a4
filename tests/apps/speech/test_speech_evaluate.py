"""The tables of the speech denoisers: means, errors, conditions, and peers that may be missing."""

import importlib.util

import numpy as np
import pytest
import soundfile

from glocal import samples
from glocal.apps.speech import evaluate, peers
from glocal.apps.speech.data import SpeechData
from glocal.apps.speech.evaluate import (
    at_level,
    at_sigma,
    compare_all,
    compare_colours,
    compare_levels,
    compare_paper,
    summarised,
)

SAMPLE = samples.path("speech.wav")


@pytest.fixture(scope="module")
def data():
    sound = soundfile.read(SAMPLE, dtype="float32")[0]
    clips = np.stack([sound[8000:24000], sound[28000:44000]])
    clips = clips / np.abs(clips).max(1, keepdims=True)
    return SpeechData(clips[:1], clips[:1], clips[1:])


@pytest.fixture
def alone(monkeypatch):
    """No other denoisers: their packages are no part of the tests."""
    monkeypatch.setattr(peers, "installed_peers", dict)


def test_errors_over_clips_and_seeds():
    score = summarised("m", "SNR", [np.array([1.0, 3.0]), np.array([3.0, 5.0])])
    assert (score.mean, score.error, score.error_seeds) == (3.0, 1.0, 1.0)
    assert summarised("m", "PESQ", [np.array([2.0, np.nan])]).mean == 2.0
    assert np.isnan(summarised("m", "PESQ", [np.array([np.nan])]).mean)


def test_conditions_have_their_level(data):
    noisy = at_level(data.test, 10.0)
    error = np.square(noisy.noisy - noisy.clean).sum()
    assert 10 * np.log10(np.square(noisy.clean).sum() / error) == pytest.approx(10, abs=1e-3)
    assert float(noisy.sigmas[0]) == pytest.approx(float((noisy.noisy - noisy.clean).std()), rel=1e-3)
    paper = at_sigma(data.test)
    assert float((paper.noisy - paper.clean).std()) == pytest.approx(0.12, rel=0.03)
    np.testing.assert_array_equal(paper.noisy, at_sigma(data.test).noisy)
    assert not np.array_equal(paper.noisy, at_sigma(data.test, seed=1).noisy)


def test_the_papers_table_of_the_shipped_networks(data):
    scores = {s.method: s.mean for s in compare_paper(data)}
    assert list(scores) == ["noisy", "Haar", "local", "nonlocal", "nonlocal - local"]
    assert scores["noisy"] + 1 < scores["Haar"] < scores["local"] < scores["nonlocal"]
    assert scores["nonlocal - local"] == pytest.approx(scores["nonlocal"] - scores["local"])


def test_frames_leads_at_every_level(data, alone):
    for scores in compare_levels(data, (-5.0, 5.0, 15.0), tuned=(512, 0.94)).values():
        by = {s.method: s.mean for s in scores}
        assert by["frames"] > by["Wiener"] > by["local"]
        assert by["frames - Wiener"] == pytest.approx(by["frames"] - by["Wiener"])


def test_coloured_noises_fall_by_decibels(data, alone):
    for scores in compare_colours(data).values():
        by = {s.method: s.mean for s in scores}
        assert by["frames"] > by["noisy"] + 4


def test_all_methods_and_measures(data, alone, monkeypatch):
    monkeypatch.setattr(evaluate, "WIENER_GRID", ((512, 0.94),))
    scores = compare_all(data)
    assert {s.measure for s in scores} == {"SNR", "SI-SDR", "STOI", "PESQ"}
    snr = {s.method: s.mean for s in scores if s.measure == "SNR"}
    assert list(snr) == ["noisy", "Haar", "Wiener", "local", "nonlocal", "frames"]
    assert snr["noisy"] < snr["Haar"] < snr["local"] < snr["nonlocal"] < snr["frames"]


def test_measures_that_are_not_installed_say_so(data, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert np.isnan(peers.stoi(data.test[0], data.test[0]))
    assert np.isnan(peers.pesq(data.test[0], data.test[0]))
    assert peers.installed_peers() == {}


def test_the_delay_of_a_peer_is_found(data):
    clip = data.test[0]
    assert peers.delay(np.roll(clip, 160), clip) == 160
    assert peers.delay(clip, clip) == 0
