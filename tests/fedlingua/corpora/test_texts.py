"""What text every site gets: its own, cleaned, split and cut, alone or with all others."""

import gzip
from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.split import SPLITS
from fedlingua.corpora.texts import check_documents, read_sites, read_text
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


IN_DOCUMENTS = SITE.replace('tsv = "de-en.tsv"', 'tsv = "de-en.tsv"\ndocuments = "names.txt"')


def test_text_whose_documents_are_named_is_split_by_them_and_tells_them(tmp_path: Path) -> None:
    pairs = [(f"Satz {n}", f"sentence {n}") for n in range(60)]
    write_tsv(tmp_path, "de-en.tsv", [*pairs, ("kurz", "short one"), pairs[0]])
    (tmp_path / "data/names.txt").write_text("".join(f"report {n // 3}\n" for n in range(60)) + "report 0\nreport 19\n")
    text = read_sites(federation(tmp_path, IN_DOCUMENTS))["court"]
    assert (text.account.read, text.account.kept, text.account.dropped) == (62, 60, {"too-short": 1, "duplicate": 1})
    assert text.documents == {Pair(*pair): f"report {n // 3}" for n, pair in enumerate(pairs)}
    by_split = {split: {text.documents[pair] for pair in text.splits[split]} for split in SPLITS}
    assert all(by_split.values())
    assert sum(map(len, by_split.values())) == 20
    check_documents({"court": text}, "document")


def test_a_pair_belongs_to_one_document_even_where_repeated_pairs_are_kept(tmp_path: Path) -> None:
    write_tsv(tmp_path, "de-en.tsv", [*((f"Satz {n}", f"sentence {n}") for n in range(40)), ("Satz 0", "sentence 0")])
    (tmp_path / "data/names.txt").write_text("".join(f"report {n // 2} \n" for n in range(40)) + "report 19\n")
    kept = "[cleaning]\ndrop-duplicates = false\n"
    text = read_sites(federation(tmp_path, kept + IN_DOCUMENTS))["court"]
    assert text.documents[Pair("Satz 0", "sentence 0")] == "report 0"
    assert text.account.dropped == {"duplicate": 1}


def test_documents_are_named_at_every_site_or_at_none(tmp_path: Path) -> None:
    other = SITE.replace("court", "bank")
    with pytest.raises(ConfigError, match=r"documents are named at court and not at bank; .* at every site or at none"):
        federation(tmp_path, IN_DOCUMENTS + other)


@pytest.mark.parametrize(
    ("lines", "words"),
    [(7, r"names\.txt end after 7, before pairs"), (9, r"pairs end after 8, before .*names\.txt")],
)
def test_as_many_names_as_pairs_are_wanted(tmp_path: Path, lines: int, words: str) -> None:
    write_tsv(tmp_path, "de-en.tsv", [(f"Satz {n}", f"sentence {n}") for n in range(8)])
    (tmp_path / "data/names.txt").write_text("a\n" * lines)
    with pytest.raises(CorpusError, match=rf"site court: .*{words}; each line of .*names\.txt names a pair's document"):
        read_sites(federation(tmp_path, IN_DOCUMENTS))


def test_documents_cannot_be_hidden_where_nobody_tells_them(tmp_path: Path) -> None:
    write_tsv(tmp_path, "de-en.tsv", [(f"Satz {n}", f"sentence {n}") for n in range(60)])
    texts = read_sites(federation(tmp_path, SITE))
    check_documents(texts, "sentence")
    with pytest.raises(
        ConfigError, match=r"site court: dp\.unit = 'document', and the site's corpus does not say .* give dp\.unit"
    ):
        check_documents(texts, "document")


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
