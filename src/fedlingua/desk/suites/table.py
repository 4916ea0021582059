"""The table of a suite: means over seeds, row by row, from the suite's own account and its runs' scores alone; as CSV and Markdown.

Everything here is a pure function of what `suite.json` and `runs/` hold, so a committed table can be made again, byte for byte.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from fedlingua.common import units
from fedlingua.desk.report.round_seconds import META, PHASES, READING, Seconds, seconds_column, seconds_rows
from fedlingua.desk.suites import more_table
from fedlingua.desk.suites.masked_table import Besides, accuracy_rows, besides, csv_columns, parts_rows
from fedlingua.desk.suites.paper import FED_MNMT
from fedlingua.settings.methods import SILO
from fedlingua.settings.metrics import BLEU, PERPLEXITY, Metric, metrics_of

COSTS = ("exchanged_parameters", "uplink_bytes", "downlink_bytes")
SAVINGS = ("tensor_saving", "number_saving")
SECONDS = (*PHASES, *META)
AVERAGES = ("macro", "micro", "pooled")
SAVED = ("tensors saved", "numbers saved")
DECIMALS = 6

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """A score over seeds, of the suite's first metric. sd: of the sample; 0 for one seed."""

    mean: float
    sd: float

    @property
    def shown(self) -> float:
        """As the table shows it, by which the best is chosen: what reads the same is equally good."""
        return round(self.mean, 2)


@dataclass(frozen=True)
class Line:
    """One row, over the seeds that it has scores of.

    scores: by site, and "macro", "micro", "pooled"; costs: of one site in one round, by the names of COSTS; savings: shares of an update
    that were not sent, 0-1, by the names of SAVINGS, of a row that selects; seconds: of a round, by part, where its runs tell them. All are
    empty without any seed.
    """

    name: str
    trains: bool
    seeds: tuple[int, ...]
    scores: Mapping[str, Figure]
    costs: Mapping[str, int]
    savings: Mapping[str, float] = field(default_factory=dict)
    seconds: Seconds = field(default_factory=dict)


def figure(values: Sequence[float]) -> Figure:
    """Mean and sample standard deviation over seeds."""
    return Figure(fmean(values), stdev(values) if len(values) > 1 else 0.0)


def metric_of(scores: Mapping[str, Json]) -> Metric:
    """What the rows are compared by: the first metric of the runs' task."""
    return metrics_of(next(iter(scores.values()), {}))[0]


def columns(suite: Json, scores: Mapping[str, Json]) -> list[str]:
    """The sites as the runs' scores name them ("<site>:<direction>" where a site has several), in the federation's order."""
    order = {site: place for place, site in enumerate(suite["sites"])}
    named = dict.fromkeys(site for run in scores.values() for site in run["sites"])
    return sorted(named or order, key=lambda name: order.get(name.partition(":")[0], len(order)))


def lines(suite: Json, scores: Mapping[str, Json]) -> list[Line]:
    """Every row of the suite. scores: "<row>-<seed>" -> a run's scores.json, of those that have one."""
    key = metric_of(scores).key
    return [
        _line(
            row, {seed: scores[name] for seed in row["seeds"] if (name := f"{row['name']}-{seed}") in scores}, suite["runs"], key
        )
        for row in suite["rows"]
    ]


def _line(row: Json, runs: Mapping[int, Json], about: Json, key: str) -> Line:
    found = list(runs.values())
    sites = dict.fromkeys(site for run in found for site in run["sites"])
    scores = {site: figure([run["sites"][site][key] for run in found if site in run["sites"]]) for site in sites}
    scores |= {name: figure([run[f"{name}_{key}"] for run in found]) for name in AVERAGES if found}
    told = {"uplink_bytes": "uplink_bytes_per_round", "downlink_bytes": "downlink_bytes_per_round"}
    costs = {cost: round(fmean(run[told.get(cost, cost)] for run in found)) for cost in COSTS if found}
    savings = {saving: fmean(run[saving] for run in found) for saving in SAVINGS if found and all(saving in run for run in found)}
    parts = [about[f"{row['name']}-{seed}"].get("seconds_by_part", {}) for seed in runs]
    seconds = {part: fmean(one[part] for one in parts) for part in SECONDS if parts and all(part in one for one in parts)}
    return Line(row["name"], row["trains"], tuple(runs), scores, costs, savings, seconds)


