"""Render a page of the report and write it into its folder, completely or not at all."""

import gzip
import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import plotly.graph_objects as go
from jinja2 import Environment, Undefined

from fedlingua.common.errors import RunError
from fedlingua.common.files import replace_text
from fedlingua.common.languages import right_to_left, written_sides
from fedlingua.desk import units
from fedlingua.desk.json_values import number, text
from fedlingua.desk.templates import environment

PAGES = Path(__file__).parent / "pages"
OF_UNITS = ("score", "gain", "count", "data", "duration", "seconds", "transfer", "parameters", "share", "bandwidth")
FILTERS: Mapping[str, Any] = {
    **{name: getattr(units, name) for name in OF_UNITS},
    "dir": lambda language: "rtl" if right_to_left(language) else "ltr",
    "sides": written_sides,
    "number": number,
    "text": lambda value: units.NOTHING if isinstance(value, Undefined) else text(value, units.NOTHING),
}


LIBRARY = next(PAGES.glob("plotly-*.js.gz")).stem
"""The plot library: plotly.js with only Cartesian axes, 1.5 MB, one file for all pages of a folder."""
SHARED = "runs"
"""Pages below a folder of this name share the library in it; any other page has a copy beside it."""


@cache
def templates(folder: Path = PAGES) -> Environment:
    """Return the templates of a folder, which may extend those of reports."""
    made = environment(folder, PAGES)
    made.filters |= FILTERS
    return made


def render_page(template: str | Path, title: str, figures: Mapping[str, go.Figure | None], **values: Any) -> str:
    """Return the page as text. template: A file in `PAGES`, or a path. figures: Name -> plot; None if there is nothing to draw."""
    drawn = {name: json.loads(figure.to_json()) for name, figure in figures.items() if figure is not None}
    return (
        templates((PAGES / template).parent)
        .get_template(Path(template).name)
        .render(
            title=f"{title} – fedlingua report",
            figures=drawn,
            library=LIBRARY,
            **{"note": lambda name: f"{name} holds nothing to show.", **values},
        )
    )


def heading(config: Mapping[str, Any]) -> str:
    """Return a page's heading, such as "Federation trades, backbone demo"; "" if the settings name neither."""
    names = [(key, Path(text(config.get(key))).name.replace(".toml", "")) for key in ("federation", "backbone")]
    words = ", ".join(f"{key} {name}" for key, name in names if name)
    return words[:1].upper() + words[1:]


_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # control characters, other than tab and line ends


def put_page(page: str, target: Path) -> Path:
    """Write the page to `target` and the plot library to where the page expects it, and return `target`. Parent folders are created.

    Raises:
        RunError: A file cannot be written."""
    above = [folder for folder in target.resolve().parents[:5] if folder.name == SHARED]
    library = (above[0] if above else target.resolve().parent) / LIBRARY
    source = Path(os.path.relpath(library, target.resolve().parent)).as_posix()
    page = _CONTROLS.sub("", page).replace(f'src="{LIBRARY}"', f'src="{quote(source)}"')
    if "<script data-library" in page and not library.is_file():
        _put(gzip.decompress((PAGES / f"{LIBRARY}.gz").read_bytes()).decode(), library)
    return _put(page, target)


def _put(content: str, target: Path) -> Path:
    try:
        # Renamed to its place, so that a browser that reloads during a run never sees half a page; a lone surrogate is escaped.
        replace_text(target, content.encode("utf-8", "backslashreplace").decode())
    except OSError as error:
        raise RunError(
            f"The report cannot be written: {target}\n"
            f"  got:    {error}\n"
            "  wanted: a folder that can be written to, with about 2 MB free\n"
            "  to do:  mend the folder's permissions or free space, then write the report again"
        ) from error
    return target


def sites_by_signature(signed: Iterable[tuple[str, Any]], count: int) -> list[tuple[str, str]]:
    """Return each signature with its sites as text, "all" if there are `count` of them. signed: (site, its signature or None)."""
    sites: dict[str, list[str]] = {}
    for site, signature in signed:
        if signature:
            sites.setdefault(str(signature), []).append(site)
    return [(signature, "all" if len(names) == count else ", ".join(names)) for signature, names in sites.items()]
