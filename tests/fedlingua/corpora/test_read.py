"""Parallel text as it lies in files: every layout, every line end, every fault with its file and line."""

import csv
import gzip
import zipfile
from io import StringIO
from pathlib import Path
from typing import Literal

import pytest

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import LineFiles, OpusZip, Pair, TsvFile, damaged, on_one_line, read_lines, side_paths, spelled

PAIRS = [Pair("ein Hund", "a dog"), Pair("", "nothing"), Pair("zwei Katzen", "two cats")]


def write(path: Path, content: str | bytes) -> Path:
    """A file with this content, gzipped when its name says so."""
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


@pytest.fixture(params=["", ".gz"], ids=["plain", "gz"])
def suffix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_tsv_gives_its_pairs_in_file_order_with_empty_sides(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"de-en.tsv{suffix}", "".join(f"{a}\t{b}\n" for a, b in PAIRS))
    assert list(TsvFile(path).read()) == PAIRS


def test_a_tsv_can_be_read_from_any_two_columns(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"all.tsv{suffix}", "1\thello\tbonjour\textra\n2\tyes\toui\t\n")
    assert list(TsvFile(path, source_column=2, target_column=1).read()) == [Pair("bonjour", "hello"), Pair("oui", "yes")]


def test_a_moses_pair_is_aligned_by_line(tmp_path: Path, suffix: str) -> None:
    source = write(tmp_path / f"corpus.de{suffix}", "".join(f"{pair.source}\n" for pair in PAIRS))
    target = write(tmp_path / f"corpus.en{suffix}", "".join(f"{pair.target}\n" for pair in PAIRS))
    assert list(LineFiles(source, target).read()) == PAIRS


def test_any_two_languages_of_an_n_way_corpus_are_aligned(tmp_path: Path, suffix: str) -> None:
    files = {code: write(tmp_path / f"dev.{code}.txt{suffix}", f"{code} 1\n{code} 2\n") for code in ("de", "en", "fr")}
    assert list(LineFiles(files["fr"], files["de"]).read()) == [Pair("fr 1", "de 1"), Pair("fr 2", "de 2")]


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_only_a_newline_ends_a_line(tmp_path: Path, suffix: str, mark: str) -> None:
    source = write(tmp_path / f"corpus.de{suffix}", f"ein{mark}Hund\nzwei\n")
    target = write(tmp_path / f"corpus.en{suffix}", "a dog\ntwo\n")
    table = write(tmp_path / f"de-en.tsv{suffix}", f"ein{mark}Hund\ta dog\nzwei\ttwo\n")
    expected = [Pair(f"ein{mark}Hund", "a dog"), Pair("zwei", "two")]
    assert list(LineFiles(source, target).read()) == expected
    assert list(TsvFile(table).read()) == expected


def test_a_carriage_return_before_the_newline_is_dropped_and_the_last_newline_may_be_missing(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"lines.txt{suffix}", "one\r\ntwo\n\nfour")
    assert list(read_lines(path)) == ["one", "two", "", "four"]


@pytest.mark.parametrize("longer", ["source", "target"])
def test_files_of_unequal_length_are_refused_with_both_names_and_lengths(tmp_path: Path, suffix: str, longer: str) -> None:
    short = write(tmp_path / f"short{suffix}", "1\n2\n")
    long = write(tmp_path / f"long{suffix}", "1\n2\n3\n4\n5\n")
    files = LineFiles(long, short) if longer == "source" else LineFiles(short, long)
    with pytest.raises(CorpusError) as caught:
        list(files.read())
    assert f"{short} ends after line 2, but {long} has 5 lines" in str(caught.value)


def test_one_line_more_is_also_unequal(tmp_path: Path) -> None:
    short, long = write(tmp_path / "short", "1\n"), write(tmp_path / "long", "1\n2\n")
    with pytest.raises(CorpusError, match=r"ends after line 1, but .* has 2 lines"):
        list(LineFiles(short, long).read())


def test_bad_utf_8_is_named_with_file_line_and_byte(tmp_path: Path, suffix: str) -> None:
    bad = write(tmp_path / f"corpus.de{suffix}", b"eins\nzwei\ndr\xfcben\nvier\n")
    good = write(tmp_path / f"corpus.en{suffix}", "1\n2\n3\n4\n")
    table = write(tmp_path / f"de-en.tsv{suffix}", b"eins\t1\nzwei\t2\ndr\xfcben\t3\n")
    for files, path in ((LineFiles(bad, good), bad), (LineFiles(good, bad), bad), (TsvFile(table), table)):
        with pytest.raises(CorpusError) as caught:
            list(files.read())
        assert f"{path}, line 3: byte 3 of the line is not UTF-8" in str(caught.value)


