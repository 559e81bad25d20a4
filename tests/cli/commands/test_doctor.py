import json

import pytest

from glocal.cli import main
from glocal.cli.commands import doctor
from glocal.cli.shell import self_test
from glocal.files import model_files as weights


def test_a_sound_installation(capsys):
    assert main.run(["doctor", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["remedies"] == []
    assert set(data) == {
        "versions", "devices", "threads", "kernels", "codecs", "models", "self-test", "remedies"
    }  # fmt: skip
    assert data["codecs"]["PNG"] == "read and write"
    assert data["versions"]["glocal"]
    assert all(text.startswith(("good", "left out")) for text in data["self-test"].values())
    assert "graph_conv" in data["kernels"]


@pytest.mark.parametrize("problem", ["", "read-only file system"])
def test_the_place_of_compiled_kernels(monkeypatch, tmp_path, problem):
    from glocal.kernels import cache

    (tmp_path / "a.nbc").write_bytes(bytes(3000))
    monkeypatch.setattr(cache, "cache_folder", lambda: cache.CacheFolder(tmp_path, problem))
    found = doctor.SECTIONS["kernels"]()
    assert found.remedies == []  # it works without, only slower
    assert dict(found.rows)["compiled kernels"] == (
        f"in memory, compiled at each start: {tmp_path} cannot be written (read-only file system). "
        "Set GLOCAL_CACHE_DIR to a folder that you may write to"
        if problem
        else f"{tmp_path}, 1 files, 3.0 kB"
    )


def test_what_is_broken_is_named_with_its_remedy(capsys, monkeypatch, tmp_path):
    import numpy as np

    weights.write_model("tiny", {"a": np.ones(3)}, folder=tmp_path)
    (tmp_path / "tiny.safetensors").write_bytes(b"damaged")
    check = weights.check_models
    monkeypatch.setattr(weights, "check_models", lambda: check(tmp_path))
    monkeypatch.setitem(self_test.CHECKS, "images", lambda: "png files come back changed")
    monkeypatch.setitem(doctor.SECTIONS, "threads", lambda: 1 / 0)
    assert main.run(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "tiny             sha256" in shown
    assert "DAMAGED" in shown
    assert "fix: model tiny: load model" in shown
    assert "fix: images: png files come back changed; run `" in shown
    assert "fix: threads: install glocal again" in shown


@pytest.mark.parametrize("name", [*self_test.CHECKS])
def test_each_check_passes_here(name):
    assert self_test.run_check(name, self_test.CHECKS[name]).problem is None


def test_what_does_not_fit_into_two_seconds_is_left_out(monkeypatch):
    clock = iter(range(0, 100, 2))
    monkeypatch.setattr(self_test.time, "perf_counter", lambda: next(clock) / 1.5)
    monkeypatch.setattr(self_test, "CHECKS", {"first": lambda: None, "second": lambda: "wrong"})
    first, second = self_test.run_checks()
    assert str(first) == "good (1.33 s)"
    assert str(second) == "left out, since 2 s are over; run `glocal doctor` again when the machine is free"
    assert second.problem is None


def test_compiling_is_told():
    import numba

    compiled = self_test.run_check("new", lambda: numba.njit(lambda x: x + 1)(1) and None)
    assert (compiled.problem, compiled.compiled) == (None, True)
    assert "kernels compiled now" in str(compiled)
    assert not self_test.run_check("old", lambda: None).compiled


def test_checks_notice_wrong_results(monkeypatch):
    import torch

    from glocal.files.audio import audio_file as audio
    from glocal.files.images import read as images
    from glocal.files.images.picture import Picture

    read = images.read_image
    monkeypatch.setattr(images, "read_image", lambda path: Picture(read(path).pixels + 1))
    assert self_test.images() == "png files come back changed"
    monkeypatch.setattr(audio.AudioReader, "read", lambda self: torch.zeros(3).numpy())
    assert self_test.audio() == "wav files come back changed"
    monkeypatch.setattr(torch, "cdist", lambda a, b, **_: torch.ones(len(a), len(b)))
    assert "wrong neighbours" in (self_test.neighbors() or "")
    monkeypatch.setattr(torch.nn.functional, "conv2d", lambda x, w: torch.zeros(1, 4, 12, 10))
    assert "differs from torch's convolution" in (self_test.convolution() or "")
    assert self_test.run_check("x", lambda: str(1 / 0)).problem == "ZeroDivisionError: division by zero"
