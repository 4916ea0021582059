"""The recipe of a backbone that is trained from nothing: which corpora, which share of them, which size.

The same file says to `fedlingua pretrain` what to train on and to a federation what its dev and test text must not touch. With
`task = "masked-language"` it is of an encoder, and its corpora have a `language`, which may stand several times, with `lines` or `nway`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlingua.backbones.build import ModelSize
from fedlingua.backbones.build_encoder import EncoderSize
from fedlingua.corpora.clean import Account, CleaningRules, clean, read_cleaning
from fedlingua.corpora.formats import KINDS, OPTIONS, CorpusFiles, corpus_files, read_corpus
from fedlingua.corpora.read import LineFiles, Pair
from fedlingua.corpora.sites import FOLDER_NAME
from fedlingua.corpora.split import Components, Side, base_sides, position
from fedlingua.errors import ConfigError
from fedlingua.files import read_toml
from fedlingua.languages import Direction, nearest, parse_direction, parse_language
from fedlingua.pretraining.settings import EncoderSettings, PretrainSettings
from fedlingua.tables import fill, refuse_unknown, table
from fedlingua.tasks import TASKS

RESERVED = ("demo", "demo-encoder")
"""Names of backbones that need no recipe."""


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
    model: ModelSize | EncoderSize
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
        ConfigError: an unknown key, task or language, no corpus, a direction given twice.
    """
    raw = read_toml(path)
    task = raw.get("task", "translation")
    if task not in TASKS:
        raise ConfigError(f"{path.name}: task = {task!r} is not known{nearest(task, TASKS)}; choose one of {', '.join(TASKS)}")
    refuse_unknown(raw, {"name", "task", "corpus", "base", "cleaning", "model", "training"}, path.name)
    translates = task == "translation"
    read_corpus = _pairs_corpus if translates else _text_corpus
    corpora: list[tuple[Direction, CorpusFiles]] = []
    for number, entry in enumerate(raw.get("corpus", []), start=1):
        here = f"{path.name}, corpus {number}"
        direction, files = read_corpus(entry, here, data_dir)
        if translates and direction in dict(corpora):
            raise ConfigError(f"{here}: {direction} stands twice; give each direction one corpus")
        corpora.append((direction, files))
    if not corpora:
        wanted = f"direction and one of {', '.join(KINDS)}" if translates else "language and lines or nway"
        raise ConfigError(f"{path.name} has no [[corpus]]; give at least one with {wanted}")
    name, base = str(raw.get("name", path.stem)), fill(BaseShare, table(raw, "base", path.name), f"{path.name} [base]")
    if not FOLDER_NAME.fullmatch(name) or name in RESERVED:
        raise ConfigError(
            f"{path.name}: name = {name!r}; wanted letters, digits, '.', '_' or '-', and not what is built in ({', '.join(RESERVED)})"
        )
    if not (0 < base.share <= 1 and 0 <= base.dev <= 1):
        raise ConfigError(
            f"{path.name} [base]: share = {base.share:g}, dev = {base.dev:g}; wanted share in (0, 1] and dev in [0, 1]"
        )
    model, here = table(raw, "model", path.name), f"{path.name} [model]"
    return Recipe(
        name=name,
        base=base,
        cleaning=read_cleaning(table(raw, "cleaning", path.name), f"{path.name} [cleaning]"),
        model=fill(ModelSize, model, here) if translates else fill(EncoderSize, model, here),
        training=fill(
            PretrainSettings if translates else EncoderSettings, table(raw, "training", path.name), f"{path.name} [training]"
        ),
        corpora=tuple(corpora),
    )


def _pairs_corpus(entry: Mapping[str, Any], here: str, data_dir: Path) -> tuple[Direction, CorpusFiles]:
    refuse_unknown(entry, {"direction", *KINDS, *OPTIONS}, here)
    direction = parse_direction(str(entry.get("direction", "")), f"{here}: direction")
    return direction, corpus_files(entry, direction, here, data_dir)


def _text_corpus(entry: Mapping[str, Any], here: str, data_dir: Path) -> tuple[Direction, CorpusFiles]:
    """A line is a sentence, which stands for both sides of a pair."""
    refuse_unknown(entry, {"language", "lines", "nway"}, here)
    language = parse_language(str(entry.get("language", "")), f"{here}: language")
    if ("lines" in entry) == ("nway" in entry):
        raise ConfigError(
            f"{here}: got {' and '.join(sorted({'lines', 'nway'} & set(entry))) or 'no corpus'}; wanted one of lines, nway"
        )
    if "nway" in entry:
        return language, corpus_files(entry, language, here, data_dir)
    return language, LineFiles(data_dir / str(entry["lines"]), data_dir / str(entry["lines"]))


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
    accounts: dict[Direction, Account] = {}
    cleaned = []
    for direction, files in recipe.corpora:
        account = Account()
        pairs = list(clean(read_corpus(files), direction, recipe.cleaning, account, f"corpus {direction}"))
        account.check(f"corpus {direction}")
        accounts[direction] = accounts.get(direction, Account()) + account
        cleaned.append((direction, pairs))
    return cleaned, accounts
