"""No sentence of a site that pre-trains leaves it, nor what its de-identification hook fails on: a planted one is looked for."""

import json
import logging
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from clients.masked_language import MaskedLanguageClient
from fedlingua.common.errors import RunError
from fedlingua.desk.cli.progress import PlainView
from fedlingua.desk.cli.status import status
from fedlingua.desk.report.run_page import write_report
from fedlingua.desk.report.tables import score_table
from fedlingua.runs.folder import RunFolder
from fedlingua_lab.pages.suite_page import write_suite_report
from fedlingua_lab.suites.read import OF_THE_SUITE, read_suite
from fedlingua_lab.suites.result import write_result
from fedlingua_lab.suites.runs import plan
from tests.clients.test_no_words import CANARY, Listening, outside
from tests.in_process import run_on

HOOK = f"""
import logging

def scrub(document):
    if "broken" in document:
        logging.error(document)
        print(document)
        raise ValueError(document)
    return document.replace("{CANARY}", "NAME")

def leave(document):
    return document
"""


@pytest.fixture
def config(four_texts, tmp_path, monkeypatch):
    """Two sites whose every note holds the canary; hooks.scrub takes it out, and fails on every tenth."""
    notes = [f"{CANARY} hat Fieber seit {n} Tagen. Der Hund {'broken' if n % 10 == 0 else 'schläft'}." for n in range(80)]
    (tmp_path / "notes.jsonl").write_text("".join(json.dumps({"text": note}) + "\n" for note in notes), encoding="utf-8")
    (tmp_path / "canary_hooks.py").write_text(HOOK)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    paths = {"federation": str(tmp_path / "canary.toml"), "data-dir": str(tmp_path), "run-dir": str(tmp_path / "run")}
    return {**four_texts, **paths, "method": "server-adam", "rounds": 1}


def federation(config, hook: str) -> None:
    sites = "".join(
        f'[[site]]\nname = "{name}"\nlanguage = "de"\njsonl = "notes.jsonl"\ndeidentify-with = "canary_hooks:{hook}"\n'
        for name in ("one", "two")
    )
    Path(config["federation"]).write_text(f'[text]\ndeidentify = "required"\n{sites}')


def shown(folder: RunFolder) -> str:
    """What people are shown of a run: its page, its progress, its status and its table."""
    console = Console(file=StringIO(), record=True, width=200)
    view = PlainView(console)
    for line in (folder.directory / "progress.jsonl").read_text().splitlines():
        view.show(json.loads(line))
    with redirect_stdout(StringIO()) as out:
        status(folder.directory)
    console.print(score_table(folder.directory))
    return write_report(folder.directory).read_text(encoding="utf-8") + console.export_text() + out.getvalue()


def suite_of(folder: RunFolder, config, to: Path) -> str:
    """The result of a suite of this one run, and its page."""
    left_out = {*OF_THE_SUITE, "method"}
    settings = "".join(f"{key} = {json.dumps(value)}\n" for key, value in config.items() if key not in left_out)
    to.mkdir()
    (to / "notes.toml").write_text(f'seeds = [{config["seed"]}]\n[settings]\n{settings}[[row]]\nmethod = "{config["method"]}"\n')
    suite = read_suite(to / "notes.toml", {}, config["data-dir"])
    runs = [replace(run, folder=folder.directory) for run in plan(suite, to / "runs")]
    write_result(to / "result", suite, runs, 1.0)
    write_suite_report(to / "result", to / "page")
    return "".join(path.read_text(encoding="utf-8") for path in sorted(to.rglob("*")) if path.is_file())


@pytest.mark.parametrize("hook", ["scrub", "leave"])
def test_a_run_shows_no_word_of_a_note(config, caplog, capfd, hook):
    caplog.set_level(logging.DEBUG)
    federation(config, hook)
    grid = Listening(config)
    folder = run_on(grid, config)
    people = shown(folder)
    assert f"round 1/{config['rounds']}" in people
    suite = suite_of(folder, config, Path(config["run-dir"]).parent / "suite")
    assert "plot-convergence" in suite
    seen = outside(grid, folder, caplog) + people + suite + "".join(capfd.readouterr())
    assert CANARY not in seen
    assert "Fieber" not in seen
    account = folder.read("sites.json")["one"]["accounts"]["de"]
    assert account["dropped"].get("not-deidentified", 0) == (16 if hook == "scrub" else 0)
    notes = (folder.directory / "progress.jsonl").read_text()
    assert ("site one: deidentify-with failed on 8 documents (ValueError 8)" in notes) == (hook == "scrub")
    assert account.get("failed_documents") == ({"ValueError": 8} if hook == "scrub" else None)


@pytest.mark.parametrize("phase", ["train", "measure", "finish"])
@pytest.mark.fault("stopped")
def test_an_error_that_quotes_a_note_leaves_as_its_type_and_place(config, caplog, monkeypatch, phase):
    caplog.set_level(logging.DEBUG)
    federation(config, "leave")

    def quoting(self, *arguments, **more):
        sentence = next(iter(self.texts.values())).splits["train"][0].source
        assert CANARY in sentence
        raise ValueError(f"cannot mask {sentence!r}")

    monkeypatch.setattr(MaskedLanguageClient, phase, quoting)
    grid = Listening(config)
    with pytest.raises(RunError, match="ValueError; the site's log has the rest") as failed:
        run_on(grid, config)
    folder = RunFolder(Path(config["run-dir"]))
    folder.close("failed", str(failed.value))
    people = shown(folder)
    assert "ValueError; the site's log has the rest" in people
    assert CANARY not in outside(grid, folder, caplog) + people + str(failed.value)
