"""Train, dev and test without leaks, by hand and on two thousand made pairs."""

import unicodedata
from itertools import permutations

import pytest

from fedlingua.common.languages import Direction, parse_direction
from fedlingua.corpora.read import Pair
from fedlingua.corpora.split import (
    SPLITS,
    Components,
    Document,
    Side,
    SplitRules,
    base_sides,
    position,
    seen_sides,
    shared_side,
    split_documents,
    split_sites,
)

DE_EN, FR_EN, EN_DE, EN_FR = (parse_direction(text) for text in ("de-en", "fr-en", "en-de", "en-fr"))
THOUSANDS = [Pair(f"Satz {number}", f"sentence {number}") for number in range(2000)]


def components_of(*pairs: tuple[str, str], direction: Direction = DE_EN) -> Components:
    return Components([(direction, [Pair(*pair) for pair in pairs])])


def where(splits: dict[str, list[Pair]]) -> dict[Pair, str]:
    """The split that each pair stands in."""
    return {pair: split for split, pairs in splits.items() for pair in pairs}


def sides(direction: Direction, pairs: list[Pair]) -> set[Side]:
    return {(direction.source, pair.source) for pair in pairs} | {(direction.target, pair.target) for pair in pairs}


def test_equal_sentences_on_either_side_join_pairs_into_one_component() -> None:
    components = components_of(("a", "1"), ("b", "1"), ("b", "2"), ("c", "3"))
    assert components.root(("de", "a")) == components.root(("en", "2"))
    assert components.root(("de", "c")) == components.root(("en", "3"))
    assert components.root(("de", "c")) != components.root(("de", "a"))


def test_two_components_become_one_when_a_late_pair_joins_them() -> None:
    apart = (("a", "1"), ("b", "2"), ("c", "2"), ("c", "3"))
    components = components_of(*apart)
    assert components.root(("de", "a")) != components.root(("en", "3"))
    components = components_of(*apart, ("a", "3"))
    assert len({components.root(side) for side in [("de", "a"), ("de", "b"), ("de", "c"), ("en", "1"), ("en", "2")]}) == 1


def test_a_component_has_the_same_root_in_whatever_order_its_pairs_come() -> None:
    pairs = [("d", "1"), ("d", "2"), ("a", "2"), ("c", "3"), ("a", "3")]
    for order in permutations(pairs):
        components = components_of(*order)
        assert {components.root(("de", source)) for source, _ in pairs} == {("de", "a")}


def test_the_same_characters_in_two_languages_are_two_sentences() -> None:
    components = components_of(("Hotel", "inn"), ("Gasthof", "Hotel"))
    assert components.root(("de", "Hotel")) != components.root(("en", "Hotel"))


def test_a_component_reaches_across_corpora_of_other_directions() -> None:
    components = Components([(DE_EN, [Pair("a", "1")]), (FR_EN, [Pair("f", "1")]), (EN_FR, [Pair("2", "f")])])
    assert components.root(("en", "2")) == components.root(("de", "a"))


def test_a_position_is_decided_by_the_key_and_each_part_and_stays_the_same_for_ever() -> None:
    numbers = {position("k", "ab", "c"), position("k", "a", "bc"), position("k", "abc"), position("l", "ab", "c")}
    assert len(numbers) == 4
    assert all(0 <= number < 1 for number in numbers)
    assert position("fedlingua", "split", "de", "ein Hund") == pytest.approx(0.7287061853003145, abs=1e-15)


def test_the_same_component_stays_together_across_sites() -> None:
    chain = [Pair(f"s{number // 2}", f"t{(number + 1) // 2}") for number in range(40)]
    sites = {"a": (DE_EN, [*chain[::2], Pair("x", "y")]), "b": (DE_EN, chain[1::2])}
    for key in ("one", "two", "three", "four"):
        splits = split_sites(sites, SplitRules(key=key, train=0.34, dev=0.33, test=0.33))
        found = where(splits["a"]) | where(splits["b"])
        assert len(found) == 41
        assert len({found[pair] for pair in chain}) == 1


