"""Text that the phrasebook writes: a register as the corpus of a site, translated or in one language."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.languages import Direction, nearest
from fedlingua_demo import phrasebook

REGISTER_OPTIONS: dict[str, tuple[str, ...]] = {"sentences": ("phrasebook",), "seed": ("phrasebook",)}
"""Keys that say more of a register, as `OPTIONS` of other corpora (formats.py)."""


@dataclass(frozen=True)
class Register:
    """One register, so many sentences; None: as many as the sizes asked need."""

    name: str
    sentences: int | None
    seed: int


def read_register(entry: Mapping[str, Any], direction: Direction, where: str) -> Register:
    """What an entry's `phrasebook`, `sentences` and `seed` say.

    Raises:
        ConfigError: an unknown register, a language that the phrasebook lacks, or no whole number.
    """
    register = str(entry["phrasebook"])
    if register not in phrasebook.REGISTERS:
        choices = phrasebook.REGISTERS
        raise ConfigError(
            f"{where}: phrasebook = {register!r} is not known{nearest(register, choices)}; choose one of {', '.join(choices)}"
        )
    for code in (direction.source, direction.target):
        if code not in phrasebook.LANGUAGES:
            known = ", ".join(phrasebook.LANGUAGES)
            raise ConfigError(
                f"{where}: the phrasebook has no language {code!r}{nearest(code, phrasebook.LANGUAGES)}; it has {known}"
            )
    sentences = count(entry["sentences"], f"{where}: sentences") if "sentences" in entry else None
    return Register(register, sentences, count(entry.get("seed", 1), f"{where}: seed"))


def register_lines(register: Register, sentences: int, where: str) -> dict[str, list[str]]:
    """Language -> sentences; line i is the same meaning in each. sentences: where the register gives no number.

    Raises:
        CorpusError: more sentences than the register has.
    """
    try:
        given = register.sentences
        return phrasebook.register_corpus(register.name, sentences if given is None else given, register.seed)
    except ValueError as error:
        raise CorpusError(f"{where}: {error}") from error


def count(value: Any, what: str) -> int:
    """A whole number, 0 or above.

    Raises:
        ConfigError: anything else.
    """
    if type(value) is not int or value < 0:
        raise ConfigError(f"{what} = {value!r}; wanted a whole number, 0 or above")
    return value
