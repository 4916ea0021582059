"""How a large model's step is cut by itself: what decides, that the cut is the cheapest, and that the step stays what it is."""

import dataclasses
import random
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
import torch

from fedlingua.backbones.bottleneck import AdapterConfig, attach_adapters
from fedlingua.backbones.load import Backbone
from fedlingua.exchange.tensor_sets import read_tensors, tensor_set, write_tensors
from fedlingua.exchange.tensors import Tensors
from fedlingua.settings.config import Settings
from fedlingua.training import pieces
from fedlingua.training.loop import train_locally
from fedlingua.training.pieces import tokens_at_once
from fedlingua.training.translation import PairExample

HOW = Settings(batch_size=8, accumulation=1, local_epochs=1, learning_rate=0.5, whole_steps=False, optimizer="sgd")
NEVER = dataclasses.replace(HOW, micro_tokens=-1, head_chunk=-1)


def padded(lengths: list[int], runs: list[slice], cost: int) -> int:
    return sum(max(lengths[run]) * len(lengths[run]) + cost for run in runs)


@pytest.mark.parametrize("cost", [1, 6, 40])
@pytest.mark.parametrize("ordered", [True, False])
def test_no_other_cut_is_cheaper(cost: int, ordered: bool) -> None:
    drawn = random.Random(cost)
    for number in range(1, 9):
        lengths = drawn.choices(range(3, 30), k=number)
        lengths = sorted(lengths) if ordered else lengths
        runs = list(pieces.cut(lengths, cost))
        assert [length for run in runs for length in lengths[run]] == lengths
        every = (
            [slice(*ends) for ends in pairwise((0, *inner, number))]
            for count in range(number)
            for inner in combinations(range(1, number), count)
        )
        assert padded(lengths, runs, cost) == min(padded(lengths, other, cost) for other in every)


def test_what_saves_no_padding_is_not_cut() -> None:
    assert list(pieces.cut([7] * 5, 1)) == [slice(0, 5)]
    assert list(pieces.cut([7, 7, 30, 30], 32)) == [slice(0, 2), slice(2, 4)]
    assert list(pieces.cut([7, 7, 30, 30], 50)) == [slice(0, 4)]
    assert list(pieces.cut([], 1)) == []


def test_the_models_size_its_device_and_the_key_decide() -> None:
    large, cost = pieces.LARGE_MODEL, pieces.PASS_TOKENS
    decided = [pieces.pass_tokens(*given) for given in ((0, large, "cpu"), (0, large - 1, "cpu"), (0, large, "cuda"))]
    assert decided == [cost, 0, 0]
    assert [pieces.pass_tokens(asked, large, "cpu") for asked in (-1, 500)] == [0, 0]
    head = pieces.LARGE_HEAD
    given = [(0, head, True, "cpu"), (0, head - 1, True, "cpu"), (0, head, False, "cpu"), (0, head, True, "cuda")]
    assert [pieces.chunk_size(*each) for each in given] == [pieces.CHUNK["cpu"], 0, 0, pieces.CHUNK["cuda"]]
    assert [pieces.chunk_size(asked, head, True, "cpu") for asked in (-1, 64)] == [0, 64]


class Site:
    """A small backbone with adapters that trains from the same tensors as often as it is asked to; passes: sentences of each."""

    def __init__(self, backbone: Backbone, examples: list[PairExample]) -> None:
        self.model, self.codec, self.examples = backbone.model, backbone.codec, examples
        attach_adapters(self.model, AdapterConfig(4), seed=1)
        self.set = tensor_set(self.model, "adapters")
        self.initial = read_tensors(self.model, self.set)
        self.passes: list[int] = []
        self.model.model.encoder.register_forward_pre_hook(self.note, with_kwargs=True)

    def note(self, _: Any, positional: Any, named: dict[str, Any]) -> None:
        self.passes.append(len(named["input_ids"]))

    def trained(self, how: Settings) -> Tensors:
        write_tensors(self.model, self.initial)
        self.passes = []
        self.result = train_locally(self.model, self.set.names, [self.examples], self.codec, how, "2022/site/1")
        return read_tensors(self.model, self.set)


@pytest.fixture
def site(backbone: Backbone, examples: list[PairExample]) -> Site:
    torch.set_num_threads(1)
    return Site(backbone, examples)


@pytest.fixture
def as_if_large(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LARGE_MODEL": 1, "LARGE_HEAD": 1, "CHUNK": {"cpu": 7}, "PASS_TOKENS": 4}.items():
        monkeypatch.setattr(pieces, name, value)


def test_a_small_models_tensors_are_those_of_steps_that_are_never_cut(site: Site) -> None:
    """With dropout, and bit for bit."""
    default, passes = site.trained(HOW), site.passes
    never = site.trained(NEVER)
    assert passes == site.passes == [8, 8, 5]
    assert {name: array.tobytes() for name, array in default.items()} == {name: array.tobytes() for name, array in never.items()}


@pytest.mark.usefixtures("as_if_large")
def test_a_large_models_step_is_the_same_in_more_passes(site: Site) -> None:
    for module in site.model.modules():
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
    default, passes, result = site.trained(HOW), site.passes, site.result
    never = site.trained(NEVER)
    assert len(passes) > len(site.passes) == 3
    assert (sum(passes), result.steps, result.num_tokens) == (21, 3, site.result.num_tokens)
    assert result.nll_sum == pytest.approx(site.result.nll_sum, rel=1e-5)
    for name in default:
        np.testing.assert_allclose(default[name], never[name], rtol=0, atol=1e-5)
    assert any(np.abs(never[name] - site.initial[name]).max() > 1e-3 for name in never)


@pytest.mark.usefixtures("as_if_large")
def test_the_seed_decides_a_large_models_bytes_too(site: Site) -> None:
    first, again = site.trained(HOW), site.trained(HOW)
    assert {name: array.tobytes() for name, array in first.items()} == {name: array.tobytes() for name, array in again.items()}
    assert any(
        array.tobytes() != first[name].tobytes() for name, array in site.trained(NEVER).items()
    )  # dropout is drawn by pass


@pytest.mark.parametrize(
    ("device", "vocabulary", "wanted"),
    [
        ("cpu", 250_000, 3000),
        ("cuda", 8000, 48_000),
        ("cuda", 0, 48_000),
        ("cuda", 64_000, 2**29 // 64_000),
        ("cuda", 250_000, 3000),
    ],
)
def test_a_gpu_takes_more_tokens_at_once_while_their_scores_fit(device: str, vocabulary: int, wanted: int) -> None:
    assert tokens_at_once(3000, device, vocabulary) == wanted
