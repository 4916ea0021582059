"""Who trains a model together: one process alone, or several that each take a share of every batch.

All of a group draw the same steps from the same seed, hold the same parameters, and add up their gradients before every step of
the same optimiser: each then takes the very step that one process would have taken, but for the order in which floats are
added, and dropout.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn

from fedlingua.common.errors import RunError

T = TypeVar("T")
Sums = tuple[float | Tensor, int, int]
"""(nll_sum, predicted tokens, examples) of one batch; on a GPU the first is a number there, float64."""
AT_ONCE = 2**24
"""Numbers that are added up in one message, 64 MiB: more would only take memory."""


class ProcessGroup:
    """One process alone: takes all of every batch, and has nobody to add up with. rank: of this process, from 0."""

    rank, size = 0, 1

    def share(self, batch: Sequence[T]) -> Sequence[T]:
        """Take this process's part of a batch: every size-th example, since neighbours are of like length. May be empty."""
        return batch[self.rank :: self.size]

    def add_up(self, parameters: Sequence[nn.Parameter], sums: list[Sums]) -> list[Sums]:
        """Replace this process's gradient by the whole group's; return the sums of a step over the whole group."""
        return sums


ALONE = ProcessGroup()


class DistributedGroup(ProcessGroup):
    """This process and the others of its group, through torch.distributed: NCCL between GPUs, gloo between CPUs.

    Gradients are added up here rather than by DistributedDataParallel (which accelerate's `prepare` wraps a model in): that
    averages what every process has averaged over its own tokens already, and waits for layers that a process without a share
    of a batch has not gone through.
    """

    def __init__(self, rank: int, size: int, meeting: Path, device: str) -> None:
        """Meet the others. meeting: a file that is not there yet; no port is taken for it, so none can be."""
        self.rank, self.size, self.device = rank, size, torch.device("cpu")
        if device == "cuda":
            from accelerate.utils import check_cuda_p2p_ib_support

            self.device = torch.device("cuda", rank)
            torch.cuda.set_device(rank)
            if not check_cuda_p2p_ib_support():  # some GPUs cannot reach each other's memory; as `accelerate launch` has it
                os.environ |= {"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1"}
        store = distributed.FileStore(str(meeting), size)  # type: ignore[attr-defined]  # it is documented there
        backend = "nccl" if device == "cuda" else "gloo"
        distributed.init_process_group(backend, store=store, rank=rank, world_size=size)

    def add_up(self, parameters: Sequence[nn.Parameter], sums: list[Sums]) -> list[Sums]:
        """Add gradients in float32, counts in float64.

        A parameter that no process has a gradient for is left without, as one process alone would leave it.
        """
        totals = [sum(column) for column in zip((0.0, 0, 0), *sums, strict=True)]
        own = [float(parameter.grad is not None) for parameter in parameters]
        summed = self._sum(torch.tensor([*own, *totals], dtype=torch.float64, device=self.device)).tolist()
        for group in _groups([parameter for parameter, number in zip(parameters, summed, strict=False) if number]):
            ends = [0]
            for parameter in group:
                ends.append(ends[-1] + parameter.numel())
            gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in group]
            total = self._sum(torch.cat([gradient.float().flatten() for gradient in gradients]))
            for parameter, (first, last) in zip(group, pairwise(ends), strict=True):
                parameter.grad = total[first:last].view_as(parameter).to(parameter.dtype)
        nll, tokens, examples = summed[len(parameters) :]
        return [(nll, int(tokens), int(examples))]

    def check_alike(self, digest: int) -> None:
        """Refuse a training after which not all hold the same. digest: of what this process holds, 48 bits.

        Raises:
            RunError: They differ.
        """
        digests = self._sum(torch.zeros(self.size, dtype=torch.int64, device=self.device).index_fill_(0, self._place, digest))
        if len(set(digests.tolist())) > 1:
            raise RunError("the processes that train together hold different tensors; give processes = 1, and report this")

    @property
    def _place(self) -> Tensor:
        return torch.tensor([self.rank], device=self.device)

    def _sum(self, own: Tensor) -> Tensor:
        distributed.all_reduce(own)
        return own


def _groups(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Cut parameters into groups of up to AT_ONCE numbers, or of one parameter that has more."""
    group: list[nn.Parameter] = []
    for parameter in parameters:
        if group and sum(other.numel() for other in group) + parameter.numel() > AT_ONCE:
            yield group
            group = []
        group.append(parameter)
    if group:
        yield group
