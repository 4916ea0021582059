"""The HTML page of a comparison: runs side by side, by score, by cost and by site."""

from html import escape
from itertools import groupby
from pathlib import Path

import plotly.graph_objects as go

from fedlingua.common.errors import ConfigError
from fedlingua.desk import units
from fedlingua.desk.json_values import mapping, text
from fedlingua.desk.report.canvas import DOTTED, MARKS, PALETTE, Look, colour, frame, marks, row_axis, short
from fedlingua.desk.report.keep import without_place
from fedlingua.desk.report.publish import heading, put_page, render_page, sites_by_signature
from fedlingua.evaluation.totals import ALL_SITES
from fedlingua.settings.methods import CENTRALIZED, SILO
from fedlingua_lab.comparison.compare import Comparison
from fedlingua_lab.comparison.runs import differing_settings

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
    """Write the page, creating its parent folders, and return its path; raises the errors of `put_page`."""
    return put_page(render_comparison(comparison), target)


def render_comparison(comparison: Comparison) -> str:
    metric, first = comparison.metric, comparison.runs[0]
    differing = differing_settings(comparison.runs)
    *others, last = dict.fromkeys(run.method for run in comparison.runs)
    title = f"{' and '.join(filter(None, [', '.join(others), last]))}, compared"
    return render_page(
        Path(__file__).with_name("comparison.html"),
        title,
        {"differences": difference_plot(comparison)},
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
        pooled_text=any(run.method.startswith((CENTRALIZED, SILO)) for run in comparison.runs),
        sentences_by_site=[(site, [*of_site]) for site, of_site in groupby(comparison.sentences, key=lambda each: each.site)],
        differing={key: [text(without_place(value), units.NOTHING) for value in values] for key, values in differing.items()},
        signatures=_signatures(comparison),
    )


def _signatures(comparison: Comparison) -> list[tuple[str, str]]:
    """Return each signature of the metric with the sites for which it holds; one entry if all sites have the same."""
    key = comparison.metric.key
    own = "signature" if key == "bleu" else f"{key}_signature"
    entries = {site: mapping(comparison.runs[0].scores["sites"][site]) for site in comparison.scores}
    signed = [(site, mapping(each.get("signatures")).get(key) or each.get(own)) for site, each in entries.items()]
    return sites_by_signature(signed, len(comparison.scores))


def difference_plot(comparison: Comparison) -> go.Figure:
    """Plot each run's score minus the first run's: by site, macro and pooled, with 95 % intervals if known.

    A hollow mark shows a difference whose interval contains 0.
    """
    beside, scale = comparison.beside, comparison.metric.scale
    rows = [*comparison.scores, "macro", *(["pooled"] if any(each.pooled for each in beside) else [])]
    figure = go.Figure()
    for place, run in enumerate(beside):
        means = {"macro": run.macro, "pooled": run.pooled}
        of_rows = ((row, run.sites.get(name) or means.get(name)) for row, name in enumerate(rows))
        known = [(row, each) for row, each in of_rows if each]
        # The mark changes when the colours repeat, so 36 runs are distinct.
        color, mark = colour(place + 1), MARKS[(place + 1 + (place + 1) // len(PALETTE)) % len(MARKS)]
        above = [0.0 if each.high is None else scale * (each.high - each.value) for _, each in known]
        below = [0.0 if each.low is None else scale * (each.value - each.low) for _, each in known]
        sampled = any(each.p is not None for _, each in known)
        error = {"color": color, "thickness": 2, "width": 4, "symmetric": False, "array": above, "arrayminus": below}
        symbols = [mark if each.p is None or each.is_clear else f"{mark}-open" for _, each in known]
        marker = {"size": 9, "color": color, "symbol": symbols, "line": {"width": 2, "color": color}}
        x, y = [scale * each.value for _, each in known], [row + STEP * ((place + 0.5) / len(beside) - 0.5) for row, _ in known]
        look: Look = {"marker": marker, "error_x": error if sampled else None, "text": [escape(rows[row]) for row, _ in known]}
        marks(figure, x, y, short(run.run, LONGEST_RUN), "%{text}<br>%{fullData.name}: %{x:+.2f}", **look)
    height = 110 + (18 + 12 * len(beside)) * len(rows) + 20 * len(beside)
    frame(figure, height, f"{comparison.metric.name} above {short(comparison.runs[0].name, LONGEST_RUN)}")
    figure.update_layout(showlegend=True)
    row_axis(figure, rows)
    return figure.add_vline(x=0, line=DOTTED)
