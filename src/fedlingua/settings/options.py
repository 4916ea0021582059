"""What may be said of an option, a key of a run's config. All options are in fedlingua.settings.table."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import nearest

Scalar = str | int | float | bool
T = TypeVar("T", str, bool, int, float)

GROUPS = ("adapter", "apf", "cluster", "lora", "meta", "privacy", "sample", "server", "signature")
"""First words of attributes that are groups of keys: adapter_dim is adapter.dim."""
PAPERS = {"liu": "Liu et al. 2023", "chu": "Chu et al. 2024", "manoel": "Manoel et al. 2022"}
"""Short name of a paper -> its name: adapters in clusters of languages; MetaSend; multilingual medical encoders."""


def names_of(given: str, known: Collection[str], unknown: str) -> list[str]:
    """The names of a list with commas, each once.

    Raises:
        ConfigError: begins with `unknown`, and says the first name that is not among `known`.
    """
    names = list(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    for name in names:
        if name not in known:
            raise ConfigError(f"{unknown} {name!r}{nearest(name, known)}; there are {', '.join(known)}")
    return names


@dataclass(frozen=True)
class When:
    """Settings under which an option has an effect. words: for people; holds: whether a `Settings` is among them."""

    words: str
    holds: Callable[[Any], bool]

    def __and__(self, other: "When") -> "When":
        return When(f"{self.words}, {other.words}", lambda settings: self.holds(settings) and other.holds(settings))

    def __or__(self, other: "When") -> "When":
        return When(f"{self.words}, or {other.words}", lambda settings: self.holds(settings) or other.holds(settings))


ALWAYS = When("", lambda settings: True)


def among(key: str, value_of: Callable[[Any], str]) -> Callable[..., When]:
    """A maker of `When`s by one key. value_of: its value as it takes effect, such as the method's where the key is empty."""

    def when(*values: str) -> When:
        return When(f"{key} = {' or '.join(values)}", lambda settings: value_of(settings) in values)

    return when


@dataclass(frozen=True)
class Option:
    """One key of a run.

    Attributes:
        key: As users write it: `rounds`, or with a group and a dot: `adapter.dim`.
        attribute: Its name in `Settings`.
        default, value_type, section: Its default, the type of all its values, and the class of the table that it stands in.
        choices: The values it may have; empty where any value of its type will do.
        check: Refuses text that is no value with a ConfigError, where choices do not tell.
        least, above, most, below: Bounds; `above` and `below` are themselves out of bounds.
        when: Settings under which it has an effect; under others it is no part of a run's hash.
        off: Values under which a run is as before the option came; with one of them it is no part of a run's hash.
        papers: Short name of a paper -> its value there, see PAPERS.
        resumable: Whether a resumed run may change it; then it is no part of a run's hash.
        approved: Whether a site approves its value. False where it changes neither a site's work nor what leaves the site.
    """

    key: str
    attribute: str
    default: Scalar
    value_type: type
    section: type
    choices: tuple[str, ...] = ()
    check: Callable[[str], object] | None = None
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    when: When = ALWAYS
    off: tuple[Scalar, ...] = ()
    papers: Mapping[str, Scalar] = dataclasses.field(default_factory=dict)
    resumable: bool = False
    approved: bool = True

    @property
    def first_name(self) -> str:
        """The key's name before keys were grouped. Hashes are over these names, so that grouping changed none."""
        return self.attribute.replace("_", "-")

    @property
    def bounds(self) -> str:
        """In words; empty where there are none."""
        words = {"at least": self.least, "more than": self.above, "at most": self.most, "below": self.below}
        return " and ".join(f"{word} {bound:g}" for word, bound in words.items() if bound is not None)

    def has_effect(self, settings: Any) -> bool:
        """Whether it can change tensors or scores under these `Settings`."""
        return not self.resumable and self.when.holds(settings) and getattr(settings, self.attribute) not in self.off


def option(default: T, *, key: str = "", **about: Any) -> T:
    """A field of the table: attributes of `Option`, and short names of papers with their values.

    Its key is its name, with a dot behind the first word where that is one of GROUPS, unless another is given.
    """
    papers = {name: about.pop(name) for name in PAPERS if name in about}
    metadata = {"key": key, "about": {**about, "papers": papers}}
    return dataclasses.field(default=default, metadata=metadata)


def options_of(sections: Sequence[Any]) -> dict[str, Option]:
    """Key -> option, of all fields of the table's sections in their order."""
    options = {}
    for section in sections:
        for field in dataclasses.fields(section):
            key = field.metadata["key"] or _key_of(field.name)
            assert isinstance(field.type, type), field.name
            default: Any = field.default
            options[key] = Option(key, field.name, default, field.type, section, **field.metadata["about"])
    return options


def _key_of(attribute: str) -> str:
    group, _, rest = attribute.partition("_")
    return (f"{group}.{rest}" if group in GROUPS and rest else attribute).replace("_", "-")
