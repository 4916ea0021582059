"""The HTML page of a suite: its rows side by side, by score and by cost."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import plotly.graph_objects as go

from fedlingua.common import units
from fedlingua.desk.report import canvas
from fedlingua.desk.report.communication import BANDWIDTH_MBPS, Cost, Traffic, cost_plot, full_model, round_cost
from fedlingua.desk.report.convergence import ALL
from fedlingua.desk.report.publish import heading, put_page, render_page
from fedlingua.settings.methods import CENTRALIZED, SILO
from fedlingua.settings.table import OPTIONS
from fedlingua_lab.pages.pareto import Point, pareto_plot
from fedlingua_lab.suites.table import ACCURACY_OF, BASE, COSTS, MACRO_ACCURACY, Figure, Line, SuiteTable, known_mean

FULL = "full model"
LONGEST_ROW = 26
FEDERATED = "macro_federated"
# Zero gain is nearly transparent, and both ends are weak enough for the number on top to be legible.
LOST = [[0.0, "rgba(213, 94, 0, 0.75)"], [0.5, "rgba(213, 94, 0, 0.03)"]]
GAINED = [[0.5, "rgba(0, 114, 178, 0.03)"], [1.0, "rgba(0, 114, 178, 0.6)"]]


def write_suite_report(result_dir: Path, runs_dir: Path | None = None) -> Path:
    """Write `report.html` of the suite in `result_dir` to `runs_dir`, by default `./runs/<suite>`, and return its path.

    The page has several MB, which is too large for the committed `result_dir`.

    Raises:
        RunError: `result_dir` has no result, or the page cannot be written.
    """
    folder = runs_dir or Path("runs") / result_dir.resolve().name
    return put_page(render_suite(SuiteTable.of(result_dir)), folder / "report.html")


def render_suite(result: SuiteTable) -> str:
    traffic, paper = row_traffic(result), result.suite.get("paper") or {"rows": {}}
    training = {line.name: line.train_seconds for line in result.lines}
    # The full model was not trained, so the mean training time of all rows stands for its own.
    training[FULL] = known_mean(training.values())
    costs = {row: round_cost(each, result.num_sites, BANDWIDTH_MBPS, training[row]) for row, each in traffic.items()}
    columns = dict.fromkeys(column for scores in paper["rows"].values() for column in scores)
    methods = [scores for row, scores in paper["rows"].items() if row != BASE]
    return render_page(
        Path(__file__).with_name("suite.html"),
        result.suite["title"],
        _figures(result, costs),
        result=result,
        suite=result.suite,
        heading=heading({"backbone": OPTIONS["backbone"].default, **result.suite["settings"]}),
        several_seeds=any(line.seeds[1:] for line in result.lines),
        folders={name: run["folder"] for name, run in result.suite["runs"].items() if run.get("folder")},
        metric=result.metric.name,
        failed={name: run for name, run in result.suite["runs"].items() if run["status"] != "completed"},
        accuracy_of=ACCURACY_OF,
        macro_accuracy=MACRO_ACCURACY,
        paper=paper if columns else None,
        paper_columns=sorted(columns, key=lambda column: column not in ("macro", "micro")),
        paper_best={column: max((scores[column] for scores in methods if column in scores), default=None) for column in columns},
        traffic=traffic,
        costs=costs,
        bandwidth_mbps=BANDWIDTH_MBPS,
    )


def row_traffic(result: SuiteTable) -> dict[str, Traffic]:
    """Return the traffic of each row and, if no row sends the full model, the computed traffic of the full model."""
    lines = [line for line in result.lines if line.name != BASE and line.costs]
    traffic = {line.name: Traffic(*(line.costs[cost] for cost in COSTS)) for line in lines}
    if result.parameters is not None and "model-fed" not in traffic:
        traffic[FULL] = full_model(result.parameters)
    return traffic


def _figures(result: SuiteTable, costs: dict[str, Cost]) -> dict[str, go.Figure | None]:
    base, own = result.base, result.own_models
    macro, saving, (uplink, unit) = base.get("macro"), saving_points(result), uplink_points(result)
    saved, sent = "numbers of an update not sent, %", f"uplink of a site and round, {unit}"
    return {
        "macro": macro_plot(result) if result.scores else None,
        "gains": gain_plot(result, base, BASE) if base and result.best_line else None,
        "own": gain_plot(result, own, SILO) if own and result.best_line else None,
        "convergence": convergence_plot(result),
        "saving": pareto_plot(saving, result.metric, True, saved, macro) if saving else None,
        "uplink": pareto_plot(uplink, result.metric, False, sent, macro) if uplink and not total_points(result) else None,
        "bytes": total_plot(result),
        "bytes-federated": total_plot(result, FEDERATED),
        "cost": cost_plot(list(costs), list(costs.values()), LONGEST_ROW)
        if any(cost.transfer_s for cost in costs.values())
        else None,
    }


def macro_plot(result: SuiteTable) -> go.Figure:
    """Plot the macro score of each row: a point per seed, the mean with its standard deviation, and the paper's score."""
    lines, places = result.lines, list(range(len(result.lines)))
    names = [escape(line.name) for line in lines]
    figure = go.Figure()
    # The seeds' points lie slightly above their mean, so that neither hides the other.
    seeds = [
        (run[f"macro_{result.metric.key}"], place - 0.3, f"{names[place]}, seed {seed}")
        for place, line in enumerate(lines)
        for seed, run in zip(line.seeds, line.runs, strict=True)
    ]
    gray = {"size": 7, "color": canvas.BEFORE, "opacity": 0.8}
    x, y = [x for x, *_ in seeds], [y for _, y, _ in seeds]
    canvas.marks(figure, x, y, "a seed", "%{text}<br>%{x:.2f}", text=[said for *_, said in seeds], marker=gray)
    error = {"array": [line.sd for line in lines], "color": canvas.UP, "thickness": 2.5, "width": 6}
    look: canvas.Look = {"marker_size": 11, "marker_color": canvas.UP, "error_x": error, "text": names}
    shown = [units.mean_and_sd(line.mean("macro"), line.sd) for line in lines]
    name = "mean ± sd" if any(line.seeds[1:] for line in lines) else "mean"
    means = [line.mean("macro") for line in lines]
    canvas.marks(figure, means, places, name, "%{text}<br>%{customdata}", customdata=shown, **look)
    if paper := result.suite.get("paper"):
        of_paper = [paper["rows"].get(line.name, {}).get("macro") for line in lines]
        diamond = {"size": 11, "symbol": "diamond-open", "color": canvas.WORSE, "line": {"width": 2}}
        canvas.marks(figure, of_paper, places, "the paper's", "%{text}, the paper's<br>%{x:.2f}", text=names, marker=diamond)
    canvas.frame(figure, height=120 + 30 * len(lines), x_title=f"macro {result.metric.name}")
    if result.base.get("macro") is not None:
        figure.add_vline(x=result.base["macro"], line=canvas.DOTTED)
    canvas.row_axis(figure, [line.name for line in lines], LONGEST_ROW)
    return figure


