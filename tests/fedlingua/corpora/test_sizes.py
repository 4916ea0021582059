"""Exact sizes: what a federation file asks for is what every site trains and is scored on, or nothing starts."""

from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.corpora.read import Pair
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.sites import Federation, read_federation
from fedlingua.corpora.sizes import LARGEST_REGISTER, Sizes, check_limits, first_sentences, more_sentences, take
from fedlingua.corpora.split import SPLITS, Split, SplitRules, position
from fedlingua.corpora.texts import SiteText, read_sites, read_text
from fedlingua_demo import phrasebook

PAPER = '[split]\nmode = "paper"\n'
PAIRS = [Pair(f"Satz {number}", f"sentence {number}") for number in range(100)]


def tsv_site(name: str, *keys: str) -> str:
    return "\n".join(["[[site]]", f'name = "{name}"', 'direction = "de-en"', f'tsv = "{name}.tsv"', *keys, ""])


def register(name: str, direction: str, *keys: str) -> str:
    return "\n".join(["[[site]]", f'name = "{name}"', f'direction = "{direction}"', f'phrasebook = "{name}"', *keys, ""])


def federation(folder: Path, text: str, **files: list[Pair]) -> Federation:
    for name, pairs in files.items():
        (folder / f"{name}.tsv").write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs))
    (folder / "federation.toml").write_text(text)
    return read_federation(folder / "federation.toml", folder)


def sizes(text: SiteText) -> list[int]:
    return [len(text.splits[split]) for split in SPLITS]


def test_a_site_gets_exactly_what_it_asks_for_and_all_of_what_it_does_not(tmp_path: Path) -> None:
    asked = federation(tmp_path, PAPER + tsv_site("court", "train = 50", "test = 1"), court=PAIRS)
    assert asked.sites[0].sizes == Sizes(train=50, dev=0, test=1)
    text = read_sites(asked, frozenset())["court"]
    assert sizes(text) == [50, 20, 1]  # of 60, 20 and 20
    assert (text.account.read, text.account.kept) == (100, 100)


def test_a_site_that_asks_for_nothing_takes_the_federations_sizes(tmp_path: Path) -> None:
    text = PAPER + "[sizes]\ntrain = 40\ndev = 4\n" + tsv_site("court") + tsv_site("bank", "train = 30", "test = 3")
    texts = read_sites(federation(tmp_path, text, court=PAIRS, bank=PAIRS), frozenset())
    assert sizes(texts["court"]) == [40, 4, 20]
    assert sizes(texts["bank"]) == [30, 4, 3]


def test_the_papers_rule_gives_the_front_of_its_shuffled_split(tmp_path: Path) -> None:
    whole = read_sites(federation(tmp_path, PAPER + tsv_site("court"), court=PAIRS), frozenset())["court"]
    cut = read_sites(federation(tmp_path, PAPER + "[sizes]\ntrain = 7\ndev = 7\ntest = 7\n" + tsv_site("court")), frozenset())[
        "court"
    ]
    assert {split: list(pairs[:7]) for split, pairs in whole.splits.items()} == cut.splits


@pytest.mark.parametrize("mode", ["components", "shared-side"])
def test_the_other_rules_shuffle_each_split_by_keyed_hash(tmp_path: Path, mode: str) -> None:
    text = f'[split]\nmode = "{mode}"\nkey = "k"\n'
    whole = read_sites(federation(tmp_path, text + tsv_site("court"), court=PAIRS), frozenset())["court"]
    cut = read_sites(federation(tmp_path, text + "[sizes]\ntrain = 9\n" + tsv_site("court")), frozenset())["court"]
    train = whole.splits["train"]
    assert cut.splits["train"] == sorted(train, key=lambda pair: position("k", "size", "train", *pair))[:9] != train[:9]
    assert cut.splits["dev"] == whole.splits["dev"]


