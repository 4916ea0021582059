"""No sentence leaves a site, whatever goes wrong there: a planted one is looked for in every message, event, error and log line."""

import json
import logging
import shutil
from pathlib import Path

import pytest

from clients.translation import TranslationClient
from fedlingua.common.errors import RunError
from fedlingua.desk.report.run_page import write_report
from fedlingua.runs.folder import RunFolder
from fedlingua_lab.comparison.compare import compare
from fedlingua_lab.comparison.runs import read_runs
from fedlingua_lab.pages.comparison_page import write_comparison
from tests.in_process import InProcessGrid, run_on

CANARY = "zanzibar-quicksilver-4711"


@pytest.fixture
def config(four_sites, tmp_path):
    """Two sites with text of their own, in each line of which the canary stands."""
    lines = [f"{CANARY} das Haus {number}\t{CANARY} la maison {number}" for number in range(60)]
    (tmp_path / "corpus.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sites = "".join(f'[[site]]\nname = "{name}"\ndirection = "de-fr"\ntsv = "corpus.tsv"\n' for name in ("one", "two"))
    (tmp_path / "canary.toml").write_text(sites)
    paths = {"federation": str(tmp_path / "canary.toml"), "data-dir": str(tmp_path), "run-dir": str(tmp_path / "run")}
    return {**four_sites, **paths, "method": "adapter-fed", "rounds": 1}


def outside(grid: InProcessGrid, folder: RunFolder, caplog) -> str:
    """All that another party could see, and the site's own log."""
    messages = "".join(f"{message.content}{message.metadata}" for message in [*grid.sent, *grid.received])
    errors = "".join(str(reply.error.reason) for reply in grid.errors)
    files = [path for path in folder.directory.rglob("*") if path.is_file() and "sites/" not in path.as_posix()]
    return messages + errors + "".join(path.read_bytes().decode("utf-8", "replace") for path in files) + caplog.text


class Listening(InProcessGrid):
    """Keeps error replies, too."""

    def __init__(self, config):
        super().__init__(config, 2, tamper=self.listen)
        self.errors = []

    def listen(self, request, reply):
        if reply.has_error():
            self.errors.append(reply)
        return reply


def test_a_run_without_faults_shows_no_sentence(config, caplog):
    caplog.set_level(logging.DEBUG)
    grid = Listening(config)
    folder = run_on(grid, config)
    assert CANARY in (folder.directory / "sites" / "one" / "translations.tsv").read_text()
    assert CANARY not in outside(grid, folder, caplog)


def test_what_a_site_keeps_of_its_translations_stays_with_it(config, caplog):
    caplog.set_level(logging.DEBUG)
    config = {**config, "keep-translations": 3}
    grid = Listening(config)
    folder = run_on(grid, config)
    files = sorted(folder.directory.glob("sites/*/translations-by-round/*.jsonl"))
    assert len(files) == 2 * 2
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert len(lines) == 4 * 3
    assert all(CANARY in line["source"] and CANARY in line["reference"] for line in lines)
    seen = outside(grid, folder, caplog)
    assert CANARY not in seen
    # The translations are of a backbone that knows nothing; what it stammers is long enough to be found.
    said = {line["translation"] for line in lines if len(line["translation"]) > 12}
    assert said
    assert not [one for one in said if one in seen]


def test_the_pages_that_a_server_makes_show_no_sentence(config, tmp_path):
    """Of what lies at a server: a run's folder, in a deployment, has no folders of sites."""
    config = {**config, "keep-translations": 3}
    server = [tmp_path / "server" / name for name in ("first", "second")]
    for place in server:
        config = {**config, "run-dir": str(tmp_path / "runs" / place.name), "seed": config["seed"] + 1}
        folder = run_on(InProcessGrid(config, 2), config)
        assert CANARY in write_report(folder.directory).read_text()  # in a simulation they are there
        shutil.copytree(folder.directory, place, ignore=shutil.ignore_patterns("sites", "report.html"))
    pages = [*map(write_report, server), write_comparison(compare(read_runs(server), "", 40, 3), tmp_path / "comparison.html")]
    for page in pages:
        assert "two" in page.read_text()
        assert CANARY not in page.read_text()


@pytest.mark.parametrize("phase", ["train", "measure", "_translate", "finish"])
@pytest.mark.fault("stopped")
def test_an_error_that_quotes_a_sentence_leaves_as_its_type_and_place(config, caplog, monkeypatch, phase):
    caplog.set_level(logging.DEBUG)
    config = {**config, "keep-translations": 1}

    def quoting(self, *arguments, **more):
        sentence = next(iter(self.texts.values())).splits["train"][0].source
        assert CANARY in sentence
        raise ValueError(f"cannot tokenize {sentence!r}")

    monkeypatch.setattr(TranslationClient, phase, quoting)
    grid = Listening(config)
    with pytest.raises(RunError, match="ValueError; the site's log has the rest") as failed:
        run_on(grid, config)
    seen = outside(grid, RunFolder(Path(config["run-dir"])), caplog) + str(failed.value)
    assert CANARY not in seen
    assert "test_no_words.py" in caplog.text  # where it happened stands in the site's log


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("one column", f"{CANARY} nur eine Spalte\n".encode()),
        ("bad UTF-8", f"{CANARY} das Haus\t{CANARY} la maison \xff\n".encode("latin-1")),
        ("nothing left", f"{CANARY}\t{CANARY}\n".encode()),
    ],
)
@pytest.mark.fault("stopped")
def test_a_broken_corpus_is_named_by_line_and_not_quoted(config, tmp_path, caplog, name, content):
    caplog.set_level(logging.DEBUG)
    (tmp_path / "corpus.tsv").write_bytes(content)
    grid = Listening(config)
    with pytest.raises(RunError, match="CorpusError") as failed:
        run_on(grid, config)
    assert CANARY not in outside(grid, RunFolder(Path(config["run-dir"])), caplog) + str(failed.value)
