"""Read a suite's result folder: the table, what is known of each run, and the paper's figures where they are told."""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from pydantic import PlainValidator
from pydantic.dataclasses import dataclass as read_dataclass

from fedlingua.common.errors import RunError
from fedlingua.desk.report.communication import Traffic
from fedlingua.desk.report.convergence import Curve, Losses, from_json, mean_curve, perplexities
from fedlingua.desk.report.keep import RUNS_FILE, read_kept_runs
from fedlingua.desk.report.read import read_object
from fedlingua.desk.report.round_seconds import META, PHASES, seconds_column
from fedlingua.desk.report.values import Number, Text, Whole, mapping, number, numbers, objects, read_as, text
from fedlingua.settings.methods import SILO
from fedlingua.settings.metrics import BLEU, METRICS, Metric

BASE = "base"
COSTS = ("exchanged_parameters", "uplink_bytes", "downlink_bytes", "tensor_saving", "number_saving")
CHOICE = ("macro_alone", "macro_federated")
SECONDS = tuple(seconds_column(part) for part in (*PHASES, *META))
MACRO_ACCURACY = "macro_accuracy"
ACCURACY_OF, PARTS_OF, PARTS_SD_OF = "accuracy of ", "parts of ", "sd of parts of "
"""Columns that only masked-language rows have, before a site's name. No site's own column begins so, as no name holds a space."""


def averages(metric: Metric) -> dict[str, str]:
    """What a row knows its averages by -> their columns."""
    key = metric.key
    return {"macro": f"macro_{key}", "macro_sd": f"macro_{key}_sd", "micro": f"micro_{key}", "pooled": f"pooled_{key}"}


def known_columns(metric: Metric) -> tuple[str, ...]:
    """All columns but those of the sites and of masked text."""
    return ("method", *averages(metric).values(), *CHOICE, *COSTS, *SECONDS, "seeds")


