"""What text every site gets: its own, cleaned, split and cut, alone or with all others."""

import gzip
from pathlib import Path

import pytest

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.split import SPLITS
from fedlingua.corpora.texts import read_sites, read_text
from fedlingua_demo import phrasebook
from tests.federations import REGISTER, SITE, federation


def write_tsv(folder: Path, name: str, pairs: list[tuple[str, str]]) -> None:
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / name).write_text("".join(f"{source}\t{target}\n" for source, target in pairs))


def test_a_site_alone_splits_its_text_as_the_whole_federation_does(tmp_path: Path) -> None:
    """A deployed site and the simulation agree: it needs the federation's rules, and nobody else's text."""
    sites = "".join(
        f'[[site]]\nname = "{name}"\ndirection = "{direction}"\nphrasebook = "{name}"\nsentences = 60\n'
        for name, direction in (("hospital", "de-fr"), ("court", "fr-de"), ("school", "pl-fr"))
    )
    read = federation(tmp_path, '[split]\nmode = "shared-side"\nmax-dev = 5\n[cleaning]\nmin-words = 3\n' + sites)
    together = read_sites(read, frozenset())
    rules = TextRules.from_flat(read.rules.flat())  # as it arrives with a message
    for site in read.sites:
        assert read_text([site], rules) == {site.name: together[site.name]}
    assert all(len(text.splits["dev"]) <= 5 < len(text.splits["train"]) for text in together.values())


def test_every_site_gets_its_own_text_cleaned_and_split(tmp_path: Path) -> None:
    write_tsv(tmp_path, "de-en.tsv", [*((f"Satz {n}", f"sentence {n}") for n in range(50)), ("kurz", "short one")])
    write_tsv(tmp_path, "en-fr.tsv", [(f"sentence {n}", f"phrase {n}") for n in range(0, 50, 2)])
    other = '[[site]]\nname = "bank"\ndirection = "fr-en"\ntsv = "en-fr.tsv"\ncolumns = [1, 0]\n'
    texts = read_sites(federation(tmp_path, SITE + other), base=frozenset({("fr", "phrase 4")}))
    court, bank = texts["court"], texts["bank"]
    assert list(texts) == ["court", "bank"]
    assert (court.account.read, court.account.kept, court.account.dropped) == (51, 50, {"too-short": 1})
    assert (bank.account.read, bank.account.kept, bank.direction) == (25, 25, Direction("fr", "en"))
    assert court.splits["base"] == [Pair("Satz 4", "sentence 4")]
    assert bank.splits["base"] == [Pair("phrase 4", "sentence 4")]
    for split in SPLITS:
        english = {pair.target for pair in court.splits[split]}
        assert {pair.target for pair in bank.splits[split]} == {text for text in english if int(text.split()[1]) % 2 == 0}


def test_limits_take_the_first_sentences_of_each_split_and_zero_takes_all(tmp_path: Path) -> None:
    write_tsv(tmp_path, "de-en.tsv", [(f"Satz {number}", f"sentence {number}") for number in range(100)])
    whole = read_sites(federation(tmp_path, SITE), set())["court"]
    limited = read_sites(federation(tmp_path, "[split]\nmax-train = 5\nmax-dev = 2\nmax-test = 0\n" + SITE), set())["court"]
    assert limited.splits["train"] == whole.splits["train"][:5]
    assert limited.splits["dev"] == whole.splits["dev"][:2]
    assert limited.splits["test"] == whole.splits["test"]
    assert len(whole.splits["test"]) > 10
    assert limited.account == whole.account


def test_a_limit_above_what_is_there_takes_all(tmp_path: Path) -> None:
    write_tsv(tmp_path, "de-en.tsv", [(f"Satz {number}", f"sentence {number}") for number in range(20)])
    limited = read_sites(federation(tmp_path, "[split]\nmax-train = 1000\n" + SITE), set())["court"]
    assert sum(len(limited.splits[split]) for split in SPLITS) == 20


def test_a_site_of_whose_text_nothing_is_kept_is_named(tmp_path: Path) -> None:
    write_tsv(tmp_path, "de-en.tsv", [("ja", "yes")])
    with pytest.raises(CorpusError, match="site court: none of 1 pairs was kept"):
        read_sites(federation(tmp_path, SITE), set())


def test_a_phrasebook_site_gets_the_two_sides_of_its_register(tmp_path: Path) -> None:
    text = phrasebook.register_corpus("court", 40, 7)
    site = read_sites(federation(tmp_path, REGISTER + "sentences = 40\nseed = 7\n"), set())["court"]
    assert site.account.read == 40
    pairs = {pair for split in SPLITS for pair in site.splits[split]}
    assert pairs <= set(map(Pair, text["de"], text["fr"]))
    assert len(pairs) == site.account.kept > 30


def test_more_sentences_than_a_register_has_are_refused_with_the_site(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="site court: register 'court': got 1000000 sentences"):
        read_sites(federation(tmp_path, REGISTER + "sentences = 1000000\n"), set())


def test_an_n_way_corpus_gives_two_sites_the_same_sentences_in_the_same_splits(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for code in ("de", "fr", "en"):
        lines = "".join(f"{code} {number}\n" for number in range(60))
        (tmp_path / "data" / f"dev.{code}.txt.gz").write_bytes(gzip.compress(lines.encode()))
    sites = "".join(f'[[site]]\nname = "{code}"\ndirection = "{code}-en"\nnway = "dev.{{}}.txt.gz"\n' for code in ("de", "fr"))
    texts = read_sites(federation(tmp_path, sites), set())
    for split in SPLITS:
        english = [pair.target for pair in texts["de"].splits[split]]
        assert [pair.target for pair in texts["fr"].splits[split]] == english
        assert [pair.source for pair in texts["fr"].splits[split]] == [text.replace("en", "fr") for text in english]
        assert english


def test_a_site_with_an_empty_split_is_refused_by_name(tmp_path):
    (tmp_path / "x.tsv").write_text("ein Satz\tune phrase\n")
    (tmp_path / "one.toml").write_text('[[site]]\nname = "lonely"\ndirection = "de-fr"\ntsv = "x.tsv"\n')
    with pytest.raises(CorpusError, match=r"site lonely: no \w+ sentence is left"):
        read_sites(read_federation(tmp_path / "one.toml", tmp_path), frozenset())
