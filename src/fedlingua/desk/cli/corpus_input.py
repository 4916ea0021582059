"""What the commands over one corpus have in common: which corpus is meant, by which rules it is cleaned, and how far the reading is."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import read_toml
from fedlingua.common.languages import Direction, parse_direction
from fedlingua.common.tables import refuse_unknown, table
from fedlingua.corpora.clean import CleaningRules, read_cleaning
from fedlingua.corpora.formats import FILE_FORMATS, corpus_of, options_of
from fedlingua.corpora.read import Corpus, Pair, side_paths
from fedlingua.desk.cli.output import AnsweringConsole
from fedlingua.settings.experiment import parse_override

_OFTEN = 5000


@dataclass(frozen=True)
class CorpusInput:
    """One corpus as a command is given it. name: as it was written."""

    name: str
    direction: Direction
    corpus: Corpus[Pair]

    def read(self) -> Iterator[Pair]:
        """The pairs as they stand, counted on the terminal while they come."""
        return _watched(self.corpus.read(), self.name)


def corpus_input(name: str, direction: str, kind: str | None, options: Sequence[str]) -> CorpusInput:
    """The corpus of a name, of the kind that its ending tells unless one is named. options: key=value as in a federation file.

    Raises:
        ConfigError: a kind that is not known or cannot be told, or an option that it has not.
    """
    parsed = parse_direction(direction, "--direction")
    found = kind or _kind(name, parsed)
    if found not in FILE_FORMATS:
        raise ConfigError(f"--kind {found} is not known; choose one of {', '.join(FILE_FORMATS)}")
    values = dict(parse_override(text, "--option", "columns=[1,0]") for text in options)
    refuse_unknown(values, set(options_of(FILE_FORMATS)), "--option")
    entry = {found: name, **values}
    return CorpusInput(name, parsed, corpus_of(entry, parsed, name, Path(), FILE_FORMATS))


def _kind(name: str, direction: Direction) -> str:
    plain = name.removesuffix(".gz")
    for ending, kind in {".zip": "opus", **{f".{kind}": kind for kind in ("tsv", "tmx", "jsonl", "parquet")}}.items():
        if plain.endswith(ending):
            return kind
    if "{}" in name:
        return "nway"
    if Path(name).is_dir():
        return "dataset"
    if side_paths(Path(name), direction)[0].is_file():
        return "moses"
    raise ConfigError(f"{name}: its ending tells no kind of corpus; name it with --kind: {', '.join(FILE_FORMATS)}")


def cleaning_rules(file: Path | None, changes: Sequence[str], strict: bool) -> CleaningRules:
    """The rules of a file's [cleaning], a federation's or a recipe's, or the defaults; with changes (key=value) before both.

    Raises:
        ConfigError: a file that is not there, or a key or value that is no rule.
    """
    raw = table(read_toml(file), "cleaning", str(file)) if file else {}
    read_cleaning(raw, f"{file} [cleaning]")  # by itself, so that --set is not blamed for what stands in the file
    rules = read_cleaning({**raw, **dict(parse_override(text, "--set", "min-words=1") for text in changes)}, "--set")
    return dataclasses.replace(rules, strict=rules.strict or strict)


def parse_shares(text: str) -> tuple[float, float, float]:
    """Three numbers with commas between them.

    Raises:
        ConfigError: anything else.
    """
    try:
        train, dev, test = map(float, text.split(","))
    except ValueError:
        raise ConfigError(f"--shares {text}: wanted three shares that add up to 1, as in 0.6,0.2,0.2") from None
    return train, dev, test


def _watched(pairs: Iterable[Pair], name: str) -> Iterator[Pair]:
    """The same pairs, with a bar on standard error, where it is in no answer's way, if that is a terminal."""
    console = AnsweringConsole(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f} pairs"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(escape(Path(name).name), total=None)
        for number, pair in enumerate(pairs, start=1):
            if number % _OFTEN == 0:
                progress.update(task, completed=number)
            yield pair
