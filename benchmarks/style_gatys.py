"""The method of Gatys et al. (2016) with VGG-16, at one scale or from coarse to fine: the peer of `style_quality.py`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from style_measures import VGG_CONTENT, VGG_STYLE, Layers, vgg_features
from torch import Tensor

STYLE_WEIGHT = 10.0  # of the relative Gram distances compared with the relative content distance
ITERATIONS = 300


def gatys(photo: Tensor, painting: Tensor, vgg: Layers, sizes: tuple[int, ...], iterations: int = ITERATIONS) -> Tensor:
    """Stylise sRGB images (h, w, 3) in [0, 1] at these longer sides in turn: (h, w, 3) at the last.

    Each size minimises `10 mean |G - G'|^2 / |G'|^2 + |F - F'|^2 / |F'|^2` by `iterations` steps of L-BFGS, with the Gram
    matrices of the last convolution of each block and the content of conv4_2. Photo and painting are scaled to the size
    for that, but never enlarged. The first size starts from the photo. Each further size starts from the enlarged result
    of the one before.
    """
    picture = photo
    for size in sizes:
        content, style = (_scaled(image, size) for image in (photo, painting))
        start = F.interpolate(picture.permute(2, 0, 1)[None], content.shape[2:], mode="bilinear", antialias=True)
        picture = _minimised(start, content, style, vgg, iterations)[0].permute(1, 2, 0)
    return picture.clamp(0, 1)


def _minimised(start: Tensor, content: Tensor, style: Tensor, vgg: Layers, iterations: int) -> Tensor:
    with torch.no_grad():
        goal = vgg_features(content, vgg)[VGG_CONTENT]
        grams = [_gram(maps) for k, maps in enumerate(vgg_features(style, vgg)) if k in VGG_STYLE]
    x = start.clone().requires_grad_(True)
    solver = torch.optim.LBFGS(
        [x], max_iter=iterations, history_size=10, line_search_fn="strong_wolfe", tolerance_change=0
    )

    def closure() -> Tensor:
        solver.zero_grad()
        seen = vgg_features(x, vgg)
        own = [_gram(seen[k]) for k in VGG_STYLE]
        terms = [(a - b).square().sum() / b.square().sum() for a, b in zip(own, grams, strict=True)]
        loss = STYLE_WEIGHT * torch.stack(terms).mean()
        loss = loss + (seen[VGG_CONTENT] - goal).square().sum() / goal.square().sum()
        loss.backward()
        return loss

    solver.step(closure)
    return x.detach()


def _scaled(image: Tensor, size: int) -> Tensor:
    planes, factor = image.permute(2, 0, 1)[None], min(1.0, size / max(image.shape))
    shape = [round(side * factor) for side in image.shape[:2]]
    return F.interpolate(planes, shape, mode="bilinear", antialias=True)


def _gram(maps: Tensor) -> Tensor:
    flat = maps.flatten(2)[0]
    return flat @ flat.T / flat.shape[1]