def test_no_sentence_stands_in_two_splits_at_any_two_sites() -> None:
    # Every English sentence has two German and two French translations; every French one stands for two English ones.
    sites = {
        "de": (DE_EN, [Pair(f"d{number}", f"e{number // 2}") for number in range(400)]),
        "fr": (FR_EN, [Pair(f"f{number // 3}", f"e{number // 2}") for number in range(0, 400, 5)]),
        "back": (EN_DE, [Pair(f"e{number}", f"d{number + 1}") for number in range(0, 200, 7)]),
    }
    splits = split_sites(sites, SplitRules())
    seen = {split: set().union(*(sides(sites[name][0], splits[name][split]) for name in sites)) for split in SPLITS}
    assert all(len(side) > 20 for side in seen.values())
    for one, other in (("train", "dev"), ("train", "test"), ("dev", "test")):
        assert not seen[one] & seen[other]  # type: ignore[index]


def test_the_order_of_corpora_and_pairs_does_not_matter() -> None:
    text = {
        "de": (DE_EN, [Pair(f"d{number % 70}", f"e{number}") for number in range(100)]),
        "fr": (FR_EN, [Pair(f"f{number}", f"e{number * 3}") for number in range(100)]),
        "back": (EN_FR, [Pair(f"e{number * 5}", f"f{number}") for number in range(30)]),
    }
    expected = {name: where(splits) for name, splits in split_sites(text, SplitRules()).items()}
    for order in permutations(text):
        turned = {name: (text[name][0], text[name][1][::-1]) for name in order}
        assert {name: where(splits) for name, splits in split_sites(turned, SplitRules()).items()} == expected


def test_pairs_keep_their_order_and_none_is_lost() -> None:
    splits = split_sites({"a": (DE_EN, THOUSANDS)}, SplitRules())["a"]
    assert sorted(pair for pairs in splits.values() for pair in pairs) == sorted(THOUSANDS)
    for pairs in splits.values():
        assert pairs == sorted(pairs, key=THOUSANDS.index)


def editions(number: int) -> list[Pair]:
    """One pair of sentences as three tools write it."""
    here = Pair(f"Stra\xdfe {number}: \xfcbers Geb\xe4ude", f"street {number}, over the building")
    marked = Pair(f"\ufeff{here.source}\u200b", f"{here.target}\u200e")
    return [here, marked, Pair(unicodedata.normalize("NFD", here.source), here.target.replace(" ", "\xa0\u2009"))]


@pytest.mark.parametrize("mode", ["components", "shared-side"])
def test_what_shows_no_difference_is_in_one_split(mode: str) -> None:
    text = [pair for number in range(100) for pair in editions(number)]
    for order in (text, text[::-1]):
        splits = split_sites({"a": (DE_EN, order)}, SplitRules(mode))["a"]  # type: ignore[arg-type]
        seen = [{side for pair in splits[split] for side in seen_sides(pair, DE_EN)} for split in SPLITS]
        assert all(map(set.isdisjoint, seen, [*seen[1:], seen[0]]))
        assert sum(map(len, splits.values())) == len(text)
        assert all(splits[split] for split in SPLITS)


def test_the_backbones_text_is_withheld_in_every_edition() -> None:
    text = [editions(number) for number in range(200)]
    base = base_sides([(DE_EN, [pairs[1] for pairs in text])], "key", 0.5)
    splits = split_sites({"a": (DE_EN, [pairs[2] for pairs in text])}, SplitRules(), base)["a"]
    assert 60 < len(splits["base"]) < 140
    assert {side for pair in splits["base"] for side in seen_sides(pair, DE_EN)} == base
    notes = {"a": (DE_EN, [Document(f"note {number}", [pairs[0]]) for number, pairs in enumerate(text)])}
    assert len(split_documents(notes, SplitRules(), base)["a"]["base"]) == len(splits["base"])


