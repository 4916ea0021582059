"""The table of a suite: means over seeds, row by row, as CSV and Markdown.

The table is a pure function of `suite.json` and the runs' scores, so a committed table can be reproduced byte for byte.
"""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Self

from fedlingua.common import units
from fedlingua.common.errors import RunError
from fedlingua.desk.report.keep import read_kept_runs
from fedlingua.desk.report.round_seconds import META, PHASES, READING, Seconds
from fedlingua.desk.templates import markdown
from fedlingua.evaluation.totals import ALL_SITES
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.methods import SILO
from fedlingua.settings.metrics import ACCURACY, BLEU, METRICS, OF_TEXT, PERPLEXITY, Metric, metrics_of
from fedlingua_lab.suites.convergence import Curve, mean_curve, perplexities
from fedlingua_lab.suites.paper import FED_MNMT

BASE = "base"
COSTS = ("exchanged_parameters", "uplink_bytes", "downlink_bytes")
IN_SCORES = {"uplink_bytes": "uplink_bytes_per_round", "downlink_bytes": "downlink_bytes_per_round"}
"""Cost -> its name in scores.json, where the two differ."""
TOTALS = ("up", "down", "fp32")
"""Entries of total_bytes: a whole run's bytes up and down, and the bytes of the same tensors as float32."""
SIDES = ("alone", "federated")
"""The models besides the base among which sites choose, as scores.json names them."""
SAVINGS = ("tensor_saving", "number_saving")
SECONDS = (*PHASES, *META)
AVERAGES = ("macro", "micro", "pooled")
MACRO_ACCURACY = "macro_accuracy"
ACCURACY_OF, PARTS_OF, PARTS_SD_OF = "accuracy of ", "parts of ", "sd of parts of "
"""Prefixes of columns that only masked-language rows have; a site's name follows. They are unique, since site names have no spaces."""
DECIMALS = 6
TEMPLATE = Path(__file__).with_name("table.md.jinja")

Json = Mapping[str, Any]
Columns = dict[str, list[float | None]]
"""Column of table.csv -> its values, row by row."""


@dataclass(frozen=True)
class Figure:
    """A score over seeds in the suite's first metric. sd: The sample standard deviation; 0 for one seed."""

    mean: float
    sd: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure":
        return cls(fmean(values), stdev(values) if len(values) > 1 else 0.0)

    @property
    def shown(self) -> float:
        """The mean as the table shows it. It decides the best row, so that rows with equal displayed means rank equally."""
        return round(self.mean, 2)


