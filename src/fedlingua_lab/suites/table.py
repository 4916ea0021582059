"""The table of a suite: means over seeds, row by row, as CSV and Markdown.

The table is a pure function of `suite.json` and the runs' scores, so a committed table can be reproduced byte for byte.
"""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Self

from fedlingua.common.errors import RunError
from fedlingua.desk import units
from fedlingua.desk.report.keep import read_kept_runs
from fedlingua.desk.report.read import metrics_of
from fedlingua.desk.report.round_seconds import META, PHASES, READING
from fedlingua.desk.templates import markdown
from fedlingua.evaluation.totals import ALL_SITES
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.methods import SILO
from fedlingua.settings.metrics import ACCURACY, METRICS, OF_TEXT, PERPLEXITY, Metric
from fedlingua_lab.suites.convergence import Curve, mean_curve, perplexities

BASE = "base"
COSTS = ("exchanged_parameters", "uplink_bytes_per_round", "downlink_bytes_per_round")
"""Costs of one site in one round, as scores.json names them."""
TOTALS = ("up", "down", "fp32")
"""Entries of total_bytes: a whole run's bytes up and down, and the bytes of the same tensors as float32."""
SAVINGS = ("tensor_saving", "number_saving")
SECONDS = (*PHASES, *META)
AVERAGES = ("macro", "micro", "pooled")
DECIMALS = 6

Json = Mapping[str, Any]
Rows = list[list[str]]
"""A header and rows, as text."""


@dataclass(frozen=True)
class Figure:
    """A number over seeds. sd: The sample standard deviation; None for one seed."""

    mean: float
    sd: float | None = None

    @classmethod
    def of(cls, values: Sequence[float | None], scale: float = 1.0) -> Self | None:
        """Return the figure of the seeds' values; None unless every seed has one."""
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return None
        return cls(scale * fmean(known), scale * stdev(known) if known[1:] else None)

    @property
    def shown(self) -> float:
        """The mean as the table shows it. It decides the best row, so that rows with equal displayed means rank equally."""
        return round(self.mean, 2)

    def __str__(self) -> str:
        return units.mean_and_sd(self.mean, self.sd)


@dataclass(frozen=True)
class Line:
    """One row of the table. key: The suite's first metric, in scores.json. runs: Seed -> what suite.json and scores.json say of its run,
    for seeds with scores."""

    name: str
    method: str
    trains: bool
    key: str
    runs: Mapping[int, Json]

    def figure(self, *path: str, scale: float = 1.0) -> Figure | None:
        """Return the figure of an entry of the runs, such as "macro_comet", or "sites", the site's name, "comet"."""
        entries: list[Any] = list(self.runs.values())
        for key in path:
            entries = [(entry or {}).get(key) for entry in entries]
        return Figure.of(entries, scale)

    def mean_of(self, *path: str, scale: float = 1.0) -> float | None:
        """Return the mean of an entry of the runs; None unless every seed has it."""
        figure = self.figure(*path, scale=scale)
        return figure.mean if figure else None

    @cached_property
    def scores(self) -> dict[str, Figure]:
        """Site, "macro", "micro" or "pooled" -> score in the suite's first metric."""
        sites = dict.fromkeys(site for run in self.runs.values() for site in run["sites"])
        scores = {site: self.figure("sites", site, self.key) for site in sites}
        scores |= {name: self.figure(f"{name}_{self.key}") for name in AVERAGES}
        return {column: figure for column, figure in scores.items() if figure}

    def mean(self, column: str) -> float | None:
        """Return the mean score of a site or of an average; None if there is none."""
        return self.scores[column].mean if column in self.scores else None

    @property
    def sd(self) -> float | None:
        """Standard deviation of the macro score over seeds; None for a single seed."""
        return self.scores["macro"].sd if "macro" in self.scores else None

    @property
    def costs(self) -> dict[str, int]:
        """Column of a cost -> cost; empty without scores."""
        return {cost.removesuffix("_per_round"): round(mean) for cost in COSTS if (mean := self.mean_of(cost)) is not None}

    @property
    def totals(self) -> dict[str, int]:
        """Name in TOTALS -> bytes of one site in a whole run; empty unless all runs have them."""
        return {way: round(mean) for way in TOTALS if (mean := self.mean_of("total_bytes", way)) is not None}

    @property
    def total_bytes(self) -> int | None:
        """Bytes of one site in a whole run, up plus down."""
        return self.totals["up"] + self.totals["down"] if self.totals else None

    @property
    def seconds(self) -> dict[str, float]:
        """Part of a round -> seconds; only parts that all runs have."""
        return {part: mean for part in SECONDS if (mean := self.mean_of("seconds_by_part", part)) is not None}

    def parts(self, site: str) -> Figure | None:
        """Return the mean perplexity over four parts of a site's text and its standard deviation, both as means over seeds."""
        mean, sd = (self.mean_of("sites", site, f"perplexity_of_parts{end}") for end in ("", "_sd"))
        return None if mean is None else Figure(mean, sd)

    @property
    def silo(self) -> str:
        """The site on whose text alone the row's model was trained; "" for other rows."""
        return self.method.removeprefix(SILO) if self.method.startswith(SILO) else ""


