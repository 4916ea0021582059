"""`fedlingua translate`: translate a file or standard input line by line, or a translation memory unit by unit."""

import os
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import IO, Annotated, TextIO

from rich.console import Console
from typer import BadParameter, Option

from fedlingua.common.errors import CorpusError, RunError
from fedlingua.common.visible import is_blank
from fedlingua.corpora.read import Pair, lines_of, read_lines
from fedlingua.corpora.tmx import tmx_sides
from fedlingua.desk.cli.completion import run_folders
from fedlingua.desk.cli.options import ModelChoice, TranslateOptions
from fedlingua.desk.cli.output import Answer, AnsweringConsole, Commands, asks_json, example, warn
from fedlingua.desk.corpora.write import FORMS, Form, Target, not_in_xml, write_pairs
from fedlingua.desk.paths import check_absent, check_file_to_write
from fedlingua.desk.translating.translator import Translator
from fedlingua.evaluation.scores import below_base

commands = Commands()
AT_ONCE, AT_ONCE_OF_A_FILE = 64, 1024
"""Most lines translated together: few from a pipe, to keep it flowing; many from a file, for full batches; one if typed."""
QUIET_S = 10.0
"""Seconds between two lines of progress."""


@commands.command(epilog=example("fedlingua translate --run runs/demo-adapter-families-2022 --site hospital-de letter.txt"))
def translate(
    how: TranslateOptions,
    whose: ModelChoice,
    run: Annotated[
        Path | None, Option("--run", help="Run folder, unless --adapter is given.", shell_complete=run_folders)
    ] = None,
    adapter: Annotated[Path | None, Option(help="Folder that `fedlingua export --form adapter` wrote.")] = None,
    backbone: Annotated[str, Option(help="With --adapter: path of the backbone, if its name does not lead to it.")] = "",
) -> Answer:
    if (run is None) == (adapter is None):
        both = "got --run and --adapter, two models; leave one out"
        raise BadParameter(both if run else "give --run with a run's folder, or --adapter with an exported one")
    if adapter is not None and whose != ModelChoice():
        raise BadParameter("an exported adapter has its own direction; leave --site and --direction out")
    if backbone and run is not None:
        raise BadParameter("--backbone goes with --adapter; a run says itself what it was trained on")
    check_text(how)
    how.check()
    if adapter is not None:
        from fedlingua.desk.export.adapter import read_adapter

        return translate_with(Translator(read_adapter(adapter), how, backbone), how, sys.stdout)
    assert run is not None
    return translate_with(Translator(whose.of(run, "translate"), how), how, sys.stdout)


def check_text(how: TranslateOptions) -> None:
    """Refuse, before a model loads, a text that does not exist, and an output file that exists or cannot be written."""
    if how.text is not None and not how.text.is_file():
        raise CorpusError(
            f"{how.text}: there is no such file; give a text with a sentence a line, or none to read standard input"
        )
    if how.to is not None:
        check_absent(how.to, "name")
        check_file_to_write(how.to, "--to")


def translate_with(translator: Translator, how: TranslateOptions, output: TextIO) -> Answer:
    """Write one line for each line, or each unit, that is read; an empty one stays empty.

    With --format json and without --to, the translations are in the answer. The model's name, progress and the summary go to standard
    error.

    Raises:
        CorpusError: the input is malformed; the file of --to is then not written.
    """
    model = translator.model
    warn(translator.answering, style="")
    for text in below_base({str(model.site): model.site_scores}):
        warn(f"warning: {text}")
    work = _Work(translator, how, AnsweringConsole(stderr=True) if how.to or not output.isatty() else None)
    started, answered = time.monotonic(), list[str]()
    if how.to is not None:
        try:
            write_pairs(chain.from_iterable(work.chunks()), Target(_form(how.to), how.to, translator.direction))
        except OSError as error:
            raise RunError(f"{how.to} cannot be written ({error.strerror}); give --to another place") from error
    elif asks_json():
        answered = [pair.target for chunk in work.chunks() for pair in chunk]
    else:
        for chunk in work.chunks():
            output.writelines(f"{pair.target}\n" for pair in chunk)
            output.flush()
    taken = time.monotonic() - started
    for remark in (*work.remarks(), *translator.about_terms()):
        warn(remark, style="yellow")
    rate = work.lines / taken if taken else 0.0
    if how.to is not None:
        warn(f"{how.to}: {work.lines:,} lines in {taken:,.1f} s, {rate:,.1f} a second", style="")
    return {
        "to": how.to,
        "direction": str(model.direction),
        "answered_by": model.owner,
        "site": model.site,
        "clusters": dict(model.clusters),
        "lines": work.lines,
        "empty": work.empty,
        "without_source": work.missing,
        "cut": work.cut,
        **({"terms": vars(translator.terms.count)} if translator.terms else {}),
        "seconds": round(taken, 3),
        "lines_a_second": round(rate, 2),
        **({} if how.to else {"translations": answered}),
    }


