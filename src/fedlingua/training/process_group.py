"""The processes that train a model together: one alone, or several that each take a share of every batch.

All processes of a group draw the same steps from the same seed, hold the same parameters, and sum their gradients before every
step of the same optimizer: each takes the step that one process alone would take, except for the order in which floats are
added, and dropout.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn

from fedlingua.common.errors import RunError

T = TypeVar("T")
Sums = tuple[float | Tensor, int, int]
"""(nll_sum, predicted tokens, examples) of one batch; on a GPU nll_sum is a float64 tensor there."""
AT_ONCE = 2**24
"""Numbers that are summed in one message, 64 MiB: more would only take memory."""


class ProcessGroup:
    """A group of one process, which takes all of every batch; base of larger groups. rank: of this process, from 0."""

    rank, size = 0, 1

    def share(self, batch: Sequence[T]) -> Sequence[T]:
        """Return this process's part of a batch: every size-th example, as neighbours have similar lengths. May be empty."""
        return batch[self.rank :: self.size]

    def add_up(self, parameters: Sequence[nn.Parameter], sums: list[Sums]) -> list[Sums]:
        """Replace this process's gradient by the whole group's; return the sums of a step over the whole group."""
        return sums


ALONE = ProcessGroup()


class DistributedGroup(ProcessGroup):
    """A group of several processes, connected by torch.distributed: NCCL between GPUs, gloo between CPUs.

    Gradients are summed here, not by DistributedDataParallel (in which accelerate's `prepare` wraps a model): that averages the
    averages that processes took over their own tokens, and waits for layers that a process without a share of a batch does not
    compute.
    """

    def __init__(self, rank: int, size: int, meeting: Path, device: str) -> None:
        """Connect to the other processes through the file `meeting`, which must not exist yet; it needs no free port."""
        self.rank, self.size, self.device = rank, size, torch.device("cpu")
        if device == "cuda":
            from accelerate.utils import check_cuda_p2p_ib_support

            self.device = torch.device("cuda", rank)
            torch.cuda.set_device(rank)
            if not check_cuda_p2p_ib_support():  # some GPUs cannot reach each other's memory; as in `accelerate launch`
                os.environ |= {"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1"}
        store = distributed.FileStore(str(meeting), size)  # type: ignore[attr-defined]  # it is documented there
        backend = "nccl" if device == "cuda" else "gloo"
        distributed.init_process_group(backend, store=store, rank=rank, world_size=size)

    def add_up(self, parameters: Sequence[nn.Parameter], sums: list[Sums]) -> list[Sums]:
        """Sum gradients in float32, counts in float64, over all processes.

        A parameter for which no process has a gradient keeps none, as with one process alone.
        """
        totals = [sum(column) for column in zip((0.0, 0, 0), *sums, strict=True)]
        own = [float(parameter.grad is not None) for parameter in parameters]
        summed = self._sum(torch.tensor([*own, *totals], dtype=torch.float64, device=self.device)).tolist()
        for group in _groups([parameter for parameter, number in zip(parameters, summed, strict=False) if number]):
            gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in group]
            total = self._sum(torch.cat([gradient.float().flatten() for gradient in gradients]))
            for parameter, gradient in zip(group, total.split([each.numel() for each in group]), strict=True):
                parameter.grad = gradient.view_as(parameter).to(parameter.dtype)
        nll, tokens, examples = summed[len(parameters) :]
        return [(nll, int(tokens), int(examples))]

    def check_alike(self, digest: int) -> None:
        """Raise RunError if not all processes hold the same tensors after training. digest: 48 bits, of this process's."""
        digests = torch.zeros(self.size, dtype=torch.int64, device=self.device)
        digests[self.rank] = digest
        digests = self._sum(digests)
        if len(set(digests.tolist())) > 1:
            raise RunError("the processes that train together hold different tensors; give processes = 1, and report this")

    def _sum(self, own: Tensor) -> Tensor:
        distributed.all_reduce(own)
        return own


def _groups(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Yield groups of parameters with up to AT_ONCE numbers, or of one parameter that has more."""
    group: list[nn.Parameter] = []
    for parameter in parameters:
        if group and sum(other.numel() for other in group) + parameter.numel() > AT_ONCE:
            yield group
            group = []
        group.append(parameter)
    if group:
        yield group
