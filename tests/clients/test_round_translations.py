"""What a site keeps of every round's translations: which sentences, in whose words, and that nothing else of the run changes by it."""

import json
from pathlib import Path
from typing import Any

import pytest

from clients.translation import ScoredText, TranslationClient, round_lines
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.texts import read_sites
from fedlingua.settings.config import Scalar
from tests.federations import FOUR_SITES, SITES, SPLIT
from tests.in_process import checkpoint_bytes, rounds, run

ENOUGH = 1000
"""More sentences than any site has."""


@pytest.fixture
def config(four_sites: dict[str, Scalar]) -> dict[str, Scalar]:
    return {**four_sites, "method": "adapter-fed", "keep-translations": 2}


def kept(site: Path) -> dict[int, list[dict[str, Any]]]:
    """round, as the file's name says -> its lines."""
    files = sorted(site.glob("translations-by-round/*"))
    return {int(file.stem): [json.loads(line) for line in file.read_text().splitlines()] for file in files}


def dev(folder: Path) -> dict[str, list[Pair]]:
    """site -> its dev sentences."""
    texts = read_sites(read_federation(folder / "four.toml", Path()), frozenset())
    return {site: list(text.splits["dev"]) for site, text in texts.items()}


def test_one_object_a_line_whatever_stands_in_a_sentence() -> None:
    odd = Pair('a\tb "c"', "d\ne\u2028f")
    lines = round_lines(3, "court", ScoredText(Direction("de", "ar"), [odd, Pair("g", "h")]), ["شجرة", ""])
    assert not any("\n" in line for line in lines)
    assert "شجرة" in lines[0]  # for people to read
    assert [json.loads(line) for line in lines] == [
        {
            "round": 3,
            "text": "court",
            "direction": "de-ar",
            "sentence": 1,
            "source": odd.source,
            "reference": odd.target,
            "translation": "شجرة",
        },
        {"round": 3, "text": "court", "direction": "de-ar", "sentence": 2, "source": "g", "reference": "h", "translation": ""},
    ]


def test_a_round_that_begins_again_removes_its_file_and_those_after_it(tmp_path: Path) -> None:
    client = TranslationClient.__new__(TranslationClient)
    client.folder, folder = tmp_path, tmp_path / "translations-by-round"
    client.start_round(0)  # nothing is there yet
    folder.mkdir()
    for name in ("0000", "0001", "0002", "0010", "0011", "notes"):
        (folder / f"{name}.jsonl").write_text("a line")
    client.start_round(2)
    assert sorted(file.name for file in folder.iterdir()) == ["0000.jsonl", "0001.jsonl", "notes.jsonl"]


def test_every_site_translates_its_first_dev_sentences_after_every_round(config, tmp_path):
    folder, _ = run(config, tmp_path / "run")
    wanted = dev(tmp_path)
    for site in SITES:
        found = kept(folder.directory / "sites" / site)
        assert list(found) == [0, 1, 2]
        for number, lines in found.items():
            assert [(line["round"], line["sentence"], line["text"]) for line in lines] == [(number, 1, site), (number, 2, site)]
            assert [Pair(line["source"], line["reference"]) for line in lines] == wanted[site][:2]
            assert {line["direction"] for line in lines} == {folder.read("scores.json")["sites"][site]["direction"]}
    both = [[line["translation"] for line in found[number]] for number in (0, 2)]
    assert both[0] != both[1]