def table_csv(suite: Json, scores: Mapping[str, Json]) -> str:
    """Plain numbers, one row a method; what a row has no scores of is empty. seeds: how many; suite.json names them."""
    sites, key = columns(suite, scores), metric_of(scores).key
    averages = [f"macro_{key}", f"macro_{key}_sd", f"micro_{key}", f"pooled_{key}"]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    found = lines(suite, scores)
    told = SAVINGS if any(line.savings for line in found) else ()
    parts = [part for part in SECONDS if any(part in line.seconds for line in found)]
    more = csv_columns(_besides(suite, scores), sites) | more_table.csv_columns(_runs_of_rows(suite, scores))
    writer.writerow(["method", *sites, *averages, *COSTS, *told, *map(seconds_column, parts), *more, "seeds"])
    for line in found:
        means = {name: round(figure.mean, DECIMALS) for name, figure in line.scores.items()}
        deviation = round(line.scores["macro"].sd, DECIMALS) if "macro" in line.scores else ""
        numbers = [means.get("macro", ""), deviation, means.get("micro", ""), means.get("pooled", "")]
        costs: list[float | str] = [line.costs.get(cost, "") for cost in COSTS]
        costs += [round(line.savings[saving], DECIMALS) if saving in line.savings else "" for saving in told]
        costs += [round(line.seconds[part], DECIMALS) if part in line.seconds else "" for part in parts]
        costs += [round(of[line.name][site], DECIMALS) if site in of[line.name] else "" for of, site in more.values()]
        writer.writerow([line.name, *(means.get(site, "") for site in sites), *numbers, *costs, len(line.seeds)])
    return stream.getvalue()


def best(found: Sequence[Line], metric: Metric = BLEU) -> dict[str, float]:
    """Column -> the best mean of a row that trains, as shown."""
    shown = [(column, each.shown) for line in found if line.trains for column, each in line.scores.items()]
    return {column: metric.best(value for other, value in shown if other == column) for column, _ in shown}


def table_markdown(suite: Json, scores: Mapping[str, Json]) -> str:
    """The table with deviations, and all that one has to know to read it."""
    parts = [f"# {suite['title']}", _scores_table(suite, scores), _reading(suite, metric_of(scores))]
    parts += [_masked_tables(suite, scores), _more_tables(suite, scores), _costs_table(suite, scores)]
    parts += [_over_own_models(suite, scores), _seconds_table(suite, scores)]
    parts += [_signatures(suite, scores), _what_was_run(suite), _trouble(suite)]
    return "\n\n".join(part for part in parts if part) + "\n"


def score_rows(suite: Json, scores: Mapping[str, Json], mark: Callable[[str], str]) -> list[list[str]]:
    """Header and rows of scores as text; `mark` sets off the best of a column."""
    sites, found = [*columns(suite, scores), *AVERAGES], lines(suite, scores)
    top, printed = best(found, metric_of(scores)), (suite.get("paper") or {}).get("rows", {})
    rows = [["method", *sites]]
    for line in found:
        cells = [_cell(line, column, top, mark) for column in sites]
        rows.append([line.name, *cells])
        if line.name in printed:
            rows.append([f"{line.name} (paper)", *(units.score(printed[line.name].get(column)) for column in sites)])
    return rows


def _cell(line: Line, column: str, top: Mapping[str, float], mark: Callable[[str], str]) -> str:
    found = line.scores.get(column)
    if found is None:
        return units.NOTHING
    text = f"{found.shown:.2f}" + (f" ± {found.sd:.2f}" if len(line.seeds) > 1 else "")
    return mark(text) if line.trains and found.shown == top[column] else text


def _besides(suite: Json, scores: Mapping[str, Json]) -> Besides:
    """What the rows' scores tell besides perplexity; nothing of translations."""
    if metric_of(scores) is not PERPLEXITY:
        return besides({})
    return besides(_runs_of_rows(suite, scores))


