"""Appendix B of the paper, images: figures 5 (left), 6 and 7, and the numbers of section B.3."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glocal.apps.denoise.evaluation import NoisyPicture, noisy_pictures
from glocal.apps.denoise.networks import ImageDenoiser
from glocal.apps.denoise.options import PAPER_SIGMA
from glocal.color_space import luma
from glocal.paper import drawing, image_training, squares
from glocal.paper.blocks import Figure, Plate, Section, Text
from glocal.paper.job import Job
from glocal.paper.results import figure_5, table_b3
from glocal.paper.runs import Run, load_runs
from glocal.paper.source import Number
from glocal.training.scores import psnr

PUBLISHED = {"noisy": 23.10, "haar": 26.78, "local": 29.13, "nonlocal": 29.42, "gain": 0.29}
EXAMPLE = "temple"


@dataclass(frozen=True)
class Trained:
    """The two networks, and the run that trained them."""

    local: ImageDenoiser
    nonlocal_: ImageDenoiser
    run: Run


def section(job: Job) -> Section:
    """Figures 5 to 7 and the table, images."""
    found = trained(job)
    lead = Text(
        (
            "Two small networks remove white noise (sigma 0.07) from gray pictures of 128 x 128 pixels: f2 . f1 on the "
            "pixel grid, and f2 . fnl . f1 with one non-local filter of 9 taps between, on a graph of similar 7 x 7 "
            "patches of the noisy picture.",
        )
    )
    example, values = figure_6(found, job)
    maps = figure_7(found, job)
    table = table_b3(found.run, title="Section B.3, images: PSNR on the test set", published=PUBLISHED)
    curves = figure_5(found.run, part="images", name="fig5-images", measure="PSNR")
    data = {"example": values, "run": found.run.as_dict()}
    return Section("image", "Figures 5 to 7: image denoising", [lead, table, curves, example, maps], data)


def trained(job: Job) -> Trained:
    """Return the networks trained now, or the shipped ones with the stored run that made them."""
    if job.effort.trains:
        return Trained(*image_training.train_all(job))
    local, nonlocal_ = (image_training.shipped(name) for name in ("local", "nonlocal"))
    return Trained(local, nonlocal_, load_runs("image")[0])


def example_picture(job: Job) -> NoisyPicture:
    """Return the shipped photo in gray, with noise."""
    size = job.effort.image_size
    gray = np.rint(luma(squares.photo(EXAMPLE, size).astype(np.float64))).astype(np.uint8)
    return noisy_pictures(gray[None], sigma=PAPER_SIGMA, seed=job.seed, stream="example", device="cpu")[0]


@torch.no_grad()
def figure_6(found: Trained, job: Job) -> tuple[Figure, dict[str, float]]:
    """Noisy, local, non-local and original, with PSNRs."""
    picture = example_picture(job)
    images = {"noisy": picture.noisy}
    for name, net in (("local network", found.local), ("non-local network", found.nonlocal_)):
        output = net(picture.noisy.reshape(-1, 1), net.graphs(picture.noisy))
        images[name] = output.reshape(picture.truth.shape)
    values = {name: psnr(image, picture.truth) for name, image in images.items()}
    plates = [
        Plate(
            f"fig6-{name.replace(' ', '-')}",
            drawing.gray(image.numpy()),
            f"The photo, {name}",
            (f"{name}, ", Number(values[name], job.source, unit="dB")),
        )
        for name, image in images.items()
    ]
    plates.append(Plate("fig6-original", drawing.gray(picture.truth.numpy()), "The photo itself", ("original",)))
    caption = (
        "One of the shipped photos. The noise is drawn in this run; the networks are those of: ",
        f"{found.run.source.text()}.",
    )
    title = "Figure 6: noisy, local, non-local, original"
    return Figure(title, plates, 4, caption, job.source), values


@torch.no_grad()
def figure_7(found: Trained, job: Job) -> Figure:
    """Feature maps of the analysis filters, and of the adjoint of the synthesis filters, of both networks."""
    picture = example_picture(job)
    plates = []
    for name, net in (("local", found.local), ("non-local", found.nonlocal_)):
        grid = net.graphs(picture.truth)["local"]
        x = picture.truth.reshape(-1, 1)
        maps = {"analysis": net.analysis(x, grid), "synthesis": adjoint(net, x, grid)}
        for layer, values in maps.items():
            words = f"{name} network, {layer} layer"
            plates.append(
                Plate(
                    f"fig7-{name}-{layer}",
                    _sheet(values, picture.truth.shape),
                    f"Feature maps: {words}",
                    (words,),
                )
            )
    caption = (
        "All feature maps of the photo of figure 6, without the non-linearity, each scaled to its own range: red positive, "
        "blue negative. For the synthesis layer, those of its adjoint. Sorted by energy, largest first.",
    )
    return Figure("Figure 7: analysis and synthesis filters of both networks", plates, 4, caption, job.source)


def adjoint(net: ImageDenoiser, x: Tensor, grid: object) -> Tensor:
    """`f2' x` (n, maps): the adjoint of the synthesis layer, as the gradient of `<f2(z), x>` with respect to `z`."""
    with torch.enable_grad():
        z = x.new_zeros(len(x), net.architecture.maps).requires_grad_(True)
        inner = (net.synthesis(z, grid) * x).sum()
        (found,) = torch.autograd.grad(inner, z)
    return found


def _sheet(values: Tensor, shape: torch.Size, *, columns: int = 3) -> drawing.Array:
    """Draw maps (n, m) as tiles, largest energy first, each scaled to its own range."""
    order = values.square().sum(0).argsort(descending=True)
    tiles = []
    for i in order.tolist():
        tile = values[:, i].reshape(shape).numpy()
        tiles.append(drawing.signed(tile, top=float(np.quantile(np.abs(tile), 0.99)) or None))
    return drawing.tiles(tiles, columns)
