"""Muon for the matrices of a network and AdamW for the rest, on one flat vector of parameters.

Muon (Jordan et al. 2024) moves a matrix by the orthogonal factor of its momentum: every direction of the update has the
same length. A convolution (m, c, kh, kw) counts as a matrix (m, c kh kw). The parameters of a network are laid one after
the other, matrices of one shape together, so that a step is a few batched operations and can be recorded as one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic iteration; all singular values end between 0.7 and 1.2


def orthogonalize(matrices: Tensor, *, steps: int = 5) -> Tensor:
    """Return nearly orthogonal matrices with the singular vectors of `matrices` (g, r, c), by Newton-Schulz iteration.

    On CUDA it computes in bfloat16. Cost O(g steps min(r, c)^2 max(r, c)).

    >>> u = orthogonalize(torch.tensor([[[3.0, 0.0], [0.0, -0.1]]]))[0]
    >>> bool(u[0, 0] > 0.6 and u[1, 1] < -0.6 and u[0, 1].abs() < 1e-3)
    True
    """
    a, b, c = _COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-20)
    x = x.to(torch.bfloat16) if x.is_cuda else x
    for _ in range(steps):
        square = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    x = x.to(matrices.dtype)
    return x.transpose(1, 2) if tall else x


@dataclass(frozen=True)
class _Matrices:
    """The position of `count` matrices of one shape in the flat vector."""

    start: int
    count: int
    rows: int
    columns: int

    def of(self, flat: Tensor) -> Tensor:
        size = self.count * self.rows * self.columns
        return flat[self.start : self.start + size].view(self.count, self.rows, self.columns)


class FlatMuon:
    """The parameters of a network as one float32 vector, its moving average, and one step of Muon and AdamW.

    The network computes in `dtype`; its parameters become views of one vector of that type, which each step rounds from
    the float32 vector. Convolution filters are stored with the channels last.

    Parameters
    ----------
    net : nn.Module
        All its parameters take part. They are replaced by views.
    dtype : torch.dtype
        What the network computes in.
    plain : names of matrices that AdamW moves, such as the first and the last layer
    average : float
        Decay of the moving average of the parameters, once there were enough steps.
    matrix_decay : float
        Each step multiplies the matrices that Muon moves by `1 - matrix_decay * rate`. Without it they grow with the number of
        steps, and a step changes them less and less.

    All state is in `state()`, a dict of tensors that are changed in place.
    """

    def __init__(
        self,
        net: nn.Module,
        *,
        dtype: torch.dtype = torch.float32,
        plain: Collection[str] = (),
        average: float = 0.999,
        momentum: float = 0.95,
        decay: float = 0.01,
        matrix_decay: float = 0.0,
        clip: float = 1.0,
    ) -> None:
        self.average, self.momentum, self.decay, self.clip = average, momentum, decay, clip
        self.matrix_decay = matrix_decay
        named = dict(net.named_parameters())
        matrices = [name for name, p in named.items() if p.ndim >= 2 and name not in plain]
        matrices.sort(key=lambda name: (_rows(named[name]), named[name].numel()))  # stable: the order within stays
        rest = [name for name in named if name not in set(matrices)]
        device = next(iter(named.values())).device
        self.names = [*matrices, *rest]
        size = sum(p.numel() for p in named.values())
        self.values = torch.empty(size, device=device)
        self.used = torch.empty(size, dtype=dtype, device=device)
        self.slopes = torch.empty(size, dtype=dtype, device=device)
        self.parameters: list[nn.Parameter] = []
        self._slope_views: list[Tensor] = []
        self.groups: list[_Matrices] = []
        at = 0
        for name in self.names:
            p = named[name]
            _view(self.values, at, p).copy_(p.detach())
            if name in set(matrices):
                self._group(at, _rows(p), p.numel() // _rows(p))
            self._slope_views.append(_view(self.slopes, at, p))
            p.data = _view(self.used, at, p)
            self.parameters.append(p)
            at += p.numel()
        self.split = sum(named[name].numel() for name in matrices)
        self.used.copy_(self.values)
        self.mean = self.values.clone()
        self.first = torch.zeros_like(self.values)
        self.second = torch.zeros(size - self.split, device=device)
        self.count = torch.zeros((), device=device)

    def _group(self, start: int, rows: int, columns: int) -> None:
        last = self.groups[-1] if self.groups else None
        if last is not None and (last.rows, last.columns) == (rows, columns):
            self.groups[-1] = _Matrices(last.start, last.count + 1, rows, columns)
        else:
            self.groups.append(_Matrices(start, 1, rows, columns))

    def state(self) -> dict[str, Tensor]:
        """Return everything that a later step depends on, except its loss."""
        return {
            "values": self.values,
            "mean": self.mean,
            "first": self.first,
            "second": self.second,
            "count": self.count,
        }

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor]) -> None:
        """Put the values of a `state()` back, in place."""
        for name, value in self.state().items():
            value.copy_(state[name])
        self.used.copy_(self.values)

    @torch.no_grad()
    def use(self, values: Tensor) -> None:
        """Let the network compute with these values (`values` or `mean`) until the next step."""
        self.used.copy_(values)

    def named(self, values: Tensor) -> dict[str, Tensor]:
        """Return views of these values (`values` or `mean`), one for each parameter, with its name and shape."""
        found, at = {}, 0
        for name, parameter in zip(self.names, self.parameters, strict=True):
            found[name] = _view(values, at, parameter)
            at += parameter.numel()
        return found

    def step(self, loss: Tensor, rate: Tensor, *, mean: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Move all parameters against the gradient of `loss` by `rate` (a tensor: CUDA graphs read it again each time).

        `mean` averages the gradient over several processes.

        Returns the norm of the gradient before clipping. A gradient that is not finite counts as 0.
        """
        slopes = torch.autograd.grad(loss, self.parameters)
        with torch.no_grad():
            self._copy(slopes)
            g = self.slopes.to(torch.float32)
            g = g if mean is None else mean(g)
            norm = g.norm()
            fine = torch.isfinite(norm)
            g = torch.where(fine, g * (self.clip / norm.clamp(min=self.clip)), 0.0)
            self.count += 1
            self._muon(g[: self.split], rate)
            self._adamw(g[self.split :], rate)
            keep = torch.clamp((1 + self.count) / (10 + self.count), max=self.average)
            self.mean.lerp_(self.values, 1 - keep)
            self.used.copy_(self.values)
        return norm

    def _copy(self, slopes: Iterable[Tensor]) -> None:
        torch._foreach_copy_(self._slope_views, [s.to(self.slopes.dtype) for s in slopes])

    def _muon(self, g: Tensor, rate: Tensor) -> None:
        first = self.first[: self.split]
        first.lerp_(g, 1 - self.momentum)
        ahead = torch.lerp(g, first, self.momentum)  # Nesterov
        if self.matrix_decay:
            self.values[: self.split].mul_(1 - self.matrix_decay * rate)
        for group in self.groups:
            update = orthogonalize(group.of(ahead))
            scale = 0.2 * max(group.rows, group.columns) ** 0.5  # entries as large as AdamW's usually are
            group.of(self.values).sub_(update * (rate * scale))

    def _adamw(self, g: Tensor, rate: Tensor) -> None:
        values, first = self.values[self.split :], self.first[self.split :]
        first.lerp_(g, 0.1)
        self.second.lerp_(g.square(), 0.01)
        up = first / (1 - 0.9**self.count)
        down = (self.second / (1 - 0.99**self.count)).sqrt() + 1e-8
        values.mul_(1 - self.decay * rate).sub_(rate * up / down)


def _rows(parameter: Tensor) -> int:
    """Rows of a parameter as a matrix: convolutions are (m, c kh kw), filters of graph convolutions (taps c, m)."""
    return parameter.shape[0] * parameter.shape[1] if parameter.ndim == 3 else parameter.shape[0]


def _view(flat: Tensor, start: int, parameter: Tensor) -> Tensor:
    piece = flat[start : start + parameter.numel()]
    if parameter.ndim == 4:
        m, c, kh, kw = parameter.shape
        return piece.view(m, kh, kw, c).permute(0, 3, 1, 2)
    return piece.view(parameter.shape)