class SuiteTable:
    """The table of a suite's rows.

    Args:
        suite: The content of its suite.json.
        scores: "<row>-<seed>" -> the content of the run's scores.json, for runs that have one.
        parameters: The backbone's number of parameters, as the mean over runs; None if no run has it.
    """

    def __init__(self, suite: Json, scores: Mapping[str, Json], parameters: float | None = None) -> None:
        self.suite, self.scores, self.parameters = suite, scores, parameters
        self.metric = metrics_of(next(iter(scores.values()), {}))[0]
        order = {site: place for place, site in enumerate(suite["sites"])}
        named = dict.fromkeys(site for site, _ in self._entries()) or order
        self.sites = sorted(named, key=lambda name: order.get(name.partition(":")[0], len(order)))
        """The sites' names in the scores ("<site>:<direction>" if a site has several directions), in the federation's order."""
        self.lines = [self._line(row) for row in suite["rows"]]

    @classmethod
    def of(cls, result_dir: Path) -> Self:
        """Read `suite.json` and `runs.jsonl` of a result folder; raise RunError if it contains no result."""
        suite = RunFolder(result_dir).read("suite.json")
        if suite is None:
            raise RunError(
                f"{result_dir} holds no suite's result: it has no suite.json; give a folder that `fedlingua suite` has written"
            )
        stored = read_kept_runs(result_dir)
        runs = {name: stored[name] for name in suite["runs"] if name in stored}
        sizes = ((run["run"].get("backbone") or {}).get("parameters") for run in runs.values())
        return cls(suite, {name: run["scores"] for name, run in runs.items()}, known_mean(sizes))

    def _line(self, row: Json) -> Line:
        names = {seed: f"{row['name']}-{seed}" for seed in row["seeds"]}
        runs = {seed: {**self.suite["runs"][name], **self.scores[name]} for seed, name in names.items() if name in self.scores}
        return Line(row["name"], row["method"], row["trains"], self.metric.key, runs)

    def _entries(self) -> list[tuple[str, Json]]:
        """Return (site, its entry) for all runs' scores."""
        return [entry for run in self.scores.values() for entry in run["sites"].items()]

    # --- As CSV -----------------------------------------------------------------------------------------------------------------

    def csv(self) -> str:
        """Return the table as CSV: a line per row, plain numbers, and empty cells where a row has no value; `seeds` is their number."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["method", *self.columns, "seeds"])
        for place, line in enumerate(self.lines):
            values = (of_rows[place] for of_rows in self.columns.values())
            writer.writerow(
                [line.name, *(value if value is None else round(value, DECIMALS) for value in values), len(line.runs)]
            )
        return stream.getvalue()

    @cached_property
    def columns(self) -> dict[str, list[float | None]]:
        """Column -> its values, row by row, for columns in which any row has one."""
        rows = [self._values(line) for line in self.lines]
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        return {name: values for name, values in columns.items() if values != [None] * len(rows)}

    def _values(self, line: Line) -> dict[str, float | None]:
        """Return the value of each possible column.

        Accuracy: The share of masked pieces that were predicted correctly, in %. Parts: Of each text, as in Manoel et al. 2022, appendix
        A.1 and table 7. Names of such columns have a space and sites' have none.
        """
        key, costs, seconds = line.key, line.costs, line.seconds
        values = {site: line.mean(site) for site in self.sites}
        values |= {f"macro_{key}": line.mean("macro"), f"macro_{key}_sd": (line.sd or 0.0) if line.runs else None}
        values |= {f"{name}_{key}": line.mean(name) for name in ("micro", "pooled")}
        values |= {f"macro_{side}": line.mean_of(f"macro_{side}_{key}") for side in ("alone", "reference", "federated")}
        values |= {(cost := key.removesuffix("_per_round")): costs.get(cost) for key in COSTS} | {"total_bytes": line.total_bytes}
        values |= {saving: line.mean_of(saving) for saving in SAVINGS}
        values |= {f"{part}_seconds": seconds.get(part) for part in SECONDS}
        if self.metric is PERPLEXITY:
            paths = {f"accuracy of {site}": ("sites", site, "accuracy") for site in self.sites} | {
                "macro_accuracy": ("macro_accuracy",)
            }
            values |= {name: line.mean_of(*path, scale=ACCURACY.scale) for name, path in paths.items()}
            for site in self.sites:
                parts = line.parts(site)
                values |= {
                    f"parts of {site}": parts.mean if parts else None,
                    f"sd of parts of {site}": parts.sd if parts else None,
                }
        for metric in self.more_metrics:  # the mean over sites and its standard deviation over seeds
            figure = line.figure(name := f"macro_{metric.key}")
            values |= {name: figure.mean if figure else None, f"{name}_sd": figure.sd if figure else None}
        return values

    @property
    def more_metrics(self) -> list[Metric]:
        """The metrics besides BLEU and chrF that any run measures."""
        measured = {key for _, entry in self._entries() for key in entry.get("signatures", {})}
        return [metric for metric in OF_TEXT.values() if metric.key in measured and metric not in METRICS["translation"]]

    # --- As Markdown ------------------------------------------------------------------------------------------------------------

    def markdown(self) -> str:
        """Return the tables as Markdown, with standard deviations and everything that a reader needs to know about them."""
        seconds = [rows for parts in (PHASES, META) if (rows := self.seconds_rows(parts))]
        template = Path(__file__).with_name("table.md.jinja")
        return markdown(template, suite=self.suite, table=self, seconds=seconds, reading=READING)

    def _rows(self, columns: Iterable[str], cells: Callable[[Line], Iterable[object]]) -> Rows:
        """Return header and the rows that have cells, with a dash for None; empty if all cells are None."""
        rows = [(line.name, list(cells(line))) for line in self.lines]
        if all(cell is None for _, row in rows for cell in row):
            return []
        shown = [[name, *(units.NOTHING if cell is None else str(cell) for cell in row)] for name, row in rows if row]
        return [["method", *columns], *shown]

    @property
    def best(self) -> dict[str, float]:
        """Column -> the best displayed mean among rows that train."""
        shown = [(column, each.shown) for line in self.lines if line.trains for column, each in line.scores.items()]
        return {column: self.metric.best(value for other, value in shown if other == column) for column, _ in shown}

    def score_rows(self, mark: str) -> Rows:
        """Return header and rows of scores, with the paper's below theirs. mark: Markup of a column's best score, such as "**{}**"."""
        columns, best, printed = [*self.sites, *AVERAGES], self.best, (self.suite.get("paper") or {}).get("rows", {})
        rows = [["method", *columns]]
        for line in self.lines:
            rows.append([line.name])
            for column in columns:
                score = line.scores.get(column)
                is_best = score and line.trains and score.shown == best[column]
                rows[-1].append((mark if is_best else "{}").format(score or units.NOTHING))
            if line.name in printed:
                rows.append([f"{line.name} (paper)", *(units.score(printed[line.name].get(column)) for column in columns)])
        return rows

    def choice_rows(self) -> Rows:
        """Return header and rows: means over sites of base, alone, federation and kept; empty if sites chose in no row.

        joined: Gain of kept over the reference; over alone in rows of runs that did not measure one. Without any reference the table has
        no such column.
        """

        def cells(line: Line) -> list[str]:
            sides = ("base_macro", "macro_alone", "macro_reference", "macro_federated")
            base, alone, reference, federated = (line.mean_of(f"{of}_{line.key}") for of in sides)
            values = (base, alone, reference, federated, line.mean("macro"))
            joined = units.gain(self.metric.gain(values[-1], alone if reference is None else reference))
            return [] if federated is None else [*map(units.score, values), joined]

        rows = self._rows(["base", "alone", "reference", "federation", "kept", "joined"], cells)
        return rows if any(row[3] != units.NOTHING for row in rows[1:]) else [row[:3] + row[4:] for row in rows]

    def parts_rows(self) -> Rows:
        """Return header and rows: perplexity over four parts of each site's text; empty if no row has them."""
        return self._rows(self.sites, lambda line: map(line.parts, self.sites))

    def accuracy_rows(self) -> Rows:
        """Return header and rows: masked pieces predicted correctly, in %; empty if no row has them."""
        return self.metric_rows(ACCURACY, with_sd=False)

    def metric_rows(self, metric: Metric, with_sd: bool = True) -> Rows:
        """Return header and rows of another metric: sites and their mean, each as mean ± standard deviation over seeds."""
        paths = [*(("sites", site, metric.key) for site in self.sites), (f"macro_{metric.key}",)]

        def cells(line: Line) -> Iterable[Figure | None]:
            figures = (line.figure(*path, scale=metric.scale) for path in paths)
            return figures if with_sd else (figure and Figure(figure.mean) for figure in figures)

        return self._rows([*self.sites, "macro"], cells)

    def signatures(self, metric: Metric) -> list[str]:
        """Return the distinct signatures of another metric."""
        ways = (entry.get("signatures", {}).get(metric.key) for _, entry in self._entries())
        return list(dict.fromkeys(way for way in ways if way))

    def by_signature(self) -> dict[str, list[str]]:
        """Return BLEU signature -> the sites whose scores have it."""
        signed = sorted({(self.sites.index(site), entry["signature"]) for site, entry in self._entries()})
        return {signature: [self.sites[place] for place, other in signed if other == signature] for _, signature in signed}

    def on_other_masks(self) -> list[str]:
        """Return the sites whose text was not masked identically in all runs."""
        return [site for site in self.sites if len({entry["masks"] for name, entry in self._entries() if name == site}) > 1]

    def seconds_rows(self, parts: Sequence[str]) -> Rows:
        """Return header and rows: seconds of a round, in a column for each part that any row has; empty if none has any."""
        lines = [line for line in self.lines if line.trains]
        columns = [part for part in parts if any(part in line.seconds for line in lines)]
        rows = [[line.name, *(units.seconds(line.seconds.get(part)) for part in columns)] for line in lines]
        return [["seconds of a round", *columns], *rows] if columns else []

    def cost_rows(self) -> Rows:
        """Return header and rows: parameters and bytes exchanged, rounds, dev loss and seeds."""
        whole = dict(zip(("all up", "all down", "as float32"), TOTALS, strict=True)) if "total_bytes" in self.columns else {}
        saved = dict(zip(("tensors saved", "numbers saved"), SAVINGS, strict=True)) if SAVINGS[0] in self.columns else {}

        def cells(line: Line) -> list[str]:
            costs, runs, totals = line.costs, line.runs.values(), line.totals
            shares = [line.mean_of(saving) for saving in saved.values()]
            loss = known_mean(run.get("dev_loss") for run in runs)
            rounds, seeds = (", ".join(map(str, each)) or units.NOTHING for each in ([run["rounds"] for run in runs], line.runs))
            return [
                units.count(costs.get("exchanged_parameters")),
                *(units.data(costs.get(cost)) for cost in ("uplink_bytes", "downlink_bytes")),
                *(units.data(totals.get(way)) for way in whole.values()),
                *(units.NOTHING if share is None else f"{100 * share:.1f} %" for share in shares),
                *(rounds, units.NOTHING if loss is None else f"{loss:.3f}", seeds),
            ]

        heads = ("parameters exchanged", "uplink", "downlink", *whole, *saved, "rounds", "dev loss", "seeds")
        return self._rows(heads, cells)

    def over_own_models(self) -> Rows:
        """Return header and rows: each row's gain over the models trained on a single site's text; empty without such models."""
        own = self.own_models

        def cells(line: Line) -> list[str]:
            known = not line.silo and set(own) <= set(line.scores)
            return [units.gain(self.metric.gain(line.mean(site), mean)) for site, mean in own.items()] if known else []

        return self._rows(own, cells)

    @property
    def own_models(self) -> dict[str, float]:
        """Site -> the score there of the model trained on its text alone, if such a row exists."""
        alone = {line.silo: line.mean(line.silo) for line in self.lines}
        return {site: mean for site in self.sites if (mean := alone.get(site)) is not None}

    # --- For the page -----------------------------------------------------------------------------------------------------------

    @property
    def best_line(self) -> Line | None:
        """The row with the best macro score, excluding the base, which is not a method."""
        known = {score: line for line in reversed(self.lines) if line.name != BASE and (score := line.mean("macro")) is not None}
        return known[self.metric.best(known)] if known else None

    @property
    def best_gains(self) -> list[float]:
        """The best row's gain over the base at each site where both have a score."""
        top, sites = self.best_line, [site for site in self.sites if site != ALL_SITES]
        gains = [self.metric.gain(top.mean(site), self.base.get(site)) for site in sites if top]
        return [gain for gain in gains if gain is not None]

    def line(self, name: str) -> Line | None:
        return next((line for line in self.lines if line.name == name), None)

    @cached_property
    def base(self) -> dict[str, float]:
        """Site or "macro" -> the base's score, from the table's row if there is one, else the mean over all runs before training."""
        if line := self.line(BASE):
            return {column: score.mean for column, score in line.scores.items()}
        key, entries = f"base_{self.metric.key}", self._entries()
        before = {site: known_mean(entry.get(key) for name, entry in entries if name == site) for site in self.sites}
        before["macro"] = known_mean(run.get(f"base_macro_{self.metric.key}") for run in self.scores.values())
        return {column: value for column, value in before.items() if value is not None}

    @property
    def num_sites(self) -> int:
        """The number of sites that share the server's bandwidth."""
        return int(max(run.get("num_sites", len(self.suite["sites"])) for run in self.suite["runs"].values()))

    def convergence(self, text: str) -> dict[str, Curve]:
        """Return row -> its dev perplexity on a text by round, mean over seeds, for rows measured there in more than one round."""

        def curve(run: Json) -> Curve:
            return perplexities({int(index): each for index, each in run.get("dev_losses", {}).items()}, text, self.sites)

        curves = {line.name: mean_curve([curve(run) for run in line.runs.values()]) for line in self.lines}
        return {row: curve for row, curve in curves.items() if len(curve) > 1}


def known_mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