def test_too_few_columns_are_named_with_file_and_line(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"de-en.tsv{suffix}", "eins\tone\nzwei\ndrei\tthree\n")
    with pytest.raises(CorpusError) as caught:
        list(TsvFile(path).read())
    assert f"{path}, line 2: got 1 column(s), wanted 2" in str(caught.value)


@pytest.mark.parametrize("columns", [(0, 2), (2, 0)])
def test_the_larger_column_number_says_how_many_columns_are_wanted(tmp_path: Path, columns: tuple[int, int]) -> None:
    path = write(tmp_path / "de-en.tsv", "eins\tone\n")
    with pytest.raises(CorpusError, match=r"line 1: got 2 column\(s\), wanted 3"):
        list(TsvFile(path, *columns).read())


def test_a_missing_file_is_named(tmp_path: Path, suffix: str) -> None:
    there, missing = write(tmp_path / "corpus.de", "eins\n"), tmp_path / f"corpus.en{suffix}"
    for files in (TsvFile(missing), LineFiles(missing, there), LineFiles(there, missing)):
        with pytest.raises(CorpusError) as caught:
            list(files.read())
        assert f"{missing}: there is no such file" in str(caught.value)


def test_a_folder_is_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="there is no such file"):
        list(read_lines(tmp_path))


def test_an_empty_file_is_named(tmp_path: Path, suffix: str) -> None:
    there, empty = write(tmp_path / "corpus.de", "eins\n"), write(tmp_path / f"corpus.en{suffix}", "")
    for files in (TsvFile(empty), LineFiles(empty, there), LineFiles(there, empty)):
        with pytest.raises(CorpusError) as caught:
            list(files.read())
        assert f"{empty} is empty" in str(caught.value)


@pytest.mark.parametrize(
    "raw",
    [
        b"eins\tone\n",  # no gzip at all
        gzip.compress(b"eins\tone\n")[:-4],  # cut short
        gzip.compress(b"eins\tone\n")[:-8] + b"\0" * 8,  # wrong checksum
        gzip.compress(b"")[:10] + b"\x07" * 20,  # no block of this type exists
    ],
    ids=["plain", "cut", "checksum", "block"],
)
def test_a_file_that_is_no_whole_gzip_is_named(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "de-en.tsv.gz"
    path.write_bytes(raw)
    with pytest.raises(CorpusError) as caught:
        list(TsvFile(path).read())
    assert str(path) in str(caught.value)
    assert "is it a whole gzip file?" in str(caught.value)
    assert "b'" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("name", ["de-en.tsv", "de-en.tsv.gz"])
def test_a_file_without_read_permission_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def shut(file: Path, *arguments: object) -> None:
        raise PermissionError(13, "Permission denied", str(file))

    path = write(tmp_path / name, "eins\tone\n")
    monkeypatch.setattr(Path, "open", shut)  # root may read everything
    with pytest.raises(CorpusError) as caught:
        list(TsvFile(path).read())
    assert str(caught.value) == f"{path}: cannot be read (Permission denied); check its permissions"


def test_a_plain_file_that_breaks_off_is_not_asked_whether_it_is_a_whole_gzip() -> None:
    told = damaged(Path("x.tsv"), "line 3", OSError(5, "Input/output error"))
    assert told == "x.tsv, after line 3: cannot be read (Input/output error); check the file and its disk"


def test_gzip_data_without_the_ending_is_told_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "de-en.tsv"
    path.write_bytes(gzip.compress(b"eins\tone\n"))
    with pytest.raises(CorpusError) as caught:
        list(TsvFile(path).read())
    assert str(caught.value).startswith(f"{path}, line 1: this is gzip data; unpack it, or,")
    assert str(caught.value).endswith("give it a name that ends in .gz")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
def test_utf_16_and_utf_32_are_told_by_their_names(tmp_path: Path, suffix: str, encoding: str) -> None:
    path = write(tmp_path / f"de-en.tsv{suffix}", "ein Hund\ta dog\n".encode(encoding))
    with pytest.raises(CorpusError) as caught:
        list(TsvFile(path).read())
    assert f"{path}, line 1: this is {encoding[:6].upper()}; convert the file to UTF-8" in str(caught.value)


def test_a_mark_of_utf_8_is_no_part_of_the_first_line(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"lines.txt{suffix}", "\ufeffone\n\ufefftwo\n")
    assert list(read_lines(path)) == ["one", "\ufefftwo"]


def test_a_nul_inside_a_line_stays_in_it(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"de-en.tsv{suffix}", "ein Hu\0nd\ta dog\nzwei\ttwo\n")
    assert list(TsvFile(path).read()) == [Pair("ein Hu\0nd", "a dog"), Pair("zwei", "two")]


@pytest.mark.parametrize("last", ["\r", "", "\n", "\r\n"])
def test_the_line_ends_of_old_macs_are_refused_rather_than_read_as_one_line(tmp_path: Path, suffix: str, last: str) -> None:
    path = write(tmp_path / f"de-en.tsv{suffix}", f"eins\tone\rzwei\ttwo{last}")
    with pytest.raises(CorpusError) as caught:
        list(TsvFile(path).read())
    assert f"{path}, line 1: the file has {1 + last.count(chr(13))} carriage returns and no line feed" in str(caught.value)
    for end in ("\r", "\r\n"):
        assert list(read_lines(write(tmp_path / f"one{suffix}", f"one line{end}"))) == ["one line"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("eins\tone\nzw\tei\ttwo\n", "line 2: got 3 columns, and line 1 has 2"),
        ("ei\tns\tone\nzwei\ttwo\n", "line 2: got 2 columns, and line 1 has 3"),
    ],
)
def test_a_tab_inside_a_sentence_is_refused_rather_than_read_as_the_next_column(tmp_path: Path, text: str, told: str) -> None:
    path = write(tmp_path / "de-en.tsv", text)
    with pytest.raises(CorpusError) as caught:
        list(TsvFile(path).read())
    assert f"{path}, {told}" in str(caught.value)


