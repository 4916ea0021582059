"""Small files that become huge, and lines without end: refused in words, in memory that stays where it is."""

import gzip
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora import read
from fedlingua.corpora.read import LINE_BYTES, Notes, OpusZip, TsvFile, read_lines
from fedlingua.corpora.tmx import TmxFile

MB = 1 << 20
DE_EN = Direction("de", "en")
HEAD = b'<tmx version="1.4"><header/><body>'
UNIT = b'<tu><tuv xml:lang="de"><seg>ein Hund</seg></tuv><tuv xml:lang="en"><seg>a dog</seg></tuv></tu>'
READ = """
import resource, sys, zipfile
from pathlib import Path
from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.formats import corpus_of
kind, path = sys.argv[1], Path(sys.argv[2])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    side = "de" if kind == "documents" else "en"
    entry = {"jsonl" if kind == "documents" else kind: path.name}
    print(sum(1 for _ in corpus_of(entry, Direction("de", side), "here", path.parent).read()))
except CorpusError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def packed(path: Path, parts: Iterable[bytes], level: int = 1) -> Path:
    with gzip.open(path, "wb", compresslevel=level) as stream:
        for part in parts:
            stream.write(part)
    return path


def read_apart(kind: str, path: Path) -> tuple[str, int]:
    """What a process that read it said, and by how many MB its memory grew."""
    done = subprocess.run([sys.executable, "-c", READ, kind, str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    *said, grown = done.stdout.strip().split("\n")
    return "\n".join(said), int(grown)


def flood(first: bytes, part: bytes, megabytes: int, last: bytes = b"") -> Iterator[bytes]:
    whole = part * (MB // len(part))
    yield first
    for _ in range(megabytes):
        yield whole
    yield last


@pytest.mark.parametrize(
    ("kind", "name", "parts", "told"),
    [
        ("tsv", "one.tsv.gz", (b"a\tb\n", b"x", 200), "line 2: has more than 4,194,304 bytes"),
        ("jsonl", "one.jsonl.gz", (b'{"de": "', b"x", 200), "line 1: has more than"),
        ("documents", "one.jsonl.gz", (b'{"text": "', b"x", 200), "line 1: has more than"),
        ("tmx", "seg.tmx.gz", (HEAD + b"<tu>", b"<tuv><seg>x</seg></tuv>", 200), "has a unit of more than"),
        ("tmx", "html.tmx.gz", (b"<html>", b"<p>x</p>", 200), "or none for so long; is it TMX?"),
    ],
)
def test_what_swells_is_refused_before_it_is_held(
    tmp_path: Path, kind: str, name: str, parts: tuple[bytes, bytes, int], told: str
) -> None:
    path = packed(tmp_path / name, flood(*parts))
    assert path.stat().st_size < 3 * MB
    said, grown = read_apart(kind, path)
    assert told in said
    assert str(path) in said
    assert grown < (150 if kind == "tmx" else 60), f"{grown} MB for {path.stat().st_size / MB:.1f} MB"


def test_a_header_and_notes_outside_the_units_leave_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "notes.tmx"
    many = b"<note><b>in</b> no unit</note>\n" * 1000
    with path.open("wb") as stream:
        stream.write(b'<tmx version="1.4"><header>')
        stream.writelines(many for _ in range(400))
        stream.write(b"</header><body>" + UNIT)
        stream.writelines(many for _ in range(300))
        stream.write(b"<group>" + UNIT * 2 + b"</group>" + UNIT + b"</body></tmx>")
    assert path.stat().st_size > 20 * MB
    said, grown = read_apart("tmx", path)
    assert said == "4"
    assert grown < 25, "of a tree ten times as large as the file"


@pytest.mark.parametrize("packing", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_member_of_a_zip_that_swells_is_refused(tmp_path: Path, packing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "UNPACKED_BYTES", 1 << 16)
    with zipfile.ZipFile(tmp_path / "de-en.txt.zip", "w", packing, compresslevel=9) as archive:
        for name in ("X.de-en.de", "X.de-en.en"):
            archive.writestr(name, b"ein Hund\n" * 200_000)
    pairs = OpusZip(tmp_path / "de-en.txt.zip", DE_EN).read()
    with pytest.raises(CorpusError, match=r"X\.de-en\.de: becomes more than 200 times as large"):
        list(pairs)


def test_a_memory_that_swells_outside_its_units_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "UNPACKED_BYTES", 1 << 16)
    path = packed(tmp_path / "x.tmx.gz", [HEAD, b"<note>x</note>" * 200_000, UNIT, b"</body></tmx>"], 9)
    with pytest.raises(CorpusError, match="becomes more than 200 times as large"):
        list(TmxFile(path, DE_EN).read())
    path = packed(tmp_path / "y.tmx.gz", [HEAD, UNIT * 3, b"</body></tmx>"], 9)
    assert sum(1 for _ in TmxFile(path, DE_EN).read()) == 3


def test_a_line_at_the_bound_is_read_and_one_beyond_it_named(tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"short\n" + b"x" * (LINE_BYTES - 1) + b"\nlast\n")
    assert [len(line) for line in read_lines(file)] == [5, LINE_BYTES - 1, 4]
    file.write_bytes(b"short\n" + b"x" * LINE_BYTES + b"\nlast\n")
    with pytest.raises(CorpusError, match=r"lines\.txt, line 2: has more than 4,194,304 bytes; cut it"):
        list(read_lines(file))


def test_a_note_beyond_the_bound_is_named(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_bytes(b"x" * (LINE_BYTES + 1))
    with pytest.raises(CorpusError, match=r"one\.txt: has more than 4,194,304 bytes"):
        list(Notes(tmp_path).read())


def test_honest_text_is_read_however_much_it_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound grows with the file: beyond its floor, too, what becomes twenty times as large is read."""
    monkeypatch.setattr(read, "UNPACKED_BYTES", 1 << 16)
    lines = [f"der {number} Hund\tthe {number} dog" for number in range(20_000)]
    path = tmp_path / "many.tsv.gz"
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    assert sum(1 for _ in TsvFile(path).read()) == len(lines)
    path.write_bytes(gzip.compress(b"same\tagain\n" * 100_000))
    with pytest.raises(CorpusError, match=r"becomes more than 200 times as large"):
        list(TsvFile(path).read())
