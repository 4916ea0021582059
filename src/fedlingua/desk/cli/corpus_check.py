"""`fedlingua corpus check`: what is in a corpus, what cleaning would drop of it, and why. Shows text: it is for the corpus's owner."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedlingua.common.errors import CorpusError
from fedlingua.corpora.clean import CleaningRules
from fedlingua.desk.cli.corpus_input import CorpusInput
from fedlingua.desk.corpora.statistics import Statistics, as_json, corpus_statistics, summary

_WIDTH = 60
"""Characters of a sample that a terminal is shown."""


def check_corpus(corpus: CorpusInput, rules: CleaningRules, samples: int, console: Console) -> dict[str, Any]:
    """Read all of a corpus and show its figures; returns them.

    Raises:
        CorpusError: it cannot be read, its sides are swapped, or rules are strict and something would be dropped; then after the figures.
    """
    found = corpus_statistics(corpus.read(), corpus.direction, rules, samples, corpus.name)
    told = {"corpus": corpus.name, **as_json(found, corpus.direction)}
    _show(corpus, found, console)
    account = found.account
    if rules.strict and account.kept < account.read:
        reasons = ", ".join(f"{reason} {count}" for reason, count in account.dropped.items())
        raise CorpusError(
            f"{corpus.name}: {account.read - account.kept} of {account.read} pairs would be dropped ({reasons})", answer=told
        )
    return told


def _show(corpus: CorpusInput, found: Statistics, console: Console) -> None:
    account = found.account
    console.print(f"{corpus.name}, {corpus.direction}: ", end="", markup=False, highlight=False)
    console.print(f"read {account.read:,}, kept {account.kept:,}, dropped {account.read - account.kept:,}", highlight=False)
    if account.dropped:
        dropped = Table("dropped", "pairs", "share")
        for reason, count in account.dropped.items():
            dropped.add_row(reason, f"{count:,}", f"{100 * count / account.read:.2f} %")
        console.print(dropped)
    lengths = Table("length", "in", "least", "median", "mean", "95 %", "most")
    for language, counts in zip((corpus.direction.source, corpus.direction.target), found.lengths, strict=True):
        told = summary(counts, language)
        lengths.add_row(language, told["unit"], *(f"{told[key]:g}" for key in ("least", "median", "mean", "p95", "most")))
    console.print(lengths)
    console.print(f"repeated: {', '.join(f'{name} {count:,}' for name, count in found.repeated.items())}", highlight=False)
    if any(found.samples.values()):
        samples = Table("dropped for", "pair", corpus.direction.source, corpus.direction.target)
        for reason, some in found.samples.items():
            for sample in some:
                samples.add_row(reason, str(sample.number), *map(_clipped, sample.pair))
        console.print(samples)


def _clipped(sentence: str) -> Text:
    """A sentence's beginning, without what a terminal would act on."""
    shown = "".join(letter if letter.isprintable() else "·" for letter in sentence[:_WIDTH])
    return Text(f"{shown}…" if len(sentence) > _WIDTH else shown)