@dataclass(frozen=True)
class Line:
    """One row of the table over the seeds that have scores; its fields are empty if no seed has.

    Attributes:
        runs: The content of scores.json for each seed.
        scores: Site, "macro", "micro" or "pooled" -> score.
        costs: Name in COSTS -> cost of one site in one round.
        totals: Name in TOTALS -> bytes of one site in a whole run; empty unless all runs have them.
        seconds: Part of a round -> seconds; only parts that all runs have.
        entries: The entries of all its runs in suite.json, including runs without scores.
    """

    name: str
    trains: bool
    seeds: tuple[int, ...]
    runs: Sequence[Json]
    scores: Mapping[str, Figure]
    costs: Mapping[str, int]
    seconds: Seconds = field(default_factory=dict)
    entries: Sequence[Json] = ()
    totals: Mapping[str, int] = field(default_factory=dict)

    @property
    def total_bytes(self) -> int | None:
        """Bytes of one site in a whole run, up plus down."""
        return self.totals["up"] + self.totals["down"] if self.totals else None

    def mean(self, column: str) -> float | None:
        """Return the mean score of a site or of an average; None if there is none."""
        return self.scores[column].mean if column in self.scores else None

    @property
    def sd(self) -> float | None:
        """Standard deviation of the macro score over seeds; None for a single seed."""
        return self.scores["macro"].sd if self.seeds[1:] else None

    def values(self, key: str, site: str = "") -> list[float | None]:
        """Return each seed's entry `key` of a site or, without a site, of the whole run, such as "macro_comet"."""
        return [(run["sites"].get(site, {}) if site else run).get(key) for run in self.runs]

    def saving(self, name: str) -> float | None:
        """Return the share of an update that was not sent, 0-1; None for a row without selection."""
        return _mean(self.values(name))

    @property
    def train_seconds(self) -> float | None:
        """Seconds of training in one round, at the slowest site."""
        return known_mean(entry.get("train_seconds") for entry in self.entries)


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
        self.sites = self._sites()
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

    def _sites(self) -> list[str]:
        """Return the sites' names in the scores ("<site>:<direction>" if a site has several directions), in the federation's order."""
        order = {site: place for place, site in enumerate(self.suite["sites"])}
        named = dict.fromkeys(site for run in self.scores.values() for site in run["sites"])
        return sorted(named or order, key=lambda name: order.get(name.partition(":")[0], len(order)))

    def _line(self, row: Json) -> Line:
        names = {seed: f"{row['name']}-{seed}" for seed in row["seeds"] if f"{row['name']}-{seed}" in self.scores}
        runs, key = [self.scores[name] for name in names.values()], self.metric.key
        sites = dict.fromkeys(site for run in runs for site in run["sites"])
        scores = {site: Figure.of([run["sites"][site][key] for run in runs if site in run["sites"]]) for site in sites}
        scores |= {name: Figure.of([run[f"{name}_{key}"] for run in runs]) for name in AVERAGES if runs}
        costs = {cost: round(fmean(run[IN_SCORES.get(cost, cost)] for run in runs)) for cost in COSTS if runs}
        entries = {seed: self.suite["runs"].get(f"{row['name']}-{seed}", {}) for seed in row["seeds"]}
        parts = [entries[seed].get("seconds_by_part", {}) for seed in names]
        seconds = {part: fmean(each[part] for each in parts) for part in SECONDS if parts and all(part in each for each in parts)}
        counted = [run["total_bytes"] for run in runs if "total_bytes" in run]
        totals = {way: round(fmean(each[way] for each in counted)) for way in TOTALS if counted and len(counted) == len(runs)}
        return Line(row["name"], row["trains"], tuple(names), runs, scores, costs, seconds, list(entries.values()), totals)

    # --- As CSV -----------------------------------------------------------------------------------------------------------------

    def csv(self) -> str:
        """Return the table as CSV: a line per row, plain numbers, and empty cells where a row has no value; `seeds` is their number."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["method", *self.columns, "seeds"])
        for place, line in enumerate(self.lines):
            values = (of_rows[place] for of_rows in self.columns.values())
            writer.writerow([line.name, *("" if value is None else round(value, DECIMALS) for value in values), len(line.seeds)])
        return stream.getvalue()

    @cached_property
    def columns(self) -> Columns:
        """Columns of scores, costs and seconds. Optional columns, such as savings, are omitted if no row has them."""
        lines, key = self.lines, self.metric.key
        columns: Columns = {site: [line.mean(site) for line in lines] for site in self.sites}
        columns[f"macro_{key}"] = [line.mean("macro") for line in lines]
        columns[f"macro_{key}_sd"] = [line.scores["macro"].sd if "macro" in line.scores else None for line in lines]
        columns |= {f"{name}_{key}": [line.mean(name) for line in lines] for name in ("micro", "pooled")}
        columns |= _known({f"macro_{side}": [_mean(line.values(f"macro_{side}_{key}")) for line in lines] for side in SIDES})
        columns |= {cost: [line.costs.get(cost) for line in lines] for cost in COSTS}
        columns |= _known({"total_bytes": [line.total_bytes for line in lines]})
        columns |= _known({saving: [line.saving(saving) for line in lines] for saving in SAVINGS})
        columns |= _known({f"{part}_seconds": [line.seconds.get(part) for line in lines] for part in SECONDS})
        columns |= _known(self._masked_columns() if self.metric is PERPLEXITY else {})
        for metric in self.more_metrics:  # the mean over sites and its standard deviation over seeds
            name = f"macro_{metric.key}"
            columns[name] = [_mean(line.values(name)) for line in lines]
            columns[f"{name}_sd"] = [_sd(line.values(name)) for line in lines]
        return columns

    def value(self, line: Line, column: str) -> float | None:
        """Return a row's value in a column; None if there is no such column."""
        return self.columns[column][self.lines.index(line)] if column in self.columns else None

    def choice_rows(self) -> list[list[str]]:
        """Return header and rows: means over sites of base, alone, federation and kept; empty if sites chose in no row."""
        rows = [["method", "base", "alone", "federation", "kept", "joined"]]
        for line in self.lines:
            alone, federated = (self.value(line, f"macro_{side}") for side in SIDES)
            if federated is not None:
                base, final = _mean(line.values(f"base_macro_{self.metric.key}")), line.mean("macro")
                values = [units.score(value) for value in (base, alone, federated, final)]
                rows.append([line.name, *values, units.gain(self.metric.gain(final, alone))])
        return rows if rows[1:] else []

    def _masked_columns(self) -> Columns:
        """Return the additional columns of masked-language rows; a value is given if every seed has it.

        Accuracy: The share of masked pieces that were predicted correctly, in %. Parts: The mean perplexity over four parts of each text
        and its sample standard deviation, as in Manoel et al. 2022, appendix A.1 and table 7.
        """
        lines, key, scale = self.lines, ACCURACY.key, ACCURACY.scale
        columns = {f"{ACCURACY_OF}{site}": [_mean(line.values(key, site), scale) for line in lines] for site in self.sites}
        columns[MACRO_ACCURACY] = [_mean(line.values(f"macro_{key}"), scale) for line in lines]
        for site in self.sites:
            for before, parts in ((PARTS_OF, "perplexity_of_parts"), (PARTS_SD_OF, "perplexity_of_parts_sd")):
                columns[f"{before}{site}"] = [_mean(line.values(parts, site)) for line in lines]
        return columns

    @property
    def more_metrics(self) -> list[Metric]:
        """The metrics besides BLEU and chrF that any run measures."""
        measured = {key for _, entry in self._entries() for key in entry.get("signatures", {})}
        return [metric for metric in OF_TEXT.values() if metric.key in measured and metric not in METRICS["translation"]]

    def _entries(self) -> list[tuple[str, Json]]:
        """Return (site, its entry) for all runs' scores."""
        return [item for line in self.lines for run in line.runs for item in run["sites"].items()]

    # --- As Markdown ------------------------------------------------------------------------------------------------------------

    def markdown(self) -> str:
        """Return the tables as Markdown, with standard deviations and everything that a reader needs to know about them."""
        return markdown(
            TEMPLATE,
            suite=self.suite,
            table=self,
            is_bleu=self.metric is BLEU,
            is_perplexity=self.metric is PERPLEXITY,
            first_paper=FED_MNMT.by,
            scores=self.score_rows(lambda text: f"**{text}**"),
            more=[(metric.name, "; ".join(self.signatures(metric)), self.metric_rows(metric)) for metric in self.more_metrics],
            seconds=[rows for parts in (PHASES, META) if (rows := self.seconds_rows(parts))],
            reading=READING,
            completed=sum(run["status"] == "completed" for run in self.suite["runs"].values()),
        )

    @property
    def best(self) -> dict[str, float]:
        """Column -> the best displayed mean among rows that train."""
        shown = [(column, each.shown) for line in self.lines if line.trains for column, each in line.scores.items()]
        return {column: self.metric.best(value for other, value in shown if other == column) for column, _ in shown}

    def score_rows(self, mark: Callable[[str], str]) -> list[list[str]]:
        """Return header and rows of scores as text. mark: Marks up the best score of a column."""
        columns, best, printed = [*self.sites, *AVERAGES], self.best, (self.suite.get("paper") or {}).get("rows", {})
        rows = [["method", *columns]]
        for line in self.lines:
            rows.append([line.name])
            for column in columns:
                score = line.scores.get(column)
                text = units.mean_and_sd(score.mean, score.sd if line.seeds[1:] else None) if score else units.NOTHING
                rows[-1].append(mark(text) if score and line.trains and score.shown == best[column] else text)
            if line.name in printed:
                rows.append([f"{line.name} (paper)", *(units.score(printed[line.name].get(column)) for column in columns)])
        return rows

    def accuracy_rows(self) -> list[list[str]]:
        """Return header and rows: masked pieces predicted correctly, in %; empty if no row has them."""
        names = [*(f"{ACCURACY_OF}{site}" for site in self.sites), MACRO_ACCURACY]
        rows = [[line.name, *(units.score(self.value(line, name)) for name in names)] for line in self.lines]
        return [["method", *self.sites, "macro"], *rows] if set(names) & set(self.columns) else []

    def parts(self, line: Line, site: str) -> tuple[float, float] | None:
        """Return mean and standard deviation of the perplexity over four parts of a site's text; None if the row has none."""
        mean, sd = (self.value(line, f"{before}{site}") for before in (PARTS_OF, PARTS_SD_OF))
        return None if mean is None or sd is None else (mean, sd)

    def parts_rows(self) -> list[list[str]]:
        """Return header and rows: mean ± standard deviation over four parts of each site's text; empty if no row has them."""
        rows = [
            [line.name, *(units.mean_and_sd(*(self.parts(line, site) or [None])) for site in self.sites)] for line in self.lines
        ]
        return [["method", *self.sites], *rows] if any(f"{PARTS_OF}{site}" in self.columns for site in self.sites) else []

    def metric_rows(self, metric: Metric) -> list[list[str]]:
        """Return header and rows of another metric: sites and their mean, each as mean ± standard deviation over seeds."""
        rows = [["method", *self.sites, "macro"]]
        for line in self.lines:
            columns = [*(line.values(metric.key, site) for site in self.sites), line.values(f"macro_{metric.key}")]
            figures = ((_mean(values, metric.scale), _sd(values, metric.scale)) for values in columns)
            rows.append([line.name, *(units.mean_and_sd(*figure) for figure in figures)])
        return rows

    def signatures(self, metric: Metric) -> list[str]:
        """Return the distinct signatures of another metric."""
        ways = (entry.get("signatures", {}).get(metric.key) for _, entry in self._entries())
        return list(dict.fromkeys(way for way in ways if way))

    def by_signature(self) -> dict[str, list[str]]:
        """Return BLEU signature -> the sites whose scores have it."""
        sites: dict[str, list[str]] = {}
        for site in self.sites:
            for signature in sorted({run["sites"][site]["signature"] for run in self.scores.values() if site in run["sites"]}):
                sites.setdefault(signature, []).append(site)
        return sites

    def on_other_masks(self) -> list[str]:
        """Return the sites whose text was not masked identically in all runs."""
        of_runs = [run["sites"] for run in self.scores.values()]
        masks = {site: {sites[site]["masks"] for sites in of_runs if site in sites} for site in self.sites}
        return [site for site, hashes in masks.items() if len(hashes) > 1]

    def seconds_rows(self, parts: Sequence[str]) -> list[list[str]]:
        """Return header and rows: seconds of a round, in a column for each part that any row has; empty if none has any."""
        lines = [line for line in self.lines if line.trains]
        columns = [part for part in parts if any(part in line.seconds for line in lines)]
        rows = [[line.name, *(units.seconds(line.seconds.get(part)) for part in columns)] for line in lines]
        return [["seconds of a round", *columns], *rows] if columns else []

    @property
    def saves(self) -> bool:
        """Whether any row sends less than its whole update."""
        return bool(set(SAVINGS) & set(self.columns))

    def cost_rows(self) -> list[list[str]]:
        """Return header and rows: parameters and bytes exchanged, rounds, dev loss and seeds."""
        saved = ("tensors saved", "numbers saved") if self.saves else ()
        whole = ("all up", "all down", "as float32") if "total_bytes" in self.columns else ()
        rows = [["method", "parameters exchanged", "uplink", "downlink", *whole, *saved, "rounds", "dev loss", "seeds"]]
        for line in self.lines:
            sizes = [units.data(line.costs.get(cost)) for cost in COSTS[1:]]
            sizes += [units.data(line.totals.get(way)) for way in TOTALS] if whole else []
            if self.saves:
                shares = [line.saving(name) for name in SAVINGS]
                sizes += [units.NOTHING if share is None else f"{100 * share:.1f} %" for share in shares]
            runs = [self.suite["runs"][f"{line.name}-{seed}"] for seed in line.seeds]
            losses = [run["dev_loss"] for run in runs if run.get("dev_loss") is not None]
            lists = [", ".join(map(str, values)) or units.NOTHING for values in ([run["rounds"] for run in runs], line.seeds)]
            loss = f"{fmean(losses):.3f}" if losses else units.NOTHING
            rows.append([line.name, units.count(line.costs.get(COSTS[0])), *sizes, lists[0], loss, lists[1]])
        return rows

    def over_own_models(self) -> list[list[str]]:
        """Return header and rows: each row's gain over the models trained on a single site's text; empty without such models."""
        own = self.own_models
        rows = [
            [line.name, *(units.gain(self.metric.gain(line.mean(site), mean)) for site, mean in own.items())]
            for line in self.lines
            if line.name not in self._silos and set(own) <= set(line.scores)
        ]
        return [["method", *own], *rows] if own and rows else []

    @property
    def _silos(self) -> dict[str, str]:
        """Row whose model was trained on a single site's text -> the site."""
        return {row["name"]: row["method"].removeprefix(SILO) for row in self.suite["rows"] if row["method"].startswith(SILO)}

    @property
    def own_models(self) -> dict[str, float]:
        """Site -> the score there of the model trained on its text alone, if such a row exists."""
        silos = self._silos
        alone = {silos[line.name]: line.mean(silos[line.name]) for line in self.lines if line.name in silos}
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
        key = self.metric.key
        before = [(site, entry.get(f"base_{key}")) for site, entry in self._entries()]
        before += [("macro", run.get(f"base_macro_{key}")) for run in self.scores.values()]
        known = [(column, value) for column, value in before if value is not None]
        return {column: fmean(value for other, value in known if other == column) for column, _ in known}

    @property
    def num_sites(self) -> int:
        """The number of sites that share the server's bandwidth."""
        return max((run.get("num_sites") or 0 for run in self.suite["runs"].values()), default=0) or len(self.suite["sites"])

    def convergence(self, text: str) -> dict[str, Curve]:
        """Return row -> its dev perplexity on a text by round, mean over seeds, for rows measured there in more than one round."""
        losses = {
            line.name: [{int(index): each for index, each in run.get("dev_losses", {}).items()} for run in line.entries]
            for line in self.lines
        }
        curves = {row: mean_curve([perplexities(each, text, self.sites) for each in runs]) for row, runs in losses.items()}
        return {row: curve for row, curve in curves.items() if len(curve) > 1}


def known_mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _known(columns: Columns) -> Columns:
    """Return the columns in which any row has a value."""
    return {name: values for name, values in columns.items() if any(value is not None for value in values)}


def _mean(values: Sequence[float | None], scale: float = 1.0) -> float | None:
    """Return the mean over seeds if every seed has a value, else None."""
    known = [value for value in values if value is not None]
    return scale * fmean(known) if known and len(known) == len(values) else None


def _sd(values: Sequence[float | None], scale: float = 1.0) -> float | None:
    """Return the sample standard deviation over several seeds if every seed has a value, else None."""
    known = [value for value in values if value is not None]
    return scale * stdev(known) if len(known) == len(values) > 1 else None
