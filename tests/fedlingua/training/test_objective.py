"""Losses over batches, as sums."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fedlingua.backbones.load import Backbone
from fedlingua.common.errors import RunError
from fedlingua.training.batches import pad
from fedlingua.training.head import HeadUse
from fedlingua.training.objective import corpus_nll, examples_nll
from fedlingua.training.translation import PairBatch, PairExample
from fedlingua_lab.audit.retrained import nll_of_each


@pytest.fixture
def batch(backbone: Backbone, examples: list[PairExample]) -> PairBatch:
    return pad(examples[:6], backbone.codec)


def test_sums_add_up_over_batches(backbone: Backbone, examples: list[PairExample]) -> None:
    whole = corpus_nll(backbone.model, [pad(examples, backbone.codec)])
    parts = corpus_nll(backbone.model, [pad(examples[start : start + 4], backbone.codec) for start in range(0, 21, 4)])
    assert parts[0] == pytest.approx(whole[0], rel=1e-5)
    assert parts[1] == whole[1] == sum(len(example.target) for example in examples)


def test_a_corpus_is_measured_without_dropout_and_the_mode_comes_back(backbone: Backbone, batch: PairBatch) -> None:
    model = backbone.model
    wanted = corpus_nll(model, [batch])
    model.train()
    assert float(batch.nll(model)[0].detach()) != pytest.approx(wanted[0], rel=1e-6)
    assert corpus_nll(model, [batch]) == wanted
    assert model.training
    model.eval()
    corpus_nll(model, [batch])
    assert not model.training


def test_a_loss_in_chunks_of_the_head_is_the_same(backbone: Backbone, batch: PairBatch) -> None:
    assert corpus_nll(backbone.model, [batch], HeadUse(chunk=5))[0] == pytest.approx(
        corpus_nll(backbone.model, [batch])[0], rel=1e-6
    )


def test_no_batches_are_no_loss(backbone: Backbone) -> None:
    assert corpus_nll(backbone.model, []) == (0.0, 0)


@pytest.mark.parametrize("chunk", [0, 5])
def test_the_loss_of_each_example_is_that_of_the_example_alone(
    backbone: Backbone, examples: list[PairExample], chunk: int
) -> None:
    nll, tokens = nll_of_each(backbone.model, backbone.codec, examples, "fp32", HeadUse(chunk))
    alone = [examples_nll(backbone.model, backbone.codec, [example], "fp32") for example in examples]
    assert tokens.tolist() == [number for _, number in alone] == [example.num_targets for example in examples]
    assert nll.tolist() == pytest.approx([loss for loss, _ in alone], rel=1e-4)
    assert nll.sum() == pytest.approx(examples_nll(backbone.model, backbone.codec, examples, "fp32")[0], rel=1e-6)


def of_small_batches(measure: Callable[..., Any], most: int) -> Callable[..., Any]:
    def measured(batch: PairBatch, *how: Any) -> Any:
        if len(batch.labels) > most:
            raise torch.OutOfMemoryError
        return measure(batch, *how)

    return measured


@pytest.mark.parametrize("most", [2, 0])
def test_a_batch_that_does_not_fit_into_memory_is_halved(
    backbone: Backbone, examples: list[PairExample], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, codec = backbone.model.train(), backbone.codec
    at_once, of_each = examples_nll(model, codec, examples, "fp32"), nll_of_each(model, codec, examples, "fp32")
    for name in ("nll", "token_nlls"):
        monkeypatch.setattr(PairBatch, name, of_small_batches(getattr(PairBatch, name), most))
    model.train()
    for measure, wanted in ((examples_nll, at_once), (nll_of_each, of_each)):
        if most:
            for made, all_at_once in zip(measure(model, codec, examples, "fp32"), wanted, strict=True):
                assert made == pytest.approx(all_at_once, rel=1e-5)
        else:
            with pytest.raises(RunError, match="out of memory with a single example; give smaller max-tokens"):
                measure(model, codec, examples, "fp32")
