"""The files of pages: they compile, stand whole inside a page, and name no place to load anything from."""

import re
from pathlib import Path

import pytest

from fedlingua.desk import report, serving
from fedlingua.desk.templates import SHARED, environment

FOLDERS = [Path(str(room.__file__)).parent / "pages" for room in (report, serving)]
FILES = sorted(file for folder in (*FOLDERS, SHARED) for file in folder.iterdir())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_every_template_compiles_and_every_file_that_it_puts_in_is_there(folder: Path) -> None:
    made = environment(folder)
    for template in made.list_templates(["html"]):
        made.get_template(template)
        source = made.loader.get_source(made, template)[0]
        for name in re.findall(r'file\("([^"]+)"\)', source):
            assert made.globals["file"](name)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_ends_no_element_that_it_stands_in_and_names_no_place(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"(https?:)?//[a-z0-9-]+\.[a-z]", text)
    if file.suffix != ".html":
        assert not re.search(r"</(script|style)|<!--", text, re.IGNORECASE)


def test_values_are_escaped_and_a_missing_one_is_an_error() -> None:
    made = environment(FOLDERS[0])
    assert made.from_string("{{ name }}").render(name="<b>") == "&lt;b&gt;"
    with pytest.raises(Exception, match="undefined"):
        made.from_string("{{ name }}").render()
