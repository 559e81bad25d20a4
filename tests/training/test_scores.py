"""Scores: means and standard errors by hand, and the PSNR."""

import math

import numpy as np
import pytest
import torch

from glocal.training.scores import Score, psnr, standard_error, summarize, with_gain


def test_a_summary_has_both_standard_errors():
    rows = summarize([[20.0, 24.0], [21.0, 23.0], [22.0, 25.0]])
    assert rows.mean == pytest.approx(22.5)
    assert rows.by_seed == (22.0, 22.0, 23.5)
    assert rows.error_seeds == pytest.approx(np.std([22, 22, 23.5], ddof=1) / 3**0.5)
    assert rows.error == pytest.approx(np.std([21, 24], ddof=1) / 2**0.5)


def test_one_item_and_one_seed_have_no_spread():
    assert summarize([[1.0]]) == Score(1.0, 0.0, None, (1.0,))
    assert standard_error([3.0]) == 0


def test_items_that_cannot_be_judged_are_left_out():
    assert summarize([[2.0, math.nan], [4.0, 1.0]]).mean == 3.0
    assert math.isnan(summarize([[math.nan]]).mean)


def test_the_gain_is_counted_item_by_item():
    found = with_gain({"local": [[1.0, 2.0, 6.0], [3.0, 4.0, 8.0]], "nonlocal": [[2.0, 2.0, 8.0], [4.0, 6.0, 10.0]]})
    assert found["local"].mean == 4.0
    assert found["local"].error == pytest.approx(math.sqrt(7 / 3))  # of the means over seeds 2, 3, 7
    assert found["local"].error_seeds == pytest.approx(1.0)  # of 3 and 5
    assert found["gain"].mean == pytest.approx(8 / 6)
    assert found["gain"].error == pytest.approx(standard_error([1.0, 1.0, 2.0]))
    assert "gain" not in with_gain({"local": [[1.0]]})


def test_psnr_of_arrays_and_tensors():
    assert psnr(torch.zeros(2, 2), torch.zeros(2, 2)) == math.inf
    assert psnr(np.full(4, 0.1), np.zeros(4)) == pytest.approx(20)
