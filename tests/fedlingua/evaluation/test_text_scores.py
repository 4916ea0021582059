"""What a model makes of masked text: its sums against the batch's own loss, each piece once, and masks that are the text's alone."""

import math
from random import Random
from typing import cast

import pytest
import torch

from fedlingua.backbones.codec import TextCodec
from fedlingua.backbones.load import Backbone
from fedlingua.evaluation.perplexity import perplexity
from fedlingua.evaluation.text_scores import masked_results, scores_of_sequences
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
    results = masked_results(encoder.model, batch)
    assert sum(sum(each) for each, _ in results) == pytest.approx(float(nll))
    assert sum(len(each) for each, _ in results) == tokens
    assert sum(sum(each) for _, each in results) == right


def test_each_sequence_has_the_sums_of_its_own(encoder: Backbone, text: list[TextExample]) -> None:
    scores = scores_of_sequences(encoder.model, codec_of(encoder), text, "key")
    for place, one in enumerate(text):
        alone = scores_of_sequences(encoder.model, codec_of(encoder), [one], "key")
        assert (scores.nll[place], scores.tokens[place]) == (pytest.approx(alone.nll[0], rel=1e-5), len(one.ids) - 2)
        assert scores.correct[place] == alone.correct[0]


def test_every_piece_of_the_text_is_asked_for_once_in_four_parts(encoder: Backbone, text: list[TextExample]) -> None:
    scores = scores_of_sequences(encoder.model, codec_of(encoder), text, "key").summed(9)
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
    scores = scores_of_sequences(encoder.model, codec_of(encoder), text, "key").summed(9)
    assert perplexity(scores) == pytest.approx(encoder.model.config.vocab_size, rel=1e-5)
    assert all(
        math.isclose(nll, n * math.log(encoder.model.config.vocab_size), rel_tol=1e-5)
        for nll, n in zip(scores.nll, scores.tokens, strict=True)
    )


def test_masks_are_the_texts_and_the_keys_whatever_the_model(encoder: Backbone, text: list[TextExample]) -> None:
    first = scores_of_sequences(encoder.model, codec_of(encoder), text, "key").summed(9)
    with torch.no_grad():
        encoder.model.lm_head.bias.add_(1.0)
        encoder.model.lm_head.dense.weight.mul_(3.0)
    other = scores_of_sequences(encoder.model, codec_of(encoder), text, "key").summed(9)
    assert (other.masks, other.tokens) == (first.masks, first.tokens)
    assert other.nll != first.nll
    masks = {
        first.masks,
        *(scores_of_sequences(encoder.model, codec_of(encoder), *of).masks for of in ((text, "b"), (text[1:], "key"))),
    }
    assert len(masks) == 3


def test_no_text_has_no_sums(encoder: Backbone) -> None:
    scores = scores_of_sequences(encoder.model, codec_of(encoder), [], "key").summed(0)
    assert (scores.nll, scores.tokens) == ((0.0,) * 4, (0,) * 4)
