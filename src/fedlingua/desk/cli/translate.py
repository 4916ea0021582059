"""`fedlingua translate`: line for line, from a file or standard input; a translation memory unit for unit."""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, TextIO

from rich.console import Console

from fedlingua.common.errors import ConfigError, CorpusError, RunError
from fedlingua.common.languages import parse_direction
from fedlingua.corpora.read import UNREADABLE, Pair, damaged, lines_of, opened
from fedlingua.corpora.tmx import read_tmx_side
from fedlingua.desk.cli.output import Answer, AnsweringConsole, asks_json
from fedlingua.desk.corpora.write import FORMS, Target, not_in_xml, text_file, write_pairs
from fedlingua.desk.models import RunModels
from fedlingua.desk.translator import Decoding, Translator

AT_ONCE, AT_ONCE_OF_A_FILE = 64, 1024
"""Lines taken together: few enough that a pipe flows; of a file enough that batches of like length are full. Typed ones come singly."""
QUIET_S = 10.0
"""Between two lines of progress."""
CLOSED = 141
"""Exit code when nobody reads on, as of a program that SIGPIPE ends."""


@dataclass(frozen=True)
class Asked:
    """What is translated, and where it goes. file: None is standard input; to: None is standard output.

    threads: of torch; 0: as many as it takes by itself.
    """

    file: Path | None
    to: Path | None
    decoding: Decoding
    threads: int = 0

    def check(self) -> None:
        """
        Raises:
            ConfigError: a file that is there already, or a number out of range. CorpusError: no such file.
        """
        self.decoding.check()
        if self.file is not None and not self.file.is_file():
            raise CorpusError(
                f"{self.file}: there is no such file; give a text with a sentence a line, or none to read standard input"
            )
        if self.to is not None and self.to.exists():
            raise ConfigError(f"{self.to} is there already; remove it, or give another name with --to")
        if self.to is not None and self.to.parent.exists() and not self.to.parent.is_dir():
            raise ConfigError(f"{self.to}: {self.to.parent} is no folder; give another name with --to")

    @property
    def is_memory(self) -> bool:
        return self.file is not None and self.file.name.removesuffix(".gz").endswith(".tmx")


def translate_run(run: Path, site: str | None, direction: str | None, asked: Asked, output: TextIO) -> Answer:
    """Translate with what a run has trained; who answers, progress and the summary go to standard error.

    Raises:
        ConfigError: neither site nor direction, or both. RunError, BackboneError: what the run cannot give.
    """
    if (site is None) == (direction is None):
        raise ConfigError("translate needs either --site or --direction; the run's sites stand in its sites.json")
    asked.check()
    wanted = parse_direction(direction, "--direction") if direction else None
    models = RunModels(run)
    model = models.of_direction(wanted) if wanted else models.of_site(site or "")
    return translate_with(Translator(model, asked.decoding), asked, output)


def translate_adapter(adapter: Path, backbone: str, asked: Asked, output: TextIO) -> Answer:
    """The same with an exported adapter. backbone: where it lies, if not where its name says.

    Raises:
        RunError: no exported adapter, or another backbone than its own. BackboneError: the backbone cannot be loaded.
    """
    from fedlingua.desk.export.adapter import read_adapter

    asked.check()
    return translate_with(Translator(read_adapter(adapter), asked.decoding, backbone), asked, output)


def translate_with(translator: Translator, asked: Asked, output: TextIO) -> Answer:
    """Write one line for each line, or each unit, that is read; an empty one stays empty. Where JSON is asked for and no file named, the
    translations are in the answer.

    Raises:
        CorpusError: what is read is not as it has to be; what --to names is not there then.
    """
    console, model = AnsweringConsole(stderr=True), translator.model
    if asked.threads:
        import torch

        torch.set_num_threads(asked.threads)
    console.print(f"{model.direction}: {model.owner}", highlight=False, markup=False, soft_wrap=True)
    work = _Work(translator, asked, console if asked.to or not output.isatty() else None)
    started, answered = time.monotonic(), list[str]()
    if asked.to is not None:
        _write(work.pairs(), translator, asked.to)
    elif asks_json():
        answered = [translation for _, translation in work.pairs()]
    else:
        try:
            for _, translation in work.pairs():
                output.write(f"{translation}\n")
                if work.at_an_end:
                    output.flush()
        except BrokenPipeError:
            _let_go(output)
            raise SystemExit(CLOSED) from None
    taken = time.monotonic() - started
    for told in work.remarks():
        console.print(told, style="yellow", highlight=False, markup=False, soft_wrap=True)
    rate = work.lines / taken if taken else 0.0
    if asked.to is not None:
        console.print(f"{asked.to}: {work.lines:,} lines in {taken:,.1f} s, {rate:,.1f} a second", soft_wrap=True)
    return {
        "to": asked.to,
        "direction": str(model.direction),
        "answered_by": model.owner,
        "site": model.site,
        "clusters": dict(model.clusters),
        "lines": work.lines,
        "empty": work.empty,
        "without_source": work.missing,
        "cut": work.cut,
        "seconds": round(taken, 3),
        "lines_a_second": round(rate, 2),
        **({} if asked.to else {"translations": answered}),
    }


