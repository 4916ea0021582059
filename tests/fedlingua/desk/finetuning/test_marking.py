"""Marked texts as ids: the markers stand around the mentions, and too long a text loses what is farthest from them."""

from pathlib import Path

import pytest

from fedlingua.desk.finetuning.encoder import Encoder, load_encoder
from fedlingua.desk.finetuning.examples import add_markers, pair_examples
from fedlingua.desk.finetuning.pairs import Marked


def marking(directory: Path, max_tokens: int) -> Encoder:
    encoder = load_encoder(directory, "pairs", ["no", "yes"], seed=1, max_tokens=max_tokens, device="cpu")
    add_markers(encoder, seed=1)
    return encoder


def pieces(directory: Path, marked: Marked, max_tokens: int = 64) -> tuple[str, int]:
    encoder = marking(directory, max_tokens)
    [example], shortened = pair_examples([marked], ["no", "yes"], encoder)
    assert example.labels == [1]
    assert len(example.ids) <= max_tokens
    return " ".join(encoder.tokenizer.convert_ids_to_tokens(example.ids)).replace("▁", ""), shortened


def marked(text: str, head: str, tail: str | None = None) -> Marked:
    spans = [(text.index(mention), text.index(mention) + len(mention)) for mention in (head, tail) if mention is not None]
    return Marked(text, spans[0], spans[1] if tail else None, "yes")


def test_head_and_tail_keep_their_markers_in_either_order(encoder_directory: Path) -> None:
    text = "the aspirin treats pain well"
    assert pieces(encoder_directory, marked(text, "aspirin", "pain")) == (
        "<s> the [E1] aspirin [/E1] treats [E2] pain [/E2] well </s>",
        0,
    )
    assert pieces(encoder_directory, marked(text, "pain", "aspirin")) == (
        "<s> the [E2] aspirin [/E2] treats [E1] pain [/E1] well </s>",
        0,
    )


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
def test_outer_words_go_first_evenly(encoder_directory: Path, max_tokens: int, wanted: str) -> None:
    text = "the patient took aspirin treats pain for days and"
    assert pieces(encoder_directory, marked(text, "aspirin", "pain"), max_tokens) == (wanted, 1)


def test_what_one_side_does_not_need_the_other_gets(encoder_directory: Path) -> None:
    text = "aspirin treats pain for days and slept"
    wanted = "<s> [E1] aspirin [/E1] treats [E2] pain [/E2] for days and </s>"
    assert pieces(encoder_directory, marked(text, "aspirin", "pain"), 12) == (wanted, 1)


def test_between_mentions_the_middle_goes_and_of_a_mention_the_end(encoder_directory: Path) -> None:
    far = marked("aspirin the patient took for days pain", "aspirin", "pain")
    assert pieces(encoder_directory, far, 11)[0] == "<s> [E1] aspirin [/E1] the patient days [E2] pain [/E2] </s>"
    long = marked("the patient took for days treats pain", "the patient took for days", "pain")
    assert pieces(encoder_directory, long, 9)[0] == "<s> [E1] the patient [/E1] [E2] pain [/E2] </s>"
    alone = marked("no patient took for days and slept well", "patient took for days and slept well")
    assert pieces(encoder_directory, alone, 8)[0] == "<s> [E1] patient took for days [/E1] </s>"


def test_the_markers_are_four_new_rows_of_the_embeddings(encoder_directory: Path) -> None:
    before = load_encoder(encoder_directory, "pairs", ["no", "yes"], seed=1, max_tokens=16, device="cpu").rows
    assert marking(encoder_directory, 16).rows == before + 4


def test_a_text_that_spells_a_marker_has_none_more(encoder_directory: Path) -> None:
    found, _ = pieces(encoder_directory, marked("no [E2] pain [/E1] </s> well", "pain"))
    assert found.count("[E1]") == found.count("[/E1]") == 1
    assert "[E2]" not in found