def csv_text(rows: list[tuple[str, str]], quoting: Literal[0, 1]) -> str:
    csv.writer(text := StringIO(), "excel-tab", quoting=quoting, lineterminator="\n").writerows(rows)
    return text.getvalue()


SAID = [(f'Er sagte "Ja {number}."', f'He said "Yes {number}."') for number in range(3)]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_fields_quoted_as_in_csv_are_read_without_the_quotes(tmp_path: Path, suffix: str, quoting: Literal[0, 1]) -> None:
    rows = [("eins", "one"), *SAID, ("zwei\nZeilen\tganz", "two lines"), ("", "x")]
    path = write(tmp_path / f"de-en.tsv{suffix}", csv_text(rows, quoting))
    rows[4] = ("zwei Zeilen\tganz", "two lines")
    assert list(TsvFile(path).read()) == rows


def test_fields_that_are_all_quoted_need_no_quote_inside(tmp_path: Path) -> None:
    rows = [(f"Satz {number}", f"sentence {number}") for number in range(20)]
    assert list(TsvFile(write(tmp_path / "x.tsv", csv_text(rows, csv.QUOTE_ALL))).read()) == rows


@pytest.mark.parametrize(
    "line",
    ['"Geh", sagte er.\tx', 'Er sagte "Ja".\tx', '"Geh.\tx', 'x\t5" hoch', '"a" "b"\tx'],
)
@pytest.mark.parametrize("before", [0, 2000])
def test_text_with_quotes_of_its_own_is_read_as_it_is(tmp_path: Path, line: str, before: int) -> None:
    """Also if what is no CSV comes late in the file; but a quote after the beginning of a field is what it is in CSV, too."""
    text = csv_text(SAID, csv.QUOTE_ALL) + "eins\tone\n" * before + f"{line}\n"
    path = write(tmp_path / "x.tsv", text)
    taken_off = before and not line.startswith('"')
    rows = list(TsvFile(path).read())
    assert rows[0] == (SAID[0] if taken_off else tuple(text.split("\n")[0].split("\t")))
    assert rows[-1] == tuple(line.split("\t"))


def test_some_sentences_in_quotes_keep_them(tmp_path: Path) -> None:
    rows = [('"Geh."', '"Go."'), ("Er ging.", "He went."), ('"Ja."', '"Yes."')] * 10
    assert list(TsvFile(write(tmp_path / "x.tsv", "".join(f"{a}\t{b}\n" for a, b in rows))).read()) == rows


def test_a_mistake_in_a_quoted_file_is_told_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", csv_text([*SAID, ("a\nb", "c")], csv.QUOTE_ALL) + "allein\n")
    with pytest.raises(CorpusError, match=r"x\.tsv, line 6: got 1 column\(s\), wanted 2"):
        list(TsvFile(path).read())


