"""The layout of i2b2-2009, on notes written by hand for these tests: none of the challenge's own files is here."""

from pathlib import Path

import pytest

from fedlingua.common.errors import CorpusError
from fedlingua_lab.finetuning.annotated import Texts, read_annotated, sizes_of

NOTE = "Discharge note\n\nTake aspirin 81 mg daily for chest\npain or severe angina .\n"
ENTRIES = (
    'm="aspirin" 3:1 3:1||do="81 mg" 3:2 3:3||mo="nm"||f="daily" 3:4 3:4||du="nm"||r="chest pain" 3:6 4:0||ln="list"\n'
    'm="aspirin" 3:1 3:1||do="nm"||mo="nm"||f="nm"||du="nm"||r="nm"||ln="narrative"\n'
)
TAGS = {2: "O", 3: "B-m", 4: "B-do", 5: "I-do", 6: "B-f", 7: "O", 8: "B-r", 9: "I-r", 10: "O"}


def folder(tmp_path: Path, entries: str = ENTRIES, ending: str = ".entries") -> Path:
    for split in ("train", "devel", "test"):
        (tmp_path / split).mkdir(exist_ok=True)
        (tmp_path / split / "17.txt").write_text(NOTE)
        (tmp_path / split / f"17{ending}").write_text(entries if split == "test" else ENTRIES)
    return tmp_path


def read_i2b2(data: Path) -> Texts:
    return read_annotated(data, "i2b2")


@pytest.mark.parametrize("ending", [".entries", ".i2b2.entries", "_gold.entries", ".i2b2"])
def test_a_note_is_one_sequence_and_entities_run_over_ends_of_lines(tmp_path: Path, ending: str) -> None:
    (folder(tmp_path, ending=ending) / "train" / "._17.txt").write_bytes(b"\0\5\x16\7")  # a resource fork
    corpus = read_i2b2(tmp_path)
    [note] = corpus["train"]
    assert note.tokens == NOTE.split()
    assert {number: note.tags[number] for number in TAGS} == TAGS
    # The second entry names the same aspirin again: one entity.
    assert sizes_of(corpus)["train"]["entities"] == {"do": 1, "f": 1, "m": 1, "r": 1}


def test_of_entities_that_overlap_the_first_stays(tmp_path: Path) -> None:
    corpus = read_i2b2(folder(tmp_path, 'm="aspirin 81" 3:1 3:2||do="81 mg" 3:2 3:3||r="pain" 4:0 4:0\n'))
    assert corpus["test"][0].tags[3:6] == ["B-m", "I-m", "O"]


def test_a_broken_entity_becomes_one_for_each_piece(tmp_path: Path) -> None:
    corpus = read_i2b2(folder(tmp_path, 'm="aspirin" 3:1 3:1||r="pain ... angina" 4:0 4:0,4:3 4:3\n'))
    assert corpus["test"][0].tags[9:13] == ["B-r", "O", "O", "B-r"]


def test_a_note_without_a_medication_is_all_outside(tmp_path: Path) -> None:
    assert set(read_i2b2(folder(tmp_path, ""))["test"][0].tags) == {"O"}


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ('m="aspirin" 9:1 9:1', "field m has offsets 9:1 9:1; wanted line:token line:token, inside the note"),
        ('m="aspirin" 0:1 0:1', "field m has offsets 0:1 0:1"),
        ('m="aspirin" 3:7 3:7', "lines from 1 to 4, tokens from 0"),
        ('m="aspirin" 3:2 3:1', "the first not after the last"),
        ('m="aspirin"', "field m has offsets (none)"),
        ("m=aspirin 3:1 3:1", 'a field is not name="text" line:token line:token'),
    ],
)
def test_a_wrong_entry_is_told_with_file_and_line(tmp_path: Path, entry: str, told: str) -> None:
    with pytest.raises(CorpusError) as error:
        read_i2b2(folder(tmp_path, f'm="aspirin" 3:1 3:1\n{entry}\n'))
    assert f"{tmp_path / 'test' / '17.entries'}, line 2: " in str(error.value)
    assert told in str(error.value)
    assert "aspirin" not in str(error.value)


def test_offsets_that_count_otherwise_are_noticed_by_the_quoted_text(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="of 2 quoted entities 2 are not where their offsets point"):
        read_i2b2(folder(tmp_path, 'm="aspirin" 3:2 3:2||f="daily" 3:5 3:5\n'))


def test_a_type_that_train_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"17.entries: has a type or label that train lacks"):
        read_i2b2(folder(tmp_path, 'mo="or" 4:1 4:1\n'))


def test_a_note_without_entries_and_a_split_without_notes_are_refused(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "devel" / "17.entries").unlink()
    with pytest.raises(CorpusError, match=r"17.txt: no entries beside it; wanted one of 17.entries, 17.i2b2.entries"):
        read_i2b2(tmp_path)
    (tmp_path / "devel" / "17.txt").unlink()
    with pytest.raises(CorpusError, match="devel: holds no text"):
        read_i2b2(tmp_path)
