"""A synthetic camera: photos become raw values, get the noise of a sensor, and become photos again.

The steps are those of a real camera, backwards and forwards. The tone curve, the colour matrix and the white balance are
undone. The noise of a sensor has the variance `gain x + read^2` at the linear value x. It goes through a Bayer mosaic, which
keeps one colour for each pixel, and through demosaicing, which fills in the others. White balance, colour matrix and tone
curve follow. Then the camera smooths the colours, reduces noise and sharpens. Finally the photo is resized and stored as
JPEG. The clean twin takes the same steps without noise and without JPEG. All settings are random, one for each photo, over
the ranges that cameras have.

Deviation from a real camera: only the noise is mosaiced. Demosaicing is linear here, so the noise is right, and the small
photos that are used for training, which are sharper than a camera's pixels, get no false colours.

References: Brooks et al. 2019 (raw values from photos, and the relation between shot and read noise), Malvar, He and Cutler
2004 (demosaicing with 5 x 5 filters).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from glocal.apps.denoise.jpeg import TO_YCC, through_jpeg

# Demosaicing filters of 5 x 5, times 8: green at red or blue; red (blue) at a green whose row has red (blue), the same with
# the column (its transpose), and red at blue or blue at red.
_GREEN = ((0, 0, -1, 0, 0), (0, 0, 2, 0, 0), (-1, 2, 4, 2, -1), (0, 0, 2, 0, 0), (0, 0, -1, 0, 0))
_ROW = ((0, 0, 0.5, 0, 0), (0, -1, 0, -1, 0), (-1, 4, 5, 4, -1), (0, -1, 0, -1, 0), (0, 0, 0.5, 0, 0))
_OTHER = ((0, 0, -1.5, 0, 0), (0, 2, 0, 2, 0), (-1.5, 0, 6, 0, -1.5), (0, 2, 0, 2, 0), (0, 0, -1.5, 0, 0))
_CROSS = ((0, 1, 0), (1, 4, 1), (0, 1, 0))  # bilinear, times 4
_SQUARE = ((1, 2, 1), (2, 4, 2), (1, 2, 1))


@dataclass(frozen=True)
class Camera:
    """The settings of one camera for each photo of a batch; each field is a tensor (b, ...)."""

    gamma: Tensor
    contrast: Tensor
    white: Tensor  # (b, 3) gains of the white balance
    matrix: Tensor  # (b, 3, 3) camera colours to sRGB
    gain: Tensor
    read: Tensor
    exact: Tensor  # demosaic with the 5 x 5 filters instead of bilinearly
    chroma: Tensor  # standard deviation of the smoothing of the colours, in pixels
    soft: Tensor  # of the luma
    sharpen: Tensor
    reduce: Tensor  # threshold of the camera's noise reduction, in standard deviations of the noise
    grain: Tensor  # standard deviation of the blur that separates details, which it weakens, from the rest, in pixels
    quality: Tensor
    halved: Tensor

    @staticmethod
    def draw(count: int, generator: torch.Generator) -> Camera:
        """Draw random settings for `count` photos, on the generator's device."""
        device = generator.device

        def uniform(low: float, high: float, *shape: int) -> Tensor:
            return low + (high - low) * torch.rand(count, *shape, device=device, generator=generator)

        def sometimes(share: float, value: Tensor) -> Tensor:
            return value * (uniform(0, 1) < share)

        log_gain = uniform(-9.8, -4.4)
        log_read = 2.18 * log_gain + 1.2 + 0.5 * torch.randn(count, device=device, generator=generator)
        first, second = uniform(0.05, 0.6, 3), uniform(0.0, 0.4, 3)
        swapped = uniform(0, 1, 3) < 0.5
        left, right = torch.where(swapped, second, first), torch.where(swapped, first, second)
        rows = [
            torch.stack([1 + left[:, 0] + right[:, 0], -left[:, 0], -right[:, 0]], 1),
            torch.stack([-left[:, 1], 1 + left[:, 1] + right[:, 1], -right[:, 1]], 1),
            torch.stack([-left[:, 2], -right[:, 2], 1 + left[:, 2] + right[:, 2]], 1),
        ]
        white = torch.stack([uniform(1.3, 2.6), torch.ones(count, device=device), uniform(1.2, 2.4)], 1)
        quality = 60 + 38 * uniform(0, 1) ** 0.35  # half of them above 90
        return Camera(
            gamma=uniform(1.8, 2.6),
            contrast=uniform(0.0, 0.7),
            white=white,
            matrix=torch.stack(rows, 1),
            gain=log_gain.exp(),
            read=(0.5 * log_read).exp(),
            exact=uniform(0, 1) < 0.75,
            chroma=sometimes(0.8, uniform(0.3, 2.5)),
            soft=sometimes(0.8, uniform(0.3, 1.0)),
            sharpen=sometimes(0.6, uniform(0.1, 1.0)),
            reduce=sometimes(0.7, uniform(0.3, 2.5)),
            grain=uniform(0.8, 2.0),
            quality=torch.where(uniform(0, 1) < 0.1, torch.full_like(quality, 100.0), quality.round()),
            halved=uniform(0, 1) < 0.5,
        )


