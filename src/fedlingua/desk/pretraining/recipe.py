"""The recipe of a backbone that is trained from scratch (docs/files.md): its text, its size, and how it is trained."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import read_toml
from fedlingua.common.languages import Direction
from fedlingua.common.tables import fill, refuse_unknown, table
from fedlingua.corpora.clean import CleaningRules
from fedlingua.corpora.recipe import BaseShare, RecipeText, recipe_text
from fedlingua.corpora.sites import FOLDER_NAME
from fedlingua.desk.pretraining.settings import EncoderSettings, EncoderSize, ModelSize, PretrainSettings, Watching
from fedlingua.settings.config import Scalar
from fedlingua.settings.kinds import RECIPE, refuse_other_kind

RESERVED = ("demo", "demo-encoder")
"""Names of backbones that need no recipe."""
_TABLES = ("base", "cleaning", "model", "training", "watching", "licences")


@dataclass(frozen=True)
class Recipe(RecipeText):
    """A recipe file, checked."""

    name: str
    model: ModelSize | EncoderSize
    training: PretrainSettings
    watching: Watching = field(default_factory=Watching)
    both_ways: bool = False
    licences: Mapping[str, str] = field(default_factory=dict)

    @property
    def trained(self) -> list[Direction]:
        """Return the backbone's directions or languages, each once, in order."""
        back = [direction.reverse for direction, _ in self.corpora if self.both_ways]
        return list(dict.fromkeys([*(direction for direction, _ in self.corpora), *back]))


def read_recipe(path: Path, data_dir: Path, overrides: Mapping[str, Scalar] = MappingProxyType({})) -> Recipe:
    """Parse and check a recipe file; opens no corpus. overrides: values that replace the file's, by key or "table.key".

    Raises:
        ConfigError: an unknown key, or an invalid value; or as in `recipe_text`.
    """
    content = read_toml(path)
    refuse_other_kind(path, content, RECIPE)
    raw = _overridden(content, overrides)
    text, translates = recipe_text(raw, path.name, data_dir), raw.get("task", "translation") == "translation"
    refuse_unknown(raw, {"name", "task", "both-ways", "corpus", *_TABLES}, path.name)
    tables = {key: table(raw, key, path.name) for key in _TABLES}
    name = str(raw.get("name", path.stem))
    if not FOLDER_NAME.fullmatch(name) or name in RESERVED:
        raise ConfigError(
            f"{path.name}: name = {name!r}; wanted letters, digits, '.', '_' or '-', and not what is built in ({', '.join(RESERVED)})"
        )
    both_ways = raw.get("both-ways", False)
    if type(both_ways) is not bool or (both_ways and not translates):
        raise ConfigError(
            f"{path.name}: both-ways = {both_ways!r}; wanted true or false, and true only of a model that translates"
        )
    licences = tables["licences"]
    if odd := [name for name, licence in licences.items() if type(licence) is not str]:
        raise ConfigError(f"{path.name} [licences]: {odd[0]} = {licences[odd[0]]!r}; wanted text in quotation marks")
    classes = {
        "model": ModelSize if translates else EncoderSize,
        "training": PretrainSettings if translates else EncoderSettings,
        "watching": Watching,
    }
    filled: dict[str, Any] = {key: fill(kind, tables[key], f"{path.name} [{key}]") for key, kind in classes.items()}
    _check_numbers({"base": text.base, **filled}, path.name)
    return Recipe(**vars(text), name=name, both_ways=both_ways, licences=licences, **filled)


def _overridden(raw: dict[str, Any], overrides: Mapping[str, Scalar]) -> dict[str, Any]:
    for key, value in overrides.items():
        place, _, name = key.rpartition(".")
        if not place:
            raw[key] = value
        elif isinstance(raw.setdefault(place, {}), dict):
            raw[place][name] = value
        else:
            raise ConfigError(f"--set {key}={value}: {place!r} has no keys of its own; the tables are {', '.join(_TABLES)}")
    return raw


