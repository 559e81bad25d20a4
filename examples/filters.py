"""Draw the point of section 2: polynomial filters on a lattice are isotropic, graph convolutions can be any filter."""

import argparse
from pathlib import Path

import matplotlib as mpl
import torch

import glocal
from glocal.nn import functional, spectral


def responses(side: int = 15) -> dict[str, torch.Tensor]:
    """Compute the responses to an impulse in the middle of a `side x side` lattice without borders."""
    n = side * side
    impulse = torch.zeros(n, 1)
    impulse[n // 2] = 1
    lattice = glocal.grid_graph((side, side), size=3, boundary="circular")
    lap = spectral.laplacian(spectral.adjacency(lattice), normalized=True)
    wide = glocal.grid_graph((side, side), size=7, boundary="circular")
    y, x = torch.meshgrid(*2 * [torch.arange(-3.0, 4)], indexing="ij")
    oriented = (torch.cos(1.5 * (x + 0.5 * y)) * torch.exp(-(x**2 + y**2) / 5)).reshape(-1)
    return {
        "polynomial of the Laplacian": spectral.polynomial_filter(impulse, lap, [1.0, -3.0, 2.5, -0.6]).view(
            side, side
        ),
        "diffusion": spectral.diffusion_filter(impulse, spectral.adjacency(lattice), [0.0, 1.0, 1.0]).view(side, side),
        "graph convolution": functional.shared_conv(impulse, wide, oriented).view(side, side),
    }


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("filters.png"))
    output = parser.parse_args().output
    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
    for axis, (name, y) in zip(axes, responses().items(), strict=True):
        top = float(y.abs().max())
        axis.imshow(y, cmap="RdBu_r", vmin=-top, vmax=top)
        axis.set_title(name, fontsize=10)
        axis.set_axis_off()
    figure.savefig(output, dpi=110)
    print(f"wrote {output}")


if __name__ == "__main__":
    main()
