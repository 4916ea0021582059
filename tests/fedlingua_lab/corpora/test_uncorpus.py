"""The sample of the UN corpus: a pair once, no sentence in two splits, the same whatever the order of the lines."""

import gzip
from pathlib import Path

import pytest

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.corpora.sizes import Sizes
from fedlingua.corpora.split import SPLITS, position, sides
from fedlingua.desk.corpora.prepared import Prepared
from fedlingua_lab.corpora.sizes_of_papers import kept_apart
from fedlingua_lab.corpora.uncorpus import DIRECTIONS, first_by_hash, prepare_uncorpus
from tests.downloads import un_lines, write_un

EN_FR = Direction("en", "fr")
SMALL = Sizes(8, 3, 3)


def prepared(folder: Path, sizes: Sizes = SMALL, key: str = "k") -> Prepared:
    return prepare_uncorpus(folder, key, lambda line: None, sizes)


def test_every_split_has_its_size_a_pair_once_and_no_sentence_in_two(tmp_path: Path) -> None:
    result = prepared(write_un(tmp_path))
    for direction, splits in result.splits.items():
        assert [len(splits[split]) for split in SPLITS] == [8, 3, 3]
        pairs = [pair for split in SPLITS for pair in splits[split]]
        assert len(set(pairs)) == len(pairs)
        held = {split: {side for pair in splits[split] for side in sides(pair, direction)} for split in SPLITS}
        assert not (held["train"] & held["dev"] | held["train"] & held["test"] | held["dev"] & held["test"])
        told = result.account["directions"][str(direction)]
        assert (told["read"], told["kept"], told["dropped"], told["not_taken"]) == (90, 90, {}, 76)
        assert told["also_in_train"]["test"] == {"same_site": 0, "any_site": 0}


def test_the_sample_depends_on_the_key_and_not_on_the_order_of_the_lines(tmp_path: Path) -> None:
    one, two = write_un(tmp_path / "one", 1), write_un(tmp_path / "two", 2)
    assert prepared(one).splits == prepared(two).splits
    assert prepared(one).splits != prepared(one, key="l").splits


def test_the_first_by_hash_are_the_same_however_few_are_held() -> None:
    pairs = un_lines(EN_FR)
    wanted = sorted(pairs, key=lambda pair: position("k", "sample", *pair))
    assert len(set(pairs)) < len(pairs)
    for most in (1, 2, 5, 30, 100):
        first = list(dict.fromkeys(wanted[:most]))
        assert first_by_hash(pairs, "k", most) == first_by_hash(pairs[::-1], "k", most) == first


def test_test_takes_the_first_and_train_passes_over_what_stands_in_it() -> None:
    front = [Pair("a", "1"), Pair("b", "2"), Pair("a", "3"), Pair("c", "2"), Pair("d", "4"), Pair("d", "5"), Pair("e", "6")]
    sizes = {EN_FR: Sizes(train=2, dev=1, test=2)}
    taken = kept_apart({EN_FR: dict.fromkeys(SPLITS, iter(front))}, sizes)[EN_FR]
    # ("a", "3") and ("c", "2") have a side in test, ("d", "5") one in dev.
    assert taken == {"train": [Pair("e", "6")], "dev": [Pair("d", "4")], "test": [Pair("a", "1"), Pair("b", "2")]}


def test_where_most_is_passed_over_more_of_the_text_is_held(tmp_path: Path) -> None:
    """One English sentence has 300 translations: whichever split takes one of them, the others have to do without."""
    for direction in DIRECTIONS:
        pairs = [Pair("again", f"encore {n}") for n in range(300)] + [Pair(f"line {n}", f"ligne {n}") for n in range(20)]
        for code, side in ((direction.source, 0), (direction.target, 1)):
            (tmp_path / f"UNv1.0.{direction}.{code}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    result = prepared(tmp_path, Sizes(6, 2, 2))
    assert all(len(splits["train"]) == 6 for splits in result.splits.values())


@pytest.mark.parametrize("below", [True, False], ids=["in folders of the pairs", "in one folder"])
def test_files_are_found_as_the_uns_archives_unpack_plain_or_gzipped(tmp_path: Path, below: bool) -> None:
    write_un(tmp_path, below=below)
    expected = prepared(tmp_path)
    for file in tmp_path.rglob("UNv1.0.ar-es.*"):
        Path(f"{file}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    again = prepared(tmp_path)
    assert again.splits == expected.splits
    assert again.account["directions"]["ar-es"]["files"] == ["UNv1.0.ar-es.ar.gz", "UNv1.0.ar-es.es.gz"]


def test_empty_sides_are_dropped_and_tabs_become_spaces(tmp_path: Path) -> None:
    write_un(tmp_path)
    for code, text in (("ru", "ru\tone\n\n"), ("zh", "zh one\nzh\n")):
        file = tmp_path / "ru-zh" / f"UNv1.0.ru-zh.{code}"
        file.write_text(file.read_text() + text)
    result = prepared(tmp_path, Sizes(36, 3, 3))  # all that there is, but for what stands elsewhere
    told = result.account["directions"]["ru-zh"]
    assert (told["read"], told["kept"], told["dropped"], told["tabs"]) == (92, 91, {"empty": 1}, 1)
    assert Pair("ru one", "zh one") in {pair for pairs in result.splits[Direction("ru", "zh")].values() for pair in pairs}


def test_too_little_text_is_refused_with_all_its_numbers(tmp_path: Path) -> None:
    with pytest.raises(CorpusError) as caught:
        prepared(write_un(tmp_path), Sizes(60, 3, 3))
    told = str(caught.value)
    assert all(f"  {direction}, train: " in told and " of 60; read 90, usable 90" in told for direction in DIRECTIONS)
    assert "test: " not in told


def test_what_is_missing_is_told_with_where_it_comes_from(tmp_path: Path) -> None:
    write_un(tmp_path)
    (tmp_path / "en-fr/UNv1.0.en-fr.fr").unlink()
    with pytest.raises(CorpusError) as caught:
        prepared(tmp_path)
    assert "lacks 1 of 3 pairs of UNv1.0; download them from the UN's site" in str(caught.value)
    assert "  en-fr: UNv1.0.en-fr.en and UNv1.0.en-fr.fr unpacked (also .gz)" in str(caught.value)
