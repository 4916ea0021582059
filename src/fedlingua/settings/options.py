"""Definition of an option, a key of a run's config. All options are declared in fedlingua.settings.table."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import nearest

Scalar = str | int | float | bool
T = TypeVar("T", str, bool, int, float)

GROUPS = ("adapter", "apf", "async", "cluster", "dp", "keep", "lora", "meta", "privacy", "sample", "send", "server", "signature")
"""Groups of keys, as first words of attributes: adapter_dim is the key adapter.dim."""
PAPERS = {"liu": "Liu et al. 2023", "chu": "Chu et al. 2024", "manoel": "Manoel et al. 2022"}
"""Short name of a paper -> its name. They are on clustered adapters, on MetaSend, and on multilingual medical encoders."""


def names_of(given: str, known: Collection[str], unknown: str) -> list[str]:
    """Return the names of a comma-separated list, each once.

    Raises:
        ConfigError: a name is not among `known`; begins with `unknown`, and gives the first such name.
    """
    names = list(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    for name in names:
        if name not in known:
            raise ConfigError(f"{unknown} {name!r}{nearest(name, known)}; there are {', '.join(known)}")
    return names


@dataclass(frozen=True)
class When:
    """A condition under which an option has an effect. words: the condition in words. holds: tests it on a `Settings`."""

    words: str
    holds: Callable[[Any], bool]

    def __and__(self, other: "When") -> "When":
        return When(f"{self.words}, {other.words}", lambda settings: self.holds(settings) and other.holds(settings))


ALWAYS = When("", lambda settings: True)


def among(key: str, value_of: Callable[[Any], str]) -> Callable[..., When]:
    """Return a function that makes `When`s of one key. value_of: its effective value, which is the method's if the key is empty."""

    def when(*values: str) -> When:
        return When(f"{key} = {' or '.join(values)}", lambda settings: value_of(settings) in values)

    return when


@dataclass(frozen=True)
class Option:
    """One key of a run.

    Attributes:
        key: Name that users write: `rounds`, or with a group and a dot: `adapter.dim`.
        attribute: Its name in `Settings`.
        default, value_type, section: Its default, the type of all its values, and its class in the table.
        choices: Allowed values; empty if any value of its type is allowed.
        check: Raises ConfigError for invalid text, where `choices` is not enough.
        least, above, most, below: Bounds; `above` and `below` exclude the bound itself.
        when: Condition under which it has an effect; otherwise it is not part of the run hash.
        off: Values with which a run behaves as it did before the option was added; they are not part of the run hash.
        papers: Short name of a paper (see PAPERS) -> the value used there.
        listed: Whether its text is a list with commas, which a file may also give as a list.
        resumable: Whether a resumed run may change it; then it is not part of the run hash.
        approved: Whether a site has to approve its value. False if it changes neither a site's work nor what leaves the site.
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
    listed: bool = False
    resumable: bool = False
    approved: bool = True

    @property
    def bounds(self) -> str:
        """The bounds in words; empty if there are none."""
        words = {"at least": self.least, "more than": self.above, "at most": self.most, "below": self.below}
        return " and ".join(f"{word} {bound:g}" for word, bound in words.items() if bound is not None)

    def has_effect(self, settings: Any) -> bool:
        """Whether it can change tensors or scores under these `Settings`."""
        return not self.resumable and self.when.holds(settings) and getattr(settings, self.attribute) not in self.off


def option(default: T, *, key: str = "", **about: Any) -> T:
    """Declare a field of the table. about: attributes of `Option`, and short names of papers with their values.

    The key is the field's name, with a dot after its first word if that is one of GROUPS, unless `key` is given.
    """
    papers = {name: about.pop(name) for name in PAPERS if name in about}
    metadata = {"key": key, "about": {**about, "papers": papers}}
    return dataclasses.field(default=default, metadata=metadata)


def options_of(sections: Sequence[Any]) -> dict[str, Option]:
    """Map keys to options, for all fields of the table's sections in their order."""
    options = {}
    for section in sections:
        for field in dataclasses.fields(section):
            group, _, rest = field.name.partition("_")
            grouped = f"{group}.{rest}" if group in GROUPS and rest else field.name
            key = field.metadata["key"] or grouped.replace("_", "-")
            assert isinstance(field.type, type), field.name
            default: Any = field.default
            options[key] = Option(key, field.name, default, field.type, section, **field.metadata["about"])
    return options
