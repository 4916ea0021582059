"""MTNT's rows as Weller et al. 2022 take them, on files laid out as its release unpacks."""

from pathlib import Path

import pytest

from fedlingua.common.errors import CorpusError
from fedlingua.corpora.read import Pair
from fedlingua.corpora.split import SPLITS
from fedlingua.desk.corpora.prepared import Prepared
from fedlingua_lab.corpora.mtnt import EN_FR, EN_JA, fault, prepare_mtnt
from tests.downloads import mtnt_rows, write_mtnt


def prepared(folder: Path, no_leaks: bool = False, key: str = "k") -> Prepared:
    return prepare_mtnt(folder, key, no_leaks, lambda line: None)


@pytest.mark.parametrize("folder", ["", "MTNT"])
def test_the_six_files_are_found_where_the_release_unpacks_them(tmp_path: Path, folder: str) -> None:
    write_mtnt(tmp_path / folder, mtnt_rows())
    splits = prepared(tmp_path).splits
    assert splits[EN_FR]["test"] == mtnt_rows()[EN_FR, "test"]
    assert {direction: [len(splits[direction][split]) for split in SPLITS] for direction in splits} == {
        EN_FR: [6, 2, 2],
        EN_JA: [6, 1, 1],
    }


def test_a_row_half_of_which_is_punctuation_on_either_side_is_dropped() -> None:
    for split in SPLITS:
        assert fault(Pair("ab!!", "abc"), EN_FR, split) == "punctuation"
        assert fault(Pair("abc", "a?"), EN_FR, split) == "punctuation"
        assert fault(Pair("abc!!", "abc"), EN_FR, split) is None
        assert fault(Pair("a b c", "「」。、"), EN_JA, split) is None  # ASCII alone is counted
        assert fault(Pair("", "abc"), EN_FR, split) == "empty"


def test_fewer_than_three_english_words_go_of_japanese_training_text_alone() -> None:
    short = Pair("lol no", "いや")
    assert fault(short, EN_JA, "train") == "too-short"
    assert fault(short, EN_JA, "dev") is None
    assert fault(short, EN_FR, "train") is None


def test_french_training_text_is_cut_to_the_size_of_japanese_with_the_same_english_first(tmp_path: Path) -> None:
    write_mtnt(tmp_path, mtnt_rows())
    result = prepared(tmp_path)
    train = result.splits[EN_FR]["train"]
    assert len(train) == len(result.splits[EN_JA]["train"]) == 6
    assert {f"so many words {n}" for n in (6, 7, 8)} <= {pair.source for pair in train}
    told = result.account["directions"]["en-fr"]
    assert (told["read"], told["kept"], told["dropped"], told["not_taken"]) == (14, 14, {}, 4)
    told = result.account["directions"]["en-ja"]
    assert (told["read"], told["kept"], told["dropped"], told["not_taken"]) == (9, 8, {"too-short": 1}, 0)


def test_the_choice_depends_on_the_key_and_not_on_the_order_of_the_rows(tmp_path: Path) -> None:
    turned = mtnt_rows()
    for direction in (EN_FR, EN_JA):
        turned[direction, "train"].reverse()
    write_mtnt(tmp_path / "one", mtnt_rows())
    write_mtnt(tmp_path / "two", turned)
    one, two = prepared(tmp_path / "one").splits, prepared(tmp_path / "two").splits
    assert one == two
    chosen = {frozenset(prepared(tmp_path / "one", key=key).splits[EN_FR]["train"]) for key in "abcdefgh"}
    assert len(chosen) > 1


def test_leaks_of_the_release_are_counted_and_kept_out_when_asked(tmp_path: Path) -> None:
    text = mtnt_rows()
    text[EN_FR, "test"] = [Pair("a test row", "une autre"), Pair("so many words 7", "tellement")]
    write_mtnt(tmp_path, text)
    paper, clean = prepared(tmp_path), prepared(tmp_path, no_leaks=True)
    for result in (paper, clean):
        told = result.account["directions"]
        assert told["en-fr"]["also_in_train"]["test"] == {"same_site": 1, "any_site": 1}
        assert told["en-ja"]["also_in_train"]["test"] == {"same_site": 0, "any_site": 0}
    # "so many words 7" goes of both trains, and en-fr's dev loses what stands in en-ja's test.
    assert [len(clean.splits[EN_JA][split]) for split in SPLITS] == [5, 1, 1]
    assert [len(clean.splits[EN_FR][split]) for split in SPLITS] == [5, 1, 2]
    for split in ("dev", "test"):
        held_out = {pair.source for splits in clean.splits.values() for pair in splits[split]}
        assert not held_out & {pair.source for splits in clean.splits.values() for pair in splits["train"]}
    assert clean.splits[EN_FR]["test"] == paper.splits[EN_FR]["test"]


def test_too_few_french_rows_are_refused_with_the_numbers(tmp_path: Path) -> None:
    text = mtnt_rows()
    del text[EN_FR, "train"][4:]
    write_mtnt(tmp_path, text)
    with pytest.raises(CorpusError, match="en-fr, train: 4 of 6; read 8, usable 8"):
        prepared(tmp_path)


def test_files_that_are_missing_are_all_named(tmp_path: Path) -> None:
    write_mtnt(tmp_path, mtnt_rows())
    (tmp_path / "valid/valid.en-ja.tsv").unlink()
    with pytest.raises(CorpusError, match=r"lacks 1 of 6 files of MTNT; unpack MTNT\.1\.1\.tar\.gz(?s:.)*valid\.en-ja\.tsv"):
        prepared(tmp_path)


def test_a_row_without_its_three_columns_is_told_with_file_and_line(tmp_path: Path) -> None:
    write_mtnt(tmp_path, mtnt_rows())
    (tmp_path / "test/test.en-fr.tsv").write_text("c0\ta\tb\nc1\tmissing tab\n")
    with pytest.raises(CorpusError, match=r"test\.en-fr\.tsv, line 2: got 2 column"):
        prepared(tmp_path)
