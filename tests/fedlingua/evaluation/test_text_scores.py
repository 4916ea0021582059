"""What a model makes of masked text: its sums against the batch's own loss, each piece once, and masks that are the text's alone."""

import math
from random import Random
from typing import cast

import pytest
import torch

from fedlingua.backbones.codec import TextCodec
from fedlingua.backbones.load import Backbone
from fedlingua.evaluation.perplexity import perplexity
from fedlingua.evaluation.text_scores import masked_scores, masked_sums
from fedlingua.training.masked_language import MaskedExample, TextExample, encode_text


@pytest.fixture
def text(encoder: Backbone, phrases: dict[str, list[str]]) -> list[TextExample]:
    """Nine sentences, each a sequence of its own."""
    codec = cast(TextCodec, encoder.codec)
    return [one for sentence in phrases["de"][:9] for one in encode_text([sentence], codec, 64, 0.15)]


def codec_of(encoder: Backbone) -> TextCodec:
    return cast(TextCodec, encoder.codec)


def test_sums_are_those_of_the_batch_and_of_what_was_guessed(encoder: Backbone, text: list[TextExample]) -> None:
    batch = MaskedExample.stack([one.drawn(Random(1)) for one in text], encoder.codec)
    with torch.no_grad():
        nll, tokens = batch.nll(encoder.model)
        logits = encoder.model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
    right = int((logits.argmax(-1) == batch.labels).sum())
    assert masked_sums(encoder.model, [batch]) == (pytest.approx(float(nll)), tokens, right)
    assert masked_sums(encoder.model, [batch, batch]) == (pytest.approx(2 * float(nll)), 2 * tokens, 2 * right)


def test_every_piece_of_the_text_is_asked_for_once_in_four_parts(encoder: Backbone, text: list[TextExample]) -> None:
    scores = masked_scores(encoder.model, codec_of(encoder), 9, text, "key")
    pieces = [len(one.ids) - 2 for one in text]
    # Sequence i in part i mod 4.
    assert scores.tokens == tuple(sum(pieces[part::4]) for part in range(4))
    assert scores.sentences == 9


def test_a_model_that_knows_nothing_is_as_perplexed_as_its_vocabulary_is_large(
    encoder: Backbone, text: list[TextExample]
) -> None:
    with torch.no_grad():
        for parameter in encoder.model.lm_head.parameters():
            parameter.zero_()
    scores = masked_scores(encoder.model, codec_of(encoder), 9, text, "key")
    assert perplexity(scores) == pytest.approx(encoder.model.config.vocab_size, rel=1e-5)
    assert all(
        math.isclose(nll, n * math.log(encoder.model.config.vocab_size), rel_tol=1e-5)
        for nll, n in zip(scores.nll, scores.tokens, strict=True)
    )


def test_masks_are_the_texts_and_the_keys_whatever_the_model(encoder: Backbone, text: list[TextExample]) -> None:
    first = masked_scores(encoder.model, codec_of(encoder), 9, text, "key")
    with torch.no_grad():
        encoder.model.lm_head.bias.add_(1.0)
        encoder.model.lm_head.dense.weight.mul_(3.0)
    other = masked_scores(encoder.model, codec_of(encoder), 9, text, "key")
    assert (other.masks, other.tokens) == (first.masks, first.tokens)
    assert other.nll != first.nll
    masks = {
        first.masks,
        *(masked_scores(encoder.model, codec_of(encoder), 9, *of).masks for of in ((text, "b"), (text[1:], "key"))),
    }
    assert len(masks) == 3


def test_no_text_has_no_sums(encoder: Backbone) -> None:
    assert masked_scores(encoder.model, codec_of(encoder), 0, [], "key").tokens == (0, 0, 0, 0)
