"""Fill the Jinja templates of pages and Markdown, which lie beside the code that uses them; a page loads no other file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fedlingua.desk import units

SHARED = Path(__file__).parent / "pages"
"""Folder of base.html, which every page extends, and style.css."""

HOW: Mapping[str, Any] = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}


def environment(*folders: Path) -> Environment:
    """Return Jinja's environment for the templates of folders; in them `file("plots.js")` inserts that file unescaped."""
    loader = FileSystemLoader([*folders, SHARED])
    made = Environment(loader=loader, autoescape=True, **HOW)
    made.globals["file"] = lambda name: Markup(loader.get_source(made, name)[0])
    return made


def markdown(template: Path, **values: Any) -> str:
    """Fill a Markdown template; a name in it without a value is an error.

    Filters: `data`, `count`, `duration` of `common.units`, and `table`, which makes a table of a header and rows.
    """
    made = Environment(loader=FileSystemLoader(template.parent), keep_trailing_newline=True, **HOW)
    made.filters |= {"data": units.data, "count": units.count, "duration": units.duration, "table": markdown_table}
    return made.get_template(template.name).render(**values)


def markdown_table(rows: Sequence[Sequence[str]], text_columns: int = 1) -> str:
    """Return header and rows as a Markdown table: `text_columns` columns of words, then right-aligned numbers."""
    rule = [*["---"] * text_columns, *["---:"] * (len(rows[0]) - text_columns)]
    texts = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [texts[0], rule, *texts[1:]])
