"""Words to subwords and answers to tags: no word is lost, however long the sentence and whatever the word."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fedlingua.desk.finetuning.encoder import Encoder, load_encoder
from fedlingua.desk.finetuning.examples import predicted_tags, tagging_examples
from fedlingua.desk.finetuning.iob import Tagged
from fedlingua.desk.finetuning.loop import Example, shuffled_batches, stack
from fedlingua.training.batches import IGNORED
from tests.encoders import build_bert, build_roberta, build_xlmr

TAGS = ["O", "B-Drug", "I-Drug"]


def asked(examples: list[Example]) -> list[list[int]]:
    """The labels themselves, as an encoder that knows everything would answer."""
    return [[label for label in example.labels if label != IGNORED] for example in examples]


def test_the_label_stands_on_a_words_first_subword(encoder: Encoder) -> None:
    [example] = tagging_examples([Tagged(["took", "xy"], ["O", "B-Drug"])], TAGS, encoder)
    pieces = encoder.tokenizer.convert_ids_to_tokens(example.ids)
    assert pieces == ["<s>", "▁took", "▁", "x", "y", "</s>"]
    assert example.labels == [IGNORED, 0, 1, IGNORED, IGNORED, IGNORED]


def test_long_sentences_are_cut_between_words_and_every_word_is_asked_for_once(encoder: Encoder) -> None:
    tokens = ["aspirin", "abcd", "took", "xyz", "pain", "slept", "vitamin", "c", "for"]
    tags = ["B-Drug", "I-Drug", "O", "B-Drug", "O", "O", "B-Drug", "I-Drug", "O"]
    sentences = [Tagged(tokens, tags), Tagged(["no"], ["O"])]
    examples = tagging_examples(sentences, TAGS, encoder)
    assert max(len(example.ids) for example in examples) <= encoder.max_tokens == 8
    assert len(examples) == 4
    assert predicted_tags(sentences, asked(examples), TAGS) == [tags, ["O"]]


def test_a_word_longer_than_a_window_and_one_the_tokenizer_makes_nothing_of_are_tagged_too(
    tmp_path: Path, encoder: Encoder
) -> None:
    bert = load_encoder(build_bert(tmp_path), "ner", TAGS, seed=1, max_tokens=8, device="cpu")
    strange = Tagged(["x" * 50, "\u200b", "took"], ["B-Drug", "I-Drug", "O"])
    for made in (encoder, bert):
        examples = tagging_examples([strange], TAGS, made)
        assert max(len(example.ids) for example in examples) <= 8
        assert predicted_tags([strange], asked(examples), TAGS) == [strange.tags]
    # BERT's normaliser drops the zero-width space altogether.
    assert bert.subwords(["\u200b"]) == [[bert.tokenizer.unk_token_id]]


def test_a_word_that_spells_a_special_token_is_a_word(tmp_path: Path) -> None:
    bert = load_encoder(build_bert(tmp_path), "ner", TAGS, seed=1, max_tokens=None, device="cpu")
    [example] = tagging_examples([Tagged(["[SEP]", "took"], ["O", "O"])], TAGS, bert)
    assert example.ids.count(bert.tokenizer.sep_token_id) == 1


@pytest.mark.parametrize("build", [build_bert, build_roberta, build_xlmr])
def test_no_word_becomes_a_special_token_but_the_unknown_one(build: Callable[[Path], Path], tmp_path: Path) -> None:
    encoder = load_encoder(build(tmp_path), "ner", TAGS, seed=1, max_tokens=None, device="cpu")
    special = set(encoder.tokenizer.all_special_ids) - {encoder.tokenizer.unk_token_id}
    assert not any(special.intersection(ids) for ids in encoder.subwords(encoder.tokenizer.all_special_tokens))


def test_a_byte_level_tokenizer_sees_the_space_before_a_word(tmp_path: Path) -> None:
    roberta = load_encoder(build_roberta(tmp_path), "ner", TAGS, seed=1, max_tokens=None, device="cpu")
    assert roberta.tokenizer.convert_ids_to_tokens(roberta.subwords(["ab"])[0]) == ["Ġa", "b"]


def test_batches_hold_every_example_once_and_pad_what_is_not_counted() -> None:
    examples = [Example([0, *[5] * n, 2], [IGNORED, *[n] * n, IGNORED]) for n in range(1, 12)]
    batches = list(shuffled_batches(examples, 4, random.Random(1)))
    assert sorted(len(batch) for batch in batches) == [3, 4, 4]
    assert sorted(len(example.ids) for batch in batches for example in batch) == list(range(3, 14))
    inputs, labels = stack(examples[:2], 1, torch.device("cpu"))
    assert inputs["input_ids"].tolist() == [[0, 5, 2, 1], [0, 5, 5, 2]]
    assert inputs["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert labels.tolist() == [[IGNORED, 1, IGNORED, IGNORED], [IGNORED, 2, 2, IGNORED]]
    assert inputs["input_ids"].dtype == labels.dtype == torch.int64