@pytest.mark.parametrize(
    "more",
    [
        {"learning-rate": 0.1},
        {"method": "adapter-local"},
        {"tensor-set": "controllers", "controllers": 1, "learning-rate": 0.001},
        {"beam": 2},
    ],
    ids=["fed", "local", "controllers", "beam"],
)
def test_they_are_the_translations_of_the_end_at_the_best_round_and_the_bases_at_round_0(config, tmp_path, more):
    """Of all dev sentences, as there are more asked for than there are."""
    folder, _ = run({**config, **more, "keep-translations": ENOUGH, "score-split": "dev"}, tmp_path / "run")
    best = folder.read("run.json")["best_round"]
    for site, pairs in dev(tmp_path).items():
        found = kept(folder.directory / "sites" / site)
        table = (folder.directory / "sites" / site / "translations.tsv").read_text().rstrip("\n").split("\n")
        columns = list(zip(*(line.split("\t") for line in table[1:]), strict=True))
        at = best[site] if isinstance(best, dict) else best
        assert [line["source"] for line in found[at]] == list(columns[0]) == [pair.source for pair in pairs]
        assert [line["translation"] for line in found[0]] == list(columns[2])
        assert [line["translation"] for line in found[at]] == list(columns[3])


def test_a_base_that_nothing_is_trained_on_has_round_0(config, tmp_path):
    folder, _ = run({**config, "method": "base"}, tmp_path / "run")
    assert all(list(kept(folder.directory / "sites" / site)) == [0] for site in SITES)


def test_a_pooled_site_keeps_some_of_every_text(config, tmp_path):
    folder, _ = run({**config, "method": "centralized-adapter", "rounds": 1, "keep-translations": 1}, tmp_path / "run")
    found, wanted = kept(folder.directory / "sites" / "pooled"), dev(tmp_path)
    assert list(found) == [0, 1]
    assert [(line["text"], line["sentence"], line["source"]) for line in found[1]] == [
        (site, 1, wanted[site][0].source) for site in SITES
    ]


def test_of_mixed_text_a_site_keeps_its_own_directions(config, tmp_path):
    (tmp_path / "mixed.toml").write_text(FOUR_SITES.replace(SPLIT, f"{SPLIT}mixed = true\n"))
    given = {**config, "federation": str(tmp_path / "mixed.toml"), "rounds": 1, "keep-translations": ENOUGH}
    folder, _ = run(given, tmp_path / "run")
    wanted = dev(tmp_path)
    for site in SITES:
        lines = kept(folder.directory / "sites" / site)[1]
        assert {line["text"] for line in lines} == {site}
        held = {Pair(line["source"], line["reference"]) for line in lines}
        assert held < set(wanted[site])  # the others have been dealt to somebody else


def test_without_the_key_there_is_no_file(config, tmp_path):
    folder, _ = run({**config, "keep-translations": 0}, tmp_path / "run")
    assert not list(folder.directory.rglob("*by-round*"))


@pytest.mark.parametrize(
    "more",
    [{}, {"method": "adapter-local"}, {"send.rule": "metasend-g", "meta.batches": 2, "meta.estimator": "own"}],
    ids=["fed", "local", "metasend"],
)
def test_tensors_scores_and_what_is_on_the_wire_are_as_without_it(config, tmp_path, more):
    config = {**config, **more}
    (plain, silent), (folder, grid) = (run({**config, "keep-translations": n}, tmp_path / str(n)) for n in (0, 3))
    assert checkpoint_bytes(folder) == checkpoint_bytes(plain)
    assert folder.read("scores.json") == plain.read("scores.json")
    assert folder.read("run.json")["config_hash"] == plain.read("run.json")["config_hash"]
    assert sorted(map(outline, grid.received)) == sorted(map(outline, silent.received))
    for mine, theirs in zip(rounds(folder), rounds(plain), strict=True):
        for site in SITES:
            for what in ("uplink_bytes", "downlink_bytes", "dev_loss"):
                assert mine["sites"][site].get(what) == theirs["sites"][site].get(what)
        assert all(mine["sites"][site]["dev_loss"] for site in SITES)


def outline(message: Any) -> str:
    """A message's type, and of each of its records the keys and how long what stands under them is."""
    told = {}
    for name, record in message.content.items():
        for key, value in record.items():
            told[f"{name}/{key}"] = getattr(value, "shape", None) or (len(value) if isinstance(value, list | str) else "")
    return json.dumps([message.metadata.message_type, told], default=str)
