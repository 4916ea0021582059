"""Corpora that hypothesis makes up, in every form that can be read, whole or damaged, and what has to hold of each.

A file that is whole gives exactly its pairs. Of any file, a damaged one too, either every pair is kept or dropped, or one CorpusError names
the file. Used by `benchmarks/readers.py`, on thousands of files, and by the tests, on a few.
"""

import gzip
import json
import struct
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Literal
from xml.sax.saxutils import escape

import pyarrow as pa
from hypothesis import strategies as st
from pyarrow import parquet

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction, parse_direction
from fedlingua.corpora.clean import Account, CleaningRules, clean
from fedlingua.corpora.formats import corpus_of
from fedlingua.corpora.read import Pair, on_one_line

MARKS = "\u2028\u2029\x85\x0b\x0c\x1c\x1e\r\0\x7f\ufeff\u200b\xa0\xad"
"""What some reader somewhere takes for a line end or for nothing, and the characters that formats hold to be their own."""
FORMATS_OWN = "\t\n<>&;\"'{}[]\\,"
DIRECTIONS = ("de-en", "ru-en", "zh-th")
_LETTERS = "aä1 яЖ字กא\U0001f431\u0301"

Damage = Literal["none", "cut", "bytes", "utf-16", "crlf"]


@dataclass(frozen=True)
class Generated:
    """One corpus and what is done to its files. at: where, as a share of the file; junk: what is put there, over as many bytes."""

    kind: str
    direction: Direction
    pairs: tuple[Pair, ...]
    packed: bool
    damage: Damage
    at: float
    junk: bytes
    rules: CleaningRules


def generated(kind: str) -> st.SearchStrategy[Generated]:
    """Corpora of one kind: a few pairs each, with every sort of character, half of them damaged."""
    characters = _LETTERS + MARKS + (FORMATS_OWN if kind in RECORDS else FORMATS_OWN.replace("\n", ""))
    if kind == "tsv":
        characters = characters.replace("\t", "")
    if kind == "tmx":
        characters = "".join(c for c in characters if c in "\t\n" or c >= " ") + "\r"
    if kind == "po":
        characters = characters.replace("\0", "")
    side = st.one_of(
        st.just(""),
        st.text(st.sampled_from(characters), max_size=12),
        st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), max_size=12),
    )
    return st.builds(
        Generated,
        kind=st.just(kind),
        direction=st.sampled_from(DIRECTIONS).map(parse_direction),
        pairs=st.lists(st.builds(Pair, side, side), max_size=6).map(_numbered),
        packed=st.booleans(),
        damage=st.one_of(st.just("none"), st.sampled_from(["cut", "bytes", "utf-16", "crlf"])),
        at=st.floats(0, 1),
        junk=st.binary(min_size=1, max_size=4),
        rules=st.builds(
            CleaningRules,
            min_words=st.integers(0, 3),
            max_words=st.integers(0, 5),
            max_ratio=st.sampled_from([0.0, 1.5, 6.0]),
            drop_duplicates=st.booleans(),
            drop_control_characters=st.booleans(),
            drop_identical=st.booleans(),
            min_script_share=st.sampled_from([0.0, 0.25, 1.0]),
            normalize=st.sampled_from(["off", "NFC", "NFKC"]),
        ),
    )


RECORDS = ("jsonl", "parquet", "dataset", "tmx", "po")
"""Kinds whose sentences may hold a line break."""


def _numbered(pairs: list[Pair]) -> tuple[Pair, ...]:
    """Both sides of a pair begin with its number, where there is a side, so that a shifted pair shows."""
    return tuple(Pair(*(f"{number} {side}" if side else "" for side in pair)) for number, pair in enumerate(pairs))


