"""Measure the structure of the photo and the style of the painting in a picture, for `style_quality.py`.

No variant optimises any of the networks that judge it: two families of random networks that glocal does not use and, if its
files are available, an AlexNet and a VGG-16 trained on photographs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from glocal.color_space import lab_from_rgb

SEED = 20_171
VGG_POOLS = (2, 4, 7, 10)  # convolutions of VGG-16 with a pooling before them
VGG_STYLE = (1, 3, 6, 9, 12)  # ... and those whose Gram matrices are compared: the last of each block
VGG_CONTENT = 8  # conv4_2
ALEX_POOLS = (1, 2)  # convolutions of AlexNet with a pooling before them
ALEX_CONTENT = 3  # conv4

Layers = list[tuple[Tensor, Tensor]]


def measures(
    result: Tensor, photo: Tensor, painting: Tensor, vgg: Layers | None, alex: Layers | None = None
) -> dict[str, float]:
    """Compute all measures of one result. Images (h, w, 3) are sRGB in [0, 1]; result and photo have the same size."""
    ours, theirs, style = (lab_from_rgb(image).permute(2, 0, 1)[None] / 100 for image in (result, photo, painting))
    numbers = {
        "gradients": gradient_correlation(ours[:, :1], theirs[:, :1]),
        "coarse": gradient_correlation(*(F.avg_pool2d(image[:, :1], 4) for image in (ours, theirs))),
        "ssim": ssim(ours[:, :1], theirs[:, :1]),
        "wide": style_distance(wide_features(ours, style), wide_features(style, style)),
        "deep": style_distance(deep_features(ours, style), deep_features(style, style)),
    }
    if vgg is not None:
        seen = [vgg_features(image.permute(2, 0, 1)[None], vgg) for image in (result, photo, painting)]
        numbers["vgg_style"] = style_distance(
            *([every[k] for k in VGG_STYLE] for every in (seen[0], seen[2])), centred=False
        )
        content = seen[1][VGG_CONTENT]
        numbers["vgg_content"] = float((seen[0][VGG_CONTENT] - content).norm() / content.norm())
    if alex is not None:
        seen = [alex_features(image.permute(2, 0, 1)[None], alex) for image in (result, photo, painting)]
        numbers["alex_style"] = style_distance(seen[0], seen[2], centred=False)
        content = seen[1][ALEX_CONTENT]
        numbers["alex_content"] = float((seen[0][ALEX_CONTENT] - content).norm() / content.norm())
    return numbers


def gradient_correlation(a: Tensor, b: Tensor) -> float:
    """Correlation of the horizontal and vertical differences of two images (1, 1, h, w): 1 if all edges agree."""
    fields = [
        torch.cat([(i[..., 1:, :] - i[..., :-1, :]).flatten(), (i[..., 1:] - i[..., :-1]).flatten()]) for i in (a, b)
    ]
    return float(torch.corrcoef(torch.stack(fields))[0, 1])


def ssim(a: Tensor, b: Tensor) -> float:
    """Structural similarity of two images (1, 1, h, w) of range 1, Gaussian window of 11 pixels (Wang et al. 2004)."""
    line = torch.exp(-((torch.arange(11) - 5.0) ** 2) / (2 * 1.5**2)).to(a)
    window = (line / line.sum()).outer(line / line.sum())[None, None]
    mean_a, mean_b, square_a, square_b, product = (F.conv2d(i, window) for i in (a, b, a * a, b * b, a * b))
    var_a, var_b, cov = square_a - mean_a**2, square_b - mean_b**2, product - mean_a * mean_b
    light = (2 * mean_a * mean_b + 1e-4) / (mean_a**2 + mean_b**2 + 1e-4)
    return float((light * (2 * cov + 9e-4) / (var_a + var_b + 9e-4)).mean())


def style_distance(ours: list[Tensor], theirs: list[Tensor], *, centred: bool = True) -> float:
    """Mean over layers of `|G - G'| / |G'|` for Gram matrices of maps (1, c, h, w), optionally with the means subtracted."""
    return float(torch.stack([_relative(a, b, centred) for a, b in zip(ours, theirs, strict=True)]).mean())


def _relative(ours: Tensor, theirs: Tensor, centred: bool) -> Tensor:
    grams = []
    for maps in (ours, theirs):
        flat = maps.flatten(2)[0]
        flat = flat - flat.mean(1, keepdim=True) if centred else flat
        grams.append(flat @ flat.T / flat.shape[1])
    return (grams[0] - grams[1]).norm() / grams[1].norm()


def _whitened(image: Tensor, painting: Tensor) -> Tensor:
    """Transform the colours so that the painting has mean 0 and covariance 1; all colours then count equally."""
    flat = painting.flatten(2)[0].double()
    values, vectors = torch.linalg.eigh(torch.cov(flat) + 1e-5 * torch.eye(3).to(flat))
    change = (vectors / values.sqrt()) @ vectors.T
    moved = torch.einsum("ij,bjhw->bihw", change, image.double() - flat.mean(1).view(1, 3, 1, 1))
    return moved.to(image)


def wide_features(image: Tensor, painting: Tensor) -> list[Tensor]:
    """One random layer of 96 maps with 9x9 filters, on the image at its own size, a half, a quarter and an eighth."""
    generator = torch.Generator().manual_seed(SEED)
    filters = (torch.randn(96, 3, 9, 9, generator=generator) / 243**0.5).to(image)
    bias = (0.5 * torch.randn(96, generator=generator)).to(image)
    seen, maps = _whitened(image, painting), []
    while len(maps) < 4 and min(seen.shape[2:]) >= 9:
        maps.append(F.relu(F.conv2d(seen, filters, bias)))
        seen = F.avg_pool2d(seen, 2)
    return maps


def deep_features(image: Tensor, painting: Tensor) -> list[Tensor]:
    """Four random layers of 64, 96, 128 and 128 maps with 3x3 filters, an averaging by 2 between them."""
    generator = torch.Generator().manual_seed(SEED + 1)
    seen, maps, channels = _whitened(image, painting), [], 3
    for count in (64, 96, 128, 128):
        filters = torch.randn(count, channels, 3, 3, generator=generator) * (2 / (9 * channels)) ** 0.5
        seen = F.relu(F.conv2d(seen, filters.to(image)))
        maps.append(seen)
        seen, channels = F.avg_pool2d(seen, 2), count
    return maps


def load_layers(path: Path, device: str) -> Layers:
    """Read the convolutions of a network from an .npz with `w0`, `b0`, `w1`, ..., filters as (out, in, side, side)."""
    with np.load(path) as held:
        count = len(held.files) // 2
        return [tuple(torch.from_numpy(held[f"{k}{i}"]).float().to(device) for k in "wb") for i in range(count)]  # type: ignore[misc]


def _standard(image: Tensor) -> Tensor:
    """Give an sRGB image in [0, 1] the mean and spread of the photographs that both networks were trained on."""
    mean, spread = (image.new_tensor(v).view(1, 3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    return (image - mean) / spread


def vgg_features(image: Tensor, layers: Layers) -> list[Tensor]:
    """Compute the output of each convolution of VGG-16 for an sRGB image (1, 3, h, w) in [0, 1]."""
    seen, maps = _standard(image), []
    for number, (filters, bias) in enumerate(layers):
        if number in VGG_POOLS:
            seen = F.max_pool2d(seen, 2)
        seen = F.relu(F.conv2d(seen, filters, bias, padding=1))
        maps.append(seen)
    return maps


def alex_features(image: Tensor, layers: Layers) -> list[Tensor]:
    """Compute the output of each convolution of AlexNet for an sRGB image (1, 3, h, w) in [0, 1]."""
    seen, maps = _standard(image), []
    for number, (filters, bias) in enumerate(layers):
        if number in ALEX_POOLS:
            seen = F.max_pool2d(seen, 3, 2)
        stride, padding = (4, 2) if number == 0 else (1, filters.shape[2] // 2)
        seen = F.relu(F.conv2d(seen, filters, bias, stride=stride, padding=padding))
        maps.append(seen)
    return maps
