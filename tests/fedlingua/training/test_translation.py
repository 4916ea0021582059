"""Pairs as ids, shifted once and padded by value; the loss against torch's cross-entropy over the model's own logits, with mBART's bias."""

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from fedlingua.backbones.load import Backbone
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.training.batches import IGNORED, pad
from fedlingua.training.translation import PairBatch, PairExample, encode_pairs
from tests.mbart import tiny_mbart


def biased_mbart(vocab_size: int) -> PreTrainedModel:
    model = tiny_mbart(vocab_size=vocab_size, scale_embedding=False)
    model.final_logits_bias.normal_(generator=torch.Generator().manual_seed(6))
    return model


@pytest.fixture(params=["m2m_100", "mbart"])
def model(request: pytest.FixtureRequest, backbone: Backbone) -> PreTrainedModel:
    return backbone.model if request.param == "m2m_100" else biased_mbart(backbone.model.config.vocab_size)


@pytest.fixture
def batch(backbone: Backbone, examples: list[PairExample]) -> PairBatch:
    return pad(examples[:6], backbone.codec)


def test_a_batch_is_padded_and_shifted_by_hand(backbone: Backbone) -> None:
    batch = pad([PairExample([50, 11, 2], [60, 21, 22, 2]), PairExample([50, 11, 12, 13, 2], [60, 2])], backbone.codec)
    assert batch.input_ids.tolist() == [[50, 11, 2, 1, 1], [50, 11, 12, 13, 2]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert batch.labels.tolist() == [[60, 21, 22, 2], [60, 2, IGNORED, IGNORED]]
    assert batch.decoder_input_ids.tolist() == [[2, 60, 21, 22], [2, 60, 1, 1]]


def test_each_side_of_a_pair_carries_its_own_language(backbone: Backbone) -> None:
    codec = backbone.codec
    (example,) = encode_pairs([Pair("ja", "oui")], Direction("de", "fr"), codec, 8)
    assert (example.source[0], example.target[0]) == (codec.language_ids["de"], codec.language_ids["fr"])
    assert (codec.decode([example.source]), codec.decode([example.target])) == (["ja"], ["oui"])


def test_both_sides_are_cut_at_max_tokens(backbone: Backbone) -> None:
    long = " ".join(["ja"] * 30)
    (example,) = encode_pairs([Pair(long, long)], Direction("de", "fr"), backbone.codec, 6)
    assert (len(example.source), len(example.target)) == (6, 6)


@torch.no_grad()
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_loss_is_torchs_cross_entropy_over_all_logits(
    model: PreTrainedModel, batch: PairBatch, label_smoothing: float
) -> None:
    logits = model(
        input_ids=batch.input_ids, attention_mask=batch.attention_mask, decoder_input_ids=batch.decoder_input_ids
    ).logits
    wanted = nn.functional.cross_entropy(
        logits.flatten(0, 1), batch.labels.flatten(), ignore_index=-100, reduction="sum", label_smoothing=label_smoothing
    )
    nll, num_tokens = batch.nll(model, label_smoothing)
    assert float(nll) == pytest.approx(float(wanted), rel=1e-5)
    assert num_tokens == int((batch.labels != -100).sum())


@torch.no_grad()
def test_padding_does_not_change_the_loss(backbone: Backbone, examples: list[PairExample]) -> None:
    short = min(examples, key=lambda example: len(example.source) + len(example.target))
    long = max(examples, key=lambda example: len(example.source) + len(example.target))
    alone = [pad([example], backbone.codec).nll(backbone.model) for example in (short, long)]
    together = pad([short, long], backbone.codec).nll(backbone.model)
    assert len(short.source) < len(long.source)
    assert len(short.target) < len(long.target)
    assert float(together[0]) == pytest.approx(float(alone[0][0] + alone[1][0]), rel=1e-5)
    assert together[1] == alone[0][1] + alone[1][1] == len(short.target) + len(long.target)
