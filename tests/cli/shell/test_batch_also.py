"""Files that are written beside the output are looked at before the work."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from glocal.cli.main import main


def photo(path):
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (24, 24, 3), np.uint8)).save(path)
    return str(path)


def leave(*arguments):
    with pytest.raises(SystemExit) as left:
        main([*arguments])
    return left.value.code


def test_two_outputs_of_one_name_are_refused(tmp_path, capsys):
    source, target = photo(tmp_path / "a.png"), str(tmp_path / "b.png")
    assert leave("denoise", source, "-o", target, "--residual", target) == 2
    assert "own name" in capsys.readouterr().err
    assert leave("style", source, source, "-o", target, "--compare", target) == 2
    assert not (tmp_path / "b.png").exists()


def test_an_input_is_no_place_for_a_residual(tmp_path):
    source = photo(tmp_path / "a.png")
    before = (tmp_path / "a.png").read_bytes()
    assert leave("denoise", source, "-o", str(tmp_path / "b.png"), "--residual", source, "--overwrite") == 2
    assert (tmp_path / "a.png").read_bytes() == before


def test_a_residual_in_the_way_is_refused_before_the_work(tmp_path, capsys):
    source, there = photo(tmp_path / "a.png"), photo(tmp_path / "c.png")
    assert leave("denoise", source, "-o", str(tmp_path / "b.png"), "--residual", there) == 4
    assert "c.png" in capsys.readouterr().err
    assert not (tmp_path / "b.png").exists()


def test_pictures_do_not_go_through_a_pipe(tmp_path, capsys):
    assert leave("denoise", photo(tmp_path / "a.png"), "-o", "-") == 2
    assert "pipe" in capsys.readouterr().err
