"""Marked pairs as JSONL: what is read, and every way in which a line can be wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedlingua.common.errors import CorpusError
from fedlingua_lab.finetuning.annotated import Marked, Texts, labels_of, read_annotated, sizes_of

TREATS = {"text": "Aspirin for his headache.", "head": [0, 7], "tail": [16, 24], "label": "treats", "id": 3}
NONE = {"text": "Aspirin, and no headache.", "head": [16, 24], "tail": [0, 7], "label": "none"}
GOOD = [TREATS, NONE]


def folder(tmp_path: Path, test: list[Any] | None = None, train: list[Any] | None = None) -> Path:
    for name, rows in (("train", train), ("devel", None), ("test", test)):
        lines = [row if isinstance(row, str) else json.dumps(row) for row in (GOOD if rows is None else rows)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def read_pairs(data: Path) -> Texts:
    return read_annotated(data, "pairs")


def test_mentions_come_in_either_order_and_labels_are_trains(tmp_path: Path) -> None:
    corpus = read_pairs(folder(tmp_path))
    assert corpus["dev"] == [
        Marked("Aspirin for his headache.", [(0, 7), (16, 24)], "treats"),
        Marked("Aspirin, and no headache.", [(16, 24), (0, 7)], "none"),
    ]
    assert labels_of(corpus) == ["none", "treats"]
    assert sizes_of(corpus)["test"] == {"texts": 2, "labels": {"none": 1, "treats": 1}}


def test_without_a_tail_one_mention_is_marked(tmp_path: Path) -> None:
    rows = [{"text": "No fever.", "head": [3, 8], "label": label} for label in ("absent", "present")]
    for name in ("train", "devel", "test"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_pairs(tmp_path)["test"][0].mentions == [(3, 8)]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({**TREATS, "head": [0, 26]}, "head is [0, 26]; wanted [start, end) with 0 <= start < end <= 25"),
        ({**TREATS, "tail": [-1, 4]}, "tail is [-1, 4]"),
        ({**TREATS, "head": [7, 7]}, "head is [7, 7]"),
        ({**TREATS, "head": [7, 8]}, "head is [7, 8]; wanted [start, end)"),
        ({**TREATS, "head": [0, True]}, "head is missing or not two whole numbers"),
        ({key: value for key, value in TREATS.items() if key != "head"}, "head is missing"),
        ({**TREATS, "head": [14, 20]}, "head and tail overlap"),
        ({key: value for key, value in TREATS.items() if key != "label"}, "'label' is of type NoneType; wanted a string"),
        ({**TREATS, "label": "causes"}, "has a type or label that train lacks"),
        ({**TREATS, "text": " "}, "text or label is empty"),
        ('{"text": "Aspirin', "is no JSON object; wanted one a line, with text, head, tail and label"),
        ("[1, 2]", "is no JSON object; wanted one a line, with text, head, tail and label"),
        ("[" * 100_000, "is no JSON object; wanted one a line, with text, head, tail and label"),
        ({**TREATS, "text": "Aspirin \ud83d his headache."}, "'text' holds half a character"),
        ({**TREATS, "label": "treats \udc00"}, "'label' holds half a character"),
    ],
)
def test_a_wrong_line_is_told_with_file_and_line_and_without_its_text(tmp_path: Path, row: Any, told: str) -> None:
    with pytest.raises(CorpusError) as error:
        read_pairs(folder(tmp_path, test=[NONE, row]))
    assert f"{tmp_path / 'test.jsonl'}, line 2: " in str(error.value)
    assert told in str(error.value)
    assert "Aspirin" not in str(error.value)
    assert "headache" not in str(error.value)


def test_a_tail_is_in_all_lines_or_in_none(tmp_path: Path) -> None:
    row = {key: value for key, value in TREATS.items() if key != "tail"}
    with pytest.raises(CorpusError, match="some lines have a tail and some have none; wanted one in all"):
        read_pairs(folder(tmp_path, test=[NONE, row]))


def test_one_label_alone_is_nothing_to_learn(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="has nothing to learn; wanted an entity at least, or two labels"):
        read_pairs(folder(tmp_path, train=[TREATS, TREATS]))
