"""Read a suite's result folder: the table, what is known of each run, and the paper's figures where they are told."""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from fedlingua.errors import RunError
from fedlingua.report.communication import Traffic
from fedlingua.report.read import read_object
from fedlingua.report.round_seconds import META, PHASES, seconds_column
from fedlingua.report.values import mapping, number, numbers, objects, text, whole

BASE = "base"
# Every other column of table.csv is a site.
FIGURES = (
    *("macro_bleu", "macro_bleu_sd", "micro_bleu", "pooled_bleu"),
    *("exchanged_parameters", "uplink_bytes", "downlink_bytes", "tensor_saving", "number_saving"),
)
SECONDS = tuple(seconds_column(part) for part in (*PHASES, *META))
COLUMNS = ("method", *FIGURES, *SECONDS, "seeds")


@dataclass(frozen=True)
class Row:
    """One method over its seeds: mean BLEU of each site and the averages, 0-100; bytes of a site and round; shares not sent, 0-1."""

    name: str
    sites: dict[str, float]
    seeds: int | None = None
    macro_bleu: float | None = None
    macro_bleu_sd: float | None = None
    micro_bleu: float | None = None
    pooled_bleu: float | None = None
    exchanged_parameters: float | None = None
    uplink_bytes: float | None = None
    downlink_bytes: float | None = None
    tensor_saving: float | None = None
    number_saving: float | None = None

    @property
    def traffic(self) -> Traffic | None:
        """What a site exchanges in a round; None where the table does not say."""
        if self.uplink_bytes is None or self.downlink_bytes is None:
            return None
        return Traffic(self.exchanged_parameters, self.uplink_bytes, self.downlink_bytes)


@dataclass(frozen=True)
class SuiteRun:
    """One seed of a row: how it ended, and what it scored if it did.

    `train_seconds`: training of one round, its longest site's. `base_sites`: BLEU of the untouched base at each site.
    """

    row: str
    seed: str
    status: str
    reason: str
    train_seconds: float | None = None
    num_sites: int | None = None
    macro_bleu: float | None = None
    base_macro_bleu: float | None = None
    base_sites: dict[str, float] = field(default_factory=dict)
    backbone_parameters: float | None = None


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
    """All that the result folder of a suite tells; `notes`: file -> why it tells nothing."""

    path: Path
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
        """The row of the highest macro BLEU; the base is no method and never it."""
        known = [row for row in self.rows if row.name != BASE and row.macro_bleu is not None]
        return max(known, key=lambda row: row.macro_bleu or 0.0, default=None)

    @property
    def base_sites(self) -> dict[str, float]:
        """BLEU of the base at each site: the table's row, or else what the runs scored before training."""
        row = self.row(BASE)
        told = [(site, value) for run in self.runs for site, value in run.base_sites.items()]
        return row.sites if row else {site: fmean(value for name, value in told if name == site) for site, _ in told}

    @property
    def base_macro_bleu(self) -> float | None:
        """Macro BLEU of the base, from the same place."""
        row = self.row(BASE)
        return row.macro_bleu if row else mean(run.base_macro_bleu for run in self.runs)

    @property
    def num_sites(self) -> int:
        """How many sites share the server's line."""
        return max((run.num_sites or 0 for run in self.runs), default=0) or len({site.split(":")[0] for site in self.sites})

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
    sites, rows = _table(result_dir / "table.csv")
    suite = read_object(result_dir / "suite.json", notes, absent="is not there")
    return SuiteResult(
        path=result_dir,
        title=text(suite.get("title"), result_dir.resolve().name),
        settings=mapping(suite.get("settings")),
        versions=mapping(suite.get("versions")),
        seconds=number(suite.get("seconds")),
        sites=sites,
        rows=rows,
        runs=[_run(result_dir / "runs", key, each) for key, each in objects(suite.get("runs")).items()],
        paper=_paper(mapping(suite.get("paper"))),
        notes=notes,
    )


def _table(path: Path) -> tuple[list[str], list[Row]]:
    """The sites and the rows of table.csv."""
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            table = csv.DictReader(lines)
            columns, content = list(table.fieldnames or ()), list(table)
        got = f"the columns {', '.join(columns) or '(none)'}"
    except (OSError, ValueError, csv.Error) as error:
        columns, content, got = [], [], str(error)
    if not {"method", "macro_bleu"} <= set(columns):
        raise RunError(
            f"The folder holds no result of a suite: {path}\n"
            f"  got:    {got}\n"
            f"  wanted: a table with the columns {', '.join(COLUMNS)} and one for each site\n"
            "  to do:  name a folder that a suite has written (experiments/results/<folder>/<suite>)"
        )
    sites = [column for column in columns if column not in COLUMNS]
    return sites, [_row(line, sites) for line in content]


def _row(line: dict[str, str | None], sites: list[str]) -> Row:
    known = {column: _float(line.get(column)) for column in (*FIGURES, "seeds", *sites)}
    scores = {site: known[site] for site in sites}
    return Row(
        name=line["method"] or "",
        sites={site: value for site, value in scores.items() if value is not None},
        seeds=whole(known["seeds"]),
        **{column: known[column] for column in FIGURES},
    )


def _float(cell: str | None) -> float | None:
    """A cell as a finite number; an empty one, or anything else, is none."""
    try:
        value = float(cell or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _run(folder: Path, key: str, told: dict[str, Any]) -> SuiteRun:
    row, _, seed = key.rpartition("-")
    scores, run = (read_object(folder / key / name, {}) for name in ("scores.json", "run.json"))
    before = {site: number(each.get("base_bleu")) for site, each in objects(scores.get("sites")).items()}
    return SuiteRun(
        row=row,
        seed=seed,
        status=text(told.get("status"), "unknown"),
        reason=text(told.get("reason")),
        train_seconds=number(told.get("train_seconds")),
        num_sites=whole(told.get("num_sites")),
        macro_bleu=number(scores.get("macro_bleu")),
        base_macro_bleu=number(scores.get("base_macro_bleu")),
        base_sites={site: value for site, value in before.items() if value is not None},
        backbone_parameters=number(mapping(run.get("backbone")).get("parameters")),
    )


def _paper(told: dict[str, Any]) -> Paper | None:
    rows = {row: numbers(scores) for row, scores in objects(told.get("rows")).items()}
    return Paper(text(told.get("table"), "its table"), text(told.get("by"), "its authors"), rows) if any(rows.values()) else None
