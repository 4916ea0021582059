"""A crew of processes that meet through torch.distributed, with Hugging Face's accelerate: NCCL between GPUs, gloo between CPUs."""

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import check_cuda_p2p_ib_support
from torch import Tensor, distributed, nn

from fedlingua.common.errors import RunError
from fedlingua.training.crew import Crew, Sums

AT_ONCE = 2**24
"""Numbers that are added up in one message, 64 MiB: more would only take memory."""


class Processes(Crew):
    """This process and the others of its crew, told by RANK and WORLD_SIZE as `accelerate launch` tells them.

    Gradients are added up here rather than by DistributedDataParallel, which averages what every process has averaged over its own tokens
    already, and waits for layers that a process without a share of a batch has not gone through.
    """

    def __init__(self, meeting: Path, device: str) -> None:
        """meeting: a file that is not there yet, in which the processes find each other; no port is taken, so none can be."""
        self.number, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if device == "cuda":
            torch.cuda.set_device(self.number)
            if not check_cuda_p2p_ib_support():  # some GPUs cannot reach each other's memory; as `accelerate launch` has it
                os.environ |= {"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1"}
        store = distributed.FileStore(str(meeting), self.size)  # type: ignore[attr-defined]  # it is documented there
        backend = "nccl" if device == "cuda" else "gloo"
        distributed.init_process_group(backend, store=store, rank=self.number, world_size=self.size)
        self._accelerator = Accelerator(cpu=device == "cpu", mixed_precision="no")  # our own loop casts

    def add_up(self, parameters: Sequence[nn.Parameter], sums: list[Sums]) -> list[Sums]:
        """In float32 each, counted in float64. A parameter that no process has a gradient for is left without, as one process alone would
        leave it.
        """
        totals = [sum(column) for column in zip((0.0, 0, 0), *sums, strict=True)]
        have = [float(one.grad is not None) for one in parameters]
        told = self._sum(torch.tensor([*have, *totals], dtype=torch.float64, device=self._accelerator.device)).tolist()
        having = [one for one, number in zip(parameters, told, strict=False) if number]
        for group in _groups(having):
            ends = [0]
            for one in group:
                ends.append(ends[-1] + one.numel())
            own = [torch.zeros_like(one) if one.grad is None else one.grad for one in group]
            total = self._sum(torch.cat([grad.float().flatten() for grad in own]))
            for one, (first, last) in zip(group, pairwise(ends), strict=True):
                one.grad = total[first:last].view_as(one).to(one.dtype)
        nll, tokens, examples = told[len(parameters) :]
        return [(nll, int(tokens), int(examples))]

    def check_alike(self, digest: int) -> None:
        """Refuse a training after which not all hold the same. digest: of what this one holds, 48 bits.

        Raises:
            RunError: they differ.
        """
        mine = torch.tensor([digest], dtype=torch.int64, device=self._accelerator.device)
        if len(set(self._accelerator.gather(mine).tolist())) > 1:
            raise RunError("the processes that train together hold different tensors; give processes = 1, and report this")

    def end(self) -> None:
        """Once nothing more is to be added up."""
        self._accelerator.wait_for_everyone()
        self._accelerator.end_training()

    def _sum(self, own: Tensor) -> Tensor:
        total: Tensor = self._accelerator.reduce(own, reduction="sum")
        return total


def _groups(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Of up to AT_ONCE numbers, or of one parameter that has more."""
    group: list[nn.Parameter] = []
    for one in parameters:
        if group and sum(other.numel() for other in group) + one.numel() > AT_ONCE:
            yield group
            group = []
        group.append(one)
    if group:
        yield group
