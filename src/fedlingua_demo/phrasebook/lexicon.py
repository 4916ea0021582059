"""The tables of the lexicon as read from the .toml files beside this module."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Meaning:
    """A lexeme, independent of language: the register that owns it, and tags that say what it combines with."""

    register: str
    tags: frozenset[str]


@cache
def _meanings_file() -> dict[str, object]:
    return tomllib.loads((FOLDER / "meanings.toml").read_text(encoding="utf-8"))


def registers() -> tuple[str, ...]:
    """Return the names of the registers, without the base."""
    return _names(_meanings_file(), "registers")


def perceptions() -> tuple[str, ...]:
    """Return the verbs that no request asks for and that are never a duty."""
    return _names(_meanings_file(), "perceptions")


def unowned() -> tuple[str, ...]:
    """Return the nouns that do not combine with "my"."""
    return _names(_meanings_file(), "unowned")


@cache
def meanings(section: str) -> dict[str, Meaning]:
    """Return the lexemes of one section in the file's order."""
    found: dict[str, Meaning] = {}
    for key, text in _texts(_meanings_file(), section).items():
        register, *tags = text.split()
        found[key] = Meaning(register, frozenset(tags))
    return found


def is_person(noun: str) -> bool:
    """Return whether a noun names a person."""
    return "p" in meanings("nouns")[noun].tags


def is_animal(noun: str) -> bool:
    """Return whether a noun names an animal."""
    return "a" in meanings("nouns")[noun].tags


@cache
def _words_file(language: str) -> dict[str, object]:
    return tomllib.loads((FOLDER / f"words_{language}.toml").read_text(encoding="utf-8"))


@cache
def words(language: str, section: str) -> dict[str, tuple[str, ...]]:
    """Return the forms of a language's words in one section, in the order that its file states."""
    return {
        key: tuple(form.replace("_", " ") for form in text.split())
        for key, text in _texts(_words_file(language), section).items()
    }


def phrase(language: str, section: str, key: str | None) -> str:
    """Return the fixed wording of a place or a time; empty without a key."""
    return "" if key is None else _texts(_words_file(language), section)[key]


def names(language: str, key: str) -> tuple[str, ...]:
    """Return a list of lexemes that one language treats in a special way."""
    return _names(_words_file(language), key)


def _names(tables: dict[str, object], key: str) -> tuple[str, ...]:
    value = tables[key]
    assert isinstance(value, list)
    return tuple(value)


def _texts(tables: dict[str, object], section: str) -> dict[str, str]:
    value = tables[section]
    assert isinstance(value, dict)
    return value
