"""Turn annotated texts into examples, and an encoder's predictions back into tags.

In a tagged sentence, a word's tag is predicted at its first subword. In a marked text, every mention is between two marker tokens,
[E1] head [/E1] and [E2] tail [/E2]. The four markers are added to the tokenizer as special tokens, so each is one id that no text is
split into; their embeddings are drawn at random and learned. The markers are inserted between the ids of the text's stretches, so the
text itself is never searched for them.
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
    """Return sentences as ids with labels, indices into `tags`; long ones are cut between words, so every word is predicted once."""
    numbers = {tag: number for number, tag in enumerate(tags)}
    examples = []
    for sentence in sentences:
        # A word longer than a whole window is cut to fit.
        words = [ids[: encoder.budget] for ids in encoder.subwords(sentence.tokens)]
        for first, end in _windows([len(ids) for ids in words], encoder.budget):
            labels = [IGNORED]
            for ids, tag in zip(words[first:end], sentence.tags[first:end], strict=True):
                labels += [numbers[tag], *[IGNORED] * (len(ids) - 1)]
            pieces = [piece for ids in words[first:end] for piece in ids]
            examples.append(Example(encoder.sequence(pieces), [*labels, IGNORED]))
    return examples


def predicted_tags(sentences: Iterable[Tagged], answers: Iterable[Sequence[int]], tags: Sequence[str]) -> list[list[str]]:
    """Return the predicted tags at the labelled places of each example, in order, as one list for each sentence."""
    answered = iter(tags[number] for answer in answers for number in answer)
    tags_of = [[next(answered) for _ in sentence.tokens] for sentence in sentences]
    assert next(answered, None) is None, "more answers than words"
    return tags_of


def _windows(lengths: Sequence[int], budget: int) -> Iterator[tuple[int, int]]:
    """Yield (first, end) of the words in each window; every window takes as many words as fit."""
    first, used = 0, 0
    for number, length in enumerate(lengths):
        if used + length > budget:
            yield first, number
            first, used = number, 0
        used += length
    yield first, len(lengths)


def add_markers(encoder: Encoder, seed: int) -> None:
    """Add the four tokens to tokenizer and model; `seed` decides their initial embeddings."""
    encoder.tokenizer.add_tokens(list(MARKERS), special_tokens=True)
    torch.manual_seed(seed)
    # Drawn like any embedding: drawing around the mean of the others would need a covariance over the whole vocabulary.
    encoder.model.resize_token_embeddings(max(encoder.rows, len(encoder.tokenizer)), mean_resizing=False)


def pair_examples(texts: Iterable[Marked], labels: Sequence[str], encoder: Encoder) -> tuple[list[Example], int]:
    """Return the texts as ids with their labels' indices, and how many were too long and lost the words farthest from the mentions."""
    numbers = {label: number for number, label in enumerate(labels)}
    examples, shortened = [], 0
    for marked in texts:
        stretches = _stretches(marked, encoder)
        pieces = _fit(stretches, encoder.budget)
        shortened += len(pieces) < sum(map(len, stretches))
        examples.append(Example(encoder.sequence(pieces), [numbers[marked.label]]))
    return examples, shortened


def _stretches(marked: Marked, encoder: Encoder) -> list[list[int]]:
    """Return the ids of the mentions and of the text before, between and after them: three stretches, or five."""
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
    """Return all ids, cut to the budget: first outer words, evenly on both sides, then words between mentions, then the mentions' own."""
    before, head, *rest, after = stretches
    between, tail = rest or ([], [])
    room = budget - len(head) - len(tail)
    if room < 0:
        size = _share(budget, head, tail)
        return [*_mention(head, size), *_mention(tail, budget - size)]
    if room < len(between):
        return [*head, *between[: (room + 1) // 2], *between[len(between) - room // 2 :], *tail]
    room -= len(between)
    size = _share(room, before, after)
    return [*before[len(before) - size :], *head, *between, *tail, *after[: room - size]]


def _share(room: int, one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many of `one` are kept where both have room for `room`: half of it, or more if the other leaves more."""
    return min(len(one), max(room // 2, room - len(other)))


def _mention(ids: list[int], budget: int) -> list[int]:
    return ids if len(ids) <= budget else [*ids[: budget - 1], ids[-1]]
