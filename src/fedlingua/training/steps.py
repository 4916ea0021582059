"""How many examples and optimizer steps a round of a site can have, by the site's own account of its text."""

import math
from collections.abc import Mapping
from typing import Any

from fedlingua.settings.config import Settings
from fedlingua.training.sampling import most_samples, num_samples


def examples_of(settings: Settings, about: Mapping[str, Any]) -> tuple[int, int]:
    """Return the least and the most examples of one epoch, before they are cut to whole steps. Each pair is an example. A sequence of
    text in one language holds one sentence or more."""
    sentences, texts = int(about["train"]), len(about["directions"])
    least = sentences if settings.task == "translation" else 1
    if not settings.draws:
        return least, sentences
    drawn = num_samples(least, settings.sample_least, settings.sample_share)
    return max(1, drawn - texts + 1), most_samples(sentences, texts, settings.sample_least, settings.sample_share)


def most_steps(settings: Settings, about: Mapping[str, Any]) -> int:
    """Return the most optimizer steps that a site takes in a round, by its own account of its text."""
    if settings.trains_privately:
        return settings.local_epochs
    of_epoch = in_an_epoch(examples_of(settings, about)[1], settings)
    window = 1 if settings.tokens_per_batch else settings.batch_size * settings.accumulation
    return math.ceil(of_epoch / window) * settings.local_epochs


def in_an_epoch(examples: int, settings: Settings) -> int:
    """Return how many of an epoch's examples are trained on: under `whole_steps` a multiple of a step's, if they fill one."""
    window = settings.batch_size * settings.accumulation
    in_part = settings.tokens_per_batch or not settings.whole_steps or examples < window
    return examples if in_part else examples // window * window
