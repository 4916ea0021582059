"""Sentences that two sites have in common: normalised, hashed, compared and left out, against corpora counted by hand."""

import dataclasses
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlingua.common.errors import CorpusError
from fedlingua.common.files import APP_DIR
from fedlingua.common.languages import Direction, plain_code
from fedlingua.corpora.clean import Account
from fedlingua.corpora.overlap import (
    JUDGED,
    check_left,
    digest,
    digests_of,
    key_check,
    leaks,
    left_out,
    normalised,
    shared_sentences,
    without_leaks,
)
from fedlingua.corpora.read import Pair
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.sizes import Sizes
from fedlingua.corpora.split import SPLITS
from fedlingua.corpora.texts import SiteText, read_sites

DATA = APP_DIR / "../shared/data"
KEY, OTHER = bytes(range(32)), bytes(32)


def site_text(direction: str, **splits: list[tuple[str, str]]) -> SiteText:
    source, target = direction.split("-")
    pairs = {"base": [], **{split: [Pair(*pair) for pair in splits.get(split, [])] for split in SPLITS}}
    number = sum(map(len, pairs.values()))
    return SiteText(Direction(source, target), Account(number + 3, number, {"empty": 3}), pairs)


TEXTS = {
    "one": site_text(
        "de-en",
        train=[("Das Haus.", "The house."), ("Der Baum.", "The tree.")],
        dev=[("Das Tor.", "The gate."), ("Die Tür.", "The door.")],
        test=[("Der Hund.", "The dog."), ("Die Katze.", "The cat."), ("Der Fisch.", "The fish.")],
    ),
    "two": site_text(
        "fr-en",
        train=[("Le chien.", "THE DOG!"), ("La porte.", "the  door"), ("La maison.", "“The house”")],
        dev=[("Le pain.", "The bread.")],
        test=[("Le poisson.", "The fish."), ("L'arbre.", "The tree.")],
    ),
    "three": site_text(
        "de-fr",
        train=[("die katze", "Le chat."), ("Der Tisch.", "La table.")],
        dev=[("Der Stuhl.", "La chaise.")],
        test=[("Das Bett.", "Le pain.")],
    ),
}
"""Leaks, by hand: one's dev "The door." and its tests "The dog." (at two) and "Die Katze." (at three); two's test "The tree." (at one)."""
LEAKS = {"one": {"dev": 1, "test": 2}, "two": {"dev": 0, "test": 1}, "three": {"dev": 0, "test": 0}}


def digests(texts=TEXTS, key=KEY):
    return {site: digests_of([text], key) for site, text in texts.items()}


# --- One sentence ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sentence", "wanted"),
    [
        ("The house.", "the house"),
        ("  THE\u00a0 house !?", "the house"),
        ("«Straße» …", "strasse"),
        ("Ｔｈｅ　ｈｏｕｓｅ。", "the house"),
        ("e\u0301te\u0301", "été"),
        ("co\u00adoperate\u200b", "cooperate"),
        ("It's 5 p.m., isn't it?", "it's 5 p.m., isn't it"),
        ("¿Qué?", "qué"),
        ("C++", "c++"),
        ("?!", "?!"),
        ("", ""),
        ("我很好。", "我很好"),
    ],
)
def test_a_sentence_loses_what_its_editions_differ_in(sentence, wanted):
    assert normalised(sentence) == wanted


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=20))
def test_case_space_and_outer_punctuation_make_no_other_sentence(sentence):
    folded = normalised(sentence)
    assert normalised(f" «{folded}»  !\t") == folded or not any(letter.isalnum() for letter in folded)


def test_the_same_words_in_two_languages_are_two_sentences():
    assert digest(KEY, ("de", "Gift")) != digest(KEY, ("en", "Gift"))
    assert digest(KEY, ("de", "Gift")) == digest(KEY, ("de", "gift."))


def test_digests_are_64_bits_that_the_key_decides_and_stay_what_they_are():
    """A changed number here makes digests of two versions differ in silence; then the hash's person has to change, too."""
    assert digest(KEY, ("en", "The house.")) == 3956315578723292420
    assert digest(OTHER, ("en", "The house.")) != 3956315578723292420


def test_a_keys_check_tells_it_from_another_and_is_no_digest():
    assert key_check(KEY) == key_check(bytes(range(32))) != key_check(OTHER)
    assert len(key_check(KEY)) == 16
    assert int(key_check(KEY), 16) != digest(KEY, ("", ""))