def test_what_systems_put_into_a_zip_is_no_part_of_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name, text in (("x/", ""), ("x/X.de", "eins\n"), ("x/X.en", "one\n"), ("x/.DS_Store", "\0\0")):
            archive.writestr(name, text)
        for name in ("__MACOSX/x/._X.de", "__MACOSX/x/._X.en", "__MACOSX/._x"):
            archive.writestr(name, b"\0\5\x16\7Mac OS X")
    assert list(OpusZip(tmp_path / "x.zip", Direction("de", "en")).read()) == [("eins", "one")]


def test_a_line_of_a_megabyte_and_a_file_of_one_pair_are_read(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"de-en.tsv{suffix}", "w" * 2**20 + "\ta dog")
    assert [tuple(map(len, pair)) for pair in TsvFile(path).read()] == [(2**20, 5)]


@pytest.mark.parametrize(
    ("sentence", "line"),
    [("a\nb", "a b"), (" a \r\n\t\n b ", " a b "), ("\n", " "), ("a\rb\u2028c", "a\rb\u2028c")],
)
def test_a_line_break_inside_a_sentence_becomes_a_space(sentence: str, line: str) -> None:
    assert on_one_line(sentence) == line


@pytest.mark.parametrize(
    ("name", "sides"),
    [("X", ("X.de", "X.fr")), ("a/X.gz", ("a/X.de.gz", "a/X.fr.gz")), ("v1.2/X.txt", ("v1.2/X.txt.de", "v1.2/X.txt.fr"))],
)
def test_a_moses_pair_is_named_after_its_languages(name: str, sides: tuple[str, str]) -> None:
    assert side_paths(Path(name), Direction("de", "fr")) == tuple(map(Path, sides))


def test_the_sides_of_a_pair_may_spell_their_languages_otherwise(tmp_path: Path) -> None:
    for name in ("x.iw", "x.zh_TW", "x.en-GB", "x.en-US", "x.old.en"):
        (tmp_path / name).write_text("a\n", encoding="utf-8")
    path = tmp_path / "x"
    assert side_paths(path, Direction("he", "zh-Hant")) == (tmp_path / "x.iw", tmp_path / "x.zh_TW")
    assert side_paths(path, Direction("en", "zh-Hans")) == (
        tmp_path / "x.en",
        tmp_path / "x.zh-Hans",
    )  # two may be meant, and none is
    (tmp_path / "x.he").write_text("b\n", encoding="utf-8")
    assert side_paths(path, Direction("he", "en-GB")) == (tmp_path / "x.he", tmp_path / "x.en-GB")
    assert spelled(tmp_path / "x.old.{}", "en") == tmp_path / "x.old.en"


def test_a_missing_side_is_not_replaced_by_one_whose_name_only_looks_like_a_tag(tmp_path: Path) -> None:
    for name in ("de_bpe", "de-old", "de.tok", "en-orig", "fra_Latn"):
        (tmp_path / f"x.{name}").write_text("a\n", encoding="utf-8")
    assert side_paths(tmp_path / "x", Direction("de", "en")) == (tmp_path / "x.de", tmp_path / "x.en")
    assert side_paths(tmp_path / "x", Direction("fr", "de"))[0] == tmp_path / "x.fra_Latn"
    with pytest.raises(CorpusError, match=r"x\.de: there is no such file"):
        list(LineFiles(*side_paths(tmp_path / "x", Direction("de", "en"))).read())


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_csv_is_read_by_the_separator_that_gives_every_row_the_same_columns(
    tmp_path: Path, suffix: str, separator: str
) -> None:
    rows = [
        ("1", "ein Hund, eine Katze", "a dog, a cat"),
        ("2", 'er sagt: "Ja; nein"', "yes"),
        ("3", "erste\nzweite", "first\tsecond"),
    ]
    csv.writer(text := StringIO(), delimiter=separator, lineterminator="\r\n").writerows(rows)
    path = write(tmp_path / f"de-en.csv{suffix}", text.getvalue())
    pairs = [Pair(rows[0][1], rows[0][2]), Pair(rows[1][1], "yes"), Pair("erste zweite", "first\tsecond")]
    assert list(TsvFile(path, 1, 2).read()) == pairs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "ein Hund,a dog\nja\n",
            "do not have the same number of columns by comma, semicolon or TAB; export it anew, with quotes",
        ),
        (
            "ein Hund,a dog\n" * 100 + "eine Katze, ein Tier,a cat\n",
            "line 101: got 3 columns, and line 1 has 2; a separator inside",
        ),
        ("ein Hund,a dog\n" * 100 + '"eine" Katze,a cat\n', "line 101: is no CSV .*; mend its quotes, or export it anew"),
    ],
)
def test_a_csv_that_cannot_be_one_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        list(TsvFile(write(tmp_path / "x.csv", text)).read())
