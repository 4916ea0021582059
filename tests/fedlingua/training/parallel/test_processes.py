"""What a process adds up with the others of its crew: here with one other, which brings the same or nothing."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedlingua.training.parallel import processes
from fedlingua.training.parallel.processes import Processes


class Twin:
    """Accelerate's part, with another process that has the same of everything."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.sent: list[int] = []

    def reduce(self, own: Tensor, reduction: str) -> Tensor:
        assert reduction == "sum"
        self.sent.append(own.numel())
        return 2 * own


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Processes.__new__(Processes)
    made._accelerator = Twin()
    return made


def parameters() -> list[nn.Parameter]:
    """With gradients 1, 2, none, in shapes of their own."""
    found = [nn.Parameter(torch.zeros(2, 3)), nn.Parameter(torch.zeros(4, dtype=torch.bfloat16)), nn.Parameter(torch.zeros(5))]
    for number, one in enumerate(found[:2], start=1):
        one.grad = torch.full_like(one, number)
    return found


def test_gradients_and_sums_are_those_of_all(crew: Any) -> None:
    first, second, third = parameters()
    assert crew.add_up([first, second, third], [(1.5, 4, 2), (0.25, 1, 1)]) == [(3.5, 10, 6)]
    assert torch.equal(first.grad, torch.full((2, 3), 2.0))
    assert torch.equal(second.grad, torch.full((4,), 4.0, dtype=torch.bfloat16))
    assert third.grad is None  # nobody's: an optimiser leaves it alone
    assert crew.add_up([], []) == [(0.0, 0, 0)]


def test_one_without_a_share_takes_what_the_others_bring(crew: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    brought = iter([torch.tensor([1.0, 2.5, 3.0, 1.0]), torch.arange(6.0)])
    monkeypatch.setattr(crew._accelerator, "reduce", lambda own, reduction: own + next(brought).to(own))
    one = nn.Parameter(torch.zeros(2, 3))
    assert crew.add_up([one], []) == [(2.5, 3, 1)]
    assert one.grad is not None
    assert torch.equal(one.grad, torch.arange(6.0).view(2, 3))


def test_large_gradients_go_in_parts(crew: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "AT_ONCE", 9)
    crew.add_up(parameters()[:2], [])
    assert crew._accelerator.sent == [2 + 3, 6, 4]
