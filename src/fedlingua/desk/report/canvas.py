"""What all plots have in common: colours that hold on light and on dark ground, the frame, the axis of named rows."""

from collections.abc import Iterable, Sequence
from html import escape

import plotly.graph_objects as go

# Okabe and Ito's colours that are told apart with any colour vision, less black and yellow, which one ground swallows.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("solid", "dash", "dot", "dashdot")
UP, DOWN, BEFORE = "#0072B2", "#E69F00", "#8C8C8C"
WORSE = "#D55E00"
# The page's style sheet finds this very colour and puts the text colour of the ground in its place; see style.py.
INK = "rgb(119, 119, 120)"
GRID = "rgba(128, 128, 128, 0.25)"
LONGEST_LABEL = 18
TWO_PANELS = 600
"""Pixels that two panels side by side need at least."""


def frame(figure: go.Figure, height: int, x_title: str = "", y_title: str = "") -> None:
    """What all plots have in common: no ground of their own, the legend below, room for names, no accidental zoom."""
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


def keep_wide(figure: go.Figure, pixels: int) -> None:
    """Of a plot whose figures would overlap on a phone: there it keeps this width, and scrolls in a box of its own."""
    figure.update_layout(meta={"least_width": pixels})


def short(label: str, longest: int = LONGEST_LABEL) -> str:
    """The label as a tick shows it: cut where too long, and no markup."""
    return escape(label if len(label) <= longest else f"{label[: longest - 1]}…")


def row_axis(figure: go.Figure, labels: Sequence[str], longest: int = LONGEST_LABEL) -> None:
    """Name the rows of a plot; by place and not by name, as two names may be alike once shortened."""
    shown = [short(label, longest) for label in labels]
    figure.update_yaxes(
        tickmode="array",
        tickvals=list(range(len(shown))),
        ticktext=shown,
        range=[len(shown) - 0.4, -0.6],
        ticksuffix=" ",
    )


def round_step(rounds: Iterable[int]) -> int:
    """The distance of ticks on a round axis: whole rounds, at most about eight ticks."""
    return max(1, -(-max(rounds, default=1) // 8))


def title_panels(figure: go.Figure) -> None:
    """The titles of the panels as the text around them, and from their left edge: of rows, not of columns."""
    figure.update_annotations(x=0, xanchor="left", font={"size": 13, "color": INK})
