"""What a user or a site can cause, each as its own type: what was wrong, what was got, what is wanted, what to do."""

import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class FedlinguaError(Exception):
    """Base of every error that a message to the user is written for; the command line prints it without a traceback.

    answer: what was found before, for programs that read a command's answer as JSON.
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
    """A message across the border between server and site is not what it has to be."""


class RunError(FedlinguaError):
    """A run cannot continue; the message names the sites and the reason."""


class DeploymentError(FedlinguaError):
    """A server or a site cannot be set up or reached."""


def all_at_once(checks: Iterable[Callable[[], T]]) -> list[T]:
    """What all checks return; where some raise ConfigError, one with all their mistakes, a line each."""
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
    """An exception's type and where it was raised; its words may quote a sentence."""
    frames = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)]
    return f"{type(error).__name__} at {' > '.join(frames)}"