class _Work:
    """Lines as they come, and what is counted of them. console: where progress is told; None: nowhere.

    missing: units that have no text in the source's language. cut: lines longer than the source may be.
    """

    def __init__(self, translator: Translator, asked: Asked, console: Console | None) -> None:
        self.translator, self.asked, self.console = translator, asked, console
        self.lines = self.empty = self.missing = self.cut = 0
        self.at_an_end = False
        self._into_xml = asked.to is not None and _form(asked.to) == "tmx"

    def pairs(self) -> Iterator[Pair]:
        """Every line with its translation. at_an_end is set at the last one of those that are translated together."""
        at_once = AT_ONCE_OF_A_FILE if self.asked.file else 1 if sys.stdin.isatty() else AT_ONCE
        told, started = time.monotonic(), time.monotonic()
        with self._read() as lines:
            while chunk := list(islice(lines, at_once)):
                translations = self._translated([line or "" for line in chunk])
                self.missing += sum(line is None for line in chunk)
                for number, (line, translation) in enumerate(zip(chunk, translations, strict=True), start=1):
                    self.at_an_end = number == len(chunk)
                    yield Pair(line or "", translation)
                self.lines += len(chunk)
                if self.console is not None and time.monotonic() - told > QUIET_S:
                    told = time.monotonic()
                    self.console.print(f"{self.lines:,} lines, {self.lines / (told - started):,.1f} a second")

    def remarks(self) -> Iterator[str]:
        """What the user should know of the text."""
        if self.missing:
            source = self.translator.direction.source
            yield f"{self.missing:,} of {self.lines:,} units have no text in {source!r}; they are kept, empty"
        if self.cut:
            yield f"{self.cut:,} of {self.lines:,} lines are longer than {self.translator.max_tokens} tokens; the rest of them was not read"

    def _translated(self, chunk: list[str]) -> list[str]:
        if self._into_xml:
            for number, line in enumerate(chunk, start=self.lines + 1):
                if odd := not_in_xml(line):
                    raise CorpusError(
                        f"line {number} has the character {odd}, which TMX cannot hold; take it out, or give --to another ending"
                    )
        self.empty += sum(not line.strip() for line in chunk)
        self.cut += sum(self.translator.is_cut(chunk))
        return self.translator.translate(chunk)

    @contextmanager
    def _read(self) -> Iterator[Iterator[str | None]]:
        file = self.asked.file
        if file is None:
            yield lines_of(sys.stdin.buffer, "standard input")
        elif self.asked.is_memory:
            yield read_tmx_side(file, self.translator.direction.source)
        else:
            with _opened(file) as stream:
                yield lines_of(stream, file)


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    """As `opened`; what cannot be read is told as such, not as what cannot be written."""
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(opened(file))
        except UNREADABLE as error:
            raise CorpusError(damaged(file, "line 0", error)) from None
        yield stream


def _form(to: Path) -> Any:
    """The form of pairs that a name ends in; None: translations alone, a line each."""
    ending = to.name.removesuffix(".gz").rpartition(".")[2]
    return next((form for form in FORMS if form == ending and form != "moses"), None)


def _write(pairs: Iterable[Pair], translator: Translator, to: Path) -> None:
    """All of it under its name, or nothing."""
    form = _form(to)
    try:
        if form is not None:
            write_pairs(pairs, Target(form, to, translator.direction))
            return
        to.parent.mkdir(parents=True, exist_ok=True)
        aside = to.with_name(f".{to.name}.{os.getpid()}")
        try:
            with text_file(aside, to) as stream:
                for _, translation in pairs:
                    stream.write(f"{translation}\n")
            os.replace(aside, to)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise RunError(f"{to} cannot be written ({error.strerror}); give --to another place") from error


def _let_go(output: TextIO) -> None:
    """Whoever read standard output has gone: what is left in its buffer goes nowhere, quietly."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())
