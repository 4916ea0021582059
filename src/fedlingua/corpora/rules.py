"""Rules by which every site of a federation cleans, splits and cuts its text. A deployed site receives them with each message."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import Direction, parse_written
from fedlingua.common.tables import count, fill
from fedlingua.corpora.clean import CleaningRules, read_cleaning
from fedlingua.corpora.sizes import Sizes
from fedlingua.corpora.split import SplitRules, check_shares


@dataclass(frozen=True)
class IntakeRules:
    """Rules that text must meet before use. deidentify: "required" refuses sites without a hook that de-identifies their text."""

    deidentify: Literal["required", "off"] = "off"


@dataclass(frozen=True)
class TextRules:
    """The text rules of one federation.

    limits: most sentences of each split that a site uses. directions: those of all sites, since they decide which side of a pair
    is shared; for text in one language, the languages. sizes: exact sizes for sites that ask for none.
    """

    split: SplitRules = field(default_factory=SplitRules)
    limits: Sizes = field(default_factory=Sizes)
    cleaning: CleaningRules = field(default_factory=CleaningRules)
    directions: Sequence[Direction] = ()
    sizes: Sizes = field(default_factory=Sizes)
    text: IntakeRules = field(default_factory=IntakeRules)

    def flat(self) -> dict[str, Any]:
        """Return the rules as values that a Flower ConfigRecord can hold."""
        tables = dataclasses.asdict(self)
        flat = {f"{name}.{key}": tables[name][key] for name in _TABLES for key in tables[name]}
        return {**flat, "directions": [str(direction) for direction in self.directions]}

    @classmethod
    def from_flat(cls, flat: Mapping[str, Any]) -> "TextRules":
        """Read the rules from the values that `flat` returned.

        Raises:
            ConfigError: a key is missing or unknown, or a value is one that no federation file may have.
        """
        if other := sorted(set(flat) ^ set(cls().flat())):
            raise ConfigError(f"the server's rules for the text are not those of this version ({', '.join(other)})")
        tables: dict[str, dict[str, Any]] = {table: {} for table in _TABLES}
        for key, value in flat.items():
            if key != "directions":
                table, _, name = key.partition(".")
                tables[table][name.replace("_", "-")] = value
        where = "the server's rules for the text"
        read = {name: fill(kind, tables[name], f"{where}, [{name}]") for name, kind in _TABLES.items()}
        check_shares(read["split"], f"{where}, [split]")
        read_cleaning(tables["cleaning"], f"{where}, [cleaning]")
        for name in ("limits", "sizes"):
            for split, number in tables[name].items():
                count(number, f"{where}, [{name}]: {split}")
        return cls(**read, directions=tuple(map(parse_written, flat["directions"])))


_TABLES: dict[str, Any] = {"split": SplitRules, "limits": Sizes, "cleaning": CleaningRules, "sizes": Sizes, "text": IntakeRules}
"""Fields of TextRules that are tables of a federation file."""
