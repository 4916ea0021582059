"""The loss against torch's cross-entropy over the model's own logits, in M2M-100 and in mBART with its bias."""

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from fedlingua.backbones.load import Backbone
from fedlingua.training.batches import Batch, Example, pad
from fedlingua.training.objective import corpus_nll, translation_nll
from tests.mbart import tiny_mbart


def biased_mbart(vocab_size: int) -> PreTrainedModel:
    model = tiny_mbart(vocab_size=vocab_size, scale_embedding=False)
    model.final_logits_bias.normal_(generator=torch.Generator().manual_seed(6))
    return model


@pytest.fixture(params=["m2m_100", "mbart"])
def model(request: pytest.FixtureRequest, backbone: Backbone) -> PreTrainedModel:
    return backbone.model if request.param == "m2m_100" else biased_mbart(backbone.model.config.vocab_size)


@pytest.fixture
def batch(backbone: Backbone, examples: list[Example]) -> Batch:
    return pad(examples[:6], backbone.codec)


@torch.no_grad()
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_loss_is_torchs_cross_entropy_over_all_logits(model: PreTrainedModel, batch: Batch, label_smoothing: float) -> None:
    logits = model(
        input_ids=batch.input_ids, attention_mask=batch.attention_mask, decoder_input_ids=batch.decoder_input_ids
    ).logits
    wanted = nn.functional.cross_entropy(
        logits.flatten(0, 1), batch.labels.flatten(), ignore_index=-100, reduction="sum", label_smoothing=label_smoothing
    )
    nll, num_tokens = translation_nll(model, batch, label_smoothing)
    assert float(nll) == pytest.approx(float(wanted), rel=1e-5)
    assert num_tokens == int((batch.labels != -100).sum())


@torch.no_grad()
def test_padding_does_not_change_the_loss(backbone: Backbone, examples: list[Example]) -> None:
    short = min(examples, key=lambda example: len(example.source) + len(example.target))
    long = max(examples, key=lambda example: len(example.source) + len(example.target))
    alone = [translation_nll(backbone.model, pad([example], backbone.codec)) for example in (short, long)]
    together = translation_nll(backbone.model, pad([short, long], backbone.codec))
    assert len(short.source) < len(long.source)
    assert len(short.target) < len(long.target)
    assert float(together[0]) == pytest.approx(float(alone[0][0] + alone[1][0]), rel=1e-5)
    assert together[1] == alone[0][1] + alone[1][1] == len(short.target) + len(long.target)


def test_sums_add_up_over_batches(backbone: Backbone, examples: list[Example]) -> None:
    whole = corpus_nll(backbone.model, [pad(examples, backbone.codec)])
    parts = corpus_nll(backbone.model, [pad(examples[start : start + 4], backbone.codec) for start in range(0, 21, 4)])
    assert parts[0] == pytest.approx(whole[0], rel=1e-5)
    assert parts[1] == whole[1] == sum(len(example.target) for example in examples)


def test_a_corpus_is_measured_without_dropout_and_the_mode_comes_back(backbone: Backbone, batch: Batch) -> None:
    model = backbone.model
    wanted = corpus_nll(model, [batch])
    model.train()
    assert float(translation_nll(model, batch)[0].detach()) != pytest.approx(wanted[0], rel=1e-6)
    assert corpus_nll(model, [batch]) == wanted
    assert model.training
    model.eval()
    corpus_nll(model, [batch])
    assert not model.training


def test_no_batches_are_no_loss(backbone: Backbone) -> None:
    assert corpus_nll(backbone.model, []) == (0.0, 0)
