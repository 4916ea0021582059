"""The sites as a tree of their signatures: which are joined at what distance, beside all distances as a heat map."""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from fedlingua.desk.report.canvas import BEFORE, INK, TWO_PANELS, frame, keep_wide, row_axis, short
from fedlingua.desk.report.site_signatures import SiteSignatures

LEAF_STEP = 10
"""scipy puts leaf i at 10 i + 5."""
# Alike is strong, far apart is the ground: it holds on light and dark.
ALIKE = [[0.0, "rgba(0, 114, 178, 0.95)"], [1.0, "rgba(0, 114, 178, 0.04)"]]


def dendrogram_plot(signatures: SiteSignatures, colours: Mapping[str, str]) -> go.Figure:
    """Distances on the left and the tree on the right, over the same rows; `colours`: cluster -> colour."""
    order, branches = _layout(signatures)
    figure = make_subplots(
        cols=2,
        shared_yaxes=True,
        horizontal_spacing=0.05,
        column_widths=[0.52, 0.48],
        subplot_titles=["distance of each two sites", "joined at this mean distance"],
    )
    _add_distances(figure, signatures, order)
    _add_tree(figure, branches)
    _add_leaves(figure, signatures, order, colours)
    cut = cut_height(signatures)
    if cut is not None:
        figure.add_vline(x=cut, line={"color": INK, "width": 1.5, "dash": "dot"}, row=1, col=2)
    legend = 24 + 20 * (len(set(signatures.clusters.values())) // 5)
    height = 200 + legend + 26 * len(order)
    frame(figure, height)
    figure.update_traces(colorbar={"y": legend / height}, selector={"type": "heatmap"})
    figure.update_annotations(font={"size": 13, "color": INK})
    keep_wide(figure, TWO_PANELS)
    names = [signatures.sites[leaf] for leaf in order]
    row_axis(figure, names)
    ticks = {"tickvals": list(range(len(names))), "ticktext": [short(name, 12) for name in names]}
    figure.update_xaxes(showgrid=False, tickangle=-60, row=1, col=1, **ticks)
    figure.update_yaxes(showgrid=False)
    figure.update_yaxes(showticklabels=False, row=1, col=2)
    top = max((row[2] for row in signatures.merges), default=1.0) or 1.0
    figure.update_xaxes(range=[-0.05 * top, 1.05 * top], nticks=5, title_text=f"{signatures.distance} distance", row=1, col=2)
    return figure


def cut_height(signatures: SiteSignatures) -> float | None:
    """The distance at which a line through the tree leaves the clusters; None for k-means, which cuts no tree."""
    heights = [row[2] for row in signatures.merges]
    count = signatures.num_clusters
    if signatures.algorithm == "k-means" or count is None or not 2 <= count <= len(heights) + 1:
        return None
    heights = [0.0, *sorted(heights)]
    joined = len(heights) - count  # so many merges lie below the line
    return (heights[joined] + heights[joined + 1]) / 2 if heights[joined] < heights[joined + 1] else None


def _layout(signatures: SiteSignatures) -> tuple[list[int], list[tuple[list[float], list[float]]]]:
    """The order of the leaves from top to bottom, and each merge as the (heights, rows) of its bracket."""
    if not signatures.merges:
        return list(range(len(signatures.sites))), []
    from scipy.cluster.hierarchy import dendrogram  # half a second, which most pages need not wait for

    drawn = dendrogram(np.array(signatures.merges, dtype=float), no_plot=True)
    brackets = zip(drawn["dcoord"], drawn["icoord"], strict=True)
    rows = [([float(x) for x in heights], [(y - LEAF_STEP / 2) / LEAF_STEP for y in places]) for heights, places in brackets]
    return [int(leaf) for leaf in drawn["leaves"]], rows


def _add_distances(figure: go.Figure, signatures: SiteSignatures, order: Sequence[int]) -> None:
    """The distances in the order of the leaves; a site's distance to itself is no news and stays empty."""
    cells = [[None if a == b else signatures.distances[a][b] for b in order] for a in order]
    names = [escape(signatures.sites[leaf]) for leaf in order]
    hover = [[f"{a} – {b}" for b in names] for a in names]
    figure.add_heatmap(
        z=cells,
        x=list(range(len(order))),
        y=list(range(len(order))),
        colorscale=ALIKE,
        xgap=2,
        ygap=2,
        text=hover,
        hovertemplate="%{text}<br>distance %{z:.3f}<extra></extra>",
        hoverongaps=False,
        colorbar={"orientation": "h", "x": 0, "xanchor": "left", "yref": "container", "y": 0, "yanchor": "bottom"}
        | {"lenmode": "fraction", "len": 0.45, "thickness": 10, "outlinewidth": 0, "nticks": 4, "tickfont": {"size": 12}},
        row=1,
        col=1,
    )


def _add_tree(figure: go.Figure, branches: Sequence[tuple[list[float], list[float]]]) -> None:
    x: list[float | None] = []
    y: list[float | None] = []
    for heights, places in branches:
        x += [*heights, None]
        y += [*places, None]
    style = {"color": INK, "width": 2}
    figure.add_scatter(x=x, y=y, mode="lines", line=style, hoverinfo="skip", showlegend=False, row=1, col=2)


def _add_leaves(figure: go.Figure, signatures: SiteSignatures, order: Sequence[int], colours: Mapping[str, str]) -> None:
    """A mark at each leaf in the colour of its cluster, under a legend entry for each cluster."""
    for cluster in sorted(set(signatures.clusters.values()), key=lambda name: (len(name), name)):
        rows = [row for row, leaf in enumerate(order) if signatures.clusters.get(signatures.sites[leaf]) == cluster]
        names = [f"{escape(signatures.sites[order[row]])}<br>{escape(cluster)}" for row in rows]
        figure.add_scatter(
            x=[0.0] * len(rows),
            y=rows,
            name=escape(cluster),
            mode="markers",
            marker={"size": 12, "color": colours.get(cluster, BEFORE)},
            hovertext=names,
            hovertemplate="%{hovertext}<extra></extra>",
            cliponaxis=False,
            row=1,
            col=2,
        )
