"""Several processes that train one model: what `torchrun` started, or this process alone.

All processes have the same parameters. Each computes its part of every batch, and the gradients are averaged
(DistributedDataParallel). So the result does not depend on the number of processes, up to the rounding of sums.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed
from torch import Tensor, nn

from glocal.errors import ArgumentError

Value = TypeVar("Value")


@dataclass(frozen=True)
class Ranks:
    """The number of this process and of all processes.

    >>> Ranks(1, 2).share(4)
    range(1, 4, 2)
    """

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and messages."""
        return self.rank == 0

    def share(self, batch: int) -> range:
        """Return the examples of a batch that this process computes.

        Raises
        ------
        ArgumentError
            The processes cannot have equal parts.
        """
        if batch % self.count:
            message = (
                f"train: `batch` (={batch}) must be a multiple of the number of processes (={self.count}). "
                f"Use --batch {-(-batch // self.count) * self.count}."
            )
            raise ArgumentError(message)
        return range(self.rank, batch, self.count)

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean of a value over all processes."""
        if self.count == 1:
            return value
        total = value.detach().clone()
        torch.distributed.all_reduce(total)
        return total / self.count

    def agreed(self, answer: bool, device: torch.device) -> bool:
        """Return the answer of the first process in all of them."""
        if self.count == 1:
            return answer
        shared = torch.tensor([float(answer)], device=device)
        torch.distributed.broadcast(shared, src=0)
        return bool(shared.item())

    def gathered(self, values: list[Value]) -> list[Value]:
        """Return the values of all processes: value `k` of process `r` becomes number `k count + r`.

        If each process reads the files `rank, rank + count, ...` of a list, all of them get the whole list in its order.
        """
        if self.count == 1:
            return values
        parts: list[Any] = [None] * self.count
        torch.distributed.all_gather_object(parts, values)
        return [part[place] for place in range(len(parts[0])) for part in parts if place < len(part)]

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.count > 1:
            torch.distributed.barrier()

    def together(self, model: nn.Module, loss: Callable[[int], Tensor]) -> Callable[[int], Tensor]:
        """Return `loss` such that its gradients with respect to the parameters of `model` are those of all processes."""
        if self.count == 1:
            return loss
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(_Loss(model, loss), broadcast_buffers=False)


ALONE = Ranks()


class _Loss(nn.Module):
    """A loss as a module: DistributedDataParallel averages the gradients of what its forward computes."""

    def __init__(self, model: nn.Module, loss: Callable[[int], Tensor]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, step: int) -> Tensor:
        return self.loss(step)


def local_device(device: str) -> str:
    """Return the GPU of this process if `torchrun` started several on a machine.

    >>> local_device("cpu")
    'cpu'
    """
    local = os.environ.get("LOCAL_RANK")
    return f"cuda:{local}" if device == "cuda" and local is not None else device


@contextlib.contextmanager
def joined(device: str = "cpu") -> Iterator[Ranks]:
    """Join the processes that `torchrun` started; without it, this process is alone.

    >>> with joined() as ranks:
    ...     ranks.count
    1
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Ranks()
        return
    mine = not torch.distributed.is_initialized()
    if mine:
        if device.startswith("cuda"):
            torch.cuda.set_device(device)
        torch.distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    try:
        yield Ranks(torch.distributed.get_rank(), torch.distributed.get_world_size())
    finally:
        if mine:
            torch.distributed.destroy_process_group()
