"""Masked-language examples: what is masked and how, sequences that are packed, and the loss against transformers' own."""

from collections import Counter
from random import Random

import pytest
import torch
from transformers import XLMRobertaTokenizer

from fedlingua.backbones.codec import TextCodec
from fedlingua.backbones.load import Backbone
from fedlingua.training.batches import IGNORED
from fedlingua.training.masked_language import MaskedBatch, MaskedExample, TextExample, encode_text, masks_hash


@pytest.fixture
def codec(encoder: Backbone) -> TextCodec:
    assert isinstance(encoder.codec, TextCodec)
    return encoder.codec


def text(codec: TextCodec, number: int, share: float = 0.15, first: int = 4) -> TextExample:
    """`[start] pieces [end]`, so many different pieces."""
    return TextExample([codec.start_id, *range(first, first + number), codec.end_id], codec, share)


# --- What is masked ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "share", "number"), [(20, 0.15, 3), (10, 0.15, 2), (3, 0.15, 1), (1, 0.15, 1), (17, 0.15, 3), (20, 1.0, 20)]
)
def test_a_share_of_the_pieces_is_to_be_predicted_and_at_least_one(
    codec: TextCodec, pieces: int, share: float, number: int
) -> None:
    example = text(codec, pieces, share)
    assert len(example.drawn(Random(1)).positions) == number
    assert len(example.fixed("key")[0].positions) == number


def test_special_tokens_are_never_to_be_predicted(codec: TextCodec) -> None:
    """Unknown pieces among them: nobody knows what stood there."""
    example = TextExample([0, 5, 3, 6, 2, 7, 2], codec, 1.0)
    assert example.drawn(Random(1)).positions == [1, 3, 5]
    assert example.fixed("key")[0].targets == [5, 6, 7]


def test_of_what_is_predicted_eight_tenths_are_masked_a_tenth_is_replaced_and_a_tenth_stands(codec: TextCodec) -> None:
    """6000 draws: the standard deviation of a tenth's share is 0.004, of eight tenths' 0.005."""
    rng, example, shown = Random(1), text(codec, 20, 0.5), Counter[str]()
    replacements = Counter[int]()
    for _ in range(600):
        masked = example.drawn(rng)
        assert masked.targets == [example.ids[position] for position in masked.positions]
        for position, (before, after) in enumerate(zip(example.ids, masked.inputs, strict=True)):
            if position not in masked.positions:
                assert after == before
            elif after == codec.mask_id:
                shown["mask"] += 1
            else:
                shown["stands" if after == before else "another"] += 1
                replacements[after] += after != before
    total = shown.total()
    assert total == 6000
    assert shown["mask"] / total == pytest.approx(0.8, abs=0.02)
    assert shown["another"] / total == pytest.approx(0.1, abs=0.015)
    assert shown["stands"] / total == pytest.approx(0.1, abs=0.015)
    assert not codec.special_ids & set(+replacements)
    assert len(+replacements) > 200  # of the whole vocabulary, not of the sentence


def test_two_draws_differ_and_every_place_has_its_turn(codec: TextCodec) -> None:
    rng, example = Random(1), text(codec, 20)
    draws = [tuple(example.drawn(rng).positions) for _ in range(200)]
    assert len(set(draws)) > 100
    assert {position for draw in draws for position in draw} == set(range(1, 21))
    assert example.drawn(Random(7)) == example.drawn(Random(7))


def test_fixed_masks_are_the_texts_and_the_keys(codec: TextCodec) -> None:
    example = text(codec, 20)
    again = TextExample(list(example.ids), codec, 0.15)
    assert example.fixed("a", 3) == again.fixed("a", 3)
    assert example.fixed("a") != example.fixed("b")
    assert example.fixed("a")[0].positions != text(codec, 20, first=5).fixed("a")[0].positions
    assert example.fixed("a") == example.fixed("a", 7)[:1]  # fewer masks of a text are the first ones


def test_fixed_masks_come_out_the_same_in_every_process(codec: TextCodec) -> None:
    """Written down, so that a change of them does not go unseen: scores of before could not be compared with those of after."""
    assert text(codec, 20).fixed("fedlingua")[0].positions == [1, 4, 12]


@pytest.mark.parametrize(("pieces", "masks"), [(20, 7), (3, 3), (1, 1), (40, 7)])
def test_as_often_as_it_takes_every_piece_is_predicted_exactly_once(codec: TextCodec, pieces: int, masks: int) -> None:
    """ceil(20 / 3) = 7 masks; ceil(40 / 6) = 7."""
    masked = text(codec, pieces).fixed("key", 1000)
    assert len(masked) == masks
    assert sorted(position for one in masked for position in one.positions) == list(range(1, pieces + 1))


