"""Abstract sentences: what is said, independent of any language."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Literal

Determiner = Literal["the", "this", "my", "a"]
Tense = Literal["present", "past"]
Pronoun = Literal["I", "we"]
Force = Literal["affirm", "deny", "ask"]


@dataclass(frozen=True)
class NounPhrase:
    """A noun with its determiner, number and at most one adjective."""

    noun: str
    determiner: Determiner = "the"
    plural: bool = False
    adjective: str | None = None


@dataclass(frozen=True)
class Clause:
    """Subject, verb and object; without a time, so that it can also be a subordinate clause."""

    subject: NounPhrase | Pronoun
    verb: str
    object: NounPhrase
    tense: Tense = "present"
    negative: bool = False
    place: str | None = None


@dataclass(frozen=True)
class Statement:
    """A clause as a main clause, with or without a time in front."""

    clause: Clause
    time: str | None = None


@dataclass(frozen=True)
class Question:
    """A clause asked as a yes-or-no question."""

    clause: Clause


@dataclass(frozen=True)
class Quality:
    """A thing or person has, or had, some quality; affirmed, denied or asked."""

    subject: NounPhrase
    adjective: str
    tense: Tense = "present"
    force: Force = "affirm"


@dataclass(frozen=True)
class Existence:
    """There is, or was, something at a place; it is new to the listener, so indefinite."""

    subject: NounPhrase
    place: str
    tense: Tense = "present"


@dataclass(frozen=True)
class Request:
    """A polite official request to do something."""

    verb: str
    object: NounPhrase
    place: str | None = None


@dataclass(frozen=True)
class Duty:
    """Somebody must do something, at an hour or at no stated time."""

    subject: NounPhrase | Pronoun
    verb: str
    object: NounPhrase
    time: str | None = None
    place: str | None = None


@dataclass(frozen=True)
class Report:
    """Somebody says that something is or was done."""

    speaker: NounPhrase
    clause: Clause


Sentence = Statement | Question | Quality | Existence | Request | Duty | Report

_SECTIONS = {"noun": "nouns", "verb": "verbs", "adjective": "adjectives", "place": "places"}


def lexemes(part: object) -> Iterator[tuple[str, str]]:
    """Yield every noun, verb, adjective and place of a sentence, as (section of the lexicon, key)."""
    if not is_dataclass(part):
        return
    for field in fields(part):
        value = getattr(part, field.name)
        section = _SECTIONS.get(field.name)
        if section is not None and value is not None:
            yield section, value
        else:
            yield from lexemes(value)
