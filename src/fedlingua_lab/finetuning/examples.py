"""Annotated texts as sequences of ids with labels.

In a tagged sentence a word's tag is predicted at its first subword; a word of which the tokenizer leaves nothing is O. In a marked text
every mention is between two marker tokens, [E1] head [/E1] and [E2] tail [/E2], which the tokenizer has as special tokens.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from transformers import PreTrainedTokenizerBase

from fedlingua.training.batches import IGNORED
from fedlingua_lab.finetuning.annotated import Marked, Tagged

MARKERS = ("[E1]", "[/E1]", "[E2]", "[/E2]")
Example = dict[str, Any]
"""input_ids, and labels: one for each id, IGNORED where nothing is predicted, or one for the whole."""
Place = tuple[int, int]
"""(sentence, word) that a label is for."""


def tagging_examples(
    sentences: Sequence[Tagged], labels: Sequence[str], tokenizer: PreTrainedTokenizerBase, max_tokens: int
) -> tuple[list[Example], list[Place]]:
    """Return sentences as ids, long ones cut into several sequences, and the place of each label that is not IGNORED, in order."""
    coded: Any = tokenizer(
        [sentence.tokens for sentence in sentences],
        is_split_into_words=True,
        truncation=True,
        max_length=max_tokens,
        return_overflowing_tokens=True,
        split_special_tokens=True,  # "[SEP]" in a note is text
    )
    examples, places = list[Example](), dict[Place, str]()
    for row, number in enumerate(coded["overflow_to_sample_mapping"]):
        numbers = []
        for word in coded.word_ids(row):
            new = word is not None and (number, word) not in places
            if new:
                places[number, word] = sentences[number].tags[word]
            numbers.append(labels.index(places[number, word]) if new else IGNORED)
        examples.append({"input_ids": coded["input_ids"][row], "labels": numbers})
    return examples, list(places)


def pair_examples(
    texts: Iterable[Marked], labels: Sequence[str], tokenizer: PreTrainedTokenizerBase, max_tokens: int
) -> tuple[list[Example], int]:
    """Return the texts as ids, and how many were too long and lost the words farthest from the mentions."""

    def ids(text: str) -> list[int]:  # a text that spells a marker has none more
        coded: Any = tokenizer(text.strip(), add_special_tokens=False, split_special_tokens=True, verbose=False)
        return list(coded["input_ids"])

    markers: Any = tokenizer.convert_tokens_to_ids(list(MARKERS))
    examples, shortened = [], 0
    for marked in texts:
        stretches, done = list[list[int]](), 0
        for place, (start, end) in sorted(enumerate(marked.mentions), key=lambda mention: mention[1]):
            opening, closing = markers[2 * place : 2 * place + 2]
            stretches += [ids(marked.text[done:start]), [opening, *ids(marked.text[start:end]), closing]]
            done = end
        before, *inner, after = [*stretches, ids(marked.text[done:])]
        pieces = _fit(before, [*chain(*inner)], after, max_tokens - 2)
        shortened += len(pieces) < sum(map(len, stretches)) + len(after)
        whole = [tokenizer.cls_token_id, *pieces, tokenizer.sep_token_id]
        examples.append({"input_ids": whole, "labels": labels.index(marked.label)})
    return examples, shortened


def _fit(before: list[int], inner: list[int], after: list[int], budget: int) -> list[int]:
    """Return all ids, cut to the budget: first outer words, evenly on both sides, then the middle from first to last marker."""
    room = budget - len(inner)
    if room < 0:
        return [*inner[: (budget + 1) // 2], *inner[len(inner) - budget // 2 :]]
    left = min(len(before), max(room // 2, room - len(after)))
    return [*before[len(before) - left :], *inner, *after[: room - left]]