def test_a_larger_size_keeps_what_a_smaller_one_took() -> None:
    rules = SplitRules(key="k")
    assert take(PAIRS, "train", 5, rules) == take(PAIRS, "train", 50, rules)[:5]
    assert sorted(take(PAIRS, "train", 100, rules)) == sorted(PAIRS)
    assert take(PAIRS, "train", 5, rules) != take(PAIRS, "dev", 5, rules) != take(PAIRS, "dev", 5, SplitRules(key="l"))


def test_what_a_site_takes_does_not_depend_on_other_sites(tmp_path: Path) -> None:
    text = '[split]\nmode = "shared-side"\n[sizes]\ntrain = 20\ndev = 5\n'
    alone = read_sites(federation(tmp_path, text + tsv_site("court"), court=PAIRS), frozenset())
    joined = federation(tmp_path, text + tsv_site("bank") + tsv_site("court"), bank=PAIRS[30:])
    assert read_sites(joined, frozenset())["court"] == alone["court"]


def test_a_corpus_that_is_too_small_is_refused_with_site_split_and_both_numbers(tmp_path: Path) -> None:
    text = PAPER + tsv_site("court", "train = 60") + tsv_site("bank", "train = 61", "dev = 20", "test = 25")
    short = federation(tmp_path, text, court=PAIRS, bank=PAIRS)
    with pytest.raises(CorpusError) as caught:
        read_sites(short)
    assert "site bank: too few sentences for the requested sizes (train 60 of 61, test 20 of 25); 100 were kept in all" in str(
        caught.value
    )
    assert "or ask for fewer" in str(caught.value)


def test_a_federation_with_enough_text_passes_and_one_without_its_files_does_not(tmp_path: Path) -> None:
    enough = federation(tmp_path, PAPER + "[sizes]\ntrain = 60\ndev = 20\ntest = 20\n" + tsv_site("court"), court=PAIRS)
    read_sites(enough)
    (tmp_path / "court.tsv").unlink()
    with pytest.raises(CorpusError, match=r"court.tsv: there is no such file"):
        read_sites(enough)


