"""Write pairs to a file of any form that can be read again, whole or not at all.

Sides are written without their outer white space. In TSV a TAB inside a sentence becomes a space, since it would separate columns.
"""

import gzip
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TextIO, get_args
from xml.sax.saxutils import escape

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.clean import stripped
from fedlingua.corpora.read import Pair, side_paths
from fedlingua.desk.corpora.prepared import without_tabs
from fedlingua.desk.paths import check_absent

Form = Literal["tsv", "moses", "jsonl", "parquet", "tmx", "translations"]
FORMS: tuple[Form, ...] = get_args(Form)[:-1]
"""Forms of pairs; `translations` has only their targets, one a line."""
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ROWS = 10_000


@dataclass(frozen=True)
class Target:
    """A file to write. path: for moses the stem of both files; gzipped if it ends in .gz, except for Parquet."""

    form: Form
    path: Path
    direction: Direction

    @property
    def paths(self) -> list[Path]:
        return [*side_paths(self.path, self.direction)] if self.form == "moses" else [self.path]


Writer = Callable[[Iterable[Pair], Target, list[Path]], None]
"""A function that writes pairs into the files of a target, each under a temporary name beside its place."""


def target_of(path: Path, form: Form | None, direction: Direction) -> Target:
    """Return the target for a path, its form given or by the ending; raise ConfigError for an unknown form, or a file that exists."""
    ending = path.name.removesuffix(".gz").rpartition(".")[2]
    chosen = form or next((known for known in FORMS if known == ending), None)
    if chosen is None:
        raise ConfigError(f"{path}: its ending names no format; wanted .tsv, .jsonl, .tmx (also .gz) or .parquet, or --as moses")
    target = Target(chosen, path, direction)
    for path_of_target in target.paths:
        check_absent(path_of_target, "name")
    return target


def write_pairs(pairs: Iterable[Pair], target: Target, check: Callable[[], None] = lambda: None) -> int:
    """Write all pairs to temporary files, rename these, and return the number of pairs. check: may raise an error before the renaming.

    Raises:
        CorpusError: a character that TMX cannot hold, or any error of reading the pairs; then no file is written.
    """
    target.path.parent.mkdir(parents=True, exist_ok=True)
    asides = [path.with_name(f".{path.name}.{os.getpid()}") for path in target.paths]
    number = 0

    def counted() -> Iterator[Pair]:
        nonlocal number
        for pair in pairs:
            number += 1
            yield pair if target.form == "translations" else stripped(pair)

    try:
        _WRITERS[target.form](counted(), target, asides)
        check()
        for aside, path in zip(asides, target.paths, strict=True):
            os.replace(aside, path)
    finally:
        for aside in asides:
            aside.unlink(missing_ok=True)
    return number


@contextmanager
def text_file(aside: Path, path: Path) -> Iterator[TextIO]:
    """Open a stream of UTF-8 text into `aside`, which will be renamed to `path`. Line ends are "\\n" on any system; gzip stores no name and
    time, so that the same text gives the same bytes.
    """
    with ExitStack() as stack:
        raw: Any = stack.enter_context(aside.open("wb"))
        if path.suffix == ".gz":
            raw = stack.enter_context(gzip.GzipFile("", "wb", fileobj=raw, mtime=0))
        yield stack.enter_context(TextIOWrapper(raw, encoding="utf-8", newline=""))


def _lines(*lines_of: Callable[[Pair, Direction], str]) -> Writer:
    """Return a writer of a line for each pair, in each of the target's files."""

    def write(pairs: Iterable[Pair], target: Target, asides: list[Path]) -> None:
        with ExitStack() as stack:
            streams = [stack.enter_context(text_file(*place)) for place in zip(asides, target.paths, strict=True)]
            for pair in pairs:
                for stream, line_of in zip(streams, lines_of, strict=True):
                    stream.write(f"{line_of(pair, target.direction)}\n")

    return write


def _write_parquet(pairs: Iterable[Pair], target: Target, asides: list[Path]) -> None:
    import pyarrow as pa  # takes a second to load
    from pyarrow import parquet

    codes, rest = target.direction.sides, iter(pairs)
    schema = pa.schema([(code, pa.string()) for code in codes])
    with parquet.ParquetWriter(asides[0], schema) as writer:
        while rows := list(islice(rest, _ROWS)):
            columns = zip(codes, zip(*rows, strict=True), strict=True)
            writer.write_table(pa.table({code: list(column) for code, column in columns}, schema))


def _write_tmx(pairs: Iterable[Pair], target: Target, asides: list[Path]) -> None:
    codes = target.direction.sides
    with text_file(asides[0], target.path) as stream:
        stream.write('<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n<header creationtool="fedlingua" ')
        stream.write('creationtoolversion="1" segtype="sentence" o-tmf="fedlingua" adminlang="en" datatype="plaintext" ')
        stream.write(f'srclang="{codes[0]}"/>\n<body>\n')
        for number, pair in enumerate(pairs, start=1):
            segments = "".join(
                f'<tuv xml:lang="{code}"><seg>{_segment(side, number)}</seg></tuv>'
                for code, side in zip(codes, pair, strict=True)
            )
            stream.write(f"<tu>{segments}</tu>\n")
        stream.write("</body>\n</tmx>\n")


def not_in_xml(side: str) -> str:
    """Return the first character that XML cannot hold, written as U+0001; empty if there is none."""
    odd = _NOT_IN_XML.search(side)
    return f"U+{ord(odd[0]):04X}" if odd else ""


def _segment(side: str, number: int) -> str:
    if odd := not_in_xml(side):
        raise CorpusError(
            f"pair {number} has the character {odd}, which XML cannot hold; drop such pairs with "
            "--set drop-control-characters=true, or choose another format"
        )
    return escape(side, {"\r": "&#13;"})


_WRITERS: dict[Form, Writer] = {
    "tsv": _lines(lambda pair, direction: "\t".join(without_tabs(pair))),
    "moses": _lines(lambda pair, direction: pair.source, lambda pair, direction: pair.target),
    "jsonl": _lines(lambda pair, of: json.dumps({of.source: pair.source, of.target: pair.target}, ensure_ascii=False)),
    "parquet": _write_parquet,
    "tmx": _write_tmx,
    "translations": _lines(lambda pair, direction: pair.target),
}
