"""Tagged sentences as examples, and an encoder's answers as tags again: a word's tag is asked for at its first subword."""

from collections.abc import Iterable, Iterator, Sequence

from fedlingua.desk.finetuning.encoder import Encoder
from fedlingua.desk.finetuning.iob import Tagged
from fedlingua.desk.finetuning.loop import Example
from fedlingua.training.batches import IGNORED


def tagging_examples(sentences: Iterable[Tagged], tags: Sequence[str], encoder: Encoder) -> list[Example]:
    """The sentences as ids with labels, numbers in `tags`; a long one is cut between words, so that every word is asked for once."""
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
    """The answers at the asked places of each example, in order, as one list of tags a sentence."""
    said = iter(tags[number] for answer in answers for number in answer)
    found = [[next(said) for _ in sentence.tokens] for sentence in sentences]
    assert next(said, None) is None, "more answers than words"
    return found


def _windows(lengths: Sequence[int], budget: int) -> Iterator[tuple[int, int]]:
    """(first, end) of words that fill a window each, as full as they come."""
    first, used = 0, 0
    for number, length in enumerate(lengths):
        if used + length > budget:
            yield first, number
            first, used = number, 0
        used += length
    yield first, len(lengths)
