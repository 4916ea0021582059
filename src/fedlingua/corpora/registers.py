"""Text that the demo's phrasebook generates: a register as the corpus of a site, translated or in one language."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.languages import Direction, nearest
from fedlingua.common.tables import check_choice, count
from fedlingua.corpora.read import AnyPath, Corpus, Pair
from fedlingua_demo import phrasebook


@dataclass(frozen=True)
class Register(Corpus[Any]):
    """Generated sentences of one register, with the same meanings in all languages. sentences: None: as many as the sizes need."""

    name: str
    sentences: int | None
    seed: int
    direction: Direction
    where: str = field(default="", compare=False)
    """place of the entry, for error messages"""

    def read(self) -> Iterator[Any]:
        """Yield pairs, or in one language each sentence as a document."""
        assert self.sentences is not None, "texts.py says how many"
        try:
            text = phrasebook.register_corpus(self.name, self.sentences, self.seed)
        except ValueError as error:
            raise CorpusError(f"{self.where}: {error}") from error
        source, target = text[self.direction.source], text[self.direction.target]
        yield from source if self.direction.is_one_language else map(Pair, source, target)

    def paths(self) -> Sequence[AnyPath]:
        return []


def read_register(entry: Mapping[str, Any], direction: Direction, where: str) -> Register:
    """Read the register of an entry's `phrasebook`, `sentences` and `seed`.

    Raises:
        ConfigError: the register is unknown, the phrasebook lacks a language, or a number is not a whole one, or sentences is 0.
    """
    name = str(entry["phrasebook"])
    check_choice(name, phrasebook.REGISTERS, f"{where}: phrasebook =")
    known = phrasebook.LANGUAGES
    for code in (code for code in direction.sides if code not in known):
        raise ConfigError(f"{where}: the phrasebook has no language {code!r}{nearest(code, known)}; it has {', '.join(known)}")
    sentences = count(entry["sentences"], f"{where}: sentences") if "sentences" in entry else None
    if sentences == 0:
        raise ConfigError(f"{where}: sentences = 0; wanted 1 or above; leave it out for as many as the sizes need")
    return Register(name, sentences, count(entry.get("seed", 1), f"{where}: seed"), direction, where)
