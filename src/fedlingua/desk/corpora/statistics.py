"""Statistics of a raw corpus: its account, lengths, repetitions, and samples of what cleaning drops.

A number for every sentence, and every pair for the rule against duplicates, are held in memory. Samples quote the text.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedlingua.common.languages import Direction, without_spaces
from fedlingua.corpora.clean import Account, CleaningRules, judge, judged, length, normalized, seen_pair
from fedlingua.corpora.read import Pair
from fedlingua.corpora.scripts import in_order


@dataclass
class Statistics:
    """lengths: for each side, length -> number of sentences. repeated: number of pairs, sources and targets that occurred before.
    samples: reason -> some pairs dropped for it, each with its number in the corpus, from 1.
    """

    account: Account = field(default_factory=Account)
    lengths: tuple[Counter[int], Counter[int]] = field(default_factory=lambda: (Counter(), Counter()))
    repeated: dict[str, int] = field(default_factory=lambda: {"pairs": 0, "sources": 0, "targets": 0})
    samples: dict[str, list[tuple[int, Pair]]] = field(default_factory=dict)


def corpus_statistics(pairs: Iterable[Pair], direction: Direction, rules: CleaningRules, most: int, where: str) -> Statistics:
    """Read a whole corpus; strict rules only drop pairs here. most: samples per reason. Raises CorpusError if the sides are swapped."""
    statistics = Statistics()
    seen: tuple[set[int], set[int], set[int]] = (set(), set(), set())
    usual = normalized(in_order(pairs, direction, where), rules)
    reason = judge(direction, dataclasses.replace(rules, strict=False))
    for pair, against in judged(usual, reason, statistics.account):
        if against is not None and len(samples := statistics.samples.setdefault(against, [])) < most:
            samples.append((statistics.account.read, pair))
        for lengths, side, language in zip(statistics.lengths, pair, direction.sides, strict=True):
            lengths[length(side, language)] += 1
        compared = seen_pair(pair)
        for name, known, number in zip(statistics.repeated, seen, map(hash, (compared, *compared)), strict=True):
            statistics.repeated[name] += number in known
            known.add(number)
    return statistics


def as_json(statistics: Statistics, direction: Direction) -> dict[str, Any]:
    """Return the figures as a JSON object, with the samples' text."""
    lengths = zip(direction.sides, statistics.lengths, strict=True)
    return {
        "direction": str(direction),
        "read": statistics.account.read,
        "kept": statistics.account.kept,
        "dropped": statistics.account.dropped,
        "lengths": {language: summary(counts, language) for language, counts in lengths},
        "repeated": statistics.repeated,
        "samples": {
            reason: [{"pair": number, **pair._asdict()} for number, pair in samples]
            for reason, samples in statistics.samples.items()
        },
    }


def summary(counts: Mapping[int, int], language: str) -> dict[str, Any]:
    """Return minimum, median, mean, 95th percentile and maximum of lengths, in words, or in characters for languages without spaces."""
    lengths, weights = [*counts] or [0], [*counts.values()] or [1]
    least, median, p95, most = np.quantile(lengths, (0.0, 0.5, 0.95, 1.0), weights=weights, method="inverted_cdf").tolist()
    return {
        "unit": "characters" if without_spaces(language) else "words",
        "least": least,
        "median": median,
        "mean": round(float(np.average(lengths, weights=weights)), 2),
        "p95": p95,
        "most": most,
    }
