"""The table of a suite: means over seeds, row by row, as CSV and Markdown.

Everything here is a pure function of `suite.json` and the runs' scores, so a committed table can be made again, byte for byte.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from fedlingua.common import units
from fedlingua.desk.report.round_seconds import META, PHASES, READING, Seconds, seconds_column, seconds_rows
from fedlingua.desk.report.suite_result import ACCURACY_OF, MACRO_ACCURACY, PARTS_OF, PARTS_SD_OF
from fedlingua.desk.suites.paper import FED_MNMT
from fedlingua.desk.templates import markdown
from fedlingua.settings.methods import SILO
from fedlingua.settings.metrics import ACCURACY, BLEU, OF_TEXT, PERPLEXITY, Metric, metrics_of

COSTS = ("exchanged_parameters", "uplink_bytes", "downlink_bytes")
IN_SCORES = {"uplink_bytes": "uplink_bytes_per_round", "downlink_bytes": "downlink_bytes_per_round"}
"""Costs that scores.json has under another name."""
SIDES = ("alone", "federated")
"""What sites chose among besides the base, as scores.json names it."""
SAVINGS = ("tensor_saving", "number_saving")
SECONDS = (*PHASES, *META)
AVERAGES = ("macro", "micro", "pooled")
DECIMALS = 6
TEMPLATE = Path(__file__).with_name("table.md.jinja")

Json = Mapping[str, Any]
Columns = dict[str, list[float | None]]
"""Column of table.csv -> the value of each row, in their order."""


@dataclass(frozen=True)
class Figure:
    """A score over seeds, of the suite's first metric. sd: of the sample; 0 for one seed."""

    mean: float
    sd: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure":
        """Mean and sample standard deviation."""
        return cls(fmean(values), stdev(values) if len(values) > 1 else 0.0)

    @property
    def shown(self) -> float:
        """As the table shows it, by which the best is chosen: what reads the same is equally good."""
        return round(self.mean, 2)


@dataclass(frozen=True)
class Line:
    """One row, over the seeds that it has scores of; all is empty without any seed.

    Attributes:
        runs: Their scores.json.
        scores: By site, and "macro", "micro", "pooled".
        costs: Of one site in one round, by the names of COSTS.
        savings: Shares of an update that were not sent, 0-1, by the names of SAVINGS, of a row that selects.
        seconds: Of a round, by part, where its runs tell them.
    """

    name: str
    trains: bool
    seeds: tuple[int, ...]
    runs: Sequence[Json]
    scores: Mapping[str, Figure]
    costs: Mapping[str, int]
    savings: Mapping[str, float] = field(default_factory=dict)
    seconds: Seconds = field(default_factory=dict)

    def mean(self, column: str) -> float | None:
        """Of a site, or an average."""
        return self.scores[column].mean if column in self.scores else None

    def values(self, site: str, key: str) -> list[float | None]:
        """What each seed scored at a site by another metric."""
        return [run["sites"].get(site, {}).get(key) for run in self.runs]

    def averages(self, name: str) -> list[float | None]:
        """What each seed has of an average by another metric, such as "macro_comet"."""
        return [run.get(name) for run in self.runs]


