"""Read a suite's result folder: the table, what is known of each run, and the paper's figures where they are told."""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from fedlingua.common.errors import RunError
from fedlingua.desk.report.communication import Traffic
from fedlingua.desk.report.convergence import Curve, Losses, from_json, mean_curve, perplexities
from fedlingua.desk.report.keep import RUNS_FILE, read_kept_runs
from fedlingua.desk.report.masked_columns import ACCURACY_OF, MACRO_ACCURACY, PARTS_OF, PARTS_SD_OF, is_masked_column
from fedlingua.desk.report.read import read_object
from fedlingua.desk.report.round_seconds import META, PHASES, seconds_column
from fedlingua.desk.report.values import mapping, number, numbers, objects, text, whole
from fedlingua.settings.methods import SILO
from fedlingua.settings.metrics import BLEU, METRICS, Metric

BASE = "base"
COSTS = ("exchanged_parameters", "uplink_bytes", "downlink_bytes", "tensor_saving", "number_saving")
SECONDS = tuple(seconds_column(part) for part in (*PHASES, *META))


def averages(metric: Metric) -> dict[str, str]:
    """What a row knows its averages by -> their columns."""
    key = metric.key
    return {"macro": f"macro_{key}", "macro_sd": f"macro_{key}_sd", "micro": f"micro_{key}", "pooled": f"pooled_{key}"}


def known_columns(metric: Metric) -> tuple[str, ...]:
    """All columns but those of the sites."""
    return ("method", *averages(metric).values(), *COSTS, *SECONDS, "seeds")


@dataclass(frozen=True)
class Row:
    """One method over its seeds: mean score of each site and the averages; bytes of a site and round; shares not sent, 0-1.

    Of masked pieces also: accuracy, how many were guessed, in %; parts, (mean, standard deviation) of the perplexity of four parts of each
    site's text.
    """

    name: str
    sites: dict[str, float]
    seeds: int | None = None
    macro: float | None = None
    macro_sd: float | None = None
    micro: float | None = None
    pooled: float | None = None
    exchanged_parameters: float | None = None
    uplink_bytes: float | None = None
    downlink_bytes: float | None = None
    tensor_saving: float | None = None
    number_saving: float | None = None
    accuracy: dict[str, float] = field(default_factory=dict)
    macro_accuracy: float | None = None
    parts: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def traffic(self) -> Traffic | None:
        """What a site exchanges in a round; None where the table does not say."""
        if self.uplink_bytes is None or self.downlink_bytes is None:
            return None
        return Traffic(self.exchanged_parameters, self.uplink_bytes, self.downlink_bytes)


@dataclass(frozen=True)
class SuiteRun:
    """One seed of a row: how it ended, and what it scored if it did.

    `train_seconds`: training of one round, its longest site's. `base_sites`: score of the untouched base at each site.
    `dev_losses`: by round, of masked text.
    """

    row: str
    seed: str
    status: str
    reason: str
    train_seconds: float | None = None
    num_sites: int | None = None
    macro: float | None = None
    base_macro: float | None = None
    base_sites: dict[str, float] = field(default_factory=dict)
    directions: dict[str, str] = field(default_factory=dict)
    backbone_parameters: float | None = None
    dev_losses: Losses = field(default_factory=dict)


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
        """The row of that name."""
        return next((row for row in self.rows if row.name == name), None)

    def runs_of(self, row: str) -> list[SuiteRun]:
        """The runs of a row, one a seed."""
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
        told = [(site, value) for run in self.runs for site, value in run.base_sites.items()]
        return row.sites if row else {site: fmean(value for name, value in told if name == site) for site, _ in told}

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
        found = {
            row.name: mean_curve([perplexities(run.dev_losses, text, self.sites) for run in self.runs_of(row.name)])
            for row in self.rows
        }
        return {row: curve for row, curve in found.items() if len(curve) > 1}

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
    sites = [column for column in columns if column not in known_columns(metric) and not is_masked_column(column)]
    return metric, sites, [_row(line, sites, metric) for line in content]


def _row(line: dict[str, str | None], sites: list[str], metric: Metric) -> Row:
    means = averages(metric)
    known = {column: _float(line.get(column)) for column in (*means.values(), *COSTS, "seeds", *sites)}
    scores = {site: known[site] for site in sites}
    return Row(
        name=line["method"] or "",
        sites={site: value for site, value in scores.items() if value is not None},
        seeds=whole(known["seeds"]),
        **{name: known[column] for name, column in means.items()},
        **{column: known[column] for column in COSTS},
        macro_accuracy=_float(line.get(MACRO_ACCURACY)),
        accuracy={site: value for site in sites if (value := _float(line.get(f"{ACCURACY_OF}{site}"))) is not None},
        parts={site: found for site in sites if (found := _parts(line, site))},
    )


def _parts(line: dict[str, str | None], site: str) -> tuple[float, float] | None:
    mean, sd = (_float(line.get(f"{column}{site}")) for column in (PARTS_OF, PARTS_SD_OF))
    return None if mean is None or sd is None else (mean, sd)


def _float(cell: str | None) -> float | None:
    """A cell as a finite number; an empty one, or anything else, is none."""
    try:
        value = float(cell or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _kept_runs(result_dir: Path, notes: dict[str, str]) -> dict[str, dict[str, Any]]:
    try:
        return read_kept_runs(result_dir)
    except RunError as error:
        notes[RUNS_FILE] = str(error)
        return {}


def _run(line: dict[str, Any], key: str, told: dict[str, Any], metric: Metric) -> SuiteRun:
    row, _, seed = key.rpartition("-")
    scores, run = mapping(line.get("scores")), mapping(line.get("run"))
    before = {site: number(each.get(f"base_{metric.key}")) for site, each in objects(scores.get("sites")).items()}
    return SuiteRun(
        row=row,
        seed=seed,
        status=text(told.get("status"), "unknown"),
        reason=text(told.get("reason")),
        train_seconds=number(told.get("train_seconds")),
        num_sites=whole(told.get("num_sites")),
        macro=number(scores.get(f"macro_{metric.key}")),
        base_macro=number(scores.get(f"base_macro_{metric.key}")),
        base_sites={site: value for site, value in before.items() if value is not None},
        directions={site: text(each.get("direction")) for site, each in objects(scores.get("sites")).items()},
        backbone_parameters=number(mapping(run.get("backbone")).get("parameters")),
        dev_losses=from_json(told.get("dev_losses")),
    )


def _paper(told: dict[str, Any]) -> Paper | None:
    rows = {row: numbers(scores) for row, scores in objects(told.get("rows")).items()}
    return Paper(text(told.get("table"), "its table"), text(told.get("by"), "its authors"), rows) if any(rows.values()) else None