def _cell(cell: Any) -> float | None:
    """A cell as a finite number; an empty one, or anything else, is none."""
    try:
        value = float(cell or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


Cell = Annotated[float | None, PlainValidator(_cell)]


@read_dataclass(frozen=True)
class Row:
    """One method over its seeds: mean score of each site and the averages; bytes of a site and round; shares not sent, 0-1.

    Of masked pieces also: accuracy, how many were guessed, in %; parts, (mean, standard deviation) of the perplexity of four parts of each
    site's text.
    """

    name: Text
    sites: dict[Text, float]
    seeds: Annotated[int | None, PlainValidator(lambda cell: None if _cell(cell) is None else int(_cell(cell) or 0))] = None
    macro: Cell = None
    macro_sd: Cell = None
    micro: Cell = None
    pooled: Cell = None
    exchanged_parameters: Cell = None
    uplink_bytes: Cell = None
    downlink_bytes: Cell = None
    tensor_saving: Cell = None
    number_saving: Cell = None
    accuracy: dict[Text, float] = field(default_factory=dict)
    macro_accuracy: Cell = None
    parts: dict[Text, tuple[float, float]] = field(default_factory=dict)

    @property
    def traffic(self) -> Traffic | None:
        """What a site exchanges in a round; None where the table does not say."""
        if self.uplink_bytes is None or self.downlink_bytes is None:
            return None
        return Traffic(self.exchanged_parameters, self.uplink_bytes, self.downlink_bytes)


@read_dataclass(frozen=True)
class SuiteRun:
    """One seed of a row: how it ended, and what it scored if it did.

    `train_seconds`: training of one round, its longest site's. `base_sites`: score of the untouched base at each site.
    `dev_losses`: by round, of masked text.
    """

    row: Text
    seed: Text
    macro: Number
    base_macro: Number
    base_sites: dict[Text, float]
    backbone_parameters: Number
    status: Annotated[str, PlainValidator(lambda value: text(value, "unknown"))] = "unknown"
    reason: Text = ""
    train_seconds: Number = None
    num_sites: Whole = None
    dev_losses: Annotated[Losses, PlainValidator(from_json)] = field(default_factory=dict)


@dataclass(frozen=True)
class Paper:
    """The paper's own table: row -> column -> BLEU; `macro` and `micro` are columns like the sites."""

    table: str
    by: str
    rows: dict[str, dict[str, float]]

    @property
    def columns(self) -> list[str]:
        """The averages first, then the sites as they come."""
        named = dict.fromkeys(column for row in self.rows.values() for column in row)
        return sorted(named, key=lambda column: column not in ("macro", "micro"))


@dataclass(frozen=True)
class SuiteResult:
    """All that the result folder of a suite tells; `metric`: what its rows are compared by; `notes`: file -> why it tells nothing."""

    path: Path
    metric: Metric
    title: str
    settings: dict[str, Any]
    versions: dict[str, Any]
    seconds: float | None
    sites: list[str]
    rows: list[Row]
    runs: list[SuiteRun]
    paper: Paper | None = None
    notes: dict[str, str] = field(default_factory=dict)

    def row(self, name: str) -> Row | None:
        return next((row for row in self.rows if row.name == name), None)

    def runs_of(self, row: str) -> list[SuiteRun]:
        return [run for run in self.runs if run.row == row]

    @property
    def failed(self) -> list[SuiteRun]:
        """The runs that did not come to their end."""
        return [run for run in self.runs if run.status != "completed"]

    @property
    def best(self) -> Row | None:
        """The row of the best macro score; the base is no method and never it."""
        known = {row.macro: row for row in reversed(self.rows) if row.name != BASE and row.macro is not None}
        return known[self.metric.best(known)] if known else None

    @property
    def base_sites(self) -> dict[str, float]:
        """Score of the base at each site: the table's row, or else what the runs scored before training."""
        row = self.row(BASE)
        of_runs = [(site, value) for run in self.runs for site, value in run.base_sites.items()]
        return row.sites if row else {site: fmean(value for name, value in of_runs if name == site) for site, _ in of_runs}

    @property
    def own_models(self) -> dict[str, float]:
        """Score at each site of the model that was trained on its text alone, where the table has such a row."""
        rows = {site: self.row(f"{SILO}{site}") for site in self.sites}
        return {site: row.sites[site] for site, row in rows.items() if row and site in row.sites}

    @property
    def base_macro(self) -> float | None:
        """Macro score of the base, from the same place."""
        row = self.row(BASE)
        return row.macro if row else mean(run.base_macro for run in self.runs)

    def gain(self, score: float | None, base: float | None) -> float | None:
        """By how much a score is better than the base's."""
        return self.metric.gain(score, base)

    @property
    def num_sites(self) -> int:
        """How many sites share the server's line."""
        return max((run.num_sites or 0 for run in self.runs), default=0) or len({site.split(":")[0] for site in self.sites})

    def convergence(self, text: str) -> dict[str, Curve]:
        """Row -> its dev perplexity of a text by round, mean over its seeds; of the rows that were measured on it more than once."""
        curves = {
            row.name: mean_curve([perplexities(run.dev_losses, text, self.sites) for run in self.runs_of(row.name)])
            for row in self.rows
        }
        return {row: curve for row, curve in curves.items() if len(curve) > 1}

    def training_s(self, row: str) -> float | None:
        """Seconds of training of one round of a row, mean over its seeds."""
        return mean(run.train_seconds for run in self.runs_of(row))


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def read_suite(result_dir: Path) -> SuiteResult:
    """The result folder of a suite; only table.csv has to be there.

    Raises:
        RunError: no table.csv, or it is none of a suite.
    """
    result_dir = Path(result_dir)
    notes: dict[str, str] = {}
    metric, sites, rows = _table(result_dir / "table.csv")
    suite = read_object(result_dir / "suite.json", notes, absent="is not there")
    lines = _kept_runs(result_dir, notes)
    return SuiteResult(
        path=result_dir,
        metric=metric,
        title=text(suite.get("title"), result_dir.resolve().name),
        settings=mapping(suite.get("settings")),
        versions=mapping(suite.get("versions")),
        seconds=number(suite.get("seconds")),
        sites=sites,
        rows=rows,
        runs=[_run(lines.get(key, {}), key, each, metric) for key, each in objects(suite.get("runs")).items()],
        paper=_paper(mapping(suite.get("paper"))),
        notes=notes,
    )


def _table(path: Path) -> tuple[Metric, list[str], list[Row]]:
    """The metric, the sites and the rows of table.csv."""
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            table = csv.DictReader(lines)
            columns, content = list(table.fieldnames or ()), list(table)
        got = f"the columns {', '.join(columns) or '(none)'}"
    except (OSError, ValueError, csv.Error) as error:
        columns, content, got = [], [], str(error)
    metric = next((first for first, _ in METRICS.values() if averages(first)["macro"] in columns), None)
    if metric is None or "method" not in columns:
        raise RunError(
            f"The folder holds no result of a suite: {path}\n"
            f"  got:    {got}\n"
            f"  wanted: a table with the columns {', '.join(known_columns(BLEU))} and one for each site\n"
            "  to do:  name a folder that a suite has written (experiments/results/<folder>/<suite>)"
        )
    of_masked = (ACCURACY_OF, PARTS_OF, PARTS_SD_OF)
    others = {*known_columns(metric), MACRO_ACCURACY}
    sites = [column for column in columns if column not in others and not column.startswith(of_masked)]
    return metric, sites, [_row(line, sites, metric) for line in content]


def _row(line: dict[str, Any], sites: list[str], metric: Metric) -> Row:
    scores, accuracy, parts, parts_sd = (
        {site: value for site in sites if (value := _cell(line.get(f"{before}{site}"))) is not None}
        for before in ("", ACCURACY_OF, PARTS_OF, PARTS_SD_OF)
    )
    both = {site: (value, parts_sd[site]) for site, value in parts.items() if site in parts_sd}
    means = {name: line.get(column) for name, column in averages(metric).items()}
    return read_as(Row, line, name=line["method"] or "", sites=scores, accuracy=accuracy, parts=both, **means)


def _kept_runs(result_dir: Path, notes: dict[str, str]) -> dict[str, dict[str, Any]]:
    try:
        return read_kept_runs(result_dir)
    except RunError as error:
        notes[RUNS_FILE] = str(error)
        return {}


def _run(line: dict[str, Any], key: str, entry: dict[str, Any], metric: Metric) -> SuiteRun:
    row, _, seed = key.rpartition("-")
    scores, run = mapping(line.get("scores")), mapping(line.get("run"))
    before = {site: number(each.get(f"base_{metric.key}")) for site, each in objects(scores.get("sites")).items()}
    return read_as(
        SuiteRun,
        entry,
        row=row,
        seed=seed,
        macro=scores.get(f"macro_{metric.key}"),
        base_macro=scores.get(f"base_macro_{metric.key}"),
        base_sites={site: value for site, value in before.items() if value is not None},
        backbone_parameters=mapping(run.get("backbone")).get("parameters"),
    )


def _paper(content: dict[str, Any]) -> Paper | None:
    rows = {row: numbers(scores) for row, scores in objects(content.get("rows")).items()}
    known = any(rows.values())
    return Paper(text(content.get("table"), "its table"), text(content.get("by"), "its authors"), rows) if known else None