def _runs_of_rows(suite: Json, scores: Mapping[str, Json]) -> dict[str, list[Json]]:
    """Row -> the scores of each of its seeds."""
    names = {row["name"]: [f"{row['name']}-{seed}" for seed in row["seeds"]] for row in suite["rows"]}
    return {row: [scores[name] for name in runs if name in scores] for row, runs in names.items()}


def _more_tables(suite: Json, scores: Mapping[str, Json]) -> str:
    """A table a metric that the runs measure besides."""
    runs, sites = _runs_of_rows(suite, scores), columns(suite, scores)
    parts = []
    for metric in more_table.more_metrics(runs):
        how = "; ".join(more_table.signatures(runs, metric))
        words = f"{metric.name}, mean ± sample standard deviation over seeds ({how}):"
        parts.append(f"{words}\n\n{_markdown(more_table.metric_rows(runs, metric, sites))}")
    return "\n\n".join(parts)


def _masked_tables(suite: Json, scores: Mapping[str, Json]) -> str:
    told, sites = _besides(suite, scores), columns(suite, scores)
    tables = {
        "Masked pieces that were guessed, in %, mean over seeds:": accuracy_rows(told, sites),
        "Perplexity of four parts of each text, mean ± sample standard deviation over the parts, both mean over seeds:": parts_rows(
            told, sites
        ),
    }
    return "\n\n".join(f"{words}\n\n{_markdown(rows)}" for words, rows in tables.items() if rows)


def _scores_table(suite: Json, scores: Mapping[str, Json]) -> str:
    return _markdown(score_rows(suite, scores, lambda text: f"**{text}**"))


def over_own_models(suite: Json, scores: Mapping[str, Json]) -> list[list[str]]:
    """Header and rows: how much better each row is at each site than the model of that site's text alone; empty without such rows."""
    metric, found = metric_of(scores), lines(suite, scores)
    silos = {row["name"]: row["method"].removeprefix(SILO) for row in suite["rows"] if row["method"].startswith(SILO)}
    alone = {silos[line.name]: line.scores for line in found if line.name in silos}
    own = {site: alone[site][site].mean for site in columns(suite, scores) if site in alone.get(site, {})}
    rows = [
        [line.name, *(units.gain(metric.gain(line.scores[site].mean, mean)) for site, mean in own.items())]
        for line in found
        if line.name not in silos and set(own) <= set(line.scores)
    ]
    return [["method", *own], *rows] if own and rows else []


def _over_own_models(suite: Json, scores: Mapping[str, Json]) -> str:
    rows = over_own_models(suite, scores)
    words = (
        f"Better than the site's own model, the one trained on its text alone (`silo-…`), in {metric_of(scores).name}; "
        "below 0 is worse."
    )
    return f"{words}\n\n{_markdown(rows)}" if rows else ""


def _reading(suite: Json, metric: Metric) -> str:
    words = (
        f"{metric.name if metric is BLEU else metric.name.capitalize()}, mean ± sample standard deviation over seeds; bold: the best of a "
        f"column, `base` left out. macro: mean over {'languages' if metric is PERPLEXITY else 'sites'}; micro: weighted by test size; "
        "pooled: all sites as one corpus."
    )
    if suite.get("paper"):
        paper = suite["paper"]
        words += f" (paper): {paper['by']}, {paper['table']}; – where it gives none."
        if paper["by"] == FED_MNMT.by:
            words += " They are of decoded, truncated references, which flatters; ours of the references as they are."
    return words


def _costs_table(suite: Json, scores: Mapping[str, Json]) -> str:
    found = lines(suite, scores)
    saved = any(line.savings for line in found)
    rows = [["method", "parameters exchanged", "uplink", "downlink", *SAVED[: 2 * saved], "rounds", "dev loss", "seeds"]]
    for line in found:
        sizes = [units.data(line.costs.get(cost)) for cost in COSTS[1:]]
        if saved:
            sizes += [f"{100 * line.savings[saving]:.1f} %" if line.savings else units.NOTHING for saving in SAVINGS]
        runs = [suite["runs"][f"{line.name}-{seed}"] for seed in line.seeds]
        rounds = ", ".join(str(run["rounds"]) for run in runs) or units.NOTHING
        losses = [run["dev_loss"] for run in runs if run.get("dev_loss") is not None]
        loss = f"{fmean(losses):.3f}" if losses else units.NOTHING
        seeds = ", ".join(map(str, line.seeds)) or units.NOTHING
        rows.append([line.name, units.count(line.costs.get(COSTS[0])), *sizes, rounds, loss, seeds])
    words = (
        "\n\nUplink and downlink are bytes of one site in one round, as sent. rounds: of each seed; dev loss: the lowest of any round, "
        "nats a token, mean over sites and seeds (centralized: over all tokens; adapter-local: of one round for all sites)."
    )
    if saved:
        words += " tensors, numbers saved: the share of an update that a site did not send, mean over sites, rounds and seeds."
    return _markdown(rows) + words


