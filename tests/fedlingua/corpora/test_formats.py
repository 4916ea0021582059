"""One entry, one stream of pairs, whatever the corpus's form."""

import json
import re
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.formats import FILE_FORMATS, corpus_of
from fedlingua.corpora.po import PoFile
from fedlingua.corpora.read import LineFiles, OpusZip, Pair, PairDocuments, TsvFile
from fedlingua.corpora.records import Dataset, JsonPairs, ParquetPairs
from fedlingua.corpora.tmx import TmxFile

ZH_EN = Direction("zh", "en")
PAIRS = [Pair("你好 世界", "hello world"), Pair("再见", "good bye")]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The same pairs in every form."""
    source, target = ("".join(f"{side}\n" for side in sides) for sides in zip(*PAIRS, strict=True))
    (tmp_path / "x.tsv").write_text("".join(f"{b}\t{a}\n" for a, b in PAIRS), "utf-8")
    (tmp_path / "x.csv").write_text("".join(f"{b},{a}\n" for a, b in PAIRS), "utf-8")
    for name, code in (("x.zh", "zh"), ("dev.zh.txt", "zh"), ("x.en", "en"), ("dev.en.txt", "en")):
        (tmp_path / name).write_text(source if code == "zh" else target, "utf-8")
    with zipfile.ZipFile(tmp_path / "en-zh_cn.txt.zip", "w") as archive:
        for name, text in (("README", "x"), ("T.en-zh_cn.zh_cn", source), ("T.en-zh_cn.en", target), ("T.xml", "<x/>")):
            archive.writestr(name, text)
    units = "".join(
        f'<tu><tuv xml:lang="en-US"><seg>{b}</seg></tuv><tuv xml:lang="zh-CN"><seg>{a}</seg></tuv></tu>' for a, b in PAIRS
    )
    (tmp_path / "x.tmx").write_text(f"<tmx><body>{units}</body></tmx>", "utf-8")
    (tmp_path / "x.po").write_text("".join(f'msgid "{a}"\nmsgstr "{b}"\n\n' for a, b in PAIRS), "utf-8")
    records = [{"zh": a, "english": b, "en": b} for a, b in PAIRS]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "hub").mkdir()
    for path in (tmp_path / "x.parquet", tmp_path / "hub/test.parquet"):
        parquet.write_table(pa.Table.from_pylist(records), path)
    return tmp_path


ENTRIES: list[tuple[dict[str, Any], type]] = [
    ({"tsv": "x.tsv", "columns": [1, 0]}, TsvFile),
    ({"csv": "x.csv", "columns": [1, 0]}, TsvFile),
    ({"moses": "x"}, LineFiles),
    ({"nway": "dev.{}.txt"}, LineFiles),
    ({"opus": "en-zh_cn.txt.zip"}, OpusZip),
    ({"tmx": "x.tmx"}, TmxFile),
    ({"po": "x.po"}, PoFile),
    ({"jsonl": "x.jsonl"}, JsonPairs),
    ({"jsonl": "x.jsonl", "fields": ["zh", "english"]}, JsonPairs),
    ({"parquet": "x.parquet"}, ParquetPairs),
    ({"dataset": "hub", "split": "test"}, Dataset),
]


@pytest.mark.parametrize(("entry", "kind"), ENTRIES, ids=[next(iter(entry)) for entry, _ in ENTRIES])
def test_every_form_gives_the_same_pairs(data: Path, entry: dict[str, Any], kind: type) -> None:
    files = corpus_of(entry, ZH_EN, "here", data)
    assert type(files) is kind
    assert all(path.is_file() for path in files.paths())
    assert list(files.read()) == PAIRS


@pytest.mark.parametrize("entry", [{"nway": "n.{}"}, {"tsv": "n.tsv"}])
def test_shares_of_lines_are_each_line_once(tmp_path: Path, entry: dict[str, str]) -> None:
    for code in ("zh", "en"):
        (tmp_path / f"n.{code}").write_text("".join(f"{code}{line}\n" for line in range(1, 9)), "utf-8")
    (tmp_path / "n.tsv").write_text("".join(f"zh{line}\ten{line}\n" for line in range(1, 9)), "utf-8")
    shares = [corpus_of(entry | {"share": f"{part}/3"}, ZH_EN, "here", tmp_path) for part in (1, 2, 3)]
    numbers = [[1, 4, 7], [2, 5, 8], [3, 6]]
    assert [list(share.read()) for share in shares] == [[Pair(f"zh{n}", f"en{n}") for n in part] for part in numbers]


def test_a_file_names_the_documents_of_any_form_and_of_a_share(data: Path) -> None:
    (data / "x.docs").write_text("".join(f"chapter {number // 2}\n" for number in range(len(PAIRS))))
    for entry, _ in ENTRIES:
        corpus = corpus_of({**entry, "documents": "x.docs"}, ZH_EN, "here", data)
        assert isinstance(corpus, PairDocuments)
        assert list(corpus.read()) == PAIRS
        assert list(corpus.names()) == [f"chapter {number // 2}" for number in range(len(PAIRS))]
        assert corpus.paths()[-1] == data / "x.docs"
    share = corpus_of({"nway": "dev.{}.txt", "share": "2/2", "documents": "x.docs"}, ZH_EN, "here", data)
    assert isinstance(share, PairDocuments)
    assert list(zip(share.read(), share.names(), strict=True)) == [
        (pair, f"chapter {number // 2}") for number, pair in enumerate(PAIRS) if number % 2
    ]


def test_a_line_that_names_no_document_is_refused(data: Path) -> None:
    (data / "x.docs").write_text("one\n \n")
    corpus = corpus_of({"tsv": "x.tsv", "documents": "x.docs"}, ZH_EN, "here", data)
    assert isinstance(corpus, PairDocuments)
    with pytest.raises(
        ConfigError, match="here: documents = 3; wanted a file that has the name of a pair's document in each line"
    ):
        corpus_of({"tsv": "x.tsv", "documents": 3}, ZH_EN, "here", data)
    with pytest.raises(ConfigError, match=r"documents = 'x\.docs' goes with tsv, .*, but this is splits"):
        corpus_of({"splits": "x.{}.tsv", "documents": "x.docs"}, ZH_EN, "here", data)
    with pytest.raises(CorpusError, match=r"x\.docs, line 2: is empty; wanted the name of the document of pair 2"):
        list(corpus.names())


def test_a_share_whose_files_are_not_of_one_length_is_refused(tmp_path: Path) -> None:
    (tmp_path / "n.zh").write_text("a\nb\nc\n")
    (tmp_path / "n.en").write_text("a\nb\n")
    with pytest.raises(CorpusError, match=r"n\.en ends after line 2, but .*n\.zh has 3 lines"):
        list(corpus_of({"nway": "n.{}", "share": "1/3"}, ZH_EN, "here", tmp_path).read())


def test_every_kind_is_looked_at() -> None:
    assert {next(iter(entry)) for entry, _ in ENTRIES} == set(FILE_FORMATS)


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({}, "here: got no corpus; wanted one of tsv, csv, moses, nway, opus, tmx, po, jsonl, parquet or dataset"),
        ({"tmx": "a", "jsonl": "b"}, "here: got jsonl and tmx; wanted one of"),
        ({"tsv": "a", "columns": [1, 1]}, "columns = [1, 1]; wanted two column numbers counted from 0 that differ"),
        ({"tmx": "a", "columns": [0, 1]}, "columns = [0, 1] goes with tsv, csv, but this is tmx; leave it out"),
        ({"parquet": "a", "split": "test"}, "split = 'test' goes with dataset, but this is parquet"),
        ({"tsv": "a", "fields": ["a", "b"]}, "fields = ['a', 'b'] goes with jsonl, parquet, dataset, but this is tsv"),
        ({"nway": "a.txt"}, "nway = 'a.txt' has no place for the language"),
        ({"nway": "a.{}", "share": "9/8"}, "share = '9/8'; wanted a part of all lines, from '1/7' to '7/7' for seven sites"),
        ({"moses": "a", "share": "1/8"}, "share = '1/8' goes with tsv, csv, nway, but this is moses"),
    ],
)
def test_an_entry_that_says_too_little_or_too_much_is_refused(entry: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        corpus_of(entry, ZH_EN, "here", Path(), FILE_FORMATS)
    assert told in str(caught.value)


def test_a_hubs_dataset_has_no_file_here(tmp_path: Path) -> None:
    assert corpus_of({"dataset": "opus_books", "subset": "en-zh"}, ZH_EN, "here", tmp_path).paths() == []


@pytest.mark.parametrize(("members", "told"), [(1_800, "got 0 files whose names end in .zh"), (20_000, "wanted at most 1000000")])
def test_a_zip_of_empty_members_takes_little_memory(tmp_path: Path, members: int, told: str) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for number in range(members):
            archive.writestr(f"{number:05}", "")
    tracemalloc.start()
    with pytest.raises(CorpusError, match=re.escape(told)):
        next(OpusZip(tmp_path / "x.zip", ZH_EN).read())
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()


def test_a_zip_has_a_file_for_each_script_of_chinese(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name, line in {"T.zh_cn": "国", "T.zh_tw": "國", "T.en": "country"}.items():
            archive.writestr(name, f"{line}\n")
    for language, line in (("zh-Hant", "國"), ("zh-Hans", "国")):
        assert list(OpusZip(tmp_path / "x.zip", Direction(language, "en")).read()) == [Pair(line, "country")]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["T.en"], "got 0 files whose names end in .zh (T.en); wanted one"),
        (["T.zh_old", "T.en"], "got 0 files whose names end in .zh (T.zh_old, T.en); wanted one"),
        (["T.zh_cn", "T.zh_tw", "T.en"], "got 2 files whose names end in .zh (T.zh_cn, T.zh_tw); wanted one"),
    ],
)
def test_a_zip_without_one_file_a_language_is_refused(tmp_path: Path, names: list[str], told: str) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name in names:
            archive.writestr(name, "a\n")
    with pytest.raises(CorpusError) as caught:
        list(OpusZip(tmp_path / "x.zip", ZH_EN).read())
    assert told in str(caught.value)
    with pytest.raises(CorpusError, match="there is no such file"):
        list(OpusZip(tmp_path / "y.zip", ZH_EN).read())
