"""`fedlingua corpus overlap`: of a federation's files, of a run, and the text written without what leaks."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fedlingua.common.errors import ConfigError, CorpusError, FedlinguaError, RunError
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.texts import read_sites
from fedlingua.desk.cli.app import app
from fedlingua.settings.config import Scalar
from tests.in_process import run

CANARY = "zanzibar-quicksilver"
SITES = {"one": "de-en", "two": "fr-en", "three": "nl-en"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Three sites that have a third of their English in common, and use no more than 25 pairs to train on."""
    text = '[split]\nmode = "paper"\ntrain = 0.5\ndev = 0.2\ntest = 0.3\nmax-train = 25\n'
    for number, (name, direction) in enumerate(SITES.items()):
        lines = [f"{CANARY} {name} satz {n}\t{CANARY} sentence\u2028{n}" for n in range(40 * number, 40 * number + 60)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        text += f'[[site]]\nname = "{name}"\ndirection = "{direction}"\ntsv = "{name}.tsv"\n'
    (tmp_path / "three.toml").write_text(text)
    return tmp_path / "three.toml"


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["corpus", "overlap", *map(str, arguments)], env={"COLUMNS": "200"})


def told(*arguments: object) -> dict[str, Any]:
    done = command(*arguments, "--format", "json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)["sites"]
    return found


def refusal(kind: type[FedlinguaError], *arguments: object) -> str:
    with pytest.raises(kind) as caught:
        raise command(*arguments).exception or AssertionError
    return str(caught.value)


def test_files_and_a_run_of_them_tell_the_same(file: Path, four_sites: dict[str, Scalar], tmp_path: Path) -> None:
    found = told(file, "--data", tmp_path)
    assert found["one"]["languages"]["en"]["sentences"]["train"] == 25
    assert sum(site["leaks"]["test"] for site in found.values()) > 0
    config = {**four_sites, "federation": str(file), "data-dir": str(tmp_path), "method": "base", "overlap": "report"}
    run(config, tmp_path / "run")
    assert told(tmp_path / "run") == found


def test_given_files_that_share_sentences_are_told_of(tmp_path: Path) -> None:
    text = '[split]\nmode = "given"\n[cleaning]\nmin-words = 1\n'
    for name in ("one", "two"):
        for split, lines in {
            "train": ["Das Tor.\tThe gate."],
            "dev": ["\ufeffDas Tor.\u200b\tA gate."],
            "test": ["Nein.\tNo."],
        }.items():
            (tmp_path / f"{name}.{split}.tsv").write_text("".join(f"{line} {name}\n" for line in lines), encoding="utf-8")
        text += f'[[site]]\nname = "{name}"\ndirection = "de-en"\nsplits = "{name}.{{}}.tsv"\n'
    (tmp_path / "two.toml").write_text(text.replace("{}", "{}"))
    (tmp_path / "two.dev.tsv").write_text("Ganz anderes.\tAll different.\n")
    shown = command(tmp_path / "two.toml", "--data", tmp_path).output
    assert "sentences of dev + test that the site's own train has, too: one 1 + 0\n" in shown


def test_whole_is_all_that_cleaning_keeps(file: Path, tmp_path: Path) -> None:
    english = told(file, "--data", tmp_path, "--whole")["two"]["languages"]["en"]
    assert english["sentences"] == {"all": 60, "train": 30, "dev": 12, "test": 18}
    assert english["elsewhere"]["all"] == 40
    assert {other: of["all"] for other, of in english["at"].items()} == {"one": 20, "three": 20}


def test_whole_is_no_less_of_text_that_is_generated_by_size(tmp_path: Path) -> None:
    text = "[sizes]\ntrain = 900\n[split]\nmax-dev = 50\n"
    for name, direction in (("bank", "de-fr"), ("court", "pl-fr")):
        text += f'[[site]]\nname = "{name}"\ndirection = "{direction}"\nphrasebook = "{name}"\n'
    (tmp_path / "grown.toml").write_text(text + "train = 1100\n")
    some, whole = told(tmp_path / "grown.toml"), told(tmp_path / "grown.toml", "--whole")
    for site in ("bank", "court"):
        used, there = (found[site]["languages"]["fr"]["sentences"] for found in (some, whole))
        assert used["train"] == there["train"] > 850
        assert used["dev"] < there["dev"]


def test_the_table_has_shares_and_no_text(file: Path, tmp_path: Path) -> None:
    done = command(file, "--data", tmp_path, "--whole")
    assert done.exit_code == 0, done.output
    assert "66.7 %" in done.output  # of two's English
    assert "33.3 %" in done.output
    assert "pairs of dev + test with a sentence that another site trains on: one " in done.output
    assert CANARY not in done.output


def test_what_is_written_leaks_nothing_and_is_read_by_a_federation_file(file: Path, tmp_path: Path) -> None:
    before = told(file, "--data", tmp_path)
    done = command(file, "--data", tmp_path, "--to", tmp_path / "clean")
    assert done.exit_code == 0, done.output
    assert 'splits = "clean/SITE.{}.tsv.gz"' in done.output
    account = json.loads((tmp_path / "clean" / "account.json").read_text())["sites"]
    text = '[split]\nmode = "given"\n'
    for name, direction in SITES.items():
        text += f'[[site]]\nname = "{name}"\ndirection = "{direction}"\nsplits = "clean/{name}.{{}}.tsv.gz"\n'
        leaks = sum(before[name]["leaks"].values())
        assert account[name]["dropped"].get("trained-elsewhere", 0) == leaks
        assert account[name]["read"] == account[name]["kept"] + sum(account[name]["dropped"].values())
    (tmp_path / "given.toml").write_text(text)
    after = told(tmp_path / "given.toml", "--data", tmp_path)
    assert all(not any(site["leaks"].values()) for site in after.values())
    texts = read_sites(read_federation(tmp_path / "given.toml", tmp_path), frozenset())
    for name, site in texts.items():
        assert {split: len(pairs) for split, pairs in site.splits.items() if split != "base"} == account[name]["sizes"]
    assert "already exists" in refusal(ConfigError, file, "--data", tmp_path, "--to", tmp_path / "clean")


def test_what_cannot_be_compared_is_refused(file: Path, tmp_path: Path) -> None:
    text = file.read_text()
    (tmp_path / "one.toml").write_text(text[: text.index("[[site]]", text.index("[[site]]") + 1)])
    assert "one is the only site; wanted two or more" in refusal(ConfigError, tmp_path / "one.toml", "--data", tmp_path)
    (tmp_path / "away.toml").write_text(text.replace('tsv = "two.tsv"\n', ""))
    assert "site two has no corpus here" in refusal(ConfigError, tmp_path / "away.toml", "--data", tmp_path)
    (tmp_path / "three.tsv").unlink()
    assert "three.tsv: there is no such file" in refusal(CorpusError, file, "--data", tmp_path)
    (tmp_path / "no run").mkdir()
    assert "it has no run.json" in refusal(RunError, tmp_path / "no run")
    assert command(tmp_path / "no run", "--whole").exit_code == 2


def test_text_that_splits_cannot_hold_is_not_written(tmp_path: Path) -> None:
    sites = "".join(
        f'[[site]]\nname = "{name}"\nlanguage = "es"\nphrasebook = "{name}"\nsentences = 60\n' for name in ("bank", "court")
    )
    (tmp_path / "es.toml").write_text(sites)
    assert "which text in one language is not" in refusal(ConfigError, tmp_path / "es.toml", "--to", tmp_path / "new")
    assert told(tmp_path / "es.toml")["bank"]["languages"]["es"]["sentences"]["all"] > 0
    mixed = "[split]\nmixed = true\n" + sites.replace('language = "es"', 'direction = "de-es"')
    (tmp_path / "mixed.toml").write_text(mixed)
    assert "which mixed text is not" in refusal(ConfigError, tmp_path / "mixed.toml", "--to", tmp_path / "new")
    assert not (tmp_path / "new").exists()