def holds(case: Generated) -> Literal["read", "refused"]:
    """Write a corpus, read and clean it, and check all that has to hold.

    Raises:
        AssertionError: what does not hold. Any other exception is one that nobody caught.
    """
    with tempfile.TemporaryDirectory(prefix="fedlingua-generated-") as folder:
        files = corpus_of(write(case, Path(folder)), case.direction, "generated", Path(folder))
        pairs, refusal = _tried(files.read())
    is_whole = case.damage in ("none", "crlf")
    if refusal:
        assert folder in refusal or refusal.startswith("dataset data"), refusal
        assert not is_whole or _may_be_refused(case), (case, refusal)
        return "refused"
    if is_whole:
        assert pairs == expected(case), (case, pairs)
    if case.damage == "cut":
        assert all(a.split(" ")[0] == b.split(" ")[0] for a, b in pairs if a and b), (case, pairs)
    account = Account()
    kept, refusal = _tried(clean(pairs, case.direction, case.rules, account, "generated"))
    if refusal:
        assert "the two sides are swapped" in refusal, refusal
        return "refused"
    assert account.read == len(pairs) == account.kept + sum(account.dropped.values()), account
    assert account.kept == len(kept)
    assert all(pair.source and pair.target for pair in kept)
    return "read"


def _tried(pairs: Iterable[Pair]) -> tuple[list[Pair], str]:
    """All pairs, or what the one error that is allowed says."""
    try:
        return list(pairs), ""
    except CorpusError as error:
        return [], str(error)


def expected(case: Generated) -> list[Pair]:
    """The pairs as a whole file gives them: in a record a line break is a space, at the end of a line a carriage return belongs to it.

    At either end of a unit of TMX a line break is nothing, and a catalogue has no pair without both sides.
    """
    if case.kind == "tmx":
        return [Pair(*(on_one_line(side.strip("\n")) for side in pair)) for pair in case.pairs]
    if case.kind == "po":
        return [Pair(*map(on_one_line, pair)) for pair in case.pairs if all(pair)]
    if case.kind in RECORDS:
        return [Pair(*map(on_one_line, pair)) for pair in case.pairs]
    if case.damage == "crlf":
        return list(case.pairs)
    if case.kind == "tsv":
        return [Pair(pair.source, pair.target.removesuffix("\r")) for pair in case.pairs]
    return [Pair(*(side.removesuffix("\r") for side in pair)) for pair in case.pairs]


def _may_be_refused(case: Generated) -> bool:
    """Whether a whole corpus may be: it is empty, has one language alone or no translated string, its first line is mostly NUL, as that of
    UTF-16 is, or its only line holds a carriage return, as a file does whose lines end in these."""
    if not case.pairs or (case.kind == "tmx" and not all(map(any, zip(*case.pairs, strict=True)))):
        return True
    if case.kind == "po":
        return not any(map(all, case.pairs))
    first = case.pairs[0]
    lines = ["\t".join(first)] if case.kind == "tsv" else list(first)
    if case.kind in RECORDS:
        return False
    alone = len(case.pairs) == 1 and any("\r" in line.rstrip("\r") for line in lines)
    return alone or any(3 * line.count("\0") > len(line.encode()) for line in lines)


