"""The HTML page of a suite: its rows side by side, by score and by cost."""

import math
from html import escape
from pathlib import Path

import plotly.graph_objects as go

from fedlingua.desk import units
from fedlingua.desk.report import canvas
from fedlingua.desk.report.communication import BANDWIDTH_MBPS, Traffic, full_model, round_cost
from fedlingua.desk.report.publish import heading, put_page, render_page
from fedlingua.settings.methods import CENTRALIZED, SILO
from fedlingua.settings.table import OPTIONS
from fedlingua_lab.pages.pareto import Point, pareto_plot
from fedlingua_lab.suites.convergence import ALL
from fedlingua_lab.suites.table import BASE, Line, SuiteTable, known_mean

FULL = "full model"
LONGEST_ROW = 26


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
    training = {line.name: line.mean_of("train_seconds") for line in result.lines}
    # The full model was not trained, so the mean training time of all rows stands for its own.
    training[FULL] = known_mean(training.values())
    costs = {row: round_cost(each, result.num_sites, BANDWIDTH_MBPS, training[row]) for row, each in traffic.items()}
    columns = dict.fromkeys(column for scores in paper["rows"].values() for column in scores)
    methods = [scores for row, scores in paper["rows"].items() if row != BASE]
    return render_page(
        Path(__file__).with_name("suite.html"),
        result.suite["title"],
        {"convergence": convergence_plot(result), "saving": saving_plot(result), "bytes": bytes_plot(result)},
        result=result,
        suite=result.suite,
        heading=heading({"backbone": OPTIONS["backbone"].default, **result.suite["settings"]}),
        several_seeds=any(len(line.runs) > 1 for line in result.lines),
        folders={name: run["folder"] for name, run in result.suite["runs"].items() if run.get("folder")},
        metric=result.metric.name,
        gains=[
            (over, scores, [line for line in result.lines if not line.name.startswith(left_out)])
            for over, scores, left_out in (("base", result.base, BASE), ("site's own model", result.own_models, SILO))
            if scores and result.best_line
        ],
        failed={name: run for name, run in result.suite["runs"].items() if run["status"] != "completed"},
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
    traffic = {line.name: Traffic(*line.costs.values()) for line in lines}
    if result.parameters is not None and "model-fed" not in traffic:
        traffic[FULL] = full_model(result.parameters)
    return traffic


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


def saving_plot(result: SuiteTable) -> go.Figure | None:
    """Plot macro score against the share of an update's numbers that is not sent, a point per row; None if no row has a selection rule."""
    if "number_saving" not in result.columns:
        return None
    points = []
    for line in filter(_is_drawn, result.lines):
        share = line.mean_of("number_saving")
        if share is None and line.costs.get("exchanged_parameters"):
            share = 0.0  # the row exchanges whole updates
        if share is not None:
            points.append(_point(line, 100 * share))
    return (
        pareto_plot(points, result.metric, True, "numbers of an update not sent, %", result.base.get("macro")) if points else None
    )


def bytes_plot(result: SuiteTable) -> go.Figure | None:
    """Plot macro score against a site's bytes on a logarithmic axis: up and down in the whole run, or if these were not counted the uplink
    of a round. None for fewer than two rows.

    Rows with the text of several sites in one place are left out, because the cost of bringing it there is not counted.
    """
    lines = [line for line in result.lines if _is_drawn(line) and not line.name.startswith((CENTRALIZED, SILO))]
    whole = any(line.total_bytes for line in lines)
    known = [(line, size) for line in lines if (size := line.total_bytes if whole else line.costs.get("uplink_bytes"))]
    if len(known) < 2:
        return None
    # Logarithms, which the names of points can be placed by, on an axis of their own ticks.
    points = [_point(line, math.log10(size)) for line, size in known]
    title = "up and down of a site in the whole run" if whole else "uplink of a site and round"
    ticks = {math.log10(factor * 10**place): units.data(factor * 10**place) for place in range(3, 13) for factor in (1, 2, 5)}
    figure = pareto_plot(points, result.metric, False, title, result.base.get("macro"))
    return figure.update_xaxes(tickvals=list(ticks), ticktext=[text.replace(".00", "") for text in ticks.values()])


def _is_drawn(line: Line) -> bool:
    return line.name != BASE and "macro" in line.scores


def _point(line: Line, x: float) -> Point:
    macro = line.scores["macro"]
    hover = f"{escape(line.name)}<br>{macro}"
    if (numbers := line.mean_of("number_saving")) is not None:
        hover += f"<br>not sent: {units.share(line.mean_of('tensor_saving'))} of tensors, {units.share(numbers)} of numbers"
    if line.totals:
        hover += f"<br>up {units.data(line.totals['up'])}, down {units.data(line.totals['down'])}"
    else:
        hover += f"<br>uplink {units.data(line.costs['uplink_bytes'])}"
    return Point(line.name, x, macro.mean, macro.sd or 0.0, hover)
