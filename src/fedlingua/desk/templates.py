"""Pages are files: templates, style sheets and scripts beside the code that fills them, made into one page that loads nothing."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

SHARED = Path(__file__).parent / "pages"
"""base.html, which every page extends, and style.css."""


def environment(folder: Path) -> Environment:
    """Jinja for the templates of a folder. In them `file("plots.js")` is the text of that file, put in as it stands."""
    loader = FileSystemLoader([folder, SHARED])
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.globals["file"] = lambda name: Markup(loader.get_source(made, name)[0])
    return made
