"""The files of pages: they compile, stand whole inside a page, and name no place to load anything from."""

import gzip
import re
from pathlib import Path

import pytest
from jinja2 import Environment

from fedlingua.desk.report.publish import templates
from fedlingua.desk.serving.pages import TEMPLATES as SERVING
from fedlingua.desk.templates import SHARED
from fedlingua_lab import pages

DESK, LAB = SHARED.parent, Path(pages.__file__).parent
REPORT = templates()
FILES = sorted(
    file
    for folder in (SHARED, DESK / "report/pages", DESK / "serving/pages", LAB)
    for file in folder.iterdir()
    if file.suffix not in (".py", "")
)


@pytest.mark.parametrize("room", [REPORT, SERVING, templates(LAB)], ids=["report", "serving", "lab"])
def test_every_template_compiles_and_every_file_that_it_puts_in_is_there(room: Environment) -> None:
    for template in room.list_templates(["html"]):
        room.get_template(template)
        source = room.loader.get_source(room, template)[0]
        for name in re.findall(r'file\("([^"]+)"\)', source):
            assert room.globals["file"](name)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_ends_no_element_that_it_stands_in_and_names_no_place(file: Path) -> None:
    packed = file.suffix == ".gz"
    text = (gzip.decompress(file.read_bytes()) if packed else file.read_bytes()).decode()
    # A library's own links are not followed by the page: it is given the page's data alone.
    assert packed or not re.search(r"(https?:)?//[a-z0-9-]+\.[a-z]", text)
    if file.suffix not in (".html", ".gz"):  # packed, it is a file of its own
        assert not re.search(r"</(script|style)|<!--", text, re.IGNORECASE)


def test_values_are_escaped_and_a_missing_one_is_an_error() -> None:
    assert REPORT.from_string("{{ name }}").render(name="<b>") == "&lt;b&gt;"
    with pytest.raises(Exception, match="undefined"):
        REPORT.from_string("{{ name }}").render()
