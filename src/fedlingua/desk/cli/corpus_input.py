"""Options for a corpus and for cleaning rules, which several commands share."""

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from typer import Argument, Option

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import read_toml
from fedlingua.common.languages import Direction, parse_direction
from fedlingua.common.tables import check_choice, refuse_unknown, table
from fedlingua.corpora.clean import CleaningRules, read_cleaning
from fedlingua.corpora.damage import Damage
from fedlingua.corpora.formats import FILE_FORMATS, corpus_of, options_of
from fedlingua.corpora.read import Corpus, Pair, side_paths
from fedlingua.desk.cli.output import AnsweringConsole, say
from fedlingua.desk.experiment import parse_override


@dataclass(frozen=True)
class CorpusInput:
    """One corpus, of the given kind or of the kind that its name implies."""

    corpus: Annotated[
        str,
        Argument(
            help="Corpus: .tsv, .csv, .tmx, .jsonl (also .gz), .parquet, .po, .mo, OPUS's .zip, X of X.de and X.fr, dev.{}.txt, a folder."
        ),
    ]
    direction: Annotated[str, Option(help="Source and target, such as de-fr.")]
    kind: Annotated[
        str | None, Option(help="tsv, csv, moses, nway, opus, tmx, po, jsonl, parquet or dataset; default: by the name's ending.")
    ] = None
    option: Annotated[
        list[str] | None, Option("--option", help="Further keys, as in a federation file: columns=[1,0], fields, subset, split.")
    ] = None

    @cached_property
    def parsed(self) -> Direction:
        """Return the direction, parsed; raise ConfigError if it is invalid."""
        return parse_direction(self.direction, "--direction")

    @cached_property
    def files(self) -> Corpus[Pair]:
        """Return the corpus, opened by its kind; raise ConfigError for an unknown kind, or an option that it does not have."""
        kind = self.kind or _kind(self.corpus, self.parsed)
        check_choice(kind, FILE_FORMATS, "--kind")
        values = dict(parse_override(text, "--option", "columns=[1,0]") for text in self.option or ())
        refuse_unknown(values, set(options_of(FILE_FORMATS)), "--option")
        return corpus_of({kind: self.corpus, **values}, self.parsed, self.corpus, Path(), FILE_FORMATS)

    @cached_property
    def damage(self) -> Damage:
        """Return the counts of what is damaged in the pairs that were read."""
        return Damage(self.parsed)

    def read(self) -> Iterator[Pair]:
        """Return the raw pairs; a terminal shows a count while they are read."""
        return _watched(self.damage.over(self.files.read()), self.corpus)

    def warn(self, *more: str) -> dict[str, Any]:
        """Print a warning for each kind of damage in the pairs that were read, after `more`; return them as a part of the answer."""
        warnings = [*filter(None, more), *self.damage.warnings(self.corpus)]
        for text in warnings:
            say(f"warning: {text}")
        return {"warnings": warnings} if warnings else {}


@dataclass(frozen=True)
class CleaningOptions:
    """Cleaning rules: [cleaning] of a federation file or a recipe, or the defaults, each with the changes of --set."""

    rules: Annotated[Path | None, Option("--rules", help="Take the table `cleaning` of this federation file or recipe.")] = None
    set_: Annotated[list[str] | None, Option("--set", help="Change a key of the table `cleaning`: KEY=VALUE; repeatable.")] = None
    strict: Annotated[bool, Option("--strict", help="Fail if any pair would be dropped.")] = False

    def read(self) -> CleaningRules:
        """Return the cleaning rules; raise ConfigError for a missing file, or an invalid key or value."""
        raw = table(read_toml(self.rules), "cleaning", str(self.rules)) if self.rules else {}
        read_cleaning(raw, f"{self.rules} [cleaning]")  # checked alone, so that --set is not blamed for what is in the file
        changes = dict(parse_override(text, "--set", "min-words=1") for text in self.set_ or ())
        rules = read_cleaning({**raw, **changes}, "--set")
        return dataclasses.replace(rules, strict=rules.strict or self.strict)


def ending_kind(name: str) -> str | None:
    """Return the kind of corpus that a file's ending names, or None."""
    endings = {".zip": "opus", ".mo": "po", **{f".{kind}": kind for kind in ("tsv", "csv", "tmx", "po", "jsonl", "parquet")}}
    return endings.get(Path(name.removesuffix(".gz")).suffix)


def _kind(name: str, direction: Direction) -> str:
    if kind := ending_kind(name):
        return kind
    if "{}" in name:
        return "nway"
    if Path(name).is_dir():
        return "dataset"
    if side_paths(Path(name), direction)[0].is_file():
        return "moses"
    raise ConfigError(f"{name}: its ending names no kind of corpus; give --kind: {', '.join(FILE_FORMATS)}")


def _watched(pairs: Iterable[Pair], name: str) -> Iterator[Pair]:
    """Yield the same pairs, with a progress bar on standard error if that is a terminal; the answer goes to standard output."""
    console = AnsweringConsole(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f} pairs"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield from progress.track(pairs, description=escape(Path(name).name))
