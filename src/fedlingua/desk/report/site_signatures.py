"""Read signatures.json: how far apart the sites' gradient signatures are, how they were clustered, and in what form they came."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedlingua.common.units import NOTHING
from fedlingua.desk.report.values import mapping, number, numbers, sequence, text, whole

FILE = "signatures.json"
CHOOSERS = {
    "families": "as many as the language families make",
    "silhouette": "the number with the highest mean silhouette",
    "setting": "the number that the settings give",
}


@dataclass(frozen=True)
class SiteSignatures:
    """What the server told of the sites' signatures of one part; part "": of both alike, as runs once had them.

    `distances`: n x n over `sites`. `merges`: n - 1 rows of (a, b, height, size) in scipy's linkage form, or none.
    `clusters`: site -> cluster. `silhouettes`: number of clusters -> mean silhouette.
    """

    sites: list[str]
    distances: list[list[float]]
    merges: list[list[float]]
    clusters: dict[str, str]
    part: str = ""
    form: str = ""
    adapter: str = ""
    dimensions: int | None = None
    distance: str = ""
    algorithm: str = ""
    num_clusters: int | None = None
    chosen_by: str = ""
    silhouettes: dict[int, float] = field(default_factory=dict)
    uplink_bytes: float | None = None
    signatures: int = 1
    epsilon: float | None = None
    delta: float | None = None
    clip: float | None = None

    @property
    def choice(self) -> str:
        """Who chose the number of clusters, in words."""
        return CHOOSERS.get(self.chosen_by, self.chosen_by or "not said by whom chosen")

    @property
    def privacy(self) -> str:
        """What the form of the signatures gives away, in words."""
        if self.form == "raw":
            return "Raw: each site sent the gradient itself, out of which a curious server can read training text."
        if self.form != "private":
            return f"Form {self.form or 'not given'}: what it gives away is not known here."
        done = f"projected to {NOTHING if self.dimensions is None else self.dimensions} dimensions, {self._clipped}, noised"
        if self.epsilon is None:
            return f"Private in form only: {done}, but no epsilon is given, so no guarantee holds."
        together = f", of {self.signatures} signatures together" if self.signatures > 1 else ""
        return f"Private: {done}; epsilon {self.epsilon:.3g} at delta {_plain(self.delta)} for each sentence of a site{together}."

    @property
    def _clipped(self) -> str:
        return "clipped" if self.clip is None else f"clipped to {self.clip:g}"


def read_site_signatures(path: Path) -> list[SiteSignatures]:
    """The signatures of a run, part by part.

    Raises:
        FileNotFoundError: there are none. ValueError: the file says something that cannot be drawn; the message tells what.
    """
    content = json.loads(path.read_bytes())
    if not isinstance(content, dict):
        raise ValueError(f"it holds a JSON {type(content).__name__}, not an object")
    parts = mapping(content.get("parts")) or {"": {}}
    return [_of_part(part, {**content, **mapping(told)}) for part, told in parts.items()]


def _of_part(part: str, content: Mapping[str, Any]) -> SiteSignatures:
    sites = [text(site) for site in sequence(content.get("sites"))]
    return SiteSignatures(
        part=part,
        signatures=whole(content.get("signatures")) or 1,
        sites=sites,
        distances=_distances(content.get("distances"), len(sites)),
        merges=_merges(content.get("merges"), len(sites)),
        clusters={site: text(cluster) for site, cluster in mapping(content.get("clusters")).items()},
        form=text(content.get("form")),
        adapter=text(content.get("adapter")),
        dimensions=whole(content.get("dimensions")),
        distance=text(content.get("distance")),
        algorithm=text(content.get("algorithm")),
        num_clusters=whole(content.get("num_clusters")),
        chosen_by=text(content.get("chosen_by")),
        uplink_bytes=number(content.get("uplink_bytes")),
        epsilon=number(content.get("epsilon")),
        delta=number(content.get("delta")),
        clip=number(content.get("clip")),
        silhouettes={int(key): value for key, value in numbers(content.get("silhouettes")).items() if key.isdecimal()},
    )


def _distances(value: Any, count: int) -> list[list[float]]:
    rows = [[number(cell) for cell in sequence(row)] for row in sequence(value)]
    known = [[cell for cell in row if cell is not None] for row in rows]
    if not count or len(known) != count or any(len(row) != count for row in known):
        raise ValueError(f"distances is no table of {count} x {count} numbers, one row and column for each of its sites")
    return known


def _merges(value: Any, count: int) -> list[list[float]]:
    """The merges where they are a whole tree; each joins two nodes that are there and not yet joined."""
    rows = [[float(cell) for cell in sequence(row) if number(cell) is not None] for row in sequence(value)]
    free = set(range(count))
    for place, row in enumerate(rows):
        if len(row) != 4 or not {row[0], row[1]} <= free or row[0] == row[1] or row[2] < 0:
            raise ValueError(f"row {place} of merges is none of scipy's linkage form: {row}")
        free = free - {int(row[0]), int(row[1])} | {count + place}
    if len(rows) != count - 1:
        raise ValueError(f"merges has {len(rows)} rows; {count} sites need {count - 1}")
    return rows


def _plain(value: float | None) -> str:
    if value is None:
        return NOTHING
    power = math.log10(value) if value > 0 else 0.5
    return f"1e{power:.0f}" if power == round(power) and power < 0 else f"{value:g}"