def test_text_of_the_backbone_does_not_count(tmp_path: Path) -> None:
    asked = federation(tmp_path, "[sizes]\ntrain = 40\n" + tsv_site("court"), court=PAIRS)
    read_sites(asked)
    with pytest.raises(CorpusError, match=r"train \d+ of 40"):
        read_sites(asked, {("de", pair.source) for pair in PAIRS[:60]})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[sizes]\ntrain = 0\n" + tsv_site("a"), r"\[sizes\]: train = 0; wanted a whole number of sentences, 1 or above"),
        ("[sizes]\ndev = 1.5\n" + tsv_site("a"), r"\[sizes\]: dev = 1.5; wanted a whole number"),
        (tsv_site("a", "test = true"), "site a: test = True; wanted a whole number"),
        ("[sizes]\ntrian = 3\n" + tsv_site("a"), r"\[sizes\]: trian = 3: there is no such key; did you mean 'train'"),
        ("sizes = 3\n" + tsv_site("a"), "wanted a table"),
        ("[split]\nmax-dev = 4\n" + tsv_site("a", "dev = 5"), r"site a: dev = 5 is above max-dev = 4 in \[split\]"),
        ("[split]\nmax-dev = 4\n[sizes]\ndev = 5\n" + tsv_site("a"), "site a: dev = 5 is above max-dev = 4"),
        ('[[site]]\nname = "a"\ndirection = "de-en"\ntrain = 5\n', "site a: got train and no corpus; a deployed site says"),
    ],
)
def test_sizes_that_cannot_be_are_refused_before_any_text_is_read(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        federation(tmp_path, text)


def test_a_limit_above_the_size_changes_nothing(tmp_path: Path) -> None:
    text = PAPER.strip() + "\nmax-train = 10\nmax-dev = 4\n" + tsv_site("court", "train = 10")
    assert sizes(read_sites(federation(tmp_path, text, court=PAIRS), frozenset())["court"]) == [10, 4, 20]
    check_limits(Sizes(train=10), Sizes(), "here")


@pytest.mark.parametrize("mode", ["components", "shared-side", "paper"])
def test_a_register_without_a_number_of_sentences_grows_to_the_sizes(tmp_path: Path, mode: str) -> None:
    text = f'[split]\nmode = "{mode}"\n[sizes]\ntrain = 130\ndev = 40\ntest = 50\n'
    sites = register("court", "de-fr") + register("farm", "pl-es", "train = 200")
    grown = federation(tmp_path, text + sites)
    texts = read_sites(grown, frozenset())
    assert sizes(texts["court"]) == [130, 40, 50]
    assert sizes(texts["farm"]) == [200, 40, 50]
    assert texts == read_sites(grown, frozenset())
    # The number is small, so the text is what the same register gives at that number of sentences.
    read = texts["court"].account.read
    assert 220 < read < 400
    same = federation(tmp_path, text + sites.replace('phrasebook = "court"', f'phrasebook = "court"\nsentences = {read}'))
    assert read_sites(same, frozenset())["court"] == texts["court"]


def test_a_register_grows_although_half_of_it_is_the_backbones(tmp_path: Path) -> None:
    first = phrasebook.register_corpus("court", 300, 1)["de"]
    asked = federation(tmp_path, "[sizes]\ntrain = 100\n" + register("court", "de-fr"))
    text = read_sites(asked, {("de", sentence) for sentence in first[:150]})["court"]
    assert len(text.splits["train"]) == 100
    assert text.account.read > first_sentences(Sizes(train=100), SplitRules()) == 204


def test_a_register_without_sizes_stays_at_a_thousand_sentences(tmp_path: Path) -> None:
    assert read_sites(federation(tmp_path, register("court", "de-fr")), frozenset())["court"].account.read == 1000


def test_a_register_with_a_number_of_sentences_does_not_grow(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"site court: too few .*train \d+ of 100"):
        read_sites(federation(tmp_path, register("court", "de-fr", "sentences = 50", "train = 100")))


def test_the_first_guess_and_the_next_are_a_tenth_above_the_need() -> None:
    rules = SplitRules(train=0.5, dev=0.25, test=0.25)
    assert first_sentences(Sizes(train=500, dev=300), rules) == 1340  # 1.1 * 300 / 0.25 + 20
    assert first_sentences(Sizes(train=40_000), rules) == LARGEST_REGISTER
    splits: dict[Split, list[Pair]] = {"train": PAIRS[:80], "dev": PAIRS[:10], "test": PAIRS[:10]}
    assert more_sentences(100, splits, Sizes(train=80, dev=10)) == 100
    assert more_sentences(100, splits, Sizes(train=100, dev=20)) == 220  # dev lacks more: 1.1 * 100 * 20 / 10
    assert more_sentences(49_000, splits, Sizes(train=100)) == LARGEST_REGISTER


def test_a_register_holds_as_many_sentences_as_it_may_grow_to() -> None:
    with pytest.raises(ValueError, match=f"wanted 0 to {LARGEST_REGISTER};"):
        phrasebook.register_corpus("court", LARGEST_REGISTER + 1, 1)


def test_a_deployed_site_takes_the_federations_sizes_and_its_own_before_them(tmp_path: Path) -> None:
    text = '[split]\nmode = "shared-side"\n[sizes]\ntrain = 100\ndev = 30\n'
    whole = federation(tmp_path, text + register("court", "de-fr") + register("farm", "pl-fr", "train = 60"))
    together = read_sites(whole, frozenset())
    rules = TextRules.from_flat(whole.rules.flat())  # as it arrives with a message
    assert rules.sizes == Sizes(100, 30, 0)
    for site in whole.sites:
        assert read_text([site], rules) == {site.name: together[site.name]}
    assert [sizes(text)[:2] for text in together.values()] == [[100, 30], [60, 30]]


def test_a_deployed_site_is_told_when_its_size_is_above_the_servers_limit(tmp_path: Path) -> None:
    site = federation(tmp_path, tsv_site("court", "train = 60"), court=PAIRS).sites[0]
    with pytest.raises(ConfigError, match="site court: train = 60 is above max-train = 50"):
        read_text([site], TextRules(SplitRules("paper"), Sizes(train=50)))
