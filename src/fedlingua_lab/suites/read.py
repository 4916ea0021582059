"""Read suite files (docs/files.md): the rows of a table and the seeds become checked settings for every row."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlingua.common.errors import BackboneError, ConfigError, CorpusError
from fedlingua.common.files import read_toml
from fedlingua.common.languages import nearest
from fedlingua.common.tables import refuse_unknown, table
from fedlingua.corpora.sites import Federation
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import MAY_CHANGE, Scalar, Settings
from fedlingua.settings.experiment import default_run_config
from fedlingua.settings.kinds import flat_keys
from fedlingua.settings.methods import METHOD_NAMES
from fedlingua_lab.suites.paper import PAPERS, unlike_the_paper

TABLES = {"title", "seeds", "settings", "row", "paper"}
ROW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
"""The form of a row's name; it is restricted because folders are named after rows."""
OF_THE_SUITE = {
    "seed": "the suite's `seeds` list them",
    "run-dir": "--runs names the folder of the runs",
    "data-dir": "give it with --data",
    "resume": "a suite resumes interrupted runs by itself",
}
"""Key that a row may not set -> what sets it instead."""
WITHOUT_BEARING = frozenset({"device", "threads", *MAY_CHANGE})
"""Keys that may differ from a paper's setting, because they only say where a run takes place and how long the server waits."""


@dataclass(frozen=True)
class Row:
    """A row of the table. keys: As in the file. settings: Complete, checked, with the suite's first seed. seeds: The seeds of its runs."""

    name: str
    keys: Mapping[str, Scalar]
    settings: Settings
    seeds: tuple[int, ...]

    @property
    def trains(self) -> bool:
        return self.settings.how.trains


@dataclass(frozen=True)
class PaperTable:
    """A paper's own figures. by: Its authors. rows: Row -> site, "macro" or "micro" -> BLEU, where the paper gives a figure."""

    table: str
    by: str
    rows: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Suite:
    """A suite file, read and checked. settings: As in the file. overrides: Keys given by --set. paper: The file's [paper]. variant: The
    name of the file's variant that was chosen, or ""."""

    file: Path
    title: str
    seeds: tuple[int, ...]
    settings: Mapping[str, Scalar]
    overrides: Mapping[str, Scalar]
    rows: tuple[Row, ...]
    paper: PaperTable | None
    variant: str = ""

    @property
    def name(self) -> str:
        return f"{self.file.stem}_{self.variant}" if self.variant else self.file.stem

    @property
    def shown_paper(self) -> PaperTable | None:
        """The paper's figures; None if --set changes the paper's setting."""
        return None if set(self.overrides) - WITHOUT_BEARING else self.paper

    def seeds_of(self, row: Row) -> tuple[int, ...]:
        """Return a row's seeds; only the first if it trains nothing, because its result is then the same under every seed."""
        return row.seeds if row.trains else row.seeds[:1]


def is_suite(content: Mapping[str, Any]) -> bool:
    """Return whether a TOML file is a suite rather than an experiment."""
    return "row" in content


def read_suite(file: Path, overrides: Mapping[str, Scalar], data_dir: str = "") -> Suite:
    """Read a suite file or FILE:VARIANT, but none of the files that it names. overrides: Values that replace the file's [settings].

    Raises:
        ConfigError: A key is unknown, a value is wrong, a name is given twice, no seed is given, a row also sets an overridden key, or a
            paper's figures are given in a setting other than its own.
    """
    name, _, variant = str(file).rpartition(":")
    file, variant = (file, "") if file.exists() or not Path(name).is_file() else (Path(name), variant)
    raw, where = read_toml(file), file.name
    if not is_suite(raw):
        raise ConfigError(f"{where} has no [[row]], so it is not a suite; `fedlingua run` runs an experiment file")
    raw = _with_variant(raw, variant, where)
    refuse_unknown(raw, TABLES, where)
    shared = flat_keys(table(raw, "settings", where))
    _refuse_the_suites_keys(shared, f"{where} [settings]")
    _refuse_the_suites_keys(overrides, "--set")
    seeds = _seeds(raw.get("seeds"), where)
    entries = _entries(raw["row"], where)
    first: dict[str, Scalar] = {"data-dir": data_dir, "seed": seeds[0]}
    rows, plain = [], dict[str, Settings]()
    for name, keys in entries.items():
        own_seeds = _seeds(keys.pop("seeds"), f"{where}, row {name}", seeds) if "seeds" in keys else seeds
        if both := sorted(set(keys) & set(overrides)):
            raise ConfigError(f"--set {both[0]}: row {name} of {where} sets it itself; leave it out")
        with naming_row(where, name):
            settings = settings_from({**default_run_config(), **shared, **keys, **overrides, **first})
            plain[name] = settings_from({**default_run_config(), **shared, **keys, **first}) if "paper" in raw else settings
        rows.append(Row(name, keys, settings, own_seeds))
    paper = _paper(table(raw, "paper", where), plain, where) if "paper" in raw else None
    title = raw.get("title", file.stem)
    if not isinstance(title, str) or not title.strip():
        raise ConfigError(f"{where}: title = {title!r}; wanted a line of text")
    return Suite(file, " ".join(title.split()), seeds, shared, overrides, tuple(rows), paper, variant)


def variants(file: Path) -> list[str]:
    """Return the variant names that may follow `FILE:`, with "" first if the file itself is a suite."""
    raw = read_toml(file)
    names = list(table(raw, "variant", file.name))
    return names if names and "title" not in raw else ["", *names]


