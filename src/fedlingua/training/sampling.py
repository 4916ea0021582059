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
        number = sum(num_samples(len(text), self.least, self.share) for text in texts)
        if not number:
            return [one for text in texts for one in text]
        if len(texts) == 1:
            return rng.choices(texts[0], k=number)
        weights = tempered([len(text) for text in texts], self.temperature)
        return [rng.choice(text) for text in rng.choices(texts, weights, k=number)]


def num_samples(num_examples: int, least: int, share: float) -> int:
    """max(least, share x N), halves up; drawn uniformly with replacement."""
    return max(least, int(share * num_examples + 0.5))


def tempered(sizes: Sequence[int], temperature: float) -> list[float]:
    """Shares that add up to 1: by size at a temperature of 1, alike at an infinite one."""
    powers = [(size / max(sizes)) ** (1 / temperature) for size in sizes]
    return [power / sum(powers) for power in powers]
