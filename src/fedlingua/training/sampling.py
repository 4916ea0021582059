"""How much of a site's text one round trains on, and which: Manoel et al. 2022, §2.3 and table 2."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Sampling:
    """least, share: see `num_samples`; both 0: no sampling, all there is, each once. temperature: of several texts that are trained on as
    one, each counts by its size to the power of 1 / temperature: 1 is by size, more is more alike.
    """

    least: int = 0
    share: float = 0.0
    temperature: float = 1.0

    def drawn(self, texts: Sequence[Sequence[T]], rng: Random) -> list[T]:
        """What one epoch trains on. Of several texts as many in all as if each were trained on by itself."""
        texts = [text for text in texts if text]
        if not (self.least or self.share):
            return [one for text in texts for one in text]
        number = sum(num_samples(len(text), self.least, self.share) for text in texts)
        if len(texts) == 1:
            return rng.choices(texts[0], k=number)
        weights = tempered([len(text) for text in texts], self.temperature)
        return [rng.choice(text) for text in rng.choices(texts, weights, k=number)]


def num_samples(num_examples: int, least: int, share: float) -> int:
    """max(least, share x N), halves up, and at least 1; drawn uniformly with replacement."""
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