class _Work:
    """The translation of lines in order, and counts of them. console: shows progress; None: no progress.

    missing: units without text in the source language. cut: lines longer than the source may be.
    """

    def __init__(self, translator: Translator, how: TranslateOptions, console: Console | None) -> None:
        self.translator, self.file, self.console = translator, how.text, console
        self.lines = self.empty = self.missing = self.cut = 0
        self._into_xml = how.to is not None and _form(how.to) == "tmx"

    def chunks(self) -> Iterator[list[Pair]]:
        """Yield the lines with their translations: in each list those that are translated together."""
        reported = started = time.monotonic()
        for chunk in self._read():
            sentences = [line or "" for line in chunk]
            for number, sentence in enumerate(sentences if self._into_xml else (), start=self.lines + 1):
                if odd := not_in_xml(sentence):
                    raise CorpusError(
                        f"line {number} has the character {odd}, which TMX cannot hold; take it out, or give --to another ending"
                    )
            self.missing += sum(line is None for line in chunk)
            self.empty += sum(map(is_blank, sentences))
            self.cut += sum(self.translator.is_cut(sentences))
            yield list(map(Pair, sentences, self.translator.translate(sentences)))
            self.lines += len(chunk)
            if self.console is not None and time.monotonic() - reported > QUIET_S:
                reported = time.monotonic()
                self.console.print(f"{self.lines:,} lines, {self.lines / (reported - started):,.1f} a second")

    def _read(self) -> Iterator[Sequence[str | None]]:
        """Yield the lines to translate, in lists of those that are translated together."""
        if self.file is None and _is_pipe(sys.stdin):
            return _as_they_come(open(sys.stdin.fileno(), "rb", closefd=False))
        at_once = AT_ONCE_OF_A_FILE if self.file else 1 if sys.stdin.isatty() else AT_ONCE
        if self.file is None:
            lines: Iterator[str | None] = lines_of(sys.stdin.buffer, "standard input")
        elif self.file.name.removesuffix(".gz").endswith(".tmx"):
            lines = chain.from_iterable(tmx_sides(self.file, (self.translator.direction.source,)))
        else:
            lines = read_lines(self.file, may_be_empty=True)
        return iter(lambda: list(islice(lines, at_once)), [])

    def remarks(self) -> Iterator[str]:
        """Yield remarks about the text."""
        if self.missing:
            source = self.translator.direction.source
            yield f"{self.missing:,} of {self.lines:,} units have no text in {source!r}; they are kept, empty"
        if self.cut:
            yield f"{self.cut:,} of {self.lines:,} lines are longer than {self.translator.max_tokens} tokens; the rest of them was not read"


def _is_pipe(stream: TextIO) -> bool:
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except OSError:  # no file is behind it
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _as_they_come(stream: IO[bytes]) -> Iterator[list[str]]:
    """Yield the lines of a pipe as they come: the next one, and of those after it as many as have come, up to `AT_ONCE` together.

    A thread reads them. It may outlast the program, so the stream must not be sys.stdin's, which the interpreter locks as it ends.
    """
    queue, errors = Queue[str | None](AT_ONCE), list[Exception]()

    def read() -> None:
        try:
            for line in lines_of(stream, "standard input"):
                queue.put(line)
        except Exception as error:  # raised below
            errors.append(error)
        queue.put(None)

    Thread(target=read, daemon=True).start()
    line = queue.get()
    while line is not None:
        chunk = [line]
        try:
            while (line := queue.get_nowait()) is not None and len(chunk) < AT_ONCE:
                chunk.append(line)
        except Empty:
            yield chunk
            line = queue.get()
        else:
            yield chunk
    if errors:
        raise errors[0]


def _form(to: Path) -> Form:
    """Return the format of pairs that a file's ending names; by default translations alone, a line each."""
    ending = to.name.removesuffix(".gz").rpartition(".")[2]
    return next((form for form in FORMS if form == ending and form != "moses"), "translations")