def shoot(
    photos: Tensor, camera: Camera, generator: torch.Generator, *, side: int | None = None
) -> tuple[Tensor, Tensor]:
    """Photograph photos (b, 3, h, w) in [0, 1] with a synthetic camera.

    Parameters
    ----------
    side : int or None
        Resize the results to side x side, a multiple of 16. None keeps h and w, which are then multiples of 16.

    Returns
    -------
    noisy, clean : Tensor, (b, 3, h, w) or (b, 3, side, side)
        The camera's JPEG, and its clean twin. Cost: O(b h w), about 300 passes over the pixels.
    """
    raw = _to_raw(photos, camera)
    variance = camera.gain.view(-1, 1, 1, 1) * raw + camera.read.view(-1, 1, 1, 1) ** 2
    noise = _demosaiced(variance.sqrt() * torch.randn(raw.shape, device=raw.device, generator=generator), camera)
    noisy, clean = _develop(raw + noise, camera), _develop(raw, camera)
    noisy, clean = _in_camera(noisy, clean, camera)
    if side is not None and side != photos.shape[2]:
        noisy, clean = (
            functional.interpolate(x, size=(side, side), mode="bicubic", antialias=True) for x in (noisy, clean)
        )
    noisy, clean = noisy.clamp(0, 1), clean.clamp(0, 1)
    return through_jpeg(noisy, camera.quality, camera.halved), clean


def _to_raw(photos: Tensor, camera: Camera) -> Tensor:
    """Undo the tone curve, the colour matrix and the white balance."""
    contrast, gamma = camera.contrast.view(-1, 1, 1, 1), camera.gamma.view(-1, 1, 1, 1)
    straight = 0.5 - torch.sin(torch.asin(1 - 2 * photos.clamp(0, 1)) / 3)  # the inverse of 3 x^2 - 2 x^3
    linear = (photos + contrast * (straight - photos)).clamp(0, 1) ** gamma
    linear = torch.einsum("bij,bjhw->bihw", torch.linalg.inv(camera.matrix), linear)
    return (linear / camera.white[:, :, None, None]).clamp(0, 1)


def _demosaiced(values: Tensor, camera: Camera) -> Tensor:
    """Keep one colour for each pixel of (b, 3, h, w), and fill in the others."""
    masks = bayer(values)
    mosaic = (values * masks).sum(1, keepdim=True)
    exact = camera.exact.view(-1, 1, 1, 1)
    return torch.where(exact, demosaic_exact(mosaic, masks), demosaic_bilinear(mosaic, masks))


def _develop(raw: Tensor, camera: Camera) -> Tensor:
    """Apply white balance, colour matrix and tone curve."""
    balanced = (raw * camera.white[:, :, None, None]).clamp(0, 1)
    linear = torch.einsum("bij,bjhw->bihw", camera.matrix, balanced).clamp(1e-6, 1)
    curve = linear ** (1 / camera.gamma.view(-1, 1, 1, 1))
    return curve + camera.contrast.view(-1, 1, 1, 1) * (curve * curve * (3 - 2 * curve) - curve)


def bayer(raw: Tensor) -> Tensor:
    """Return the masks (1, 3, h, w) of red, green and blue: rows RGRG, GBGB."""
    h, w = raw.shape[2:]
    row, column = torch.arange(h, device=raw.device)[:, None] % 2, torch.arange(w, device=raw.device)[None] % 2
    red, blue = (row == 0) & (column == 0), (row == 1) & (column == 1)
    return torch.stack([red, ~(red | blue), blue])[None].to(raw.dtype)


