import numpy as np
import torch
from skimage import color

from glocal.color_space import lab_from_rgb, luma, rgb_from_lab


def test_equals_scikit_image_and_comes_back():
    rgb = np.random.default_rng(0).random((40, 30, 3))
    rgb[0, :2] = [[0, 0, 0], [1, 1, 1]]
    lab = lab_from_rgb(torch.from_numpy(rgb))
    np.testing.assert_allclose(lab.numpy(), color.rgb2lab(rgb), atol=1e-9)
    np.testing.assert_allclose(rgb_from_lab(lab).numpy(), rgb, atol=1e-9)
    narrow = rgb_from_lab(lab_from_rgb(torch.from_numpy(rgb).float()))
    np.testing.assert_allclose(narrow.numpy(), rgb, atol=1e-4)


def test_luma_of_arrays_and_tensors_in_their_own_dtype():
    rgb = np.random.default_rng(0).random((5, 4, 3))
    np.testing.assert_allclose(luma(rgb), 0.299 * rgb[..., 0] + 0.587 * rgb[..., 1] + 0.114 * rgb[..., 2])
    np.testing.assert_allclose(luma(torch.from_numpy(rgb)).numpy(), luma(rgb))
    assert luma(rgb.astype(np.float32)).dtype == np.float32