def write(case: Generated, folder: Path) -> dict[str, Any]:
    """Lay a corpus down, damaged as it says, without the code under test; returns its entry."""
    source, target = case.direction.source, case.direction.target
    end = "\r\n" if case.damage == "crlf" else "\n"
    left, right = ("".join(f"{side}{end}" for side in sides) for sides in (list(zip(*case.pairs, strict=True)) or [(), ()]))
    gz = ".gz" if case.packed and case.kind not in ("opus", "po", "parquet", "dataset") else ""

    def put(name: str, content: bytes | str, damaged: bool = True) -> None:
        encoding = "utf-16" if case.damage == "utf-16" else "utf-8"
        raw = content.encode(encoding) if isinstance(content, str) else content
        # Half of what is packed is damaged before, as text, and half after, as gzip.
        inside = gz and case.at < 0.5
        raw = _damaged(raw, case) if damaged and inside else raw
        raw = gzip.compress(raw, 1) if gz else raw
        (folder / f"{name}{gz}").write_bytes(raw if inside or not damaged else _damaged(raw, case))

    match case.kind:
        case "tsv":
            put("x.tsv", "".join(f"{pair.source}\t{pair.target}{end}" for pair in case.pairs))
            return {"tsv": f"x.tsv{gz}"}
        case "moses":
            put(f"x.{source}", left)
            # Both cut would be two shorter files, and nobody could tell.
            put(f"x.{target}", right, damaged=False)
            return {"moses": f"x{gz}"}
        case "nway":
            put(f"x.{source}.txt", left, damaged=False)
            put(f"x.{target}.txt", right)
            return {"nway": f"x.{{}}.txt{gz}"}
        case "opus":
            content = BytesIO()
            with zipfile.ZipFile(content, "w") as archive:
                archive.writestr(f"T.x.{source}", left)
                archive.writestr(f"T.x.{target}", right)
            put("x.zip", content.getvalue())
            return {"opus": "x.zip"}
        case "tmx":
            put("x.tmx", _memory(case))
            return {"tmx": f"x.tmx{gz}"}
        case "po":
            name = "x.mo" if case.packed else "x.po"
            put(name, _compiled(case) if case.packed else _catalogue(case, end))
            return {"po": name}
        case "jsonl":
            records = [{source: pair.source, target: pair.target} for pair in case.pairs]
            put("x.jsonl", "".join(json.dumps(record, ensure_ascii=case.at < 0.3) + end for record in records))
            return {"jsonl": f"x.jsonl{gz}"}
        case _:
            columns = {source: [pair.source for pair in case.pairs], target: [pair.target for pair in case.pairs]}
            content = BytesIO()
            schema = pa.schema([(code, pa.string()) for code in columns])
            parquet.write_table(pa.table(columns, schema), content)
            (folder / "data").mkdir()
            put("data/train.parquet", content.getvalue())
            return {"parquet": "data/train.parquet"} if case.kind == "parquet" else {"dataset": "data"}


def _memory(case: Generated) -> str:
    variants = (case.direction.source, f"{case.direction.target}-XX")
    units = "".join(
        "<tu>"
        + "".join(
            f'<tuv xml:lang="{code}"><seg>{escape(side, {chr(13): "&#13;"})}<ph>x</ph></seg></tuv>'
            for code, side in zip(variants, pair, strict=True)
            if side
        )
        + "</tu>\n"
        for pair in case.pairs
    )
    return f'<tmx version="1.4"><header/><body>{units}</body></tmx>'


def _catalogue(case: Generated, end: str) -> str:
    quoted = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})
    strings = [Pair("", "Content-Type: text/plain; charset=UTF-8\n"), *(pair for pair in case.pairs if pair.source)]
    return "".join(
        f'msgid "{source.translate(quoted)}"{end}msgstr "{target.translate(quoted)}"{end}{end}' for source, target in strings
    )


def _compiled(case: Generated) -> bytes:
    """A .mo: its two tables give the length and the place of each string, which ends in NUL."""
    texts = [side.encode() for sides in zip(*filter(all, case.pairs), strict=True) for side in sides]
    tables, at = b"", 28 + 8 * len(texts)
    for text in texts:
        tables += struct.pack("<2I", len(text), at)
        at += len(text) + 1
    head = struct.pack("<7I", 0x950412DE, 0, len(texts) // 2, 28, 28 + 4 * len(texts), 0, 28)
    return head + tables + b"".join(text + b"\0" for text in texts)


def _damaged(raw: bytes, case: Generated) -> bytes:
    at = int(case.at * len(raw))
    if case.damage == "cut":
        return raw[:at]
    if case.damage == "bytes":
        return raw[:at] + case.junk + raw[at + len(case.junk) :]
    return raw
