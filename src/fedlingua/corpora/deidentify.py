"""De-identification: a function or command of the site's own that sees every document before anything else does.

A document that the hook fails on is left out. What the hook says then may quote the document, so of a failure only its type is told,
and what the hook prints, logs or writes to the process's output while it works is heard by nobody, nor what programs say that it starts.
The same document has to come out the same each time: every process reads it anew.
"""

import contextlib
import ctypes
import functools
import importlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import APP_DIR
from fedlingua.common.languages import nearest

KIND = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
"""Of failure: what a type may be called for its name to be told."""
TIMEOUT_S = 600.0
"""For a command, of one document: one that hangs would hold up the run, and one that loads a model on a busy machine takes minutes."""


@dataclass(frozen=True)
class FunctionHook:
    """`package.module:function`, a document -> what may be used of it."""

    name: str


@dataclass(frozen=True)
class CommandHook:
    """A program that reads a document on its standard input and writes what may be used of it on its standard output.

    folder: that it is started in, the one that paths of corpora are relative to.
    """

    words: tuple[str, ...]
    folder: Path


Hook = FunctionHook | CommandHook


@dataclass(frozen=True)
class Failure:
    """A hook failed on a document. kind: the type of what it raised or gave, never its words."""

    kind: str

    @classmethod
    def of(cls, result: object) -> "Failure":
        """Of what a hook raised or gave. A type's name is written in a program, as a rule; one that could hold more than a word is not
        told."""
        name = type(result).__name__
        return cls(name if KIND.fullmatch(name) else "other")


def read_hook(raw: Any, where: str, folder: Path) -> Hook:
    """Read `deidentify-with`, importing and starting nothing; ConfigError where it is neither a function's name nor a command."""
    if isinstance(raw, str) and re.fullmatch(r"[\w.]+:\w+", raw):
        return FunctionHook(raw)
    if isinstance(raw, list) and raw and all(isinstance(word, str) for word in raw) and raw[0]:
        return CommandHook(tuple(raw), folder)
    raise ConfigError(
        f"{where}: deidentify-with = {raw!r}; wanted 'package.module:function', or a command as a list of its words, "
        'for example ["scrub", "--lang", "es"]'
    )


def load_hook(hook: Hook, where: str) -> Callable[[str], Any]:
    """Make the hook a function, before any text is read; ConfigError for a module, function or program that is not here."""
    what = f"{where}: deidentify-with"
    if isinstance(hook, CommandHook):
        program = hook.words[0]
        located = shutil.which(str(hook.folder / program) if os.sep in program else program)
        if located is None:
            raise ConfigError(f"{what}: there is no program {program!r} that can be started; check its path, or the PATH")
        return lambda document: _run(hook, document)
    module_name, function_name = hook.name.split(":")
    if str(APP_DIR) not in sys.path:
        sys.path.append(str(APP_DIR))  # as on a node, also where the command line reads the text
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(
            f"{what} = {hook.name!r}: cannot import {module_name!r} ({error}); it has to be installed where the text is, "
            "or to lie beside pyproject.toml"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        near = nearest(function_name, vars(module))
        raise ConfigError(f"{what} = {hook.name!r}: {module_name} has no function {function_name!r}{near}")
    return function  # type: ignore[no-any-return]  # callable() tells nothing of what comes back, so deidentify looks


def deidentify(document: str, function: Callable[[str], Any]) -> str | Failure:
    """What may be used of a document, or how the hook failed on it: raised, ended badly, took too long, or gave no text."""
    try:
        with _unheard:
            result = function(document)
        if not isinstance(result, str):
            return Failure.of(result)
        result.encode()  # half a character, which no file or hash takes
    except (Exception, SystemExit) as error:
        return Failure.of(error)
    return result if result.strip() else Failure("empty")


def _run(hook: CommandHook, document: str) -> str:
    """Raises TimeoutExpired, CalledProcessError, UnicodeError or OSError, all of which `deidentify` takes for a failure."""
    process = subprocess.Popen(
        hook.words,
        cwd=hook.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(document.encode(), timeout=TIMEOUT_S)
    except BaseException:
        # With all that it has started, which else would hold its output open.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, hook.words[0])
    return output.decode("utf-8")


class _Silence:
    """What is printed, logged or written to file descriptors 1 and 2 goes nowhere, from here, from C and from programs started meanwhile: a
    node's output is seen by more than the site.

    Descriptors are the whole process's, so what other threads write meanwhile is lost, too. Calls may overlap: the first one silences, and
    the last one to end gives everything back. What a hook leaves running after it has returned is heard, unless it is a program.
    """

    def __init__(self) -> None:
        self._lock, self._calls, self._undo = threading.Lock(), 0, contextlib.ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if not self._calls:
                self._undo = _silenced()
            self._calls += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._calls -= 1
            if not self._calls:
                self._undo.close()


_unheard = _Silence()


def _silenced() -> contextlib.ExitStack:
    """Silence; what it gives ends it."""
    streams = [sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__]
    _flush(streams)  # what was said before is no hook's
    with contextlib.ExitStack() as undo:
        undo.callback(logging.disable, logging.root.manager.disable)
        logging.disable(sys.maxsize)
        nowhere = undo.enter_context(open(os.devnull, "w", encoding="utf-8"))
        for descriptor in (1, 2):
            with contextlib.suppress(OSError):  # one that is closed is heard by nobody
                saved = os.dup(descriptor)
                undo.callback(os.close, saved)
                undo.callback(os.dup2, saved, descriptor)
                os.dup2(nowhere.fileno(), descriptor)
        undo.callback(_flush, streams)  # what lies in a buffer goes nowhere as well
        undo.enter_context(contextlib.redirect_stdout(nowhere))
        undo.enter_context(contextlib.redirect_stderr(nowhere))
        return undo.pop_all()


def _flush(streams: Iterable[TextIO | None]) -> None:
    """Python's buffers and C's."""
    for stream in streams:
        with contextlib.suppress(OSError, ValueError):
            if stream is not None:
                stream.flush()
    with contextlib.suppress(OSError, AttributeError):
        _own_symbols().fflush(None)


@functools.cache
def _own_symbols() -> ctypes.CDLL:
    """This process's own C library, looked up once rather than twice a document."""
    return ctypes.CDLL(None)