@pytest.mark.parametrize("mode", ["components", "shared-side"])
@pytest.mark.parametrize("shares", [(0.6, 0.2, 0.2), (0.8, 0.15, 0.05)])
def test_shares_are_about_right_on_two_thousand_pairs(mode: str, shares: tuple[float, float, float]) -> None:
    rules = SplitRules(mode, "key", *shares)  # type: ignore[arg-type]
    splits = split_sites({"a": (DE_EN, THOUSANDS)}, rules)["a"]
    for split, share in zip(SPLITS, shares, strict=True):
        assert len(splits[split]) / 2000 == pytest.approx(share, abs=0.04)


@pytest.mark.parametrize("mode", ["components", "shared-side", "paper"])
def test_another_key_splits_otherwise_and_the_same_key_alike(mode: str) -> None:
    def split(key: str) -> dict[str, list[Pair]]:
        return split_sites({"a": (DE_EN, THOUSANDS)}, SplitRules(mode, key))["a"]  # type: ignore[arg-type,return-value]

    assert split("one") == split("one")
    assert set(split("one")["test"]) != set(split("two")["test"])


def test_a_component_that_the_base_touches_comes_neither_to_dev_nor_test_nor_train() -> None:
    touched = [Pair("a", "1"), Pair("b", "1"), Pair("b", "2")]
    free = [Pair(f"free {number}", f"x{number}") for number in range(50)]
    # The base knows only the far end of the chain, and a sentence that no site has.
    base = {("en", "2"), ("de", "unseen"), ("fr", "free 1"), ("en", "a")}
    splits = split_sites({"one": (DE_EN, [touched[0], *free]), "two": (DE_EN, touched[1:])}, SplitRules(), base)
    assert splits["one"]["base"] == touched[:1]
    assert splits["two"] == {"base": touched[1:], "train": [], "dev": [], "test": []}
    assert sum(len(splits["one"][split]) for split in SPLITS) == 50


def test_without_a_base_nothing_is_excluded() -> None:
    assert split_sites({"a": (DE_EN, THOUSANDS)}, SplitRules())["a"]["base"] == []


def test_the_base_takes_whole_components_across_corpora() -> None:
    german = [Pair(f"d{number}", f"e{number // 2}") for number in range(600)]
    french = [Pair(f"f{number}", f"e{number}") for number in range(0, 300, 3)]
    corpora = [(DE_EN, german), (FR_EN, french)]
    chosen = base_sides(corpora, "key", 0.5)
    for direction, pairs in corpora:
        for pair in pairs:
            assert ((direction.source, pair.source) in chosen) == ((direction.target, pair.target) in chosen)
    for number in range(300):
        assert (("de", f"d{2 * number}") in chosen) == (("de", f"d{2 * number + 1}") in chosen)
    assert sum(("en", f"e{number}") in chosen for number in range(300)) / 300 == pytest.approx(0.5, abs=0.09)


def test_the_base_takes_its_share_from_nothing_to_everything() -> None:
    corpora = [(DE_EN, THOUSANDS)]
    assert base_sides(corpora, "key", 0.0) == set()
    assert base_sides(corpora, "key", 1.0) == sides(DE_EN, THOUSANDS)
    assert len(base_sides(corpora, "key", 0.3)) / 4000 == pytest.approx(0.3, abs=0.04)
    assert base_sides(corpora, "one", 0.3) != base_sides(corpora, "two", 0.3)


