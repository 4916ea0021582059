"""How much of a site's text one round trains on, and which: Manoel et al. 2022, §2.3 and table 2."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Sampling:
    """least, share: see `num_samples`; both 0: no sampling, all there is, each once. temperature: of several texts that are trained on as
    one, each counts by its size to the power of 1 / temperature: 1 is by size, more is more alike. passes: the key that orders each pass
    over all texts, where draws are without replacement; empty: they are with replacement.
    """

    least: int = 0
    share: float = 0.0
    temperature: float = 1.0
    passes: str = ""

    def drawn(self, texts: Sequence[Sequence[T]], rng: Random, draw: int = 0) -> list[T]:
        """What one epoch trains on. Of several texts as many in all as if each were trained on by itself. draw: its number, from 0; without
        replacement each draw goes on where the one before ended, so that nothing comes again before everything came.
        """
        texts = [text for text in texts if text]
        if not (self.least or self.share):
            return [example for text in texts for example in text]
        number = sum(num_samples(len(text), self.least, self.share) for text in texts)
        if self.passes:
            return in_passes([example for text in texts for example in text], draw * number, number, self.passes)
        if len(texts) == 1:
            return rng.choices(texts[0], k=number)
        weights = tempered([len(text) for text in texts], self.temperature)
        return [rng.choice(text) for text in rng.choices(texts, weights, k=number)]


def in_passes(examples: Sequence[T], first: int, number: int, key: str) -> list[T]:
    """Examples `first` to `first + number` of an endless row of passes, each over all examples in an order of its own."""
    taken: list[T] = []
    while len(taken) < number:
        done, place = divmod(first + len(taken), len(examples))
        order = Random(f"{key}/{done}").sample(range(len(examples)), len(examples))
        taken += [examples[chosen] for chosen in order[place : place + number - len(taken)]]
    return taken


def num_samples(num_examples: int, least: int, share: float) -> int:
    """max(least, share x N), halves up, and at least 1."""
    return max(least, int(share * num_examples + 0.5), 1)


def most_samples(num_examples: int, num_texts: int, least: int, share: float) -> int:
    """As many as so many texts of so many examples in all may draw in one epoch, however the examples lie in them.

    Halves up adds less than one to each text; of one text it is what `num_samples` says.
    """
    return num_samples(num_examples, least, share) + (num_texts - 1) * max(least + 1, 2)


def tempered(sizes: Sequence[int], temperature: float) -> list[float]:
    """Shares that add up to 1: by size at a temperature of 1, alike at an infinite one."""
    powers = [size ** (1 / temperature) for size in sizes]
    total = sum(powers)
    return [power / total for power in powers]
