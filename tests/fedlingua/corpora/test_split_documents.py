"""Documents are split whole, and no sentence of dev or test stands in train."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.split import SPLITS, Document, Split, SplitRules, by_share, split_documents
from fedlingua.corpora.texts import read_sites, read_text
from tests.federations import SPLIT, federation

ES, FR = Direction("es", "es"), Direction("fr", "fr")
RULES = SplitRules("shared-side", "k", 0.5, 0.25, 0.25)


def document(text: str) -> Document:
    return Document(text, [Pair(sentence, sentence) for sentence in text.split("|")])


def home(text: str, language: str = "es", rules: SplitRules = RULES) -> Split:
    return by_share(rules, language, text)


def found(splits: dict[Split, list[Pair]]) -> dict[str, list[str]]:
    return {split: [pair.source for pair in pairs] for split, pairs in splits.items() if pairs}


@pytest.fixture
def by_split() -> dict[Split, list[str]]:
    """Texts of two sentences each, by the split that their hash gives."""
    texts = [f"a{number}|b{number}" for number in range(60)]
    return {split: [text for text in texts if home(text) == split] for split in SPLITS}


@pytest.mark.parametrize("mode", ["components", "shared-side"])
def test_a_document_goes_whole_where_its_hash_says(mode: str, by_split: dict[Split, list[str]]) -> None:
    rules = SplitRules(mode, "k", 0.5, 0.25, 0.25)  # type: ignore[arg-type]
    texts = [f"a{number}|b{number}" for number in range(60)]
    splits = split_documents({"clinic": (ES, [document(text) for text in texts])}, rules)["clinic"]
    assert splits["base"] == []
    for split in SPLITS:
        assert by_split[split]
        assert [pair.source for pair in splits[split]] == [part for text in by_split[split] for part in text.split("|")]


def test_equal_documents_of_one_language_go_together_whoever_has_them() -> None:
    texts = [document(f"text {number}") for number in range(40)]
    splits = split_documents({"one": (ES, texts), "two": (ES, texts[::-1]), "three": (FR, texts)}, RULES)
    assert {split: set(pairs) for split, pairs in splits["one"].items()} == {
        split: set(pairs) for split, pairs in splits["two"].items()
    }
    assert splits["three"] != splits["one"]


def test_a_language_is_the_same_by_every_code() -> None:
    texts = [document(f"text {number}|amen") for number in range(40)]
    mexico = Direction("es-MX", "es-MX")
    splits = split_documents({"one": (ES, texts), "two": (mexico, texts)}, RULES, {("es", "text 3")})
    assert splits["one"] == splits["two"]
    assert found(splits["two"])["base"] == ["text 3", "amen"]
    assert "amen" not in found(splits["two"])["test"]


def test_a_sentence_that_some_site_trains_on_is_in_no_dev_or_test(by_split: dict[Split, list[str]]) -> None:
    def with_sentence(sentence: str, split: Split) -> str:
        return next(text for number in range(99) if home(text := f"{sentence}|c{number}") == split)

    train, dev, test = (with_sentence("common", split) for split in SPLITS)
    sites = {"one": (ES, [document(train)]), "two": (ES, [document(dev), document(test)])}
    splits = split_documents(sites, replace(RULES, mode="components"))
    assert found(splits["one"]) == {"train": train.split("|")}
    assert found(splits["two"]) == {"dev": [dev.split("|")[1]], "test": [test.split("|")[1]]}
    # Without the first site nobody trains on it, and test keeps it before dev.
    alone = split_documents({"two": sites["two"]}, RULES)["two"]
    assert found(alone) == {"dev": [dev.split("|")[1]], "test": test.split("|")}
    assert split_documents(sites, RULES)["two"] == alone  # by this rule a simulated site looks at its own text, as a deployed one
    by_paper = SplitRules("paper", "k", 0.5, 0.25, 0.25)
    both = {name: (ES, [document(f"common|{name}{number}") for number in range(8)]) for name in ("one", "two")}
    assert split_documents(both, by_paper) == {name: split_documents({name: both[name]}, by_paper)[name] for name in both}


def test_the_same_letters_in_another_language_are_another_sentence() -> None:
    train = next(text for number in range(99) if home(text := f"hotel|c{number}") == "train")
    test = next(text for number in range(99) if home(text := f"hotel|d{number}", "fr") == "test")
    splits = split_documents({"one": (ES, [document(train)]), "two": (FR, [document(test)])}, RULES)
    assert found(splits["two"]) == {"test": test.split("|")}


def test_a_document_with_a_sentence_of_the_base_is_the_bases() -> None:
    documents = [document("seen|new"), document("other|text"), document("more|seen")]
    splits = split_documents({"clinic": (ES, documents)}, RULES, {("es", "seen"), ("fr", "text")})["clinic"]
    assert found(splits)["base"] == ["seen", "new", "more", "seen"]
    assert sum(map(len, splits.values())) == 6


def test_by_the_papers_rule_documents_are_shuffled_and_cut() -> None:
    documents = [document(f"a{number}|b{number}|c{number}") for number in range(10)]
    rules = SplitRules("paper", "k", 0.6, 0.2, 0.2)
    splits = split_documents({"clinic": (ES, documents)}, rules)["clinic"]
    assert [len(splits[split]) for split in SPLITS] == [18, 6, 6]
    for split in SPLITS:
        numbers = [pair.source[1:] for pair in splits[split]]
        assert [pair.source for pair in splits[split]] == [f"{letter}{number}" for number in numbers[::3] for letter in "abc"]
    assert splits != split_documents({"other": (ES, documents)}, rules)["other"]


def test_dropped_twins_are_accounted_for_and_a_site_alone_reads_the_same(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    text = "".join(f"Nota número {number}. La firma {number % 3} del médico.\n" for number in range(60))
    (tmp_path / "data" / "one.txt").write_text(text, encoding="utf-8")
    (tmp_path / "data" / "two.txt").write_text(
        text[: len(text) // 2].rpartition("\n")[0].replace("Nota", "Hoja") + "\n", encoding="utf-8"
    )
    site = '[[site]]\nname = "{0}"\nlanguage = "es"\nlines = "{0}.txt"\n'
    two = federation(tmp_path, SPLIT + "[cleaning]\ndrop-duplicates = false\n" + site.format("one") + site.format("two"))
    texts = read_sites(two, frozenset())
    one = texts["one"]
    assert one.account.read == 120
    assert one.account.kept == sum(map(len, one.splits.values())) < 120
    assert one.account.dropped == {"in-train": 120 - one.account.kept}
    assert read_text(two.sites[:1], TextRules.from_flat(two.rules.flat())) == {"one": one}


def test_the_translations_of_a_document_go_together_and_both_sides_count_as_leaks() -> None:
    def pairs(language: str, name: str) -> Document:
        return Document(name, [Pair(f"{language} {name}", f"en {name}"), Pair(f"{language} {name} too", "amen")])

    names = [f"chapter {number}" for number in range(40)]
    sites = {code: (Direction(code, "en"), [pairs(code, name) for name in names]) for code in ("de", "fr")}
    splits = split_documents(sites, RULES)
    for split in SPLITS:
        of = [{pair.target for pair in splits[code][split]} for code in ("de", "fr")]
        assert of[0] == of[1]
    assert all(splits["de"][split] for split in SPLITS)
    # "amen" is in train; what stands beside it in dev and test is left out.
    assert {split: sum(pair.target == "amen" for pair in splits["de"][split]) > 0 for split in SPLITS} == {
        "train": True,
        "dev": False,
        "test": False,
    }
    known = split_documents({"de": sites["de"]}, RULES, {("en", "en chapter 3")})["de"]["base"]
    assert known == pairs("de", "chapter 3").sentences