def test_what_the_base_leaves_is_still_split_by_the_shares() -> None:
    splits = split_sites({"a": (DE_EN, THOUSANDS)}, SplitRules(key="key"), base_sides([(DE_EN, THOUSANDS)], "key", 0.5))["a"]
    left = sum(len(splits[split]) for split in SPLITS)
    assert left == 2000 - len(splits["base"])
    assert len(splits["base"]) / 2000 == pytest.approx(0.5, abs=0.04)
    for split, share in zip(SPLITS, (0.6, 0.2, 0.2), strict=True):
        assert len(splits[split]) / left == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("mode", ["components", "shared-side"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("pt-BR--en-US", "fr-en"),
        ("de--en-GB", "fr--en-US"),
        ("zh-Hans--en", "zh--fr"),
        ("zh-Hans--en", "zh-Hant--fr"),
        ("nb-en", "no-fr"),
    ],
)
def test_a_language_is_the_same_by_every_code(one: str, other: str, mode: str) -> None:
    plain = {"pt-BR--en-US": "pt-en", "de--en-GB": "de-en", "zh-Hans--en": "zh-en", "nb-en": "no-en"}
    alike = [Pair(f"{number}", f"number {number}") for number in range(200)]
    rules, directions = SplitRules(mode), [parse_direction(one), parse_direction(other)]  # type: ignore[arg-type]
    splits = split_sites({"one": (directions[0], alike), "other": (directions[1], alike)}, rules)
    assert where(splits["one"]) == where(splits["other"])
    assert splits["one"] == split_sites({"one": (parse_direction(plain[one]), alike)}, rules, directions=directions)["one"]


def test_the_backbones_text_is_withheld_from_a_site_by_another_code_of_the_language() -> None:
    base = base_sides([(DE_EN, THOUSANDS)], "key", 0.5)
    as_written = split_sites({"a": (parse_direction("de-AT--en-GB"), THOUSANDS)}, SplitRules(), base)["a"]
    assert as_written == split_sites({"a": (DE_EN, THOUSANDS)}, SplitRules(), base)["a"]
    assert base_sides([(parse_direction("de-AT--en-GB"), THOUSANDS)], "key", 0.5) == base


@pytest.mark.parametrize(
    ("one", "other", "shared"), [(DE_EN, FR_EN, "target"), (EN_DE, EN_FR, "source")], ids=["many-to-one", "one-to-many"]
)
def test_sites_that_cannot_see_each_other_agree_on_the_shared_side(one: Direction, other: Direction, shared: str) -> None:
    def pairs(language: str) -> list[Pair]:
        text = [(f"{language} {number}", f"english {number}") for number in range(200)]
        return [Pair(*pair) if shared == "target" else Pair(*pair[::-1]) for pair in text]

    rules = SplitRules(mode="shared-side")
    # Each site knows which directions the federation has, and none of the other's text.
    here = where(split_sites({"one": (one, pairs("x")), "other": (other, [])}, rules)["one"])
    there = where(split_sites({"one": (one, []), "other": (other, pairs("y"))}, rules)["other"])
    english_here = {getattr(pair, shared): split for pair, split in here.items()}
    english_there = {getattr(pair, shared): split for pair, split in there.items()}
    assert english_here == english_there
    assert len(english_here) == 200
    assert set(english_here.values()) == set(SPLITS)


def test_in_shared_side_mode_every_translation_of_a_shared_sentence_goes_the_same_way() -> None:
    pairs = [Pair(f"d{number}", f"e{number // 4}") for number in range(400)]
    found = where(split_sites({"a": (DE_EN, pairs), "b": (FR_EN, [])}, SplitRules(mode="shared-side"))["a"])
    for number in range(100):
        assert len({found[pair] for pair in pairs[4 * number : 4 * number + 4]}) == 1


