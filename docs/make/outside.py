"""A hook of mkdocs: files outside docs/ that a page links to become part of the site, under outside/, and links are bent to them there;
so are links to notebooks, to their pages.

So the pages' links are those that a forge follows, too.
"""

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # mkdocs loads this file by its path
LINK = re.compile(r"(?<=\]\()(?![a-z]+://|#)([^)#\s]+)")
PYTHON = (
    "# Python interface\n\nHow it is used: [Python](../guides/python.md).\n\n::: fedlingua.desk.api\n\n::: fedlingua_lab.api\n"
)


def place(file: Path) -> str:
    """Where a file of the checkout is in the site's sources."""
    path = file.relative_to(ROOT).as_posix()
    return path.removeprefix("docs/") if path.startswith("docs/") else f"outside/{path}"


def links(file: Path, text: str) -> dict[str, Path]:
    """Link -> the file that it leads to, of those that are there."""
    targets = {link: (file.parent / link).resolve() for link in LINK.findall(text)}
    return {link: target for link, target in targets.items() if target.is_file() and target.is_relative_to(ROOT)}


def on_files(files: Files, config: Any) -> Files:
    """Add what pages link to, what that links to, and so on; and the Python page, which mkdocstrings makes from the code."""
    files.append(File.generated(config, "reference/python.md", content=PYTHON))
    from docs.make import notebooks

    for notebook in notebooks.NOTEBOOKS:
        files.append(File.generated(config, place(notebook.with_suffix(".md")), content=notebooks.page(notebook)))
    waiting = [*ROOT.glob("docs/**/*.md"), *map(ROOT.joinpath, ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"))]
    seen = set(waiting)
    while waiting:
        file = waiting.pop()
        if not file.is_relative_to(ROOT / "docs"):
            files.append(File.generated(config, place(file), abs_src_path=str(file)))
        if file.suffix == ".md":
            new = set(links(file, file.read_text(encoding="utf-8")).values()) - seen
            seen |= new
            waiting += new
    return files


def on_page_markdown(text: str, page: Any, **_: Any) -> str:
    """The page with every link to a file of the checkout as it is in the site."""
    if page.file.src_uri.startswith("notebooks/"):
        return text
    text = re.sub(r"(?<=\]\()([^)\s]*notebooks/\w+)\.ipynb", r"\1.md", text)
    if not page.file.abs_src_path:
        return text
    file, here = Path(page.file.abs_src_path).resolve(), posixpath.dirname(page.file.src_uri)
    there = links(file, text)
    return LINK.sub(lambda link: posixpath.relpath(place(there[link[0]]), here or ".") if link[0] in there else link[0], text)
