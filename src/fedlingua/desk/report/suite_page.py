"""The page of a suite: its rows beside each other, in their scores and in what they cost."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedlingua.common import units
from fedlingua.common.errors import RunError
from fedlingua.desk.report.communication import BANDWIDTH_MBPS, Cost, Traffic, bandwidths, full_model, round_cost
from fedlingua.desk.report.publish import put_page, render_page
from fedlingua.desk.report.saving_plots import base_in_view, saving_plot, saving_points, uplink_plot, uplink_points
from fedlingua.desk.report.suite_plots import convergence_curves, convergence_plot, gain_plot, macro_plot, suite_cost_plot
from fedlingua.desk.report.suite_result import BASE, Paper, Row, SuiteResult, mean, read_suite
from fedlingua.desk.report.values import text
from fedlingua.settings.methods import SILO
from fedlingua.settings.metrics import BLEU, Metric

LOCAL = "adapter-local"
FULL = "full model"


def write_suite_report(result_dir: Path, runs_dir: Path | None = None, bandwidth_mbps: float = BANDWIDTH_MBPS) -> Path:
    """Write `report.html` of the suite in `result_dir` to `runs_dir`, `./runs/<suite>` by default, and return its path.

    The page is several MB and so has no place in the committed `result_dir` itself. `bandwidth_mbps`: the server's line.

    Raises:
        RunError: no result there, or the page cannot be written. ConfigError: a bandwidth that is no positive number.
    """
    result_dir = Path(result_dir)
    page = render_suite(read_suite(result_dir), bandwidth_mbps)
    folder = Path(runs_dir) if runs_dir else Path("runs") / result_dir.resolve().name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"The folder for the suite's report cannot be made: {folder}: {error}; name another one") from error
    return put_page(page, folder / "report.html")


def render_suite(result: SuiteResult, bandwidth_mbps: float = BANDWIDTH_MBPS) -> str:
    """The page as text."""
    _, bandwidth, _ = bandwidths(bandwidth_mbps)
    traffic = row_traffic(result)
    costs = {
        row: round_cost(each, result.num_sites, bandwidth, mean([result.training_s(row), *_trained_instead(result, row)]))
        for row, each in traffic.items()
    }
    return render_page(
        "suite.html",
        result.title,
        _figures(result, costs),
        result=result,
        metric=result.metric.name,
        key_figures=suite_key_figures(result),
        best=best_values((_columns(row) for row in result.rows if row.name != BASE), result.metric),
        columns={row.name: _columns(row) for row in result.rows},
        paper_best=_paper_best(result.paper),
        traffic=traffic,
        costs=costs,
        bandwidth_mbps=bandwidth,
        base_in_view=base_in_view(result),
        shown_settings={key: text(value) for key, value in result.settings.items()},
        note=lambda name: result.notes.get(name, f"{name} holds nothing to show."),
    )


def best_values(rows: Iterable[dict[str, float | None]], metric: Metric = BLEU) -> dict[str, str]:
    """Column -> its best value as it is shown, so that rows that read the same are best together."""
    best: dict[str, float] = {}
    for row in rows:
        for column, value in row.items():
            if value is not None:
                best[column] = metric.best([value, best.get(column, value)])
    return {column: units.score(value) for column, value in best.items()}


def row_traffic(result: SuiteResult) -> dict[str, Traffic]:
    """What each row exchanges; the full model is reckoned beside where no row sends it."""
    found = {row.name: row.traffic for row in result.rows if row.name != BASE and row.traffic is not None}
    parameters = mean(run.backbone_parameters for run in result.runs)
    if parameters is not None and "model-fed" not in found:
        found[FULL] = full_model(parameters)
    return {name: traffic for name, traffic in found.items() if traffic is not None}


def suite_key_figures(result: SuiteResult) -> list[tuple[str, str, str]]:
    """The row under the title: name, value, and a word on it."""
    seeds = list(dict.fromkeys(run.seed for run in result.runs))
    ended = len(result.runs) - len(result.failed)
    count = len(seeds) or max((row.seeds or 0 for row in result.rows), default=0)
    return [
        ("rows", str(len(result.rows)), f"{len(result.sites)} sites"),
        ("seeds", str(count), ", ".join(seeds) if len(seeds) <= 5 else ""),
        *_best_figures(result),
        ("all runs, added up", units.duration(result.seconds), f"{ended} of {len(result.runs)} runs completed"),
    ]


def _best_figures(result: SuiteResult) -> list[tuple[str, str, str]]:
    best, local = result.best, result.row(LOCAL)
    if best is None:
        return [(f"best macro {result.metric.name}", "not yet", "")]
    over_base = result.gain(best.macro, result.base_macro)
    figures = [
        (f"best macro {result.metric.name}", units.score(best.macro), best.name),
        ("its gain over base", units.gain(over_base), f"base {units.score(result.base_macro)}"),
    ]
    if local is None:
        return figures
    word = f"{LOCAL} {units.score(local.macro)}"
    return [*figures, (f"over {LOCAL}", units.gain(result.gain(best.macro, local.macro)), word)]


def _columns(row: Row) -> dict[str, float | None]:
    """The values of the table by column: the averages, then the sites."""
    return {"macro": row.macro, "micro": row.micro, "pooled": row.pooled, **row.sites}


def _paper_best(paper: Paper | None) -> dict[str, str]:
    return best_values({**scores} for row, scores in paper.rows.items() if row != BASE) if paper else {}


def _trained_instead(result: SuiteResult, row: str) -> list[float | None]:
    """The full model was not trained: the mean of all rows stands for its training."""
    return [result.training_s(each.name) for each in result.rows] if row == FULL else []


def _figures(result: SuiteResult, costs: dict[str, Cost]) -> dict[str, Any]:
    """The plots that there is something to draw for."""
    figures = {"macro": macro_plot(result)} if any(row.macro is not None for row in result.rows) else {}
    if result.base_sites and result.best:
        figures["gains"] = gain_plot(result, result.base_sites, BASE)
    if result.own_models and result.best:
        figures["own"] = gain_plot(result, result.own_models, SILO)
    if curves := convergence_curves(result):
        figures["convergence"] = convergence_plot(result, curves)
    if saving_points(result):
        figures["saving"] = saving_plot(result)
    if uplink_points(result)[0]:
        figures["uplink"] = uplink_plot(result)
    if costs:
        figures["cost"] = suite_cost_plot(costs)
    return figures
