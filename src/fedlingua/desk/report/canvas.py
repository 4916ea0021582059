"""Building blocks of the report's plots: axes, panels, lines, marks and bars, in colours legible on light and dark backgrounds."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

# Okabe and Ito's colours, distinct for any colour vision, without black and yellow, which are each invisible on one background.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKS = ("circle", "diamond", "square", "cross", "x", "triangle-up")
DASHES = ("solid", "dash", "dot", "dashdot")
UP, DOWN, BEFORE = "#0072B2", "#E69F00", "#8C8C8C"
WORSE = "#D55E00"
# The page's style sheet (style.css) selects exactly this colour and replaces it by the page's text colour.
INK = "rgb(119, 119, 120)"
GRID = "rgba(128, 128, 128, 0.25)"
DOTTED = {"color": INK, "width": 1.5, "dash": "dot"}
"""The look of a line through a whole plot, at a value to compare with."""
LONGEST_LABEL = 18

Values = Sequence[float | None]
Look = dict[str, Any]
"""The look of a trace: plotly's own arguments."""


def frame(figure: go.Figure, height: int, x_title: str = "", y_title: str = "") -> None:
    """Apply the layout of all plots: transparent background, legend below, automatic margins, no accidental zoom."""
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 8, "r": 16, "t": 28, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13, "color": INK},
        legend={"orientation": "h", "xref": "container", "x": 0, "xanchor": "left"}
        | {"yref": "container", "y": 0, "yanchor": "bottom"},
        dragmode=False,
        hovermode="closest",
    )
    axis = {"gridcolor": GRID, "zeroline": False, "automargin": True, "fixedrange": True, "linecolor": GRID}
    figure.update_xaxes(title={"text": x_title, "standoff": 6, "font": {"size": 13}}, **axis)
    figure.update_yaxes(title={"text": y_title, "standoff": 6, "font": {"size": 13}}, **axis)


def stacked(titles: Sequence[str], spacing: float) -> go.Figure:
    """Return a figure with vertically stacked panels that share the x-axis."""
    return make_subplots(rows=len(titles), cols=1, shared_xaxes=True, vertical_spacing=spacing, subplot_titles=titles)


def frame_stacked(figure: go.Figure, height: int, x_title: str) -> None:
    """Frame vertically stacked panels: titles left-aligned in the text's colour, and the x title below the lowest panel."""
    frame(figure, height)
    figure.update_annotations(x=0, xanchor="left", font={"size": 13, "color": INK})
    lowest = max(len(figure.layout.annotations), 1)
    figure.update_xaxes(title={"text": x_title, "standoff": 6}, row=lowest, col=1)


def line(figure: go.Figure, points: Mapping[Any, Any], name: str, hover: str, row: int | None = None, **style: Any) -> None:
    """Add a line with a mark at each point. points: x -> y. hover, style: As in `marks`."""
    marks(figure, list(points), list(points.values()), name, hover, row, **{"mode": "lines+markers", **style})


def marks(figure: go.Figure, x: Values, y: Values, name: str, hover: str, row: int | None = None, **style: Any) -> None:
    """Add marks. hover: plotly's template of their text. row: That of a panel. style: Arguments of the trace, such as marker_size."""
    place = {} if row is None else {"row": row, "col": style.pop("col", 1)}
    figure.add_scatter(x=x, y=y, name=name, hovertemplate=f"{hover}<extra></extra>", **{"mode": "markers", **style}, **place)


def bars(figure: go.Figure, x: Values, y: Values, name: str, hover: str, **style: Any) -> None:
    """Add bars. hover: plotly's template of their text. style: Arguments of the trace, such as marker_color."""
    figure.add_bar(x=x, y=y, name=name, hovertemplate=f"{hover}<extra></extra>", **style)


def colour(index: int) -> str:
    """Return the index-th colour; after the last colour the first follows."""
    return PALETTE[index % len(PALETTE)]


def look_of_line(index: int) -> dict[str, str]:
    """Return the colour and dash of the index-th line; the dash changes when the colours repeat, so 24 lines are distinct."""
    return {"line_color": colour(index), "line_dash": DASHES[index // len(PALETTE) % len(DASHES)]}


def marks_of_line(index: int) -> Look:
    """Return the marks of the index-th line whose dash says something else: none until the colours repeat, then others each time."""
    again = index // len(PALETTE)
    return {"mode": "lines+markers", "marker": {"symbol": MARKS[again % len(MARKS)], "size": 7}} if again else {"mode": "lines"}


def short(label: str, longest: int = LONGEST_LABEL) -> str:
    """Return a label for a tick or legend: cut in the middle to `longest` characters, since names often differ at the end; HTML escaped."""
    end = (longest - 1) // 2
    return escape(label if len(label) <= longest else f"{label[: longest - 1 - end]}…{label[-end:]}")


def row_axis(figure: go.Figure, labels: Sequence[str], longest: int = LONGEST_LABEL) -> None:
    """Label the rows of a plot. Rows are identified by position, because two shortened names may be equal."""
    ticks = {"tickvals": list(range(len(labels))), "ticktext": [short(label, longest) for label in labels]}
    figure.update_yaxes(tickmode="array", range=[len(labels) - 0.4, -0.6], ticksuffix=" ", **ticks)


def round_axis(figure: go.Figure, rounds: Iterable[int]) -> None:
    """Put ticks at whole rounds, at most about eight."""
    figure.update_xaxes(tickformat="d", dtick=max(1, -(-max(rounds, default=1) // 8)))


def joined(pieces: Iterable[Sequence[tuple[Any, Any]]]) -> dict[str, list[Any]]:
    """Join several lines into the x and y of one trace, with a gap after each line."""
    points = [point for piece in pieces for point in (*piece, (None, None))]
    return {"x": [x for x, _ in points], "y": [y for _, y in points]}
