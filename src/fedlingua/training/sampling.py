"""Sampling of the examples that a site trains on in a round: Manoel et al. 2022, §2.3 and table 2."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from fedlingua.settings.config import Settings

T = TypeVar("T")


def sampled(texts: Sequence[Sequence[T]], settings: Settings, rng: Random, draw: int = 0) -> list[T]:
    """Return the examples of one epoch; from several texts, as many as if each were trained on alone. draw: The epoch's number, from 0.
    Without replacement each draw continues where the one before ended, so no example repeats before all were drawn.
    """
    texts = [text for text in texts if text]
    examples = [example for text in texts for example in text]
    if not settings.draws:
        return examples
    number = sum(num_samples(len(text), settings.sample_least, settings.sample_share) for text in texts)
    if not settings.sample_replacement:
        return in_passes(examples, draw * number, number, f"{settings.seed}/pass")
    if len(texts) == 1:
        return rng.choices(texts[0], k=number)
    weights = tempered([len(text) for text in texts], settings.sampling_temperature)
    return [rng.choice(text) for text in rng.choices(texts, weights, k=number)]


def in_passes(examples: Sequence[T], first: int, number: int, key: str) -> list[T]:
    """Return examples `first` to `first + number` of endless passes, each over all examples in its own random order."""
    taken: list[T] = []
    while len(taken) < number:
        done, place = divmod(first + len(taken), len(examples))
        order = Random(f"{key}/{done}").sample(range(len(examples)), len(examples))
        taken += [examples[chosen] for chosen in order[place : place + number - len(taken)]]
    return taken


def num_samples(num_examples: int, least: int, share: float) -> int:
    """Return max(least, share x N), halves rounded up, and at least 1."""
    return max(least, int(share * num_examples + 0.5), 1)


def most_samples(num_examples: int, num_texts: int, least: int, share: float) -> int:
    """Return the most examples that `num_texts` texts with `num_examples` in total draw in an epoch, however these are spread.

    Rounding adds less than one to each text; for one text it is `num_samples`.
    """
    return num_samples(num_examples, least, share) + (num_texts - 1) * max(least + 1, 2)


def tempered(sizes: Sequence[int], temperature: float) -> list[float]:
    """Return shares that add up to 1: by size at a temperature of 1, equal at an infinite one."""
    powers = [size ** (1 / temperature) for size in sizes]
    total = sum(powers)
    return [power / total for power in powers]
