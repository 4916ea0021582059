"""A step's gradient is that of its mean loss, also where memory is too short for its batches; against models that run out at a size."""

import random

import pytest
import torch
from torch import Tensor

from fedlingua.backbones.load import Backbone
from fedlingua.common.errors import RunError
from fedlingua.settings.config import Settings
from fedlingua.training.accumulate import StepGradient
from fedlingua.training.batches import pad
from fedlingua.training.translation import PairExample


def memory_for(backbone: Backbone, most: int) -> list[int]:
    """A device on which the decoder's last layer runs out above so many sentences; how many it is asked for each time is kept."""
    seen: list[int] = []

    def before(_: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen.append(len(inputs[0]))
        if seen[-1] > most:
            raise torch.OutOfMemoryError("CUDA out of memory")

    backbone.model.model.decoder.layers[1].register_forward_pre_hook(before)
    return seen


@pytest.fixture
def step() -> list[list[PairExample]]:
    """Batches of 6, 6 and 3; all sources have 5 tokens, and targets from 2 to 4."""
    drawn = random.Random(3)
    examples = [PairExample(drawn.choices(range(10, 90), k=5), drawn.choices(range(10, 90), k=2 + n % 3)) for n in range(15)]
    return [examples[:6], examples[6:12], examples[12:]]


@pytest.fixture
def trained(backbone: Backbone) -> Backbone:
    for name, parameter in backbone.model.named_parameters():
        parameter.requires_grad_(".layers." in name)
    return backbone


def gradients(backbone: Backbone) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in backbone.model.named_parameters() if p.grad is not None}


@pytest.fixture
def wanted(trained: Backbone, step: list[list[PairExample]]) -> dict[str, Tensor]:
    """Of the mean over the tokens of all three batches, in one."""
    nll, tokens = pad([one for batch in step for one in batch], trained.codec).nll(trained.model)
    (nll / tokens).backward()
    found = gradients(trained)
    trained.model.zero_grad(set_to_none=True)
    return found


def assert_same(got: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert got.keys() == wanted.keys()
    assert len(got) > 20
    for name in wanted:
        torch.testing.assert_close(got[name], wanted[name], rtol=1e-4, atol=1e-6)


def test_a_steps_gradient_is_of_the_mean_over_all_its_tokens(
    trained: Backbone, step: list[list[PairExample]], wanted: dict[str, Tensor]
) -> None:
    sums = StepGradient(trained.model, trained.codec, Settings())(step)
    assert_same(gradients(trained), wanted)
    assert [examples for _, _, examples in sums] == [6, 6, 3]
    assert [tokens for _, tokens, _ in sums] == [sum(len(one.target) for one in batch) for batch in step]


@pytest.mark.parametrize(
    ("most", "seen", "again"),
    [(6, [6, 6, 3], [6, 6, 3]), (4, [6, 3, 3, 3, 3, 3], [3, 3, 3, 3, 3]), (2, [6, 3, *[2] * 7, 1], [*[2] * 7, 1])],
)
def test_a_batch_that_does_not_fit_is_halved_and_the_step_is_the_same(
    trained: Backbone, step: list[list[PairExample]], wanted: dict[str, Tensor], most: int, seen: list[int], again: list[int]
) -> None:
    """And what fitted is remembered for the steps that follow."""
    asked = memory_for(trained, most)
    add = StepGradient(trained.model, trained.codec, Settings())
    for of_step in (seen, again):
        sums = add(step)
        assert sorted(asked, reverse=True) == of_step
        assert sum(examples for *_, examples in sums) == 15
        assert_same(gradients(trained), wanted)
        trained.model.zero_grad(set_to_none=True)
        asked.clear()


def test_memory_that_was_short_is_reckoned_in_padded_tokens(trained: Backbone) -> None:
    """Four of 10 tokens did not fit: from then on two of 10, or five of 4."""
    add = StepGradient(trained.model, trained.codec, Settings())
    asked = memory_for(trained, 3)
    add([[PairExample([10] * 10, [11, 2])] * 4])
    assert (asked, add.most_tokens) == ([4, 2, 2], 20)
    asked.clear()
    add([[PairExample([10] * 4, [11, 2])] * 6])
    assert asked == [5, 3, 3]


def test_what_a_failed_pass_had_added_already_does_not_count_twice(
    trained: Backbone, step: list[list[PairExample]], wanted: dict[str, Tensor]
) -> None:
    """Memory ends on the way back, in the second batch, once the first has added all of its gradient, and the second some of its own."""
    calls = 0

    def ends(gradient: Tensor) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise torch.OutOfMemoryError("CUDA out of memory")

    first = next(p for name, p in trained.model.named_parameters() if name.startswith("model.encoder.layers.0.self_attn_layer"))
    first.register_hook(ends)
    StepGradient(trained.model, trained.codec, Settings())(step)
    assert calls > 4
    assert_same(gradients(trained), wanted)


def test_a_single_example_that_does_not_fit_is_told_with_what_would_help(
    trained: Backbone, step: list[list[PairExample]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    add = StepGradient(trained.model, trained.codec, Settings())
    monkeypatch.setattr(trained.model.model.encoder, "forward", full)
    wanted = "memory.gradient-checkpointing = true, memory.head-chunk = 64"
    with pytest.raises(RunError, match=rf"a single example of \d+ tokens; give {wanted}"):
        add(step)


def test_other_errors_are_not_taken_for_a_lack_of_memory(
    trained: Backbone, step: list[list[PairExample]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(trained.model.model.encoder, "forward", broken)
    with pytest.raises(RuntimeError, match="something else"):
        StepGradient(trained.model, trained.codec, Settings())(step)
