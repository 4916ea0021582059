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
from fedlingua.common.tables import check_choice, refuse_unknown, table
from fedlingua.corpora.sites import Federation
from fedlingua.desk.experiment import beside
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
    """A row of the table. keys: As in the file. settings: Complete, checked, with the suite's first seed. seeds: The seeds of its runs,
    only the first if it trains nothing, because its result is then the same under every seed."""

    name: str
    keys: Mapping[str, Scalar]
    settings: Settings
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class PaperTable:
    """A paper's own figures. of: Its name in PAPERS. rows: Row -> site, "macro" or "micro" -> BLEU, where the paper gives a figure."""

    table: str
    of: str
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
    rows = []
    for name, keys in _entries(raw["row"], where).items():
        of_row = _seeds(keys.pop("seeds", list(seeds)), f"{where}, row {name}", seeds)
        if both := sorted(set(keys) & set(overrides)):
            raise ConfigError(f"--set {both[0]}: row {name} of {where} sets it itself; leave it out")
        with naming_row(where, name):
            in_file = {**shared, **keys}
            given = {
                **default_run_config(),
                **in_file,
                **beside(file, in_file),
                **overrides,
                "data-dir": data_dir,
                "seed": seeds[0],
            }
            settings = settings_from(given)
        rows.append(Row(name, keys, settings, of_row if settings.how.trains else of_row[:1]))
    title = raw.get("title", file.stem)
    if not isinstance(title, str) or not title.strip():
        raise ConfigError(f"{where}: title = {title!r}; wanted a line of text")
    paper = _paper(table(raw, "paper", where), [row.name for row in rows], where) if "paper" in raw else None
    suite = Suite(file, " ".join(title.split()), seeds, shared, overrides, tuple(rows), paper, variant)
    if shown := suite.shown_paper:
        for row in rows:
            for key, (got, wanted) in unlike_the_paper(row.settings, PAPERS[shown.of]).items():
                raise ConfigError(
                    f"{where} [paper]: row {row.name} has {key} = {got!r} and the paper {wanted}; its figures are shown only beside its "
                    "own setting, so remove [paper] or the difference"
                )
    return suite


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


def _seeds(raw: Any, where: str, suite: Collection[int] | None = None) -> tuple[int, ...]:
    """Check and return seeds. suite: The whole suite's seeds, when a row gives its own."""
    whole = isinstance(raw, list) and all(type(seed) is int and seed >= 0 for seed in raw)
    if not whole or not raw or len(set(raw)) < len(raw):
        raise ConfigError(
            f"{where}: seeds = {raw!r}; wanted a list of different whole numbers from 0 on, such as [2022, 2023, 2024]"
        )
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


def _paper(raw: Mapping[str, Any], rows: Collection[str], where: str) -> PaperTable:
    here = f"{where} [paper]"
    refuse_unknown(raw, {"table", "of", "rows"}, here)
    if not isinstance(raw.get("table"), str):
        raise ConfigError(f"{here}: table = {raw.get('table')!r}; wanted which table of the paper it is, such as 'table 2'")
    of, figures = str(raw.get("of", "fed-mnmt")), table(raw, "rows", here)
    check_choice(of, PAPERS, f"{here}: of =")
    refuse_unknown(figures, rows, f"{here}: rows")
    for name in figures:
        for column, figure in table(figures, name, f"{here}: rows").items():
            if type(figure) not in (int, float) or not 0 <= figure <= 100:
                raise ConfigError(f"{here}: rows.{name}: {column} = {figure!r}; wanted BLEU, a number from 0 to 100")
    return PaperTable(raw["table"], of, figures)


def check_figures(suite: Suite, federations: Iterable[Federation]) -> None:
    """Raise ConfigError if the paper's figures name a site that none of the rows' federations has."""
    known = {name for federation in federations for name in federation.site_names} | {"macro", "micro"}
    for name, figures in (suite.paper.rows if suite.paper else {}).items():
        refuse_unknown(figures, known, f"{suite.file.name} [paper]: rows.{name}")
