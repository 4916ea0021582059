"""What a group of processes shares and adds up: here with one other, which brings the same or nothing."""

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedlingua.common.errors import RunError
from fedlingua.training import process_group
from fedlingua.training.process_group import ALONE, DistributedGroup, ProcessGroup


class OneOf(ProcessGroup):
    """A process that adds nothing up."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("examples", [0, 1, 5, 16])
def test_shares_are_the_batch_and_as_many_as_can_be_alike(size: int, examples: int) -> None:
    batch = random.Random(1).sample(range(100), examples)
    shares = [OneOf(rank, size).share(batch) for rank in range(size)]
    assert sorted(example for share in shares for example in share) == sorted(batch)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_one_process_alone_takes_all_and_leaves_the_sums() -> None:
    assert ALONE.share([3, 1, 2]) == [3, 1, 2]
    assert ALONE.add_up([], [(1.5, 2, 1), (0.5, 1, 1)]) == [(1.5, 2, 1), (0.5, 1, 1)]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of every message how many numbers it has; another process brings the same of everything."""
    sizes: list[int] = []

    def all_reduce(own: Tensor) -> None:
        sizes.append(own.numel())
        own *= 2

    monkeypatch.setattr(process_group.distributed, "all_reduce", all_reduce)
    return sizes


@pytest.fixture
def group() -> Any:
    made = DistributedGroup.__new__(DistributedGroup)
    made.rank, made.size, made.device = 0, 2, torch.device("cpu")
    return made


def parameters() -> list[nn.Parameter]:
    """With gradients 1, 2, none, in shapes of their own."""
    made = [nn.Parameter(torch.zeros(2, 3)), nn.Parameter(torch.zeros(4, dtype=torch.bfloat16)), nn.Parameter(torch.zeros(5))]
    for number, parameter in enumerate(made[:2], start=1):
        parameter.grad = torch.full_like(parameter, number)
    return made


def test_gradients_and_sums_are_those_of_all(group: Any, sent: list[int]) -> None:
    first, second, third = parameters()
    assert group.add_up([first, second, third], [(1.5, 4, 2), (0.25, 1, 1)]) == [(3.5, 10, 6)]
    assert first.grad is not None
    assert second.grad is not None
    assert torch.equal(first.grad, torch.full((2, 3), 2.0))
    assert torch.equal(second.grad, torch.full((4,), 4.0, dtype=torch.bfloat16))
    assert third.grad is None  # nobody's: an optimizer leaves it alone
    assert group.add_up([], []) == [(0.0, 0, 0)]


def test_a_process_without_a_share_takes_what_the_others_bring(group: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    brought = iter([torch.tensor([1.0, 2.5, 3.0, 1.0]), torch.arange(6.0)])
    monkeypatch.setattr(process_group.distributed, "all_reduce", lambda own: own.add_(next(brought).to(own)))
    parameter = nn.Parameter(torch.zeros(2, 3))
    assert group.add_up([parameter], []) == [(2.5, 3, 1)]
    assert parameter.grad is not None
    assert torch.equal(parameter.grad, torch.arange(6.0).view(2, 3))


def test_large_gradients_go_in_parts(group: Any, sent: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_group, "AT_ONCE", 9)
    group.add_up(parameters()[:2], [])
    assert sent == [2 + 3, 6, 4]


def test_processes_that_hold_different_tensors_are_refused(group: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for theirs, alike in ((7, True), (8, False)):
        monkeypatch.setattr(
            process_group.distributed, "all_reduce", lambda own, theirs=theirs: own.add_(torch.tensor([0, theirs]))
        )
        if alike:
            group.check_alike(7)
        else:
            with pytest.raises(RunError, match="hold different tensors; give processes = 1"):
                group.check_alike(7)
