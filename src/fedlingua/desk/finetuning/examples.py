"""Annotated texts as examples, and an encoder's answers as tags again.

Of a tagged sentence a word's tag is asked for at its first subword. In a marked text every mention stands between two tokens of its own,
[E1] head [/E1] and [E2] tail [/E2]. The four are added to the tokenizer as special tokens, so each is one id that nothing else is split
into; their embeddings are drawn anew and learned. They go in between the ids of the text's stretches, so that no text, whatever stands
in it, is searched for them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from fedlingua.desk.finetuning.encoder import Encoder
from fedlingua.desk.finetuning.iob import Tagged
from fedlingua.desk.finetuning.loop import Example
from fedlingua.desk.finetuning.pairs import Marked
from fedlingua.training.batches import IGNORED

MARKERS = ("[E1]", "[/E1]", "[E2]", "[/E2]")


def tagging_examples(sentences: Iterable[Tagged], tags: Sequence[str], encoder: Encoder) -> list[Example]:
    """Sentences as ids with labels, numbers in `tags`; long ones are cut between words, so every word is predicted once."""
    numbers = {tag: number for number, tag in enumerate(tags)}
    examples = []
    for sentence in sentences:
        # A word too long for a whole window keeps what fits.
        words = [ids[: encoder.budget] for ids in encoder.subwords(sentence.tokens)]
        for first, end in _windows([len(ids) for ids in words], encoder.budget):
            labels = [IGNORED]
            for ids, tag in zip(words[first:end], sentence.tags[first:end], strict=True):
                labels += [numbers[tag], *[IGNORED] * (len(ids) - 1)]
            pieces = [piece for ids in words[first:end] for piece in ids]
            examples.append(Example(encoder.sequence(pieces), [*labels, IGNORED]))
    return examples


def predicted_tags(sentences: Iterable[Tagged], answers: Iterable[Sequence[int]], tags: Sequence[str]) -> list[list[str]]:
    """Predicted tags at the labelled places of each example, in order, as one list for each sentence."""
    answered = iter(tags[number] for answer in answers for number in answer)
    tags_of = [[next(answered) for _ in sentence.tokens] for sentence in sentences]
    assert next(answered, None) is None, "more answers than words"
    return tags_of


def _windows(lengths: Sequence[int], budget: int) -> Iterator[tuple[int, int]]:
    """(first, end) of words that fill a window each, as full as they come."""
    first, used = 0, 0
    for number, length in enumerate(lengths):
        if used + length > budget:
            yield first, number
            first, used = number, 0
        used += length
    yield first, len(lengths)


def add_markers(encoder: Encoder, seed: int) -> None:
    """Give tokenizer and model the four tokens; `seed` decides their first embeddings."""
    encoder.tokenizer.add_tokens(list(MARKERS), special_tokens=True)
    torch.manual_seed(seed)
    # Drawn as any embedding is: around the mean of the others would take a covariance over the whole vocabulary.
    encoder.model.resize_token_embeddings(max(encoder.rows, len(encoder.tokenizer)), mean_resizing=False)


def pair_examples(texts: Iterable[Marked], labels: Sequence[str], encoder: Encoder) -> tuple[list[Example], int]:
    """(texts as ids with the label's number in `labels`, how many were too long and lost words, those farthest from the mentions)."""
    numbers = {label: number for number, label in enumerate(labels)}
    examples, shortened = [], 0
    for marked in texts:
        stretches = _stretches(marked, encoder)
        pieces = _fit(stretches, encoder.budget)
        shortened += len(pieces) < sum(map(len, stretches))
        examples.append(Example(encoder.sequence(pieces), [numbers[marked.label]]))
    return examples, shortened


def _stretches(marked: Marked, encoder: Encoder) -> list[list[int]]:
    """The text before, between and after the mentions, and these: three stretches, or five."""
    ids: Any = encoder.tokenizer.convert_tokens_to_ids(list(MARKERS))
    mentions = [(marked.head, ids[:2]), *([(marked.tail, ids[2:])] if marked.tail else [])]
    stretches, done = [], 0
    for (start, end), (opening, closing) in sorted(mentions):
        stretches.append(_ids(marked.text[done:start], encoder))
        stretches.append([opening, *_ids(marked.text[start:end], encoder), closing])
        done = end
    return [*stretches, _ids(marked.text[done:], encoder)]


def _ids(text: str, encoder: Encoder) -> list[int]:
    return encoder.subwords([text.strip()])[0] if text.strip() else []


def _fit(stretches: Sequence[list[int]], budget: int) -> list[int]:
    """All ids, cut to the budget: outer words go first, evenly on both sides, then those between, then mentions' own."""
    before, *inner, after = stretches
    room = budget - sum(map(len, inner))
    if room < 0:
        before, after = [], []
        inner = _squeeze(inner, budget)
    else:
        left = min(len(before), max(room // 2, room - len(after)))
        before, after = before[len(before) - left :], after[: room - left]
    return [*before, *(piece for ids in inner for piece in ids), *after]


def _squeeze(inner: Sequence[list[int]], budget: int) -> list[list[int]]:
    """Mentions with what is between them, cut to the budget: of the words between the middle goes, of a mention the end."""
    if len(inner) == 1:
        return [_mention(inner[0], budget)]
    head, between, tail = inner
    room = budget - len(head) - len(tail)
    if room < 0:
        first = max(budget // 2, budget - len(tail))
        head = _mention(head, first)
        return [head, [], _mention(tail, budget - len(head))]
    return [head, between[: (room + 1) // 2] + between[len(between) - room // 2 :], tail]


def _mention(ids: list[int], budget: int) -> list[int]:
    return ids if len(ids) <= budget else [*ids[: budget - 1], ids[-1]]
