"""Errors that a user or a site can cause. A message says what is wrong, what was given, what is wanted, and what to do."""

import os
import re
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class FedlinguaError(Exception):
    """Base of all errors whose message is written for the user; the command line prints it without a traceback.

    answer: results from before the error, for programs that read a command's output as JSON.
    """

    def __init__(self, *words: object, answer: Any = None) -> None:
        super().__init__(*words)
        self.answer = answer


class ConfigError(FedlinguaError):
    """A key, value, name or file of the configuration is wrong; raised before anything loads."""


class CorpusError(FedlinguaError):
    """A corpus cannot be read; the message names file and line."""


class BackboneError(FedlinguaError):
    """A pre-trained model is missing or unsuitable."""


class ExchangeError(FedlinguaError):
    """A message between server and site does not follow the protocol."""


class RunError(FedlinguaError):
    """A run cannot continue; the message names the sites and the reason."""


class StuckError(RunError):
    """An epoch did not move tensors that have a gradient, as after training has diverged."""


class MemoryRunsOutError(RunError):
    """A device's memory does not hold what cannot be divided any further."""


class DeploymentError(FedlinguaError):
    """A server or a site cannot be set up or reached."""


def all_at_once(checks: Iterable[Callable[[], T]]) -> list[T]:
    """Return the results of all checks; raise one ConfigError with the messages of all that failed, a line each."""
    results, mistakes = list[T](), list[str]()
    for check in checks:
        try:
            results.append(check())
        except ConfigError as error:
            mistakes.append(str(error))
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    return results


def without_words(error: BaseException) -> str:
    """Return an exception's type, the system's reason and where it was raised, without its message, which may quote a sentence."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen importlib")]
    places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return f"{type(error).__name__}{_system_reason(error)} at {' > '.join(places)}"


def _system_reason(error: BaseException) -> str:
    """Return the operating system's own words for an error, as of a full disk, in brackets; empty if they are not its."""
    number, words = (error.errno, error.strerror) if isinstance(error, OSError) else (None, None)
    if type(error).__name__ == "SafetensorError" and (code := re.search(r"\(os error (\d{1,3})\)", str(error))):
        number, words = int(code[1]), os.strerror(int(code[1]))
    return f" ({words})" if isinstance(number, int) and words == os.strerror(number) else ""
