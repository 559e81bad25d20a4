"""The map of least movement between two colour distributions."""

import torch

from glocal.color_match import matched, moments


def colors(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def test_matched_colors_have_the_others_statistics():
    image, other = colors(20, 30, 3) * 50, colors(25, 10, 3, seed=1) * torch.tensor([90.0, 20, 40]) - 10
    mean, covariance = moments([matched(image, [other], [1.0])], [1.0])
    goal_mean, goal = moments([other], [1.0])
    torch.testing.assert_close(mean, goal_mean, atol=1e-3, rtol=0)
    torch.testing.assert_close(covariance, goal, atol=1e-1, rtol=1e-3)


def test_weights_mix_the_statistics():
    low, high = torch.zeros(4, 1), torch.full((4, 1), 10.0)
    assert moments([low, high], [0.25, 0.75])[0].tolist() == [7.5]


def test_one_colour_has_a_finite_map():
    flat, other = torch.full((50, 3), 5.0), colors(50, 3)
    assert torch.isfinite(matched(flat, [other], [1.0])).all()
