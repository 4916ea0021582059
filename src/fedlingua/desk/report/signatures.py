"""Read signatures.json, with the distances between sites' gradient signatures and the clusters, and plot it as a tree."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from html import escape
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots
from pydantic import PlainValidator
from pydantic.dataclasses import dataclass

from fedlingua.desk.json_values import mapping, number, numbers, sequence, text, whole
from fedlingua.desk.report import canvas
from fedlingua.desk.report.values import Number, Text, Texts, Whole, read_as
from fedlingua.desk.units import NOTHING

FILE = "signatures.json"
LEAF_STEP = 10
"""The distance between leaves in scipy's dendrogram, which puts leaf i at 10 i + 5."""
# Small distances are opaque and large ones transparent, which works on light and dark backgrounds.
ALIKE = [[0.0, "rgba(0, 114, 178, 0.95)"], [1.0, "rgba(0, 114, 178, 0.04)"]]


Silhouettes = Annotated[
    dict[int, float], PlainValidator(lambda value: {int(k): v for k, v in numbers(value).items() if k.isdecimal()})
]
ClusterOf = Annotated[dict[str, str], PlainValidator(lambda value: {site: text(name) for site, name in mapping(value).items()})]


@dataclass(frozen=True)
class SiteSignatures:
    """The sites' signatures of one part; part "" stands for both parts together, as in older runs.

    distances: n x n over `sites`. merges: n - 1 rows of (a, b, height, size), scipy's linkage matrix. clusters: Site -> cluster.
    silhouettes: Number of clusters -> mean silhouette."""

    sites: Texts
    distances: list[list[float]]
    merges: list[list[float]]
    clusters: ClusterOf = field(default_factory=dict)
    part: Text = ""
    form: Text = ""
    adapter: Text = ""
    dimensions: Whole = None
    distance: Text = ""
    algorithm: Text = ""
    num_clusters: Whole = None
    chosen_by: Text = ""
    silhouettes: Silhouettes = field(default_factory=dict)
    uplink_bytes: Number = None
    signatures: Annotated[int, PlainValidator(lambda value: whole(value) or 1)] = 1
    epsilon: Number = None
    delta: Number = None
    clip: Number = None

    @property
    def shown_delta(self) -> str:
        """Delta as text, as a power of ten if it is one."""
        power = math.log10(self.delta) if self.delta is not None and self.delta > 0 else 0.5
        return f"1e{power:.0f}" if power == round(power) and power < 0 else NOTHING if self.delta is None else f"{self.delta:g}"


def read_site_signatures(path: Path) -> list[SiteSignatures]:
    """Return the signatures of a run, one entry per part; raise ValueError, with the reason, if they cannot be drawn."""
    content = json.loads(path.read_bytes())
    if not isinstance(content, dict):
        raise ValueError(f"it holds a JSON {type(content).__name__}, not an object")
    parts = mapping(content.get("parts")) or {"": {}}
    read = []
    for part, of_part in parts.items():
        of_part = {**content, **mapping(of_part)}
        count = len(sequence(of_part.get("sites")))
        distances, merges = _distances(of_part.get("distances"), count), _merges(of_part.get("merges"), count)
        read.append(read_as(SiteSignatures, of_part, part=part, distances=distances, merges=merges))
    return read


def _distances(value: Any, count: int) -> list[list[float]]:
    rows = [[number(cell) for cell in sequence(row)] for row in sequence(value)]
    known = [[cell for cell in row if cell is not None] for row in rows]
    if not count or len(known) != count or any(len(row) != count for row in known):
        raise ValueError(f"distances is no table of {count} x {count} numbers, one row and column for each of its sites")
    return known


def _merges(value: Any, count: int) -> list[list[float]]:
    """Return the merges; raise ValueError unless they form a complete tree, each joining two nodes that are not joined yet."""
    rows = [[float(cell) for cell in sequence(row) if number(cell) is not None] for row in sequence(value)]
    free = set(range(count))
    for place, row in enumerate(rows):
        if len(row) != 4 or not {row[0], row[1]} <= free or row[0] == row[1] or row[2] < 0:
            raise ValueError(f"row {place} of merges is none of scipy's linkage form: {row}")
        free = free - {int(row[0]), int(row[1])} | {count + place}
    if len(rows) != count - 1:
        raise ValueError(f"merges has {len(rows)} rows; {count} sites need {count - 1}")
    return rows


