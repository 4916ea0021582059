"""Render a page and put it in its folder, whole or not at all."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from jinja2 import Undefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from fedlingua.common import units
from fedlingua.common.errors import RunError
from fedlingua.common.languages import right_to_left, written_sides
from fedlingua.desk.report.values import number, text
from fedlingua.desk.templates import environment

TEMPLATES = environment(Path(__file__).parent / "pages")
OF_UNITS = ("score", "gain", "count", "data", "duration", "seconds", "transfer", "parameters", "share", "bandwidth")
TEMPLATES.filters |= {name: getattr(units, name) for name in OF_UNITS}
TEMPLATES.filters |= {
    "dir": lambda language: "rtl" if right_to_left(language) else "ltr",
    "sides": written_sides,
    "number": number,
    "text": lambda value: units.NOTHING if isinstance(value, Undefined) else text(value, units.NOTHING),
}


def render_page(template: str, title: str, figures: Mapping[str, go.Figure | None], **values: Any) -> str:
    """The page as text. template: a file of `pages`. figures: plots by name; None where there is nothing to draw."""
    drawn = {name: json.loads(figure.to_json()) for name, figure in figures.items() if figure is not None}
    return TEMPLATES.get_template(template).render(
        title=f"{title} – fedlingua report",
        figures=drawn,
        # Nothing to draw, nothing to draw it with: a page without plots stays small.
        plotly=Markup(get_plotlyjs()) if drawn else "",
        **{"note": lambda name: f"{name} holds nothing to show.", **values},
    )


_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def make_folder(folder: Path, what: str) -> Path:
    """Make the folder of a page, with those above it, and return it. what: the page.

    Raises:
        RunError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"The folder for {what} cannot be made: {folder}: {error}; name another one") from error
    return folder


def put_page(page: str, target: Path) -> Path:
    """Write the page to `target` and return it.

    Raises:
        RunError: the folder cannot be written to.
    """
    # Written aside and moved, so that a browser that reloads during a run never sees half a page.
    aside = target.with_name(f".{target.stem}.{os.getpid()}{target.suffix}")
    try:
        # What no text file holds (half of a surrogate pair) is spelt out, and what a terminal would obey is gone.
        aside.write_bytes(_CONTROLS.sub("", page).encode("utf-8", "backslashreplace"))
        os.replace(aside, target)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise RunError(
            f"The report cannot be written: {target}\n"
            f"  got:    {error}\n"
            "  wanted: a folder that can be written to, with about 5 MB free\n"
            "  to do:  mend the folder's permissions or free space, then write the report again"
        ) from error
    return target


def sites_by_signature(signed: Iterable[tuple[str, Any]], count: int) -> list[tuple[str, str]]:
    """Each signature and the sites that it holds for, "all" where these are `count`. signed: (site, its signature or None)."""
    sites: dict[str, list[str]] = {}
    for site, signature in signed:
        if signature:
            sites.setdefault(str(signature), []).append(site)
    return [(signature, "all" if len(names) == count else ", ".join(names)) for signature, names in sites.items()]
