"""Words to subwords and marked texts to ids: no word is lost, however long the sentence, and markers stand around the mentions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedlingua.training.batches import IGNORED
from fedlingua_lab.finetuning.annotated import Marked, Tagged
from fedlingua_lab.finetuning.encoder import encoder_of_folder
from fedlingua_lab.finetuning.examples import MARKERS, pair_examples, tagging_examples
from tests.encoders import build_bert, build_roberta, build_xlmr

TAGS = ["O", "B-Drug", "I-Drug"]


def tokenizer_of(directory: Path) -> Any:
    return encoder_of_folder(directory, "e").tokenizer


def test_the_label_stands_on_a_words_first_subword(encoder_directory: Path) -> None:
    tokenizer = tokenizer_of(encoder_directory)
    [example], places = tagging_examples([Tagged(["took", "xy"], ["O", "B-Drug"])], TAGS, tokenizer, 8)
    assert tokenizer.convert_ids_to_tokens(example["input_ids"]) == ["<s>", "▁took", "▁", "x", "y", "</s>"]
    assert example["labels"] == [IGNORED, 0, 1, IGNORED, IGNORED, IGNORED]
    assert places == [(0, 0), (0, 1)]


@pytest.mark.parametrize("build", [build_bert, build_roberta, build_xlmr])
def test_of_long_sentences_and_long_words_every_word_is_asked_for_once(build: Callable[[Path], Path], tmp_path: Path) -> None:
    tokens = ["aspirin", "abcd", "took", "x" * 50, "pain", "slept", "vitamin", "c", "for"]
    tags = ["B-Drug", "I-Drug", "O", "B-Drug", "O", "O", "B-Drug", "I-Drug", "O"]
    examples, places = tagging_examples([Tagged(tokens, tags), Tagged(["no"], ["O"])], TAGS, tokenizer_of(build(tmp_path)), 8)
    assert max(len(example["input_ids"]) for example in examples) <= 8
    assert places == [*((0, word) for word in range(9)), (1, 0)]
    asked = [label for example in examples for label in example["labels"] if label != IGNORED]
    assert [TAGS[label] for label in asked] == [*tags, "O"]


def test_a_word_that_the_tokenizer_makes_nothing_of_is_not_asked_for(tmp_path: Path) -> None:
    # BERT's normaliser drops the zero-width space altogether.
    _, places = tagging_examples([Tagged(["\u200b", "took"], ["O", "O"])], TAGS, tokenizer_of(build_bert(tmp_path)), 8)
    assert places == [(0, 1)]


def test_a_word_that_spells_a_special_token_is_a_word(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(build_bert(tmp_path))
    [example], _ = tagging_examples([Tagged(["[SEP]", "took"], ["O", "O"])], TAGS, tokenizer, 64)
    assert example["input_ids"].count(tokenizer.sep_token_id) == 1


def test_a_byte_level_tokenizer_sees_the_space_before_a_word(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(build_roberta(tmp_path))
    [example], _ = tagging_examples([Tagged(["ab"], ["O"])], TAGS, tokenizer, 8)
    assert tokenizer.convert_ids_to_tokens(example["input_ids"])[1:3] == ["Ġa", "b"]


def pieces(directory: Path, marked: Marked, max_tokens: int = 64) -> tuple[str, int]:
    tokenizer = tokenizer_of(directory)
    tokenizer.add_tokens(list(MARKERS), special_tokens=True)
    [example], shortened = pair_examples([marked], ["no", "yes"], tokenizer, max_tokens)
    assert example["labels"] == 1
    assert len(example["input_ids"]) <= max_tokens
    return " ".join(tokenizer.convert_ids_to_tokens(example["input_ids"])).replace("▁", ""), shortened


def marked(text: str, *mentions: str) -> Marked:
    return Marked(text, [(text.index(mention), text.index(mention) + len(mention)) for mention in mentions], "yes")


def test_head_and_tail_keep_their_markers_in_either_order(encoder_directory: Path) -> None:
    text = "the aspirin treats pain well"
    wanted = "<s> the [E1] aspirin [/E1] treats [E2] pain [/E2] well </s>"
    assert pieces(encoder_directory, marked(text, "aspirin", "pain")) == (wanted, 0)
    wanted = "<s> the [E2] aspirin [/E2] treats [E1] pain [/E1] well </s>"
    assert pieces(encoder_directory, marked(text, "pain", "aspirin")) == (wanted, 0)


def test_an_assertion_has_one_mention(encoder_directory: Path) -> None:
    assert pieces(encoder_directory, marked("no pain", "pain"))[0] == "<s> no [E1] pain [/E1] </s>"


@pytest.mark.parametrize(
    ("max_tokens", "wanted"),
    [
        (13, "<s> patient took [E1] aspirin [/E1] treats [E2] pain [/E2] for days </s>"),
        (11, "<s> took [E1] aspirin [/E1] treats [E2] pain [/E2] for </s>"),
        (9, "<s> [E1] aspirin [/E1] treats [E2] pain [/E2] </s>"),
        (8, "<s> [E1] aspirin [/E1] [E2] pain [/E2] </s>"),
    ],
)
def test_outer_words_go_first_evenly_and_then_the_middle(encoder_directory: Path, max_tokens: int, wanted: str) -> None:
    text = "the patient took aspirin treats pain for days and"
    assert pieces(encoder_directory, marked(text, "aspirin", "pain"), max_tokens) == (wanted, 1)


def test_what_one_side_does_not_need_the_other_gets(encoder_directory: Path) -> None:
    text = "aspirin treats pain for days and slept"
    wanted = "<s> [E1] aspirin [/E1] treats [E2] pain [/E2] for days and </s>"
    assert pieces(encoder_directory, marked(text, "aspirin", "pain"), 12) == (wanted, 1)


def test_a_text_that_spells_a_marker_has_none_more(encoder_directory: Path) -> None:
    found, _ = pieces(encoder_directory, marked("no [E2] pain [/E1] </s> well", "pain"))
    assert found.count("[E1]") == found.count("[/E1]") == 1
    assert "[E2]" not in found
