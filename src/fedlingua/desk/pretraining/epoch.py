"""What one epoch of a pre-training sees of several texts."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from fedlingua.training.sampling import tempered

T = TypeVar("T")


def epoch(texts: Sequence[Sequence[T]], temperature: float, rng: Random) -> list[T]:
    """About as many examples as there are in all texts, of text i a share p_i ~ n_i^(1/temperature) (Arivazhagan et al. 2019, §4.2).

    At 1 that is every example once. Above it a small text comes whole as often as its share asks, and of what is left over, as of a large
    text, so many are drawn without replacement: no example is seen twice more often than another of its text.
    """
    if temperature == 1:
        return [one for text in texts for one in text]
    texts = [text for text in texts if text]
    seen: list[T] = []
    for text, number in zip(texts, epoch_sizes([len(text) for text in texts], temperature), strict=True):
        whole, rest = divmod(number, len(text))
        seen += [*text] * whole + rng.sample(text, rest)
    return seen


def epoch_sizes(sizes: Sequence[int], temperature: float) -> list[int]:
    """Of each text, how many examples an epoch has: its share of all there are, rounded, and at least one."""
    return [max(1, round(share * sum(sizes))) for share in tempered(sizes, temperature)]