def gain_plot(result: SuiteTable, base: Mapping[str, float], left_out: str) -> go.Figure:
    """Plot each row's gain over `base` at each site as a heat map. left_out: Prefix of the rows that are the base and not shown."""
    rows = [line for line in result.lines if not line.name.startswith(left_out)]
    names, sites = [line.name for line in rows], result.sites
    cells = [[result.metric.gain(line.mean(site), base.get(site)) for site in sites] for line in rows]
    reach = max((abs(value) for values in cells for value in values if value is not None), default=1.0) or 1.0
    figure = go.Figure()
    style: canvas.Look = {"colorscale": LOST + GAINED, "zmin": -reach, "zmax": reach, "showscale": False}
    shown = [["" if value is None else f"{round(value, 1) + 0.0:+.1f}" for value in values] for values in cells]
    style |= {"text": shown, "texttemplate": "%{text}"}
    style |= {"textfont": {"size": 11 if len(sites) <= 12 else 10, "color": canvas.INK}}
    said = [[f"{escape(name)} at {escape(site)}" for site in sites] for name in names]
    canvas.heat_map(figure, cells, said, f"%{{customdata}}<br>%{{z:+.2f}} {result.metric.name}", **style)
    canvas.frame(figure, height=60 + 9 * _longest(sites) + 27 * len(rows))
    canvas.keep_wide(figure, 8 * _longest(names) + 44 * len(sites))
    canvas.row_axis(figure, names, LONGEST_ROW)
    figure.update_yaxes(showgrid=False)
    ticks = {"tickvals": list(range(len(sites))), "ticktext": [canvas.short(site) for site in sites]}
    figure.update_xaxes(side="top", showgrid=False, tickangle=-90, **ticks)
    return figure


def _longest(names: Sequence[str]) -> int:
    """Return the length of the longest name as shortened for a tick."""
    return max((len(canvas.short(name)) for name in names), default=0)