def dendrogram_plot(signatures: SiteSignatures, colours: Mapping[str, str]) -> go.Figure:
    """Plot the distances on the left and the tree on the right, with common rows. colours: Cluster -> colour."""
    order, branches = _layout(signatures)
    names = [signatures.sites[leaf] for leaf in order]
    panels = {"subplot_titles": ["distance of each two sites", "joined at this mean distance"], "column_widths": [0.52, 0.48]}
    figure = make_subplots(cols=2, shared_yaxes=True, horizontal_spacing=0.05, **panels)
    figure.update_annotations(font={"size": 13, "color": canvas.INK})
    _add_distances(figure, signatures, order)
    tree = canvas.joined(list(zip(*branch, strict=True)) for branch in branches)
    style = {"color": canvas.INK, "width": 2}
    figure.add_scatter(mode="lines", line=style, hoverinfo="skip", showlegend=False, row=1, col=2, **tree)
    # Each leaf has a mark in the colour of its cluster, and each cluster a legend entry.
    for cluster in sorted(set(signatures.clusters.values()), key=lambda name: (len(name), name)):
        rows = [row for row, name in enumerate(names) if signatures.clusters.get(name) == cluster]
        said = [f"{escape(names[row])}<br>{escape(cluster)}" for row in rows]
        mark = {"size": 12, "color": colours.get(cluster, canvas.BEFORE)}
        look: canvas.Look = {"marker": mark, "cliponaxis": False, "hovertext": said}
        canvas.marks(figure, [0.0] * len(rows), rows, canvas.short(cluster), "%{hovertext}", 1, col=2, **look)
    legend = 24 + 20 * (len(set(signatures.clusters.values())) // 5)
    height = 200 + legend + 26 * len(order)
    canvas.frame(figure, height)
    figure.update_traces(colorbar={"y": legend / height}, selector={"type": "heatmap"})
    figure.update_layout(meta={"least_width": 600})  # on a narrow screen the plot scrolls in its own box
    canvas.row_axis(figure, names)
    ticks = {"tickvals": list(range(len(names))), "ticktext": [canvas.short(name, 12) for name in names]}
    figure.update_xaxes(showgrid=False, tickangle=-60, row=1, col=1, **ticks)
    figure.update_yaxes(showgrid=False)
    figure.update_yaxes(showticklabels=False, row=1, col=2)
    top = max((row[2] for row in signatures.merges), default=1.0) or 1.0
    figure.update_xaxes(range=[-0.05 * top, 1.05 * top], nticks=5, title_text=f"{signatures.distance} distance", row=1, col=2)
    return figure


def _layout(signatures: SiteSignatures) -> tuple[list[int], list[tuple[list[float], list[float]]]]:
    """Return the order of the leaves from top to bottom, and each merge as the (heights, rows) of its bracket."""
    if not signatures.merges:
        return list(range(len(signatures.sites))), []
    from scipy.cluster.hierarchy import dendrogram  # imported here: it takes half a second, and most pages do not need it

    drawn = dendrogram(np.array(signatures.merges, dtype=float), no_plot=True)
    brackets = zip(drawn["dcoord"], drawn["icoord"], strict=True)
    rows = [([float(x) for x in heights], [(y - LEAF_STEP / 2) / LEAF_STEP for y in places]) for heights, places in brackets]
    return [int(leaf) for leaf in drawn["leaves"]], rows


def _add_distances(figure: go.Figure, signatures: SiteSignatures, order: Sequence[int]) -> None:
    """Add the distances in the order of the leaves, without those of a site to itself."""
    names = [escape(signatures.sites[leaf]) for leaf in order]
    cells = [[None if a == b else signatures.distances[a][b] for b in order] for a in order]
    said = [[f"{a} – {b}" for b in names] for a in names]
    bar = {"orientation": "h", "x": 0, "xanchor": "left", "yref": "container", "y": 0, "yanchor": "bottom"}
    bar |= {"lenmode": "fraction", "len": 0.45, "thickness": 10, "outlinewidth": 0, "nticks": 4, "tickfont": {"size": 12}}
    look: canvas.Look = {
        "hovertemplate": "%{customdata}<br>distance %{z:.3f}<extra></extra>",
        "colorscale": ALIKE,
        "colorbar": bar,
    }
    places = list(range(len(order)))
    figure.add_heatmap(z=cells, x=places, y=places, xgap=2, ygap=2, customdata=said, hoverongaps=False, row=1, col=1, **look)