class SuiteTable:
    """The rows of a suite. suite: its suite.json; scores: "<row>-<seed>" -> a run's scores.json, of those that have one."""

    def __init__(self, suite: Json, scores: Mapping[str, Json]) -> None:
        self.suite, self.scores = suite, scores
        self.metric = metrics_of(next(iter(scores.values()), {}))[0]
        self.sites = self._sites()
        self.lines = [self._line(row) for row in suite["rows"]]

    def _sites(self) -> list[str]:
        """As the runs' scores name them ("<site>:<direction>" where a site has several), in the federation's order."""
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
        savings = {name: fmean(run[name] for run in runs) for name in SAVINGS if runs and all(name in run for run in runs)}
        parts = [self.suite["runs"][name].get("seconds_by_part", {}) for name in names.values()]
        seconds = {part: fmean(each[part] for each in parts) for part in SECONDS if parts and all(part in each for each in parts)}
        return Line(row["name"], row["trains"], tuple(names), runs, scores, costs, savings, seconds)

    # --- As CSV -----------------------------------------------------------------------------------------------------------------

    def csv(self) -> str:
        """Plain numbers, one row a method; what a row has no scores of is empty. seeds: how many; suite.json names them."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        columns = self._columns() | self.masked_columns | self._macro_columns()
        writer.writerow(["method", *columns, "seeds"])
        for place, line in enumerate(self.lines):
            values = (of_rows[place] for of_rows in columns.values())
            writer.writerow([line.name, *("" if value is None else round(value, DECIMALS) for value in values), len(line.seeds)])
        return stream.getvalue()

    def _columns(self) -> Columns:
        """Scores, costs, savings and seconds."""
        lines, key = self.lines, self.metric.key
        columns: Columns = {site: [line.mean(site) for line in lines] for site in self.sites}
        columns[f"macro_{key}"] = [line.mean("macro") for line in lines]
        columns[f"macro_{key}_sd"] = [line.scores["macro"].sd if "macro" in line.scores else None for line in lines]
        columns |= {f"{name}_{key}": [line.mean(name) for line in lines] for name in ("micro", "pooled")}
        columns |= self.choice_columns
        columns |= {cost: [line.costs.get(cost) for line in lines] for cost in COSTS}
        if any(line.savings for line in lines):
            columns |= {saving: [line.savings.get(saving) for line in lines] for saving in SAVINGS}
        seconds = {part: [line.seconds.get(part) for line in lines] for part in SECONDS}
        return columns | {seconds_column(part): values for part, values in seconds.items() if _any(values)}

    @cached_property
    def choice_columns(self) -> Columns:
        """Means over sites of the models that sites chose among, where every seed has them, without columns that no row has."""
        columns = {
            f"macro_{side}": [_mean(line.averages(f"macro_{side}_{self.metric.key}")) for line in self.lines] for side in SIDES
        }
        return {name: values for name, values in columns.items() if _any(values)}

    def choice_rows(self) -> list[list[str]]:
        """Header and rows: means over sites of base, alone, federation and kept; empty where no row's sites chose."""
        if not self.choice_columns:
            return []
        rows = [["method", "base", "alone", "federation", "kept", "joined"]]
        for place, line in enumerate(self.lines):
            alone, federated = (self.choice_columns.get(f"macro_{side}", [None] * len(self.lines))[place] for side in SIDES)
            if federated is not None:
                base, final = _mean(line.averages(f"base_macro_{self.metric.key}")), line.mean("macro")
                values = [units.score(value) for value in (base, alone, federated, final)]
                rows.append([line.name, *values, units.gain(self.metric.gain(final, alone))])
        return rows

    @cached_property
    def masked_columns(self) -> Columns:
        """What masked-language rows have besides perplexity, where every seed has it, without columns that no row has.

        Accuracy: share of the masked pieces that were guessed, in %. Parts: mean over four parts of each text, and their sample
        standard deviation, as in Manoel et al. 2022, appendix A.1 and table 7.
        """
        if self.metric is not PERPLEXITY:
            return {}
        lines, scale = self.lines, ACCURACY.scale
        columns = {
            f"{ACCURACY_OF}{site}": [_mean(line.values(site, ACCURACY.key), scale) for line in lines] for site in self.sites
        }
        columns[MACRO_ACCURACY] = [_mean(line.averages(f"macro_{ACCURACY.key}"), scale) for line in lines]
        for site in self.sites:
            for before, key in ((PARTS_OF, "perplexity_of_parts"), (PARTS_SD_OF, "perplexity_of_parts_sd")):
                columns[f"{before}{site}"] = [_mean(line.values(site, key)) for line in lines]
        return {name: values for name, values in columns.items() if _any(values)}

    def _macro_columns(self) -> Columns:
        """Of what runs measure besides BLEU and chrF: the mean over sites, and its standard deviation over seeds."""
        columns: Columns = {}
        for metric in self.more_metrics:
            name = f"macro_{metric.key}"
            measured = [[value for value in line.averages(name) if value is not None] for line in self.lines]
            columns[name] = [fmean(values) if values else None for values in measured]
            columns[f"{name}_sd"] = [stdev(values) if len(values) > 1 else None for values in measured]
        return columns

    @property
    def more_metrics(self) -> list[Metric]:
        """Those that any run measures besides BLEU and chrF."""
        measured = {key for _, entry in self._entries() for key in entry.get("signatures", {})}
        return [metric for metric in OF_TEXT.values() if metric.key in measured]

    def _entries(self) -> list[tuple[str, Json]]:
        """Site and entry of every run's scores."""
        return [item for line in self.lines for run in line.runs for item in run["sites"].items()]

    # --- As Markdown ------------------------------------------------------------------------------------------------------------

    def markdown(self) -> str:
        """The table with deviations, and all that one has to know to read it."""
        by_name = {line.name: line.seconds for line in self.lines if line.trains}
        return markdown(
            TEMPLATE,
            suite=self.suite,
            table=self,
            is_bleu=self.metric is BLEU,
            is_perplexity=self.metric is PERPLEXITY,
            first_paper=FED_MNMT.by,
            scores=self.score_rows(lambda text: f"**{text}**"),
            more=[(metric.name, "; ".join(self.signatures(metric)), self.metric_rows(metric)) for metric in self.more_metrics],
            seconds=[rows for parts in (PHASES, META) if (rows := seconds_rows(by_name, parts, units.seconds))],
            reading=READING,
            completed=sum(run["status"] == "completed" for run in self.suite["runs"].values()),
        )

    @property
    def best(self) -> dict[str, float]:
        """Column -> the best mean of a row that trains, as shown."""
        shown = [(column, each.shown) for line in self.lines if line.trains for column, each in line.scores.items()]
        return {column: self.metric.best(value for other, value in shown if other == column) for column, _ in shown}

    def score_rows(self, mark: Callable[[str], str]) -> list[list[str]]:
        """Header and rows of scores as text; `mark` sets off the best of a column."""
        columns, best, printed = [*self.sites, *AVERAGES], self.best, (self.suite.get("paper") or {}).get("rows", {})
        rows = [["method", *columns]]
        for line in self.lines:
            rows.append([line.name])
            for column in columns:
                score = line.scores.get(column)
                deviation = f" ± {score.sd:.2f}" if score and len(line.seeds) > 1 else ""
                text = f"{score.shown:.2f}{deviation}" if score else units.NOTHING
                rows[-1].append(mark(text) if score and line.trains and score.shown == best[column] else text)
            if line.name in printed:
                rows.append([f"{line.name} (paper)", *(units.score(printed[line.name].get(column)) for column in columns)])
        return rows

    def accuracy_rows(self) -> list[list[str]]:
        """Header and rows: masked pieces guessed, in %; empty where no row tells."""
        names = [*(f"{ACCURACY_OF}{site}" for site in self.sites), MACRO_ACCURACY]
        if not set(names) & set(self.masked_columns):
            return []
        rows = [[line.name, *(units.score(self._masked(name, place)) for name in names)] for place, line in enumerate(self.lines)]
        return [["method", *self.sites, "macro"], *rows]

    def parts_rows(self) -> list[list[str]]:
        """Header and rows: mean ± standard deviation over the parts of each site's text; empty where no row tells."""
        if not any(f"{PARTS_OF}{site}" in self.masked_columns for site in self.sites):
            return []
        rows = [["method", *self.sites]]
        for place, line in enumerate(self.lines):
            pairs = [[self._masked(f"{before}{site}", place) for before in (PARTS_OF, PARTS_SD_OF)] for site in self.sites]
            cells = [units.NOTHING if mean is None else f"{units.score(mean)} ± {units.score(sd)}" for mean, sd in pairs]
            rows.append([line.name, *cells])
        return rows

    def _masked(self, column: str, place: int) -> float | None:
        return self.masked_columns[column][place] if column in self.masked_columns else None

    def metric_rows(self, metric: Metric) -> list[list[str]]:
        """Header and rows of another metric: sites and the mean over them, mean ± standard deviation over seeds."""
        rows = [["method", *self.sites, "macro"]]
        for line in self.lines:
            columns = [*(line.values(site, metric.key) for site in self.sites), line.averages(f"macro_{metric.key}")]
            rows.append([line.name])
            for values in ([metric.scale * value for value in column if value is not None] for column in columns):
                deviation = f" ± {units.score(stdev(values))}" if len(values) > 1 else ""
                rows[-1].append(units.score(fmean(values) if values else None) + deviation)
        return rows

    def signatures(self, metric: Metric) -> list[str]:
        """How another metric was measured, each way once."""
        ways = (entry.get("signatures", {}).get(metric.key) for _, entry in self._entries())
        return list(dict.fromkeys(way for way in ways if way))

    def by_signature(self) -> dict[str, list[str]]:
        """Signature of BLEU -> the sites that are scored so."""
        sites: dict[str, list[str]] = {}
        for site in self.sites:
            for signature in sorted({run["sites"][site]["signature"] for run in self.scores.values() if site in run["sites"]}):
                sites.setdefault(signature, []).append(site)
        return sites

    def on_other_masks(self) -> list[str]:
        """Sites whose text was not masked the same in every run."""
        masks = {
            site: {run["sites"][site]["masks"] for run in self.scores.values() if site in run["sites"]} for site in self.sites
        }
        return [site for site, hashes in masks.items() if len(hashes) > 1]

    @property
    def saves(self) -> bool:
        """Whether any row sends less than all of an update."""
        return any(line.savings for line in self.lines)

    def cost_rows(self) -> list[list[str]]:
        """Header and rows: what is exchanged, rounds, dev loss and seeds."""
        saved = ("tensors saved", "numbers saved") if self.saves else ()
        rows = [["method", "parameters exchanged", "uplink", "downlink", *saved, "rounds", "dev loss", "seeds"]]
        for line in self.lines:
            sizes = [units.data(line.costs.get(cost)) for cost in COSTS[1:]]
            if self.saves:
                sizes += [f"{100 * line.savings[saving]:.1f} %" if line.savings else units.NOTHING for saving in SAVINGS]
            runs = [self.suite["runs"][f"{line.name}-{seed}"] for seed in line.seeds]
            losses = [run["dev_loss"] for run in runs if run.get("dev_loss") is not None]
            lists = [", ".join(map(str, values)) or units.NOTHING for values in ([run["rounds"] for run in runs], line.seeds)]
            loss = f"{fmean(losses):.3f}" if losses else units.NOTHING
            rows.append([line.name, units.count(line.costs.get(COSTS[0])), *sizes, lists[0], loss, lists[1]])
        return rows

    def over_own_models(self) -> list[list[str]]:
        """Header and rows: by how much each row beats the model of each site's own text; empty without such models."""
        silos = {row["name"]: row["method"].removeprefix(SILO) for row in self.suite["rows"] if row["method"].startswith(SILO)}
        alone = {silos[line.name]: line.mean(silos[line.name]) for line in self.lines if line.name in silos}
        own = {site: alone[site] for site in self.sites if alone.get(site) is not None}
        rows = [
            [line.name, *(units.gain(self.metric.gain(line.mean(site), mean)) for site, mean in own.items())]
            for line in self.lines
            if line.name not in silos and set(own) <= set(line.scores)
        ]
        return [["method", *own], *rows] if own and rows else []


def _any(values: Sequence[float | None]) -> bool:
    return any(value is not None for value in values)


def _mean(values: Sequence[float | None], scale: float = 1.0) -> float | None:
    """Over seeds, where every one tells it."""
    known = [value for value in values if value is not None]
    return scale * fmean(known) if known and len(known) == len(values) else None