def _seconds_table(suite: Json, scores: Mapping[str, Json]) -> str:
    """Of the rows that train; nothing of results from before the parts of a round were told."""
    by_name = {line.name: line.seconds for line in lines(suite, scores) if line.trains}
    tables = [_markdown(rows) for parts in (PHASES, META) if (rows := seconds_rows(by_name, parts, units.seconds))]
    words = (
        f"{READING} Mean over seeds. Below, of these, inside the meta module." if tables[1:] else f"{READING} Mean over seeds."
    )
    return "\n\n".join([*tables[:1], words, *tables[1:]]) if tables else ""


def _signatures(suite: Json, scores: Mapping[str, Json]) -> str:
    by_signature: dict[str, list[str]] = {}
    if metric_of(scores) is not BLEU:
        return _masks(suite, scores)
    for site in columns(suite, scores):
        for signature in sorted({run["sites"][site]["signature"] for run in scores.values() if site in run["sites"]}):
            by_signature.setdefault(signature, []).append(site)
    told = [
        f"`{signature}`" + (f" ({', '.join(sites)})" if len(by_signature) > 1 else "")
        for signature, sites in by_signature.items()
    ]
    return f"Signature: {'; '.join(told)}." if told else ""


def _masks(suite: Json, scores: Mapping[str, Json]) -> str:
    """Whether every method was measured on the same masked text."""
    different = [
        site
        for site in columns(suite, scores)
        if len({run["sites"][site]["masks"] for run in scores.values() if site in run["sites"]}) > 1
    ]
    if different:
        return f"Not measured on the same masks, so not to be compared: {', '.join(different)}."
    return "Every run was measured on the same text with the same masks, by their hashes; every piece is masked once."


def _what_was_run(suite: Json) -> str:
    keys = ", ".join(f"{key} = {_value(value)}" for key, value in {**suite["settings"], **suite["overrides"]}.items())
    told = [f"What was run: `{suite['file']}`" + (f" with {_overrides(suite['overrides'])}" if suite["overrides"] else "")]
    told[0] += f"; {keys}; the rest as in pyproject.toml." if keys else "; every key as in pyproject.toml."
    for row in suite["rows"]:
        own = ", ".join(
            f"{key} = {_value(value)}" for key, value in row["keys"].items() if (key, value) != ("method", row["name"])
        )
        told += [f"{row['name']}: {own}."] if own else []
    done = [run for run in suite["runs"].values() if run["status"] == "completed"]
    versions = ", ".join(f"{name} {number}" for name, number in suite["versions"].items())
    told.append(f"{len(done)} runs, {units.duration(suite['seconds'])} of run time, added up; {versions}.")
    return "\n".join(f"- {line}" for line in told)


def _overrides(overrides: Json) -> str:
    return " ".join(f"`--set {key}={value}`" for key, value in overrides.items())


def _trouble(suite: Json) -> str:
    """Failed runs and what else a reader has to be told."""
    notes = [
        f"Failed: {name}: {run['status']}, {_plain(run['reason'] or 'no reason given')}"
        for name, run in suite["runs"].items()
        if run["status"] != "completed"
    ]
    return "\n".join(f"- {note}" for note in [*notes, *suite["notes"]])


def _plain(text: str) -> str:
    """On one line, and nothing that Markdown takes for HTML."""
    return " ".join(text.replace("<", "&lt;").split())


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(rows[0]) - 1)]
    texts = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [texts[0], rule, *texts[1:]])
