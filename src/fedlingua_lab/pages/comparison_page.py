"""The HTML page of a comparison: runs side by side, by score, by cost and by site."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from fedlingua.common import units
from fedlingua.common.errors import ConfigError
from fedlingua.desk.json_values import mapping, text
from fedlingua.desk.report.canvas import DOTTED, MARKS, PALETTE, Look, Values, colour, frame, marks, row_axis, short
from fedlingua.desk.report.keep import without_place
from fedlingua.desk.report.publish import heading, put_page, render_page, sites_by_signature
from fedlingua.evaluation.bootstrap import Difference
from fedlingua.evaluation.totals import ALL_SITES
from fedlingua.settings.methods import CENTRALIZED, SILO
from fedlingua_lab.comparison.compare import Comparison
from fedlingua_lab.comparison.runs import ComparedRun, differing_settings, variants
from fedlingua_lab.pages.pareto import Point, pareto_plot

LONGEST_RUN = 40
STEP = 0.6
"""The share of a row's height over which its marks are spread."""


def check_page(target: Path) -> None:
    """Raise ConfigError if a page's path is a folder or has neither .html nor .htm as suffix; call it before any computation."""
    if target.is_dir() or target.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(
            f"--to {target}: a page is one file; give its name, such as {target.with_suffix('') / 'comparison.html'}"
        )


def write_comparison(comparison: Comparison, target: Path) -> Path:
    """Write the page, creating its parent folders, and return its path; raises the errors of `check_page` and `put_page`."""
    check_page(target)
    return put_page(render_comparison(comparison), target)


def render_comparison(comparison: Comparison) -> str:
    comparison = labelled(comparison)
    metric, first = comparison.metric, comparison.runs[0]
    differing = differing_settings(comparison.runs)
    *others, last = dict.fromkeys(run.method for run in comparison.runs)
    title = f"{' and '.join(filter(None, [', '.join(others), last]))}, compared"
    return render_page(
        Path(__file__).with_name("comparison.html"),
        title,
        figures(comparison),
        title_line=title,
        heading=heading(first.config),
        comparison=comparison,
        metric=metric,
        scale=metric.scale,
        summed=ALL_SITES in comparison.scores,
        first=first,
        split=first.scores.get("split", "test"),
        sampled=any(beside.macro.p is not None for beside in comparison.beside),
        with_pooled=all(beside.pooled for beside in comparison.beside),
        macros={run.name: macro_of(comparison, run) for run in comparison.runs},
        pooled_text=any(run.method.startswith((CENTRALIZED, SILO)) for run in comparison.runs),
        sentences_by_site=[(site, [*of_site]) for site, of_site in groupby(comparison.sentences, key=lambda each: each.site)],
        differing={key: [text(without_place(value), units.NOTHING) for value in values] for key, values in differing.items()},
        signatures=_signatures(comparison),
    )


def labelled(comparison: Comparison) -> Comparison:
    """Name runs by method and differing settings if these names are short and unique, otherwise by their folders."""
    labels = variants(comparison.runs)
    if len(set(labels)) < len(labels):
        labels = [f"{variant}, seed {run.seed}" for variant, run in zip(labels, comparison.runs, strict=True)]
    if len(set(labels)) < len(labels) or max(map(len, labels)) > LONGEST_RUN:
        return comparison
    names = {run.name: label for run, label in zip(comparison.runs, labels, strict=True)}
    return replace(
        comparison,
        runs=[replace(run, name=names[run.name]) for run in comparison.runs],
        beside=[replace(beside, run=names[beside.run]) for beside in comparison.beside],
    )


def figures(comparison: Comparison) -> dict[str, go.Figure | None]:
    """Return the plots by name; None where there is nothing to draw."""
    price = bytes_of(comparison.runs)
    size, unit = units.byte_unit(max(price.values(), default=0.0))
    scaled = {name: value / size for name, value in price.items()}
    seconds = {run.name: took for run in comparison.runs if (took := run.costs["seconds"]) is not None}
    return {
        "scores": score_plot(comparison),
        "differences": difference_plot(comparison),
        "bytes": None if not any(price.values()) else _price_plot(comparison, scaled, f"up and down, a site, all rounds, {unit}"),
        "seconds": _price_plot(comparison, seconds, "seconds of the whole run"),
        "gains": gain_plot(comparison) if any(fair.gains for fair in comparison.fairness) else None,
    }


def _signatures(comparison: Comparison) -> list[tuple[str, str]]:
    """Return each signature of the metric with the sites for which it holds; one entry if all sites have the same."""
    key = comparison.metric.key
    own = "signature" if key == "bleu" else f"{key}_signature"
    entries = {site: mapping(comparison.runs[0].scores["sites"][site]) for site in comparison.scores}
    signed = [(site, mapping(each.get("signatures")).get(key) or each.get(own)) for site, each in entries.items()]
    return sites_by_signature(signed, len(comparison.scores))


def score_plot(comparison: Comparison) -> go.Figure:
    """Plot every run's score at each site, one mark per run."""
    scale, by_site = comparison.metric.scale, comparison.scores.values()
    series = [(place, run.name, [scale * of_site[place] for of_site in by_site]) for place, run in enumerate(comparison.runs)]
    return _site_marks(comparison, series, comparison.metric.name)


