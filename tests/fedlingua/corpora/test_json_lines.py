"""A JSON object a line: with its place, without a word of a line that is none."""

from pathlib import Path

import pytest

from fedlingua.common.errors import CorpusError
from fedlingua.corpora.read import check_text, has_half_character, read_objects


def test_objects_come_with_their_lines_and_blank_lines_count(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"a": 1}\n\n  \n{"a": 2}\n')
    assert list(read_objects(file, "a")) == [(f"{file}, line 1", {"a": 1}), (f"{file}, line 4", {"a": 2})]


@pytest.mark.parametrize("line", ['{"secret": ', '["secret"]', '"secret"', "[" * 100_000], ids=["cut", "list", "text", "deep"])
def test_a_line_that_is_no_object_is_told_and_not_quoted(tmp_path: Path, line: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"a": 1}\n' + line + "\n")
    with pytest.raises(CorpusError) as caught:
        list(read_objects(file, "a number in a"))
    assert str(caught.value) == f"{file}, line 2: is no JSON object; wanted one a line, with a number in a"
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_field_has_to_be_text_that_a_file_can_hold() -> None:
    assert check_text("é\U0001f600", "a", "x") == "é\U0001f600"
    for value, told in ((3, "x: 'a' is of type int; wanted a string"), ("\ud83d", "x: 'a' holds half a character")):
        with pytest.raises(CorpusError, match=told):
            check_text(value, "a", "x")
    assert [has_half_character(text) for text in ("", "a", "a\udc00")] == [False, False, True]