# --- Sites ----------------------------------------------------------------------------------------------------------------------------


def test_a_sites_digests_are_distinct_and_rise_and_are_told_by_split_and_language():
    found = digests_of([TEXTS["two"], site_text("en-fr", train=[("the dog", "Le chien"), ("The cup.", "La tasse.")])], KEY)
    assert {split: {language: len(row) for language, row in rows.items()} for split, rows in found.items()} == {
        "train": {"en": 4, "fr": 4},
        "dev": {"en": 1, "fr": 1},
        "test": {"en": 2, "fr": 2},
    }
    for rows in found.values():
        for row in rows.values():
            assert row.dtype == np.uint64
            assert (row[1:] > row[:-1]).all()


def test_text_in_one_language_has_each_sentence_once():
    text = site_text("es-es", train=[("uno", "uno"), ("dos", "dos")], dev=[("tres", "tres")], test=[("cuatro", "cuatro")])
    assert {split: {name: len(row) for name, row in rows.items()} for split, rows in digests_of([text], KEY).items()} == {
        "train": {"es": 2},
        "dev": {"es": 1},
        "test": {"es": 1},
    }


def test_figures_are_those_counted_by_hand():
    found = shared_sentences(digests())
    english = found["one"]["en"]
    assert english["sentences"] == {"all": 7, "train": 2, "dev": 2, "test": 3}
    # The house, the door and the dog stand in two's train, the tree and the fish in its test.
    assert english["trained"] == {"dev": 0, "test": 0}
    assert english["elsewhere"] == {"all": 5, "train": 1, "dev": 1, "test": 1}
    assert english["at"] == {"two": english["elsewhere"]}
    assert found["one"]["de"]["elsewhere"] == {"all": 1, "train": 0, "dev": 0, "test": 1}
    assert found["two"]["en"]["elsewhere"] == {"all": 5, "train": 1, "dev": 0, "test": 1}
    assert found["two"]["fr"]["elsewhere"] == {"all": 1, "train": 0, "dev": 0, "test": 0}  # "Le pain." is in three's test
    assert found["three"]["de"]["elsewhere"] == {"all": 1, "train": 0, "dev": 0, "test": 0}


def test_what_stands_at_two_other_sites_counts_once():
    texts = {**TEXTS, "four": site_text("nl-en", train=[("De hond.", "The dog.")], dev=[("a", "b")], test=[("c", "d")])}
    english = shared_sentences(digests(texts))["one"]["en"]
    assert [english["at"][other]["test"] for other in ("two", "four")] == [1, 1]
    assert english["elsewhere"]["test"] == 1


@pytest.mark.parametrize(
    ("one", "other"), [("en-GB", "en"), ("en-GB", "en-US"), ("no", "nb"), ("zh-Hans", "zh"), ("zh-Hans", "zh-Hant")]
)
def test_a_sentence_leaks_to_a_site_that_gives_its_language_another_code(one: str, other: str) -> None:
    train, test = (
        site_text("de-xx", train=[("Das Tor.", "Gate 1.")]),
        site_text("fr-xx", test=[("La porte.", "Gate 1."), ("Oui.", "Yes.")]),
    )
    texts = {
        "one": dataclasses.replace(train, direction=Direction("de", one)),
        "other": dataclasses.replace(test, direction=Direction("fr", other)),
    }
    found = leaks(digests(texts))
    assert found["other"].tolist() == [digest(KEY, (plain_code(other), "Gate 1."))]
    assert without_leaks(texts["other"], found["other"], KEY).splits["test"] == [("Oui.", "Yes.")]
    assert shared_sentences(digests(texts))["other"][plain_code(other)]["elsewhere"]["test"] == 1


def test_both_sides_of_text_from_a_language_into_itself_are_hashed() -> None:
    text = dataclasses.replace(site_text("a-b", train=[("The lorry.", "The truck.")]), direction=Direction("en-GB", "en-US"))
    (row,) = digests_of([text], KEY)["train"].values()
    assert sorted(row) == sorted(digest(KEY, ("en", sentence)) for sentence in ("The lorry.", "The truck."))


def test_leaks_are_those_found_by_hand_and_what_is_in_anothers_test_is_none():
    found = leaks(digests())
    expected = {
        "one": [("en", "The door."), ("en", "The dog."), ("de", "Die Katze.")],
        "two": [("en", "The tree.")],
        "three": [],
    }
    assert {site: set(row.tolist()) for site, row in found.items()} == {
        site: {digest(KEY, side) for side in sides} for site, sides in expected.items()
    }


