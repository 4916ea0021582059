"""What is written can be read again, and is there whole or not at all."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.formats import corpus_of
from fedlingua.corpora.read import Pair
from fedlingua.desk.corpora.write import FORMS, Form, target_of, write_pairs

DE_EN = Direction("de", "en")
PAIRS = [
    Pair("ein  Hund", 'a "dog" & <cat>'),
    Pair("", "nothing"),
    Pair("zwei\u2028\x85\rKatzen \U0001f431", "two ]]> cats"),
    Pair("", ""),
]
NAMES: dict[Form, tuple[str, ...]] = {
    "tsv": ("x.tsv", "x.tsv.gz"),
    "moses": ("x", "x.gz"),
    "jsonl": ("x.jsonl", "x.jsonl.gz"),
    "parquet": ("x.parquet",),
    "tmx": ("x.tmx", "x.tmx.gz"),
}


def read(form: Form, path: Path) -> list[Pair]:
    return list(corpus_of({form: str(path)}, DE_EN, "here", Path()).read())


@pytest.mark.parametrize(("form", "name"), [(form, name) for form in FORMS for name in NAMES[form]])
def test_every_form_reads_back_what_was_written(tmp_path: Path, form: Form, name: str) -> None:
    target = target_of(tmp_path / "new" / name, form, DE_EN)
    assert write_pairs(iter(PAIRS), target) == 4
    assert read(form, target.path) == PAIRS
    assert sorted((tmp_path / "new").iterdir()) == sorted(target.paths)


def test_the_form_is_told_by_the_ending(tmp_path: Path) -> None:
    for form in set(FORMS) - {"moses"}:
        for name in NAMES[form]:
            assert target_of(tmp_path / name, None, DE_EN).form == form
    assert [path.name for path in target_of(tmp_path / "c.gz", "moses", DE_EN).paths] == ["c.de.gz", "c.en.gz"]
    with pytest.raises(ConfigError, match="its ending names no format"):
        target_of(tmp_path / "x.txt", None, DE_EN)
    (tmp_path / "c.en").touch()
    with pytest.raises(ConfigError, match=r"c\.en already exists"):
        target_of(tmp_path / "c", "moses", DE_EN)


def test_sides_are_written_without_outer_white_space_and_tsv_without_tabs(tmp_path: Path) -> None:
    pairs = [Pair("  a\tb\r", "\tc \x85")]
    for form, expected in (("tsv", Pair("a b", "c")), ("moses", Pair("a\tb", "c")), ("tmx", Pair("a\tb", "c"))):
        write_pairs(pairs, target_of(tmp_path / form, form, DE_EN))  # type: ignore[arg-type]
        assert read(form, tmp_path / form) == [expected]  # type: ignore[arg-type]


def test_the_same_pairs_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.tsv.gz", "b.tsv.gz"):
        write_pairs(PAIRS, target_of(tmp_path / name, None, DE_EN))
    first = (tmp_path / "a.tsv.gz").read_bytes()
    assert first == (tmp_path / "b.tsv.gz").read_bytes()
    assert gzip.decompress(first).count(b"\n") == 4


@pytest.mark.parametrize("form", FORMS)
def test_where_reading_or_a_last_check_fails_nothing_is_left(tmp_path: Path, form: Form) -> None:
    def broken() -> Iterator[Pair]:
        yield from PAIRS * 10_000
        raise CorpusError("breaks off")

    def refuse() -> None:
        raise CorpusError("too few")

    target = target_of(tmp_path / "x", form, DE_EN)
    arguments: tuple[tuple[Any, ...], ...] = ((broken(), target), (PAIRS, target, refuse))
    for given, told in zip(arguments, ("breaks off", "too few"), strict=True):
        with pytest.raises(CorpusError, match=told):
            write_pairs(*given)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("character", ["\0", "\x0b", "\x1b", "\uffff"])
def test_a_character_that_xml_cannot_hold_is_told_with_its_pair(tmp_path: Path, character: str) -> None:
    target = target_of(tmp_path / "x.tmx", None, DE_EN)
    with pytest.raises(CorpusError, match=rf"pair 2 has the character U\+{ord(character):04X}, which XML cannot hold"):
        write_pairs([PAIRS[0], Pair("a", f"b{character}c")], target)
    assert list(tmp_path.iterdir()) == []
