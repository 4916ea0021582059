"""Render a page and put it in its folder, whole or not at all."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from fedlingua.common import units
from fedlingua.common.errors import RunError
from fedlingua.common.languages import right_to_left, written_sides
from fedlingua.desk.templates import environment

TEMPLATES = environment(Path(__file__).parent / "pages")
TEMPLATES.filters |= {
    "score": units.score,
    "gain": units.gain,
    "count": units.count,
    "data": units.data,
    "duration": units.duration,
    "seconds": units.seconds,
    "transfer": units.transfer,
    "parameters": units.parameters,
    "share": units.share,
    "bandwidth": units.bandwidth,
    "dir": lambda language: "rtl" if right_to_left(language) else "ltr",
    "sides": written_sides,
}


def render_page(template: str, title: str, figures: Mapping[str, go.Figure], **values: Any) -> str:
    """The page as text. template: a file of `pages`."""
    return TEMPLATES.get_template(template).render(
        title=f"{title} – fedlingua report",
        figures={name: json.loads(figure.to_json()) for name, figure in figures.items()},
        # Nothing to draw, nothing to draw it with: a page without plots stays small.
        plotly=Markup(get_plotlyjs()) if figures else "",
        **values,
    )


_CONTROLS = dict.fromkeys({*range(32), *range(127, 160)} - set(map(ord, "\t\n\r")))


def put_page(page: str, target: Path) -> Path:
    """Write the page to `target` and return it.

    Raises:
        RunError: the folder cannot be written to.
    """
    # Written aside and moved, so that a browser that reloads during a run never sees half a page.
    aside = target.with_name(f".{target.stem}.{os.getpid()}{target.suffix}")
    try:
        # What no text file holds (half of a surrogate pair) is spelt out, and what a terminal would obey is gone.
        aside.write_bytes(page.translate(_CONTROLS).encode("utf-8", "backslashreplace"))
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