def test_what_a_site_trains_on_itself_is_no_leak_of_another():
    text = site_text("de-en", train=[("a b", "c d")], dev=[("a b", "c d")], test=[("a b", "c d")])
    other = site_text("fr-en", train=[("x", "y")], dev=[("u", "v")], test=[("w", "z")])
    assert not len(leaks(digests({"one": text, "other": other}))["one"])


def test_pairs_that_leak_are_left_out_and_counted_and_nothing_else_changes():
    found = leaks(digests())
    for site, text in TEXTS.items():
        left = without_leaks(text, found[site], KEY)
        assert left_out([text], [left]) == LEAKS[site]
        assert left.splits["train"] == text.splits["train"]
        assert left.account.read == left.account.kept + sum(left.account.dropped.values())
        assert left.account.dropped.get("trained-elsewhere", 0) == sum(LEAKS[site].values())
        assert "trained-elsewhere" not in text.account.dropped
    one = without_leaks(TEXTS["one"], found["one"], KEY)
    assert one.splits["test"] == [Pair("Der Fisch.", "The fish.")]
    assert one.splits["dev"] == [Pair("Das Tor.", "The gate.")]


def test_once_left_out_nothing_leaks_any_more():
    found = leaks(digests())
    left = {site: without_leaks(text, found[site], KEY) for site, text in TEXTS.items()}
    assert not any(len(row) for row in leaks(digests(left)).values())


@given(st.integers(0, 2**32), st.integers(2, 4))
def test_the_order_of_sites_and_the_key_change_no_figure(seed, number):
    random = np.random.default_rng(seed)

    def pairs(most):
        return [(f"q {random.integers(9)}", f"z {random.integers(9)}") for _ in range(random.integers(1, most))]

    texts = {f"site{n}": site_text("de-en", train=pairs(6), dev=pairs(4), test=pairs(4)) for n in range(number)}
    expected, gone = shared_sentences(digests(texts)), leaks(digests(texts))
    for order in permutations(texts):
        turned = {site: texts[site] for site in order}
        assert shared_sentences(digests(turned)) == expected
        assert all((leaks(digests(turned))[site] == gone[site]).all() for site in texts)
    assert shared_sentences(digests(texts, OTHER)) == expected
    # The same by sets of words.
    train = {site: [{side for pair in texts[site].splits["train"] for side in pair}] for site in texts}
    for site, text in texts.items():
        others = set().union(*(sides for name in texts if name != site for sides in train[name]))
        left = without_leaks(text, gone[site], KEY)
        for split in JUDGED:
            assert left.splits[split] == [pair for pair in text.splits[split] if others.isdisjoint(pair)]


def test_leaving_out_all_is_refused_with_site_split_and_number():
    check_left({"one": {"dev": 2, "test": 3}}, {"one": {"dev": 1, "test": 2}})
    check_left({"one": {"dev": 0, "test": 3}}, {"one": {"dev": 0, "test": 0}})
    with pytest.raises(CorpusError, match=r"one: all 3 pairs of test.*components"):
        check_left({"one": {"dev": 2, "test": 3}}, {"one": {"dev": 1, "test": 3}})


# --- Real text ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not DATA.is_dir(), reason="real text lies in ../shared/data, which is not here")
def test_about_a_third_of_thais_english_stands_at_other_sites():
    federation = read_federation(APP_DIR / "experiments" / "federations" / "tatoeba_m2en.toml", DATA)
    whole = dataclasses.replace(federation, rules=dataclasses.replace(federation.rules, limits=Sizes()))
    texts = read_sites(whole, frozenset())
    found = shared_sentences(digests(texts))
    english = found["th-en"]["en"]
    assert 0.30 < english["elsewhere"]["all"] / english["sentences"]["all"] < 0.34
    # As sets of words say, without a hash.
    sentences = {site: {normalised(p.target) for pairs in text.splits.values() for p in pairs} for site, text in texts.items()}
    others = set().union(*(sentences[site] for site in texts if site != "th-en"))
    assert english["sentences"]["all"] == len(sentences["th-en"])
    assert english["elsewhere"]["all"] == len(sentences["th-en"] & others)
    # Components keep equal sentences in one split, so only editions of one sentence leak.
    assert 0 < sum(found[site]["en"]["elsewhere"]["test"] for site in texts) < 50
