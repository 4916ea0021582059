"""README and docs/: links, anchors, paths and commands that they name exist, and README stays short."""

import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import click
import pytest

from docs.make import reference
from docs.make.notebooks import NOTEBOOKS
from fedlingua.desk.cli.app import app
from fedlingua.desk.experiment import given_settings, read_experiment
from tests.commands import leaf_commands
from tests.pages import FENCED, PAGES, README, ROOT, block, blocks

MARKED = re.compile(r"(?:^<!-- (run|not run): (.+?) -->\n)?^```([a-z]*)[^\n`]*\n.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`[^`\n]+`")
INDEX = ROOT / "docs" / "index.md"
OF_THE_TREE = re.compile(r"(?<![\w/])(?:src/fedlingua|strategies|clients|experiments|benchmarks|tests|deploy|docs)/[\w./*-]+")
ids = [str(page.relative_to(ROOT)) for page in PAGES]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them: of equal ones the second ends in -1."""
    seen, names = Counter[str](), set()
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE):
        text = LINK.sub(lambda link: link[0][1:].partition("](")[0], heading)
        name = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        names.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return names


def links(page: Path) -> Iterator[tuple[str, Path, str]]:
    """Every relative link of a page: as it is written, its file, its anchor."""
    for target in LINK.findall(CODE.sub("", prose(page))):
        if "://" not in target:
            file, _, anchor = unquote(target).partition("#")
            yield target, (page.parent / file).resolve() if file else page, anchor


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", *ROOT.glob("*/README.md")], ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = [
        target
        for target, file, anchor in links(page)
        if not file.exists() or (anchor and (file.suffix != ".md" or anchor not in anchors(file)))
    ]
    assert broken == []


def test_a_broken_link_or_anchor_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `title`, twice\n\n# A title twice\n\n[x](gone.md) [y](#a-title-twice-1) `[no](link.md)`\n```\n# no heading\n```\n"
    )
    assert anchors(page) == {"a-title-twice", "a-title-twice-1"}
    assert [(target, file.exists(), anchor) for target, file, anchor in links(page)] == [
        ("gone.md", False, ""),
        ("#a-title-twice-1", True, "a-title-twice-1"),
    ]


def test_readme_is_at_most_120_lines() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


def test_a_page_has_one_title() -> None:
    titles = {str(page.relative_to(ROOT)): len(re.findall(r"^# ", prose(page), re.MULTILINE)) for page in PAGES}
    assert {page: number for page, number in titles.items() if number != 1} == {}


def test_the_index_names_every_page_once() -> None:
    named = [file for _, file, _ in links(INDEX) if file.is_relative_to(INDEX.parent)]
    assert sorted(named) == sorted([*(page for page in PAGES if page not in (README, INDEX)), *NOTEBOOKS])


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_what_a_page_names_of_the_tree_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = {path.rstrip(".") for path in OF_THE_TREE.findall(re.sub(r"\]\([^)]*\)", "]", text))}
    made_up = {"experiments/X.toml", "experiments/F/X.toml", "experiments/backbones/R.toml"}
    assert {path for path in named - made_up if not any(ROOT.glob(path.rstrip("/")))} == set()


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_shell_and_python_block_is_run_by_a_test_or_says_why_not(page: Path) -> None:
    marked = MARKED.findall(page.read_text(encoding="utf-8"))
    assert len(marked) == len(blocks(page))
    assert [language for _, _, language in marked if language not in ("sh", "python", "toml", "json", "text")] == []
    unsaid = [language for how, _, language in marked if language in ("sh", "python") and not how]
    assert unsaid == [], "put <!-- run: TEST FILE --> or <!-- not run: REASON --> on the line before the block"
    files = [ROOT / file for _, said, _ in marked for file in re.findall(r"tests/[\w/]+(?:\.py)?", said)]
    assert [file for file in files if not file.exists()] == []
    run = {ROOT / said for how, said, _ in marked if how == "run"}
    assert [file for file in run if str(page.relative_to(ROOT)) not in file.read_text(encoding="utf-8")] == []


def test_a_block_without_a_mark_would_be_seen() -> None:
    text = '<!-- not run: slow -->\n```sh\nmake\n```\n\n```python title="x"\npass\n```\n'
    assert MARKED.findall(text) == [("not run", "slow", "sh"), ("", "", "python")]


def test_the_pages_made_from_the_code_are_up_to_date() -> None:
    assert {file.name for file, page in reference.PAGES.items() if file.read_text(encoding="utf-8") != page()} == set(), (
        "make options"
    )


def commands(page: Path) -> Iterator[list[str]]:
    """Every command of fedlingua in a page's shell blocks, in words, without its comment; what is optional counts as given."""
    for info, code in blocks(page):
        for line in code.splitlines():
            if info.partition(" ")[0] == "sh" and line.startswith("fedlingua "):
                yield shlex.split(re.sub(r"[\[\]]", "", line), comments=True)[1:]


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_command_of_a_page_has_the_options_that_it_is_shown_with(page: Path) -> None:
    known, wrong = leaf_commands(app), []
    for words in commands(page):
        command: click.Command | None = known.get(words[0]) or known.get(" ".join(words[:2]))
        options = {option for parameter in command.params for option in parameter.opts} if command else set()
        wrong += [" ".join(words)] if {word for word in words if word.startswith("--")} - options else []
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_run_of_an_experiment_on_a_page_has_settings_that_go_together(page: Path) -> None:
    """Settings alone: no text or module is looked at. experiments/X.toml is a reader's own."""
    for words in commands(page):
        files = [ROOT / word for word in words if word.startswith("experiments/") and (ROOT / word).exists()]
        if words[0] == "run" and files:
            read_experiment(files[0], given_settings([value for key, value in pairwise(words) if key == "--set"]))


def test_every_command_is_on_a_page() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES if page.name != "commands.md")
    assert [name for name in leaf_commands(app) if f"fedlingua {name}" not in text] == []


def test_every_message_that_a_page_explains_is_one() -> None:
    page = ROOT / "docs/guides/running.md"
    messages = re.findall(r"^\| `(.+?)` \|", page.read_text(encoding="utf-8").partition("| message |")[2], re.MULTILINE)
    files = [ROOT / "Makefile", *(path for folder in ("src", "strategies", "clients") for path in (ROOT / folder).rglob("*.py"))]
    source = "\n".join(path.read_text(encoding="utf-8") for path in files)
    assert len(messages) >= 10
    assert [message for message in messages if message not in source] == []


def test_readmes_commands_of_a_server_are_the_guides() -> None:
    guide = block("docs/guides/deployment.md", 'sh title="server"').splitlines()
    assert [line for _, code in blocks(README) for line in code.splitlines() if line.startswith("fedlingua server")] == guide[:2]


@pytest.mark.slow
def test_the_tutorials_commands_work(tmp_path: Path) -> None:
    """Two runs of the demo, six minutes each on two cores."""
    page = ROOT / "docs/tutorial.md"
    for how, code in zip(MARKED.findall(page.read_text(encoding="utf-8")), blocks(page), strict=True):
        if how[0] == "run":
            script = code[1].replace(" experiments/", f" {ROOT}/experiments/")
            environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
            done = subprocess.run(
                ["bash", "-euc", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
            assert done.stdout.strip()
