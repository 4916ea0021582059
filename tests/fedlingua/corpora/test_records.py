"""Pairs out of records: JSON lines, Parquet, datasets on disk; fields by language or by name, and each mistake with its line."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest
from pyarrow import parquet

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.formats import corpus_of
from fedlingua.corpora.read import Pair
from fedlingua.corpora.records import Dataset, JsonPairs, ParquetPairs

FIELDS = ("de", "en")
PAIRS = [Pair("ein Hund", "a dog"), Pair("", "nothing"), Pair("zwei Katzen\u2028", "two cats")]
FLAT: list[dict[str, Any]] = [{"id": n, "de": pair.source, "en": pair.target} for n, pair in enumerate(PAIRS)]
NESTED: list[dict[str, Any]] = [{"translation": {"de": pair.source, "en": pair.target, "fr": "un"}} for pair in PAIRS]
PARALLEL = datasets.Features({"translation": datasets.Translation(languages=["de", "en", "fr"])})


def json_lines(path: Path, records: Sequence[dict[str, Any]]) -> JsonPairs:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return JsonPairs(path, FIELDS)


def refusal(read: Callable[[], object]) -> str:
    with pytest.raises(CorpusError) as caught:
        read()
    return str(caught.value)


@pytest.mark.parametrize("records", [FLAT, NESTED], ids=["flat", "translation"])
def test_json_lines_and_parquet_give_the_same_pairs(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    assert list(json_lines(tmp_path / "a.jsonl", records).read()) == PAIRS
    parquet.write_table(pa.Table.from_pylist(records), tmp_path / "a.parquet")
    assert list(ParquetPairs(tmp_path / "a.parquet", FIELDS).read()) == PAIRS
    assert next(ParquetPairs(tmp_path / "a.parquet", ("en", "de")).read()) == Pair("a dog", "ein Hund")


def test_a_dataset_is_read_as_a_hub_or_the_library_leaves_it(tmp_path: Path) -> None:
    rows = datasets.Dataset.from_list(NESTED, features=PARALLEL)
    rows.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": rows, "test": rows.select([2])}).save_to_disk(tmp_path / "splits")
    (tmp_path / "files").mkdir()
    parquet.write_table(pa.Table.from_pylist(FLAT), tmp_path / "files/train.parquet")
    for name in ("one", "splits", "files"):
        assert list(Dataset(name, tmp_path / name, FIELDS).read()) == PAIRS
    assert list(Dataset("splits", tmp_path / "splits", FIELDS, split="test").read()) == PAIRS[2:]


def test_a_null_is_an_empty_side_and_a_line_break_a_space(tmp_path: Path) -> None:
    records = [{"de": None, "en": "a\r\n  b\n"}, {"de": "\n", "en": "c\rd"}]
    assert list(json_lines(tmp_path / "a.jsonl", records).read()) == [Pair("", "a b "), Pair(" ", "c\rd")]


def test_blank_lines_are_no_records(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('\n{"de": "a", "en": "b"}\n  \n')
    assert list(JsonPairs(tmp_path / "a.jsonl", FIELDS).read()) == [Pair("a", "b")]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("Meier", "line 2: is no JSON object"),
        ('["Meier"]', "line 2: is no JSON object"),
        ('{"de": "Meier"', "line 2: is no JSON object"),
        ("[" * 100_000, "line 2: is no JSON object"),
        ('{"de": "Meier"}', "line 2: has no field 'en'"),
        ('{"translation": {"de": "Meier"}}', "line 2: has no field 'en'"),
        ('{"translation": "Meier"}', "line 2: has no field 'de'"),
        ('{"de": "Meier", "en": ["x"]}', "line 2: 'en' is of type list; wanted a string"),
        ('{"de": "Meier", "en": "\\ud800"}', "line 2: 'en' holds half a character"),
    ],
)
def test_a_line_that_is_no_pair_is_told_with_its_number_and_not_quoted(tmp_path: Path, line: str, told: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"de": "a", "en": "b"}\n' + line + "\n")
    message = refusal(lambda: list(JsonPairs(tmp_path / "a.jsonl", FIELDS).read()))
    assert told in message
    assert "Meier" not in message


def test_a_parquet_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    files = ParquetPairs(path, FIELDS)
    assert "there is no such file" in refusal(lambda: list(files.read()))
    for raw in (b"", b"PAR1", b"ein Hund\ta dog\n"):
        path.write_bytes(raw)
        assert f"{path}, after row 0: cannot be read" in refusal(lambda: list(files.read()))
    parquet.write_table(pa.Table.from_pylist(FLAT), path)
    path.write_bytes(path.read_bytes()[:-30])
    assert f"{path}, after row 0: cannot be read" in refusal(lambda: list(files.read()))


def test_a_parquet_file_with_other_columns_or_none_of_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    for records, told in (
        ([{"src": "a", "tgt": "b"}], "has no columns 'de' and 'en'; got src, tgt"),
        ([{"de": 1, "en": "b"}], "row 1: 'de' is of type int; wanted a string"),
        ([{"translation": {"de": "a"}}], "row 1: has no field 'en'"),
    ):
        parquet.write_table(pa.Table.from_pylist(records), path)
        assert told in refusal(lambda: list(ParquetPairs(path, FIELDS).read()))
    parquet.write_table(pa.table({"de": pa.array([], pa.string()), "en": pa.array([], pa.string())}), path)
    assert f"{path} is empty" in refusal(lambda: list(ParquetPairs(path, FIELDS).read()))
    bad = pa.StringArray.from_buffers(1, pa.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0])), pa.py_buffer(b"\xfc"))
    parquet.write_table(pa.table({"de": bad, "en": ["x"]}), path)
    assert "holds text that is not UTF-8" in refusal(lambda: list(ParquetPairs(path, FIELDS).read()))


def test_a_dataset_that_is_not_there_or_lacks_what_is_asked_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets.DatasetDict({"train": datasets.Dataset.from_list(FLAT)}).save_to_disk(tmp_path / "splits")
    (tmp_path / "files").mkdir()
    json_lines(tmp_path / "files/train.jsonl", FLAT)
    read = lambda name, **said: list(Dataset(name, tmp_path / name, FIELDS, **said).read())  # noqa: E731
    assert "dataset splits is a folder, and cannot be loaded (KeyError: 'dev')" in refusal(lambda: read("splits", split="dev"))
    assert "Bad split: dev" in refusal(lambda: read("files", split="dev"))
    assert "there is no such folder, and the hub has no dataset of this name" in refusal(lambda: read("../a/b"))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    assert "so the hub was asked, and cannot be loaded" in refusal(lambda: read("nobody/nothing"))
    wrong = Dataset("files", tmp_path / "files", ("src", "tgt"))
    assert "dataset files, train, row 1: has no field 'src'" in refusal(lambda: list(wrong.read()))


@pytest.mark.parametrize("fields", ["de", ["de"], ["de", "de"], ["de", 1], ["", "en"], ["a", "b", "c"]])
def test_fields_that_are_not_two_names_are_refused(fields: object) -> None:
    german = {"jsonl": "a.jsonl"}
    assert corpus_of(german, Direction("de", "en"), "here", Path()) == JsonPairs(Path("a.jsonl"), FIELDS)
    named = corpus_of({**german, "fields": ["src", "tgt"]}, Direction("de", "en"), "here", Path())
    assert named == JsonPairs(Path("a.jsonl"), ("src", "tgt"))
    with pytest.raises(ConfigError, match=r"here: fields = .*; wanted two names"):
        corpus_of({**german, "fields": fields}, Direction("de", "en"), "here", Path())
