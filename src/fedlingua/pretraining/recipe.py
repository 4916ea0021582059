"""The recipe of a backbone that is trained from nothing: which corpora, which share of them, which size.

The same file says to `fedlingua pretrain` what to train on and to a federation what its dev and test text must not touch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedlingua.backbones.build import ModelSize
from fedlingua.corpora.clean import Account, CleaningRules, clean
from fedlingua.corpora.read import CorpusFiles, Pair, read_pairs
from fedlingua.corpora.sites import FOLDER_NAME, corpus_files, fill, refuse_unknown
from fedlingua.corpora.split import Components, Side, base_sides, position
from fedlingua.errors import ConfigError
from fedlingua.files import read_toml
from fedlingua.languages import Direction, parse_direction
from fedlingua.pretraining.settings import PretrainSettings


@dataclass(frozen=True)
class BaseShare:
    """`share` of the components of equal sentences trains the backbone, `dev` of those watches it; `key` decides which."""

    key: str = "fedlingua"
    share: float = 1.0
    dev: float = 0.01


@dataclass(frozen=True)
class Recipe:
    """A recipe file, checked."""

    name: str
    base: BaseShare
    cleaning: CleaningRules
    model: ModelSize
    training: PretrainSettings
    corpora: tuple[tuple[Direction, CorpusFiles], ...]


@dataclass(frozen=True)
class BaseText:
    """What a backbone trains on and is watched by, with the account of each corpus."""

    train: dict[Direction, list[Pair]]
    dev: dict[Direction, list[Pair]]
    accounts: dict[Direction, Account]


def read_recipe(path: Path, data_dir: Path) -> Recipe:
    """Parse and check a recipe file; opens no corpus.

    Raises:
        ConfigError: an unknown key or language, no corpus, a direction given twice.
    """
    raw = read_toml(path)
    tables = {"base": BaseShare, "cleaning": CleaningRules, "model": ModelSize, "training": PretrainSettings}
    refuse_unknown(raw, {"name", "corpus", *tables}, path.name)
    corpora: dict[Direction, CorpusFiles] = {}
    for number, entry in enumerate(raw.get("corpus", []), start=1):
        here = f"{path.name}, corpus {number}"
        refuse_unknown(entry, {"direction", "tsv", "columns", "moses", "nway"}, here)
        direction = parse_direction(str(entry.get("direction", "")), f"{here}: direction")
        if direction in corpora:
            raise ConfigError(f"{here}: {direction} stands twice; give each direction one corpus")
        corpora[direction] = corpus_files(entry, direction, here, data_dir)
    if not corpora:
        raise ConfigError(f"{path.name} has no [[corpus]]; give at least one with direction and tsv, moses or nway")
    name, base = str(raw.get("name", path.stem)), fill(BaseShare, raw.get("base", {}), f"{path.name} [base]")
    if not FOLDER_NAME.fullmatch(name) or name == "demo":
        raise ConfigError(
            f"{path.name}: name = {name!r}; wanted letters, digits, '.', '_' or '-', and not 'demo', which is built in"
        )
    if not (0 < base.share <= 1 and 0 <= base.dev <= 1):
        raise ConfigError(
            f"{path.name} [base]: share = {base.share:g}, dev = {base.dev:g}; wanted share in (0, 1] and dev in [0, 1]"
        )
    return Recipe(
        name=name,
        base=base,
        cleaning=fill(CleaningRules, raw.get("cleaning", {}), f"{path.name} [cleaning]"),
        model=fill(ModelSize, raw.get("model", {}), f"{path.name} [model]"),
        training=fill(PretrainSettings, raw.get("training", {}), f"{path.name} [training]"),
        corpora=tuple(corpora.items()),
    )


def base_text(recipe: Recipe) -> BaseText:
    """Read, clean and choose the text that the backbone sees: whole components of equal sentences, train or dev.

    Raises:
        CorpusError: a corpus that cannot be read, or of which nothing is left.
    """
    cleaned, accounts = _read(recipe)
    chosen = base_sides(cleaned, recipe.base.key, recipe.base.share)
    components = Components()
    for direction, pairs in cleaned:
        components.add(pairs, direction)
    train: dict[Direction, list[Pair]] = {}
    dev: dict[Direction, list[Pair]] = {}
    for direction, pairs in cleaned:
        for pair in pairs:
            side = (direction.source, pair.source)
            if side in chosen:
                watches = position(recipe.base.key, "pretrain-dev", *components.root(side)) < recipe.base.dev
                (dev if watches else train).setdefault(direction, []).append(pair)
    return BaseText(train, dev, accounts)


def forbidden_sides(recipe: Recipe) -> set[Side]:
    """Every sentence of every component that the backbone's text touches."""
    return base_sides(_read(recipe)[0], recipe.base.key, recipe.base.share)


def _read(recipe: Recipe) -> tuple[Sequence[tuple[Direction, list[Pair]]], dict[Direction, Account]]:
    accounts = {direction: Account() for direction, _ in recipe.corpora}
    cleaned = []
    for direction, files in recipe.corpora:
        pairs = list(clean(read_pairs(files), direction, recipe.cleaning, accounts[direction]))
        accounts[direction].check(f"corpus {direction}")
        cleaned.append((direction, pairs))
    return cleaned, accounts