def _with_variant(raw: Mapping[str, Any], variant: str, where: str) -> dict[str, Any]:
    """Return the file's tables with those of the variant in their place; only the settings are merged."""
    own = table(raw, "variant", where)
    shared = {key: value for key, value in raw.items() if key != "variant"}
    if not variant:
        if own and "title" not in raw:
            raise ConfigError(f"{where} has only variants; give one of them, {where}:{', '.join(own)}")
        return shared
    if variant not in own:
        raise ConfigError(
            f"{where}:{variant}: there is no such variant{nearest(variant, own)}; variants: {', '.join(own) or 'none'}"
        )
    here = f"{where} [variant.{variant}]"
    changes = table(own, variant, where)
    refuse_unknown(changes, TABLES, here)
    settings = flat_keys(table(shared, "settings", where)) | flat_keys(table(changes, "settings", here))
    return {**shared, **changes, "settings": settings}


@contextmanager
def naming_row(file: str, row: str) -> Iterator[None]:
    """Prefix error messages with the names of the suite file and the row."""
    try:
        yield
    except (ConfigError, CorpusError, BackboneError) as error:
        raise ConfigError(f"{file}, row {row}: {error}") from error


def _refuse_the_suites_keys(keys: Collection[str], where: str) -> None:
    for key in keys:
        if key in OF_THE_SUITE:
            raise ConfigError(f"{where}: {key} may not be given here; {OF_THE_SUITE[key]}")


def _seeds(raw: Any, where: str, suite: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Check and return seeds. suite: The whole suite's seeds, when a row gives its own."""
    whole = isinstance(raw, list) and all(type(seed) is int and seed >= 0 for seed in raw)
    if not whole or not raw or len(set(raw)) < len(raw):
        wanted = "a list of different whole numbers from 0 on, such as [2022, 2023, 2024]"
        raise ConfigError(f"{where}: seeds = {raw!r}; wanted {wanted}")
    if suite is not None and not set(raw) <= set(suite):
        raise ConfigError(f"{where}: seeds = {raw!r}; wanted some of the suite's, which are {list(suite)}")
    return tuple(raw)


def _entries(raw: Any, where: str) -> dict[str, dict[str, Scalar]]:
    """Return row name -> its other keys, including `seeds`, in the file's order."""
    if not isinstance(raw, list) or not raw:
        raise ConfigError(f"{where}: row = {raw!r}; write [[row]] for each row")
    entries: dict[str, dict[str, Scalar]] = {}
    for number, entry in enumerate(raw, start=1):
        if not isinstance(entry, Mapping):
            raise ConfigError(f"{where}, row {number} = {entry!r}; wanted a table, [[row]] with keys below it")
        keys = flat_keys(entry)
        name = keys.pop("name", keys.get("method"))
        if "method" not in keys:
            raise ConfigError(f"{where}, row {name or number}: method is missing; choose one of {METHOD_NAMES}")
        if not isinstance(name, str) or not ROW_NAME.fullmatch(name):
            raise ConfigError(f"{where}, row {number}: name = {name!r}; wanted letters, digits, '.', '_', '+' and '-'")
        if name in entries:
            raise ConfigError(f"{where}: two rows have the name {name!r}; give one of them its own `name`")
        _refuse_the_suites_keys(keys, f"{where}, row {name}")
        entries[name] = keys
    return entries


def _paper(raw: Mapping[str, Any], rows: Mapping[str, Settings], where: str) -> PaperTable:
    here = f"{where} [paper]"
    refuse_unknown(raw, {"table", "of", "rows"}, here)
    if not isinstance(raw.get("table"), str):
        raise ConfigError(f"{here}: table = {raw.get('table')!r}; wanted which table of the paper it is, such as 'table 2'")
    if raw.get("of", "fed-mnmt") not in PAPERS:
        raise ConfigError(f"{here}: of = {raw['of']!r}; wanted one of {', '.join(PAPERS)}")
    paper = PAPERS[raw.get("of", "fed-mnmt")]
    figures: dict[str, dict[str, float]] = {}
    of_rows = table(raw, "rows", here)
    for name in of_rows:
        if name not in rows:
            raise ConfigError(f"{here}: rows.{name}: there is no such row{nearest(name, rows)}; rows: {', '.join(rows)}")
        figures[name] = {}
        for column, figure in table(of_rows, name, f"{here}: rows").items():
            if type(figure) not in (int, float) or not 0 <= figure <= 100:
                raise ConfigError(f"{here}: rows.{name}: {column} = {figure!r}; wanted BLEU, a number from 0 to 100")
            figures[name][column] = float(figure)
    for name, settings in rows.items():
        for key, (got, wanted) in unlike_the_paper(settings, paper).items():
            raise ConfigError(
                f"{here}: row {name} has {key} = {got!r} and the paper {wanted}; its figures are shown only beside its own setting, "
                "so remove [paper] or the difference"
            )
    return PaperTable(raw["table"], paper.by, figures)


def check_figures(suite: Suite, federations: Iterable[Federation]) -> None:
    """Raise ConfigError if the paper's figures name a site that none of the rows' federations has."""
    known = [*dict.fromkeys(name for federation in federations for name in federation.site_names), "macro", "micro"]
    for name, figures in (suite.paper.rows if suite.paper else {}).items():
        for column in figures:
            if column not in known:
                raise ConfigError(
                    f"{suite.file.name} [paper]: rows.{name}.{column}: the federation has no such site{nearest(column, known)}; "
                    f"known: {', '.join(known)}"
                )
