"""The noise of a camera, estimated from the photo alone: by brightness, in luma and chroma, and at three scales.

A camera's noise is not white. It depends on the brightness, it is often stronger in the colours, and demosaicing, the
camera's own smoothing and JPEG make it coarse, so that it is hardly visible in the finest details. Therefore it is measured at
full, half and quarter resolution. The readings are scaled such that white noise of standard deviation `sigma` reads `sigma`
at every scale; coarse noise reads more at the lower resolutions.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from glocal.color_space import LUMA

BINS = 8  # of brightness
SCALES = 3
PLANES = 2  # luma, chroma
MAPS = PLANES * SCALES
REACH = 2  # pixels around a pixel whose mean brightness selects its noise

_PATCH = (8, 8, 4)  # sides of the flat patches, in pixels of each scale
_QUANTILE = 0.1  # of the patches, counted from the flattest
_WHITE = (
    (0.793, 0.792, 0.627),
    (0.853, 0.854, 0.731),
)  # the square root of that quantile, for white noise: luma, chroma
_FLATTEST = 0.01  # a lower quantile: texture has much less energy there, noise little less
_NOISE = 0.59  # the least ratio of both quantiles in photos with noise (0.65 for synthetic cameras, 0.59 for real ones)
_PRIOR = 12.0  # patches for which a bin's own reading counts as much as that of the whole picture
_LEAST = 64  # sides; smaller pictures are reflected

# Rows: luma, blue and red difference. The differences are scaled such that white noise is as strong as in one channel.
_COLORS = torch.tensor([LUMA, [-0.169, -0.331, 0.5], [0.5, -0.419, -0.081]])
_COLORS = _COLORS / _COLORS.norm(dim=1, keepdim=True)
_LAPLACIAN = torch.tensor([[1.0, -2.0, 1.0], [-2.0, 4.0, -2.0], [1.0, -2.0, 1.0]]) / 6


def noise_profile(pictures: Tensor, *, together: bool = False) -> Tensor:
    """Estimate the noise of colour pictures (b, 3, h, w) in [0, 1]. `together`: they are parts of one picture.

    The readings are low quantiles of the energy of a Laplacian in small patches, separately for patches of similar
    brightness: the flattest patches show the noise.

    Returns
    -------
    Tensor, (b, 2, 3, 8) or (1, 2, 3, 8)
        Standard deviations in units of [0, 1]: luma and chroma; full, half and quarter resolution; 8 bins of brightness.
        Cost: O(b h w).

    Examples
    --------
    >>> noise = torch.randn(1, 3, 256, 256, generator=torch.Generator().manual_seed(0))
    >>> bool(((noise_profile(0.5 + 0.1 * noise) - 0.1).abs() < 0.015).all())
    True
    """
    strips = _reflected(pictures)
    count = 1 if together else len(pictures)
    colors = torch.einsum("ij,bjhw->bihw", _COLORS.to(strips), strips)
    light = _light(strips)
    found = []
    for scale in range(SCALES):
        energy, brightness = _patches(colors, light, scale)
        energy = energy.view(count, -1, PLANES, energy.shape[-1]).transpose(1, 2).flatten(2)
        found.append(_by_brightness(energy, brightness.reshape(count, -1)) * 2**scale)
    readings = torch.stack(found, 2)
    return readings / torch.tensor(_WHITE).to(readings)[None, :, :, None]


def noise_share(pictures: Tensor, *, together: bool = False) -> Tensor:
    """Estimate how much of the readings of `noise_profile` is noise and not fine texture, (b,) or (1,) in [0, 1].

    Noise is everywhere: the flattest hundredth of the patches has nearly as much of it as the flattest tenth. In clean
    photos with texture it has far less. Cost: O(b h w).

    Examples
    --------
    >>> noise = torch.randn(1, 3, 256, 256, generator=torch.Generator().manual_seed(0))
    >>> noise_share(0.5 + 0.1 * noise)
    tensor([1.])
    >>> flat = torch.arange(256) < 16  # a narrow strip has weaker details
    >>> bool(noise_share(0.5 + 0.1 * noise * torch.where(flat, 0.1, 1.0)) < 0.2)
    True
    """
    strips = _reflected(pictures)
    colors = torch.einsum("ij,bjhw->bihw", _COLORS.to(strips), strips)
    energy, brightness = _patches(colors, _light(strips), 0)
    count = 1 if together else len(pictures)
    light, brightness = energy[:, :1].reshape(count, 1, -1), brightness.reshape(count, -1)
    usual, least = (_by_brightness(light, brightness, quantile).mean((1, 2)) for quantile in (_QUANTILE, _FLATTEST))
    return (least / (_NOISE * usual.clamp(min=1e-10))).clamp(max=1) ** 3


def noise_maps(pictures: Tensor, profile: Tensor) -> Tensor:
    """Draw the noise of each pixel of pictures (b, 3, h, w) from profiles (b, 2, 3, 8), as maps (b, 6, h, w).

    The brightness of a pixel is the mean luma of the 5 x 5 pixels around it. Cost: O(h w).
    """
    side = 2 * REACH + 1
    light = functional.avg_pool2d(functional.pad(_light(pictures), [REACH] * 4, mode="replicate"), side, 1)
    place = (light.flatten(1) * 255).round().clamp(0, 255).long()
    curves = functional.interpolate(profile.flatten(1, 2), 256, mode="linear", align_corners=False)
    b, _, h, w = pictures.shape
    return curves.gather(2, place[:, None].expand(-1, MAPS, -1)).view(b, MAPS, h, w)


def _light(pictures: Tensor) -> Tensor:
    """Return the luma (b, 1, h, w) of pictures (b, 3, h, w), with nothing that a recorded CUDA graph forbids."""
    red, green, blue = pictures.float().split(1, 1)
    return LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue


def _reflected(pictures: Tensor) -> Tensor:
    """Continue small pictures by reflection."""
    h, w = pictures.shape[2:]
    if min(h, w) >= _LEAST:
        return pictures.float()
    rows, columns = (torch.arange(max(n, _LEAST), device=pictures.device).remainder(2 * n) for n in (h, w))
    rows, columns = torch.minimum(rows, 2 * h - 1 - rows), torch.minimum(columns, 2 * w - 1 - columns)
    return pictures[:, :, rows][:, :, :, columns].float()


def _patches(colors: Tensor, light: Tensor, scale: int) -> tuple[Tensor, Tensor]:
    """Return the energy of luma and chroma (b, 2, n) and the brightness (b, n) of the patches at a scale."""
    if scale:
        colors, light = (functional.avg_pool2d(x, 2**scale) for x in (colors, light))
    b, _, h, w = colors.shape
    side = _PATCH[scale]
    details = functional.conv2d(colors.reshape(b * 3, 1, h, w), _LAPLACIAN.to(colors)[None, None])
    energy = functional.avg_pool2d(details.square().view(b, 3, h - 2, w - 2), side)
    energy = torch.stack([energy[:, 0], energy[:, 1:].mean(1)], 1)
    return energy.flatten(2), functional.avg_pool2d(light[:, :, 1:-1, 1:-1], side).flatten(1)


def _by_brightness(energy: Tensor, brightness: Tensor, quantile: float = _QUANTILE) -> Tensor:
    """Return a low quantile of the energies (b, p, n) of the patches in each bin of brightness (b, n), as (b, p, 8)."""
    nothing = energy.new_tensor(float("nan"))
    seen = (energy > 1e-10) & (brightness > 0.01)[:, None] & (brightness < 0.99)[:, None]  # neither black nor saturated
    kept = torch.where(seen, energy, nothing)
    overall = kept.nanquantile(quantile, dim=2)
    overall = overall.nan_to_num(0.0)
    found = []
    for number in range(BINS):
        near = (brightness * BINS - 0.5 - number).abs() <= 1
        own = torch.where(near[:, None], kept, nothing)
        count = (~own.isnan()).sum(2)
        value = own.nanquantile(quantile, dim=2).nan_to_num(0.0)
        found.append((count * value + _PRIOR * overall) / (count + _PRIOR))
    return torch.stack(found, 2).sqrt()