def gain_plot(comparison: Comparison) -> go.Figure:
    """Plot each site's gain over its own model, for runs with such a model to compare with."""
    scale, sites = comparison.metric.scale, comparison.scores
    series = [
        (place, run.name, [scale * fair.gains[site] if site in fair.gains else None for site in sites])
        for place, (run, fair) in enumerate(zip(comparison.runs, comparison.fairness, strict=True))
        if fair.gains
    ]
    figure = _site_marks(comparison, series, f"{comparison.metric.name}, better than the site's own model")
    figure.add_vline(x=0, line=DOTTED)
    return figure


def _site_marks(comparison: Comparison, series: Sequence[tuple[int, str, Values]], x_title: str) -> go.Figure:
    """Plot a row for each site. series: For each run, its index, which determines its look in every plot, its name, a value per site."""
    figure = go.Figure()
    hover = "%{text}<br>%{fullData.name}: %{x:.2f}"
    for place, (index, name, values) in enumerate(series):
        rows = [row + _offset(place, len(series)) for row in range(len(values))]
        marker = {"size": 10, "color": colour(index), "symbol": _mark(index)}
        sites = [escape(site) for site in comparison.scores]
        marks(figure, values, rows, short(name, LONGEST_RUN), hover, marker=marker, text=sites)
    _frame_rows(figure, list(comparison.scores), len(series), x_title)
    return figure


def difference_plot(comparison: Comparison) -> go.Figure:
    """Plot each run's score minus the first run's: by site, macro and pooled, with 95 % intervals if known.

    A hollow mark shows a difference whose interval contains 0.
    """
    rows = [*comparison.scores, "macro", *(["pooled"] if any(beside.pooled for beside in comparison.beside) else [])]
    figure = go.Figure()
    for place, beside in enumerate(comparison.beside):
        offset = _offset(place, len(comparison.beside))
        differences = [beside.sites.get(row, beside.macro if row == "macro" else beside.pooled) for row in rows]
        known = [(row + offset, rows[row], each) for row, each in enumerate(differences) if each]
        _add_differences(figure, beside.run, place + 1, known, comparison)
    above = f"{comparison.metric.name} above {short(comparison.runs[0].name, LONGEST_RUN)}"
    _frame_rows(figure, rows, len(comparison.beside), above)
    figure.add_vline(x=0, line=DOTTED)
    return figure


def _add_differences(
    figure: go.Figure, name: str, index: int, known: Sequence[tuple[float, str, Difference]], comparison: Comparison
) -> None:
    """Add one run's differences from the first run. known: Position, row and difference of each."""
    scale, differences = comparison.metric.scale, [each for *_, each in known]
    values = [scale * each.value for each in differences]
    color, mark = colour(index), _mark(index)
    error: dict[str, Any] | None = None
    if any(each.p is not None for each in differences):
        above = [0.0 if each.high is None else scale * (each.high - each.value) for each in differences]
        below = [0.0 if each.low is None else scale * (each.value - each.low) for each in differences]
        error = {"color": color, "thickness": 2, "width": 4, "symmetric": False, "array": above, "arrayminus": below}
    by_chance = [each.p is not None and not each.is_clear for each in differences]
    symbols = [f"{mark}-open" if hollow else mark for hollow in by_chance]
    look: Look = {"marker": {"size": 9, "color": color, "symbol": symbols, "line": {"width": 2, "color": color}}}
    look |= {"error_x": error, "text": [_in_words(row, each, scale) for _, row, each in known]}
    rows = [place for place, *_ in known]
    marks(figure, values, rows, short(name, LONGEST_RUN), "%{text}<br>%{fullData.name}", **look)


def _in_words(row: str, difference: Difference, scale: float) -> str:
    first, second, value = (scale * each for each in (difference.first, difference.second, difference.value))
    words = f"{escape(row)}<br>{units.score(first)} → {units.score(second)}, {units.gain(value)}"
    if difference.low is None or difference.high is None or difference.p is None:
        return words
    interval = f"95 % from {units.gain(scale * difference.low)} to {units.gain(scale * difference.high)}"
    return f"{words}<br>{interval}, p = {difference.p:.3f}"


def _mark(index: int) -> str:
    """Return the mark of the index-th run; it changes when the colours repeat, so 36 runs are distinct."""
    return MARKS[(index + index // len(PALETTE)) % len(MARKS)]


def _offset(place: int, number: int) -> float:
    """Return the offset of one of `number` marks from the middle of their row."""
    return STEP * ((place + 0.5) / number - 0.5)


def _frame_rows(figure: go.Figure, rows: Sequence[str], series: int, x_title: str) -> None:
    frame(figure, height=110 + (18 + 12 * series) * len(rows) + 20 * series, x_title=x_title)
    figure.update_layout(showlegend=True)
    row_axis(figure, rows)


def macro_of(comparison: Comparison, run: ComparedRun) -> float:
    """Return the run's mean score over the sites common to all runs, in the displayed unit."""
    return comparison.metric.scale * run.macro(comparison.metric.key, comparison.scores)


def bytes_of(runs: Sequence[ComparedRun]) -> dict[str, float]:
    """Return run -> bytes that a site sent and received in the whole run, for runs where they are known."""
    return {run.name: total for run in runs if (total := run.total_bytes) is not None}


def _price_plot(comparison: Comparison, price: Mapping[str, float], x_title: str) -> go.Figure | None:
    """Plot the mean over sites against a cost; None for fewer than two runs. price: Run -> cost, for runs where it is known."""
    if len(price) < 2:
        return None
    scores = {run.name: macro_of(comparison, run) for run in comparison.runs if run.name in price}
    points = [Point(name, price[name], score, hover=f"{escape(name)}<br>{units.score(score)}") for name, score in scores.items()]
    return pareto_plot(points, comparison.metric, False, x_title)
