"""The paper's style transfer in plain PyTorch, equation by equation: the yardstick for speed and for correctness.

Nothing here uses the library: neighbours by comparing everything with everything, patches by `x[neighbors]`,
gradients by autograd, L-BFGS with the two-loop recursion.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad, unfold

Losses = list[list[float]]


def plain_style_transfer(
    photo: Tensor,
    painting: Tensor,
    *,
    sides: list[int],
    iterations: int,
    tv: float = 0.01,
    seed: int = 0,
    graphs: dict[tuple[str, int], tuple[Tensor, Tensor]] | None = None,
    drawn: torch.dtype | None = None,
) -> tuple[Tensor, Losses, dict[str, float]]:
    """Section 3 for square images (n, n, 3) in Lab: the result in Lab, the losses of each level, seconds by phase.

    `graphs` keeps the non-local graphs from one call to the next: finding them takes most of a short run. Random
    numbers are rounded to `drawn`, so that a run in float64 can have the networks and the noise of one in float32.
    """

    def draw(*shape: int) -> Tensor:
        return _draw(shape, generator).to(drawn or photo.dtype).to(photo)

    kept = {} if graphs is None else graphs
    generator = torch.Generator().manual_seed(seed)
    h1, b1, h2, b2 = draw(25, 3, 50), draw(50), draw(25, 3, 50), draw(50)
    noise = draw(sides[0] ** 2, 3)
    pixels = painting.reshape(-1, 3) / 100
    x = pixels.mean(0) + noise * pixels.std(0)
    losses, seconds = [], {"graph": 0.0, "minimise": 0.0}
    for level, side in enumerate(sides):
        began = time.perf_counter()
        target, source = _scaled(photo, side), _scaled(painting, side)
        grid = local_neighbors(side, 5).to(photo.device)
        for name, image in (("photo", target), ("painting", source)):
            if (name, side) not in kept:
                kept[name, side] = nonlocal_neighbors(image)
        (near_t, w_t), (near_s, w_s) = kept["photo", side], kept["painting", side]
        seconds["graph"] += time.perf_counter() - began
        began = time.perf_counter()
        x_s = source.reshape(-1, 3) / 100
        g1, g2 = gram(maps(x_s, grid, None, h1, b1)), gram(maps(x_s, near_s, w_s, h2, b2))
        if level:
            x = _scaled(x.view(sides[level - 1], sides[level - 1], 3), side).reshape(-1, 3)

        def term1(x: Tensor, g1: Tensor = g1, grid: Tensor = grid) -> Tensor:
            return (gram(maps(x, grid, None, h1, b1)) - g1).square().sum()

        def term2(x: Tensor, g2: Tensor = g2, near: Tensor = near_t, w: Tensor = w_t) -> Tensor:
            return (gram(maps(x, near, w, h2, b2)) - g2).square().sum()

        if level == 0:  # the first iteration of the whole run
            gamma1, gamma2 = (1 / float(_gradient(term, x)[1].abs().max()) for term in (term1, term2))

        def total(x: Tensor, side: int = side, t1: Callable[[Tensor], Tensor] = term1,
                  t2: Callable[[Tensor], Tensor] = term2, y1: float = gamma1, y2: float = gamma2) -> Tensor:  # fmt: skip
            image = x.view(side, side, 3)
            variation = (image[1:] - image[:-1]).abs().sum() + (image[:, 1:] - image[:, :-1]).abs().sum()
            return y1 * t1(x) + y2 * t2(x) + tv * variation

        x, found = plain_lbfgs(total, x, iterations)
        losses.append(found)
        seconds["minimise"] += time.perf_counter() - began
    return x.view(sides[-1], sides[-1], 3) * 100, losses, seconds


def maps(x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, bias: Tensor) -> Tensor:
    """Equations 5 to 7: `F = max(0, sum_(l, c) g_il x[j_l, c] h[l, c, m] + b_m)`, x (n, c) -> (n, m)."""
    patches = x[neighbors]
    if weights is not None:
        patches = patches * weights.unsqueeze(-1)
    return torch.relu(patches.flatten(1) @ filters.flatten(0, 1) + bias)


def gram(f: Tensor) -> Tensor:
    """`F'F`."""
    return f.T @ f


def local_neighbors(side: int, size: int) -> Tensor:
    """Return the `size x size` neighbours of each pixel in raster order, reflected at the border: (n, size^2)."""
    index = torch.arange(side * side, dtype=torch.float64).view(1, 1, side, side)
    half = size // 2
    return unfold(pad(index, (half,) * 4, mode="reflect"), size)[0].T.round().long()


def nonlocal_neighbors(lab: Tensor) -> tuple[Tensor, Tensor]:
    """Return the 25 nearest of the features (27 Lab values of the 3x3 patch, 2 coordinates), and the weights of equation 8."""
    side = lab.shape[0]
    n = side * side
    patches = unfold(pad(lab.permute(2, 0, 1).unsqueeze(0), (1,) * 4, mode="reflect"), 3)[0].T
    line = torch.arange(side, device=lab.device)
    places = torch.stack(torch.meshgrid(line, line, indexing="ij"), -1).reshape(n, 2)
    features = torch.cat([patches, places.to(lab)], 1)
    features = features - features.mean(0)
    norms = features.square().sum(1)
    near, distances = torch.empty(n, 25, dtype=torch.long, device=lab.device), lab.new_empty(n, 25)
    for start in range(0, n, 1024):
        rows = torch.arange(start, min(n, start + 1024), device=lab.device)
        rough = norms[rows].unsqueeze(1) - 2 * features[rows] @ features.T + norms
        rough[rows - start, rows] = -1
        some = rough.topk(40, dim=1, largest=False).indices.sort(1).values  # ranked again, without rounding errors
        exact = (features[some] - features[rows].unsqueeze(1)).square().sum(2).sqrt()
        exact[some == rows.unsqueeze(1)] = -1  # the pixel itself comes before its exact copies
        distances[rows], order = (part[:, :25] for part in exact.sort(dim=1, stable=True))
        near[rows] = some.gather(1, order)
    distances = distances.clamp(min=0)
    ordered = distances.flatten().sort().values
    cap, sigma = (_percentile(ordered, q) for q in (0.80, 0.75))
    weights = torch.exp(-(distances.clamp(max=float(cap)) / sigma).square())
    return near, weights * (25 / weights.sum(1, keepdim=True))


def plain_lbfgs(objective: Callable[[Tensor], Tensor], x: Tensor, iterations: int) -> tuple[Tensor, list[float]]:
    """L-BFGS with 10 pairs, the two-loop recursion, and backtracking by safeguarded parabolas."""
    value, gradient = _gradient(objective, x)
    pairs: list[tuple[Tensor, Tensor]] = []
    losses = [value]
    for _ in range(iterations):
        q, alphas = -gradient, []
        for s, y in reversed(pairs):
            alphas.append((s * q).sum() / (s * y).sum())
            q = q - alphas[-1] * y
        if pairs:
            q = q * (pairs[-1][0] * pairs[-1][1]).sum() / pairs[-1][1].square().sum()
        for (s, y), alpha in zip(pairs, reversed(alphas), strict=True):
            q = q + (alpha - (y * q).sum() / (s * y).sum()) * s
        slope = float((gradient * q).sum())
        step = 1.0 if pairs else 0.01 / float(gradient.abs().max())
        while True:
            trial = x + step * q
            new, new_gradient = _gradient(objective, trial)
            if new <= value + 1e-4 * step * slope:
                break
            excess = new - value - step * slope
            step = min(max(-slope * step * step / (2 * excess), 0.1 * step), 0.5 * step)
            if step < 1e-15:
                return x, losses
        s, y = trial - x, new_gradient - gradient
        if (s * y).sum() > 1e-10 * y.square().sum():
            pairs = [*pairs, (s, y)][-10:]
        x, value, gradient = trial, new, new_gradient
        losses.append(value)
    return x, losses


def _gradient(objective: Callable[[Tensor], Tensor], x: Tensor) -> tuple[float, Tensor]:
    x = x.detach().requires_grad_(True)
    value = objective(x)
    value.backward()
    assert x.grad is not None
    return float(value.detach()), x.grad


def _draw(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _scaled(image: Tensor, side: int) -> Tensor:
    if image.shape[0] == side:
        return image
    smaller = side < image.shape[0]
    planes = image.permute(2, 0, 1).unsqueeze(0)
    mode = "bilinear" if smaller else "bicubic"
    return interpolate(planes, size=(side, side), mode=mode, antialias=smaller)[0].permute(1, 2, 0)


def _percentile(ordered: Tensor, q: float) -> Tensor:
    place = (len(ordered) - 1) * q
    low = int(place)
    return torch.lerp(ordered[low], ordered[min(low + 1, len(ordered) - 1)], place - low)
