"""Markdown that is made from templates, which lie beside the code that fills them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fedlingua.common import units


def render(template: Path, **values: Any) -> str:
    """Fill a template; a name that it misspells is an error.

    Filters: `data`, `count`, `duration` of `common.units`, and `table`, which makes a table of a header and rows.
    """
    environment = Environment(
        loader=FileSystemLoader(template.parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"data": units.data, "count": units.count, "duration": units.duration, "table": table}
    return environment.get_template(template.name).render(**values)


def table(rows: Sequence[Sequence[str]], text_columns: int = 1) -> str:
    """Header and rows as a Markdown table, its first columns of words, the others of numbers."""
    rule = [*["---"] * text_columns, *["---:"] * (len(rows[0]) - text_columns)]
    texts = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [texts[0], rule, *texts[1:]])