def convergence_plot(result: SuiteTable) -> go.Figure | None:
    """Plot dev perplexity by round, one line per row, on a logarithmic axis; None if none was measured.

    A menu selects the text of all sites or of one site, as far as it was measured.
    """
    texts = {text: curves for text in (ALL, *result.sites) if (curves := result.convergence(text))}
    if not texts:
        return None
    place = {line.name: index for index, line in enumerate(result.lines)}
    drawn = [(text, row, curve) for text, curves in texts.items() for row, curve in curves.items()]
    first = next(iter(texts))
    figure = go.Figure()
    for of_text, row, curve in drawn:
        look: canvas.Look = {"line_width": 2, **canvas.look_of_line(place[row]), "marker_size": 5, "visible": of_text == first}
        said = [f"{escape(row)}, {escape(of_text)}"] * len(curve)
        canvas.line(figure, curve, canvas.short(row, LONGEST_ROW), "%{text}<br>round %{x}<br>%{y:.2f}", text=said, **look)
    legend_rows = (max(len(curves) for curves in texts.values()) + 2) // 3
    canvas.frame(figure, height=420 + 20 * legend_rows, x_title="round", y_title=f"dev {result.metric.name}")
    canvas.round_axis(figure, (index for *_, curve in drawn for index in curve))
    figure.update_yaxes(type="log")
    choices = [
        {"label": canvas.short(text), "method": "restyle", "args": [{"visible": [of == text for of, *_ in drawn]}]}
        for text in texts
    ]
    # plotly marks the current choice in a light colour on any background
    colours = {"bgcolor": "#eeeeee", "bordercolor": canvas.GRID, "font": {"color": "#222222"}}
    menu = {"buttons": choices, "x": 1, "xanchor": "right", "y": 1, "yanchor": "top"} | colours
    figure.update_layout(updatemenus=[menu] if len(choices) > 1 else [], showlegend=True)
    return figure


def saving_points(result: SuiteTable) -> list[Point]:
    """Return a point per row; empty if no row has a selection rule. x: % of an update's numbers not sent; 0 for whole updates."""
    if "number_saving" not in result.columns:
        return []
    points = []
    for line in filter(_is_drawn, result.lines):
        share = line.saving("number_saving")
        if share is None and line.costs.get("exchanged_parameters"):
            share = 0.0  # the row exchanges whole updates
        if share is not None:
            points.append(_point(line, 100 * share))
    return points


def uplink_points(result: SuiteTable) -> tuple[list[Point], str]:
    """Return a point per row and the unit of x, uplink bytes per site and round; no points if fewer than two rows exchange.

    Rows with the text of several sites in one place are left out, because the cost of bringing it there is not counted.
    """
    lines = [line for line in result.lines if _is_drawn(line) and not line.name.startswith((CENTRALIZED, SILO))]
    known = [(line, uplink) for line in lines if (uplink := line.costs.get("uplink_bytes"))]
    known = known if len(known) > 1 else []
    size, unit = units.byte_unit(max((uplink for _, uplink in known), default=0.0))
    return [_point(line, uplink / size) for line, uplink in known], unit


def total_points(result: SuiteTable, mean: str = "macro") -> list[Point]:
    """Return a point per row; empty if fewer than two rows have any. x: log10 of a site's bytes in a whole run, up plus down.

    mean: The plotted mean over sites, of the models that they keep or, if they chose among several, `FEDERATED`.
    """
    points = []
    for line in filter(_is_drawn, result.lines):
        values = [value for value in line.values(f"{mean}_{result.metric.key}") if value is not None]
        if values and line.total_bytes and not line.name.startswith((CENTRALIZED, SILO)):
            score = Figure.of(values)
            own = next(row.get("keys", {}) for row in result.suite["rows"] if row["name"] == line.name)
            hover = f"{escape(line.name)}<br>{units.mean_and_sd(score.mean, score.sd if line.seeds[1:] else None)}"
            hover += f"<br>up {units.data(line.totals['up'])}, down {units.data(line.totals['down'])}"
            hover += "".join(f"<br>{escape(f'{name} = {value}')}" for name, value in own.items() if name != "method")
            points.append(Point(line.name, math.log10(line.total_bytes), score.mean, score.sd, hover))
    return points if len(points) > 1 else []


def total_plot(result: SuiteTable, mean: str = "macro") -> go.Figure | None:
    """Plot macro score against all bytes of a run on a logarithmic axis, with fewer bytes further left; None without points."""
    points = total_points(result, mean)
    if not points:
        return None
    figure = pareto_plot(points, result.metric, False, "up and down of a site in the whole run", result.base.get("macro"))
    places = [place for place in range(3, 13) for _ in range(3)]
    ticks = [factor * 10**place for place, factor in zip(places, 10 * (1, 2, 5), strict=True)]
    shown = {math.log10(tick): units.data(tick).replace(".00", "") for tick in ticks}
    figure.update_xaxes(tickvals=list(shown), ticktext=list(shown.values()))
    return figure


def _is_drawn(line: Line) -> bool:
    return line.name != BASE and "macro" in line.scores


def _point(line: Line, x: float) -> Point:
    macro = line.scores["macro"]
    hover = f"{escape(line.name)}<br>{units.mean_and_sd(macro.mean, line.sd)}"
    if (numbers := line.saving("number_saving")) is not None:
        hover += f"<br>not sent: {units.share(line.saving('tensor_saving'))} of tensors, {units.share(numbers)} of numbers"
    hover += f"<br>uplink {units.data(line.costs['uplink_bytes'])}"
    return Point(line.name, x, macro.mean, macro.sd, hover)