def test_the_hash_of_masks_is_of_what_is_shown_and_what_is_asked(codec: TextCodec) -> None:
    masked = text(codec, 20).fixed("key", 4)
    assert masks_hash(masked) == masks_hash(list(masked))
    first = masked[0]
    changed = [
        masked[1:],
        masked[::-1],
        [first._replace(inputs=[*first.inputs[:-1], 9]), *masked[1:]],
        [first._replace(targets=[9, *first.targets[1:]]), *masked[1:]],
        [first._replace(positions=[0, *first.positions[1:]]), *masked[1:]],
    ]
    hashes = {masks_hash(masked), *map(masks_hash, changed)}
    assert len(hashes) == 6
    assert all(0 <= one < 2**48 for one in hashes)


# --- Sequences -----------------------------------------------------------------------------------------------------------------------


def packed(codec: TextCodec, sentences: list[str], max_tokens: int) -> list[list[str]]:
    return [codec.tokenizer.convert_ids_to_tokens(one.ids) for one in encode_text(sentences, codec, max_tokens, 0.15)]


def test_sentences_are_packed_in_their_order_as_long_as_they_fit(codec: TextCodec) -> None:
    sentences = ["the patient slept", "no pain", "slept well", "pain"]
    # 1 + (3 + 1) + (2 + 1) = 8; the third would make 11.
    assert packed(codec, sentences, 8) == [
        ["<s>", "▁the", "▁patient", "▁slept", "</s>", "▁no", "▁pain", "</s>"],
        ["<s>", "▁slept", "▁well", "</s>", "▁pain", "</s>"],
    ]
    assert [len(one) for one in packed(codec, sentences, 7)] == [5, 7, 3]
    assert [len(one) for one in packed(codec, sentences, 100)] == [13]


def test_a_long_sentence_is_cut_and_an_empty_one_skipped(codec: TextCodec) -> None:
    assert packed(codec, ["", "the patient took no heparin", "", "pain"], 5) == [
        ["<s>", "▁the", "▁patient", "▁took", "</s>"],
        ["<s>", "▁pain", "</s>"],
    ]
    assert encode_text(["", ""], codec, 8, 0.15) == encode_text([], codec, 8, 0.15) == []


def test_no_sequence_is_longer_than_asked_for_and_no_piece_is_lost(codec: TextCodec, phrases: dict[str, list[str]]) -> None:
    sequences = encode_text(phrases["de"], codec, 32, 0.15)
    assert max(len(one.ids) for one in sequences) <= 32
    assert [piece for one in sequences for piece in one.ids if piece not in (0, 2)] == [
        piece for pieces in codec.pieces(phrases["de"]) for piece in pieces
    ]


def test_a_sequence_of_unknown_letters_alone_is_left_out() -> None:
    """There is nothing in it to predict."""
    pieces = ("<s>", "<pad>", "</s>", "<unk>", "▁ab", "<mask>")
    codec = TextCodec(XLMRobertaTokenizer(vocab=[(piece, 0.0) for piece in pieces]))
    assert codec.pieces(["zz", "ab"]) == [[3], [4]]
    assert [one.ids for one in encode_text(["zz", "ab"], codec, 4, 0.15)] == [[0, 4, 2]]
    (both,) = encode_text(["zz", "ab"], codec, 100, 0.15)
    assert both.drawn(Random(1)).targets == [4]


# --- The loss ------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def batch(codec: TextCodec) -> MaskedBatch:
    """Two sequences of other lengths."""
    return MaskedExample.stack([text(codec, number, 0.3).drawn(Random(number)) for number in (12, 7)], codec)


def test_a_batch_is_padded_and_asks_at_its_positions_alone(codec: TextCodec) -> None:
    long, short = MaskedExample([0, 5, 61, 7, 2], [2], [6]), MaskedExample([0, 9, 2], [1], [8])
    stacked = MaskedExample.stack([long, short], codec)
    assert stacked.input_ids.tolist() == [[0, 5, 61, 7, 2], [0, 9, 2, 1, 1]]
    assert stacked.attention_mask.tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert stacked.labels.tolist() == [[IGNORED, IGNORED, 6, IGNORED, IGNORED], [IGNORED, 8, IGNORED, IGNORED, IGNORED]]
    assert (long.length, long.num_targets) == ((5, 1), 1)


@torch.no_grad()
def test_the_loss_is_transformers_own_times_the_masked(encoder: Backbone, batch: MaskedBatch) -> None:
    nll, tokens = batch.nll(encoder.model)
    theirs = encoder.model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, labels=batch.labels).loss
    assert tokens == 4 + 2
    assert float(nll) == pytest.approx(tokens * float(theirs), rel=1e-6)


def test_a_head_asked_at_masked_positions_alone_gives_the_same_gradient(encoder: Backbone, batch: MaskedBatch) -> None:
    model = encoder.model
    model.requires_grad_(True)
    nll, tokens = batch.nll(model)
    ours = torch.autograd.grad(nll / tokens, list(model.parameters()), allow_unused=True)
    loss = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, labels=batch.labels).loss
    theirs = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    for (name, _), mine, wanted in zip(model.named_parameters(), ours, theirs, strict=True):
        assert (mine is None) == (wanted is None), name
        if mine is not None:
            torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-7)
    assert sum(gradient is not None and bool(gradient.any()) for gradient in ours) > 30
