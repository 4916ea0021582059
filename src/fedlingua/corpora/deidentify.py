"""De-identification: run every document through the site's own function or command (its hook) before anything else reads it.

A document on which the hook fails is left out. Error messages may quote the document, so only the type of a failure is reported,
and everything that the hook, or a program started by it, prints, logs or writes to the process's output is discarded.
The hook must be deterministic, because every process reads the documents anew.
"""

import contextlib
import ctypes
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
from fedlingua.common.visible import is_blank

KIND = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
"""Names of exception types that may be reported as the kind of a failure."""
TIMEOUT_S = 600.0
"""A command's time limit for one document. One that hangs would stall the run, but loading a model on a busy machine takes minutes."""


@dataclass(frozen=True)
class CommandHook:
    """A program that reads a document on its standard input and writes its de-identified text on its standard output.

    folder: its working directory, the folder that paths of corpora are relative to.
    """

    words: tuple[str, ...]
    folder: Path


Hook = str | CommandHook
"""A command, or the name `package.module:function` of a function that maps a document to its de-identified text."""


@dataclass(frozen=True)
class Failure:
    """A hook's failure on a document. kind: the type of what it raised or returned, never its message."""

    kind: str

    @classmethod
    def of(cls, result: object) -> "Failure":
        """Make a failure from what a hook raised or returned. The name of its type becomes "other" if it is not one short word,
        because it might quote text."""
        name = type(result).__name__
        return cls(name if KIND.fullmatch(name) else "other")


def read_hook(raw: Any, where: str, folder: Path) -> Hook:
    """Read `deidentify-with` without importing or starting it; raise ConfigError if it is neither a function nor a command."""
    if isinstance(raw, str) and re.fullmatch(r"[\w.]+:\w+", raw):
        return raw
    if isinstance(raw, list) and raw and all(isinstance(word, str) for word in raw) and raw[0]:
        return CommandHook(tuple(raw), folder)
    raise ConfigError(
        f"{where}: deidentify-with = {raw!r}; wanted 'package.module:function', or a command as a list of its words, "
        'for example ["scrub", "--lang", "es"]'
    )


def load_hook(hook: Hook, where: str) -> Callable[[str], Any]:
    """Load the hook as a function, before any text is read; raise ConfigError if its module, function or program is missing."""
    what = f"{where}: deidentify-with"
    if isinstance(hook, CommandHook):
        program = hook.words[0]
        located = shutil.which(str(hook.folder / program) if os.sep in program else program)
        if located is None:
            raise ConfigError(f"{what}: there is no program {program!r} that can be started; check its path, or the PATH")
        return lambda document: _run(hook, document)
    module_name, function_name = hook.split(":")
    if str(APP_DIR) not in sys.path:
        sys.path.append(str(APP_DIR))  # a node has it on its path; the command line may not
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(
            f"{what} = {hook!r}: cannot import {module_name!r} ({error}); it has to be installed where the text is, "
            "or to lie beside pyproject.toml"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        near = nearest(function_name, vars(module))
        raise ConfigError(f"{what} = {hook!r}: {module_name} has no function {function_name!r}{near}")
    return function  # type: ignore[no-any-return]  # callable() says nothing about the result, so deidentify checks it


def deidentify(document: str, function: Callable[[str], Any]) -> str | Failure:
    """Return a document's de-identified text; a Failure if the hook raises, exits with an error, times out or returns no text."""
    try:
        with _unheard:
            result = function(document)
        if not isinstance(result, str):
            return Failure.of(result)
        result.encode()  # raises for a lone surrogate, which can be neither written nor hashed
    except (Exception, SystemExit) as error:
        return Failure.of(error)
    return Failure("empty") if is_blank(result) else result


def _run(hook: CommandHook, document: str) -> str:
    """Run a command on a document; may raise TimeoutExpired, CalledProcessError, UnicodeError or OSError."""
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
        # Also kill all that it has started, which would otherwise hold its output open.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, hook.words[0])
    return output.decode("utf-8")


class _Silence:
    """A context that discards what Python, C code and programs started inside it log or write to file descriptors 1 and 2.

    A node's output is seen outside the site, too. Descriptors belong to the whole process, so the output of other threads is lost
    meanwhile. Contexts may overlap: the first one silences, and the last one to end restores the output. Threads that a hook
    leaves running can be heard after it returns, programs cannot.
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
_OWN_SYMBOLS = ctypes.CDLL(None)
"""This process's own C library."""


def _silenced() -> contextlib.ExitStack:
    """Silence the process's output; closing the returned stack restores it."""
    streams = [sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__]
    _flush(streams)  # what is still in the buffers is not from a hook
    with contextlib.ExitStack() as undo:
        undo.callback(logging.disable, logging.root.manager.disable)
        logging.disable(sys.maxsize)
        nowhere = undo.enter_context(open(os.devnull, "w", encoding="utf-8"))
        for descriptor in (1, 2):
            with contextlib.suppress(OSError):  # it may be closed already
                saved = os.dup(descriptor)
                undo.callback(os.close, saved)
                undo.callback(os.dup2, saved, descriptor)
                os.dup2(nowhere.fileno(), descriptor)
        undo.callback(_flush, streams)  # discards what is still in a buffer
        undo.enter_context(contextlib.redirect_stdout(nowhere))
        undo.enter_context(contextlib.redirect_stderr(nowhere))
        return undo.pop_all()


def _flush(streams: Iterable[TextIO | None]) -> None:
    """Flush the buffers of these streams and of C."""
    for stream in streams:
        with contextlib.suppress(OSError, ValueError):
            if stream is not None:
                stream.flush()
    with contextlib.suppress(OSError, AttributeError):
        _OWN_SYMBOLS.fflush(None)