_FROM_0 = ("training.warmup-steps", "watching.evaluate-every", "watching.dev-sentences", "watching.checkpoint-minutes")
_FROM_1 = ("training.steps", "training.tokens-per-batch", "training.threads")
_BELOW_1 = ("training.label-smoothing", "training.weight-average", "model.dropout")
_BOUNDS: dict[str, tuple[str, Callable[[float], bool]]] = {
    **dict.fromkeys(_FROM_0, ("0 or more", lambda value: value >= 0)),
    **dict.fromkeys(_FROM_1, ("1 or more", lambda value: value >= 1)),
    **dict.fromkeys(_BELOW_1, ("0 or more and below 1", lambda value: 0 <= value < 1)),
    "training.mask-share": ("above 0, at most 1", lambda value: 0 < value <= 1),
    "training.learning-rate": ("above 0", lambda value: 0 < value < math.inf),
    "training.minutes": ("0 (no limit) or more", lambda value: 0 <= value < math.inf),
    "training.max-tokens": ("4 or more", lambda value: value >= 4),
    "training.sampling-temperature": ("1 (by size) or more (more alike)", lambda value: value >= 1),
    "base.dev": ("0 to 1", lambda value: 0 <= value <= 1),
}
"""Key -> the numbers that it accepts, in words and as a test. Every other number of [model] is 1 or more."""


def _check_numbers(tables: Mapping[str, Any], where: str) -> None:
    """Raise ConfigError for numbers out of range, or that contradict each other. tables: name -> the parsed table."""
    for name, content in tables.items():
        for field_name, value in asdict(content).items():
            key = field_name.replace("_", "-")
            otherwise = ("1 or more", lambda value: value >= 1) if name == "model" else None
            bounds = _BOUNDS.get(f"{name}.{key}", otherwise)
            if bounds and not bounds[1](value):
                raise ConfigError(f"{where} [{name}]: {key} = {value:g}; wanted a number {bounds[0]}")
    model, watching, base = tables["model"], tables["watching"], tables["base"]
    if watching.keep == "best" and base.dev == 0:
        raise ConfigError(
            f"{where} [watching]: keep = 'best' needs text that watches, and [base] dev = 0; give dev = 0.01, or keep = 'last'"
        )
    if model.d_model % model.heads:
        raise ConfigError(
            f"{where} [model]: d-model = {model.d_model}, heads = {model.heads}; wanted a d-model that its heads divide"
        )
    tokens = tables["training"].max_tokens
    if isinstance(model, EncoderSize) and tokens > model.max_positions:  # a model that translates computes its positions
        raise ConfigError(
            f"{where} [training]: max-tokens = {tokens}; wanted at most {model.max_positions}, the positions of the encoder; lower it, or "
            "raise max-positions in [model]"
        )


def check_trained_by(recipe: Recipe, folder: Path) -> None:
    """Refuse a backbone that was trained on other text than this recipe says, which is what a federation withholds from its sites.

    folder: the backbone's; without a pretraining.json nothing is compared. Of absolute paths, which may differ between machines, only
    file names are compared. Raises ConfigError, which names all differences.
    """
    card = folder / "pretraining.json"
    made = json.loads(card.read_text(encoding="utf-8")).get("recipe") if card.is_file() else None
    if not made:
        return
    different = []
    for name, default in (("base", BaseShare()), ("cleaning", CleaningRules())):
        then, now = {**asdict(default), **made.get(name, {})}, asdict(getattr(recipe, name))
        keys = [key for key in now if then[key] != now[key] and key not in ("dev", "strict")]  # they choose no text
        different += [f"{name}.{key.replace('_', '-')} = {then[key]!r}, not {now[key]!r}" for key in keys]
    before = _listed(made["corpora"], made.get("sources", recipe.sources))  # older files lack it
    here = _listed([direction for direction, _ in recipe.corpora], recipe.sources)
    if before != here:
        surplus, lacking = (", ".join(sorted(each)) or "none" for each in (before - here, here - before))
        different += [f"corpora: {surplus}, not {lacking}"]
    if different:
        raise ConfigError(
            f"backbone {folder.name!r} was not trained on the text of recipe {recipe.name!r}, the federation's base, so dev and test could "
            f"have sentences that it has seen: {'; '.join(different)}; name in base the recipe that it was trained by, with all that --set "
            "replaced, or train it again by this one"
        )


def _listed(directions: Iterable[Any], sources: Iterable[str]) -> set[str]:
    """Return each corpus as direction and file."""
    both = zip_longest(directions, sources, fillvalue="")
    return {f"{way} {Path(file).name if Path(file).is_absolute() else file}" for way, file in both}