def _filtered(planes: Tensor, filters: tuple[tuple[float, ...], ...], total: float) -> Tensor:
    weights = torch.tensor(filters, dtype=planes.dtype, device=planes.device) / total
    half = len(filters) // 2
    channels = planes.shape[1]
    wide = functional.pad(planes, [half] * 4, mode="reflect")  # keeps the phase of the mosaic
    return functional.conv2d(wide, weights.expand(channels, 1, -1, -1), groups=channels)


def demosaic_bilinear(mosaic: Tensor, masks: Tensor) -> Tensor:
    """Fill the missing colours (b, 3, h, w) by means of the nearest known ones."""
    known = mosaic * masks
    green = _filtered(known[:, 1:2], _CROSS, 4)
    red, blue = (_filtered(known[:, i : i + 1], _SQUARE, 4) for i in (0, 2))
    return torch.cat([red, green, blue], 1)


def demosaic_exact(mosaic: Tensor, masks: Tensor) -> Tensor:
    """Fill in each colour bilinearly, corrected by the gradient of the colour that is known there."""
    column = tuple(zip(*_ROW, strict=True))
    at_green, in_row, in_column, other = (_filtered(mosaic, f, 8) for f in (_GREEN, _ROW, column, _OTHER))
    red, green, blue = (masks[:, i : i + 1] for i in range(3))
    even = (torch.arange(mosaic.shape[2], device=mosaic.device) % 2 == 0).view(1, 1, -1, 1).to(mosaic.dtype)
    red_row, blue_row = green * even, green * (1 - even)
    return torch.cat(
        [
            mosaic * red + in_row * red_row + in_column * blue_row + other * blue,
            mosaic * green + at_green * (1 - green),
            mosaic * blue + in_row * blue_row + in_column * red_row + other * red,
        ],
        1,
    )


def _in_camera(noisy: Tensor, clean: Tensor, camera: Camera) -> tuple[Tensor, Tensor]:
    """Smooth the colours, reduce the noise of the luma and sharpen, both photos alike."""
    both = torch.einsum("ij,bjhw->bihw", TO_YCC.to(noisy), torch.cat([noisy, clean]))
    colors = _blur(both[:, 1:], camera.chroma.repeat(2))
    light = _blur(both[:, :1], camera.soft.repeat(2))
    coarse = _blur(light, camera.grain.repeat(2))
    details = light - coarse
    count = len(noisy)
    # Where the noisy photo shows little more than noise, details are weakened; in the clean twin by the same factor.
    power = functional.avg_pool2d(details[:count].square(), 7, 1, 3, count_include_pad=False)
    noise = (details[:count] - details[count:]).square().mean((1, 2, 3), keepdim=True)
    limit = camera.reduce.view(-1, 1, 1, 1) ** 2 * noise
    kept = (power / (power + limit + 1e-10)).repeat(2, 1, 1, 1)
    light = coarse + details * kept * (1 + camera.sharpen.repeat(2).view(-1, 1, 1, 1))
    back = torch.linalg.inv(TO_YCC.double()).to(noisy)
    found = torch.einsum("ij,bjhw->bihw", back, torch.cat([light, colors], 1))
    return found[:count], found[count:]


def _blur(planes: Tensor, width: Tensor) -> Tensor:
    """Blur planes (b, c, h, w) with Gaussians of standard deviation `width` (b,) in pixels, at most 2.5."""
    b, c, h, w = planes.shape
    reach = 7
    steps = torch.arange(-reach, reach + 1, device=planes.device, dtype=planes.dtype)
    taps = torch.exp(-0.5 * (steps / width.clamp(min=1e-3)[:, None]) ** 2)
    taps = (taps / taps.sum(1, keepdim=True)).repeat_interleave(c, 0)
    wide = functional.pad(planes.reshape(1, b * c, h, w), [reach] * 4, mode="reflect")
    across = functional.conv2d(wide, taps.view(b * c, 1, 1, -1), groups=b * c)
    return functional.conv2d(across, taps.view(b * c, 1, -1, 1), groups=b * c).view(b, c, h, w)