def test_in_shared_side_mode_a_site_leaves_out_what_it_trains_on_by_the_other_side() -> None:
    pairs = [Pair(f"d{number % 150}", f"e{number}") for number in range(400)]
    splits = split_sites({"a": (DE_EN, pairs), "b": (FR_EN, [])}, SplitRules(mode="shared-side"))["a"]
    german = {split: {pair.source for pair in splits[split]} for split in SPLITS}
    assert not german["train"] & (german["dev"] | german["test"])
    assert not german["dev"] & german["test"]
    by_english = {pair: position("fedlingua", "split", pair.target) for pair in pairs}
    assert splits["train"] == [pair for pair, value in by_english.items() if value < 0.6]
    assert splits["test"] == [pair for pair, value in by_english.items() if value >= 0.8 and pair.source not in german["train"]]
    assert 0 < len(splits["dev"]) < sum(0.6 <= value < 0.8 for value in by_english.values())


@pytest.mark.parametrize(
    ("everybody", "shared"),
    [
        (["de-en", "fr-en", "pl-en"], "en en en"),
        (["en-de", "en-fr", "en-pl"], "en en en"),
        (["de-en", "en-fr"], "en en"),
        (["de-fr", "fr-de"], "de de"),  # no language is in more: the first by name, whichever is translated from
        (["fr-de", "de-fr", "pl-fr"], "fr fr fr"),
        (["de-fr", "fr-pl", "pl-de", "de-sv"], "de fr de de"),
        (["sl-it"], "it"),
        (["de--en-GB", "fr--en-US", "pl-en"], "en-GB en-US en"),  # codes of one language count together
        (["zh-Hans--zh-Hant", "zh-Hant--zh-Hans"], "zh-Hans zh-Hans"),
    ],
)
def test_the_side_whose_language_most_sites_have_is_the_shared_one(everybody: list[str], shared: str) -> None:
    directions = [parse_direction(text) for text in everybody]
    for order in (directions, directions[::-1]):
        sides_of = [(each.source, each.target)[shared_side(each, order)] for each in directions]
        assert " ".join(sides_of) == shared


def test_two_sites_with_the_same_two_languages_split_alike_whichever_they_translate_from() -> None:
    rules, turned = SplitRules(mode="shared-side"), [Pair(pair.target, pair.source) for pair in THOUSANDS[:200]]
    splits = split_sites({"a": (DE_EN, THOUSANDS[:200]), "b": (EN_DE, turned)}, rules)
    assert where(splits["a"]) == {Pair(pair.target, pair.source): split for pair, split in where(splits["b"]).items()}


def test_the_federations_directions_decide_the_side_also_where_one_site_is_split_alone() -> None:
    pairs = [Pair(f"d{number}", f"e{number // 4}") for number in range(400)]
    rules = SplitRules(mode="shared-side")
    alone = split_sites({"a": (DE_EN, pairs)}, rules, directions=[DE_EN, FR_EN])
    assert alone["a"] == split_sites({"a": (DE_EN, pairs), "b": (FR_EN, [])}, rules)["a"]
    assert alone["a"] != split_sites({"a": (DE_EN, pairs)}, rules)["a"]


@pytest.mark.parametrize(
    ("pairs", "train", "dev", "test"), [(10, 6, 2, 2), (100, 60, 20, 20), (7, 4, 2, 1), (2000, 1200, 400, 400)]
)
def test_the_papers_rule_cuts_60_20_20(pairs: int, train: int, dev: int, test: int) -> None:
    splits = split_sites({"a": (DE_EN, THOUSANDS[:pairs])}, SplitRules(mode="paper"))["a"]
    assert [len(splits[split]) for split in SPLITS] == [train, dev, test]
    assert sorted(pair for found in splits.values() for pair in found) == sorted(THOUSANDS[:pairs])


def test_the_papers_rule_shuffles_before_it_cuts_and_each_site_by_itself() -> None:
    sites = {"a": (DE_EN, THOUSANDS[:100]), "b": (DE_EN, THOUSANDS[:100])}
    splits = split_sites(sites, SplitRules(mode="paper"), base={("de", "Satz 1")})
    assert splits["a"]["train"] != THOUSANDS[:60]
    assert splits["a"]["train"] != splits["b"]["train"]
    assert splits["a"]["base"] == splits["b"]["base"] == []
