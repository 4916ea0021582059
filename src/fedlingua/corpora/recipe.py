"""The recipe of a backbone that is trained from nothing: which corpora, which share of them, which size.

The same file says to `fedlingua pretrain` what to train on and to a federation what its dev and test text must not touch. With
`task = "masked-language"` it is of an encoder, and its corpora have a `language`, with `lines` or `nway`. A direction or language may have
several corpora.

    name = "small"
    both-ways = true                          # optional: every pair trains, and watches, the other way round, too
    [base]                                    # optional, see BaseShare
    [cleaning]                                # optional, see CleaningRules
    [model]                                   # optional, see ModelSize and EncoderSize
    [training]                                # optional, see PretrainSettings and EncoderSettings
    [watching]                                # optional, see Watching
    [licences]                                # optional, for the model card: what a corpus is called = how it may be used
    [[corpus]]
    direction = "de-en"
    tsv = "tatoeba/de-en.tsv.gz"
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedlingua.backbones.sizes import EncoderSize, ModelSize
from fedlingua.common.errors import ConfigError
from fedlingua.common.files import read_toml
from fedlingua.common.languages import Direction, nearest, parse_direction, parse_language
from fedlingua.common.tables import fill, refuse_unknown, table
from fedlingua.corpora.clean import Account, CleaningRules, clean, read_cleaning
from fedlingua.corpora.formats import KINDS, OPTIONS, CorpusFiles, corpus_files, read_corpus
from fedlingua.corpora.read import LineFiles, Pair
from fedlingua.corpora.sites import FOLDER_NAME
from fedlingua.corpora.split import Components, Side, base_sides, position
from fedlingua.settings.config import Scalar
from fedlingua.settings.kinds import RECIPE, refuse_other_kind
from fedlingua.settings.pretraining import EncoderSettings, PretrainSettings, Watching
from fedlingua.settings.tasks import TASKS

RESERVED = ("demo", "demo-encoder")
"""Names of backbones that need no recipe."""
_TABLES = ("base", "cleaning", "model", "training", "watching", "licences")


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
    sources: tuple[str, ...]
    """of each corpus, what the file says of where it lies"""
    watching: Watching = field(default_factory=Watching)
    both_ways: bool = False
    licences: Mapping[str, str] = field(default_factory=dict)

    @property
    def trained(self) -> list[Direction]:
        """Directions, or languages, of the backbone, each once, in order."""
        back = [direction.reverse for direction, _ in self.corpora if self.both_ways]
        return list(dict.fromkeys([*(direction for direction, _ in self.corpora), *back]))


@dataclass(frozen=True)
class BaseText:
    """What a backbone trains on and is watched by, with the account of each corpus."""

    train: dict[Direction, list[Pair]]
    dev: dict[Direction, list[Pair]]
    accounts: dict[Direction, Account]


def read_recipe(path: Path, data_dir: Path, overrides: Mapping[str, Scalar] = MappingProxyType({})) -> Recipe:
    """Parse and check a recipe file; opens no corpus. overrides: values that go before the file's, by key, in a table "table.key".

    Raises:
        ConfigError: an unknown key, task or language, no corpus, a value that cannot be.
    """
    content = read_toml(path)
    refuse_other_kind(path, content, RECIPE)
    raw = _overridden(content, overrides)
    task = raw.get("task", "translation")
    if task not in TASKS:
        raise ConfigError(f"{path.name}: task = {task!r} is not known{nearest(task, TASKS)}; choose one of {', '.join(TASKS)}")
    refuse_unknown(raw, {"name", "task", "both-ways", "corpus", *_TABLES}, path.name)
    tables = {key: table(raw, key, path.name) for key in _TABLES}
    translates = task == "translation"
    read_corpus = _pairs_corpus if translates else _text_corpus
    corpora = [
        read_corpus(entry, f"{path.name}, corpus {number}", data_dir)
        for number, entry in enumerate(raw.get("corpus", []), start=1)
    ]
    for number, one in enumerate(corpora, start=1):
        if one in corpora[: number - 1]:
            raise ConfigError(f"{path.name}, corpus {number}: stands twice; leave one of the two out")
    if not corpora:
        wanted = f"direction and one of {', '.join(KINDS)}" if translates else "language and lines or nway"
        raise ConfigError(f"{path.name} has no [[corpus]]; give at least one with {wanted}")
    name, base = str(raw.get("name", path.stem)), fill(BaseShare, tables["base"], f"{path.name} [base]")
    if not FOLDER_NAME.fullmatch(name) or name in RESERVED:
        raise ConfigError(
            f"{path.name}: name = {name!r}; wanted letters, digits, '.', '_' or '-', and not what is built in ({', '.join(RESERVED)})"
        )
    if not (0 < base.share <= 1 and 0 <= base.dev <= 1):
        raise ConfigError(
            f"{path.name} [base]: share = {base.share:g}, dev = {base.dev:g}; wanted share in (0, 1] and dev in [0, 1]"
        )
    both_ways = raw.get("both-ways", False)
    if type(both_ways) is not bool or (both_ways and not translates):
        raise ConfigError(
            f"{path.name}: both-ways = {both_ways!r}; wanted true or false, and true only of a model that translates"
        )
    licences = tables["licences"]
    if odd := [name for name, licence in licences.items() if type(licence) is not str]:
        raise ConfigError(f"{path.name} [licences]: {odd[0]} = {licences[odd[0]]!r}; wanted text in quotation marks")
    training = fill(PretrainSettings if translates else EncoderSettings, tables["training"], f"{path.name} [training]")
    watching = fill(Watching, tables["watching"], f"{path.name} [watching]")
    _check_numbers(training, watching, base, path.name)
    shape, here = tables["model"], f"{path.name} [model]"
    model = fill(ModelSize, shape, here) if translates else fill(EncoderSize, shape, here)
    _check_shape(model, here)
    return Recipe(
        name=name,
        base=base,
        cleaning=read_cleaning(tables["cleaning"], f"{path.name} [cleaning]"),
        model=model,
        training=training,
        corpora=tuple(corpora),
        sources=tuple(str(next(entry[kind] for kind in (*KINDS, "lines") if kind in entry)) for entry in raw["corpus"]),
        watching=watching,
        both_ways=both_ways,
        licences=licences,
    )


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


def _check_numbers(training: PretrainSettings, watching: Watching, base: BaseShare, where: str) -> None:
    """Refuse numbers that nothing could be done with."""
    here = f"{where} [training]"
    if training.steps < 1 or training.tokens_per_batch < 1:
        raise ConfigError(f"{here}: steps = {training.steps}, tokens-per-batch = {training.tokens_per_batch}; wanted 1 or more")
    for key, value, wanted, right in (
        ("learning-rate", training.learning_rate, "above 0", 0 < training.learning_rate < math.inf),
        ("minutes", training.minutes, "0 (no limit) or more", 0 <= training.minutes < math.inf),
        ("warmup-steps", training.warmup_steps, "0 or more", training.warmup_steps >= 0),
        ("label-smoothing", training.label_smoothing, "0 or more and below 1", 0 <= training.label_smoothing < 1),
        ("weight-average", training.weight_average, "0 or more and below 1", 0 <= training.weight_average < 1),
        ("max-tokens", training.max_tokens, "4 or more", training.max_tokens >= 4),
        ("threads", training.threads, "1 or more", training.threads >= 1),
    ):
        if not right:
            raise ConfigError(f"{here}: {key} = {value:g}; wanted a number {wanted}")
    if not training.sampling_temperature >= 1:
        raise ConfigError(
            f"{here}: sampling-temperature = {training.sampling_temperature:g}; wanted 1 (by size) or more (more alike)"
        )
    for name in ("evaluate_every", "dev_sentences", "checkpoint_minutes"):
        if not getattr(watching, name) >= 0:
            raise ConfigError(f"{where} [watching]: {name.replace('_', '-')} = {getattr(watching, name):g}; wanted 0 or more")
    if watching.keep == "best" and base.dev == 0:
        raise ConfigError(
            f"{where} [watching]: keep = 'best' needs text that watches, and [base] dev = 0; give dev = 0.01, or keep = 'last'"
        )


def _check_shape(model: ModelSize | EncoderSize, here: str) -> None:
    """Refuse a model that cannot be."""
    for name, value in asdict(model).items():
        key = name.replace("_", "-")
        if name == "dropout" and not 0 <= value < 1:
            raise ConfigError(f"{here}: {key} = {value:g}; wanted 0 or more and below 1")
        if name != "dropout" and value < 1:
            raise ConfigError(f"{here}: {key} = {value}; wanted 1 or more")
    if model.d_model % model.heads:
        raise ConfigError(f"{here}: d-model = {model.d_model}, heads = {model.heads}; wanted a d-model that its heads divide")


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
                part = dev if watches else train
                part.setdefault(direction, []).append(pair)
                if recipe.both_ways:
                    part.setdefault(direction.reverse, []).append(Pair(pair.target, pair.source))
    return BaseText(train, dev, accounts)


def made_of(recipe: Recipe, text: BaseText, versions: Mapping[str, str]) -> dict[str, Any]:
    """What decides a backbone's bytes, by dotted key as in the recipe: its settings, its text, the libraries that compute.

    When checkpoints are made decides nothing.
    """
    tables: dict[str, Any] = {
        "base": recipe.base,
        "cleaning": recipe.cleaning,
        "model": recipe.model,
        "training": recipe.training,
    }
    watching = {key: value for key, value in asdict(recipe.watching).items() if key != "checkpoint_minutes"}
    settings = {**{table: asdict(content) for table, content in tables.items()}, "watching": watching}
    return {
        **{f"{table}.{key.replace('_', '-')}": value for table, content in settings.items() for key, value in content.items()},
        **{
            f"corpus {number}": f"{direction} {source}"
            for number, ((direction, _), source) in enumerate(zip(recipe.corpora, recipe.sources, strict=True), start=1)
        },
        "both-ways": recipe.both_ways,
        "text, sha256": _text_hash(text),
        **{f"version of {name}": versions[name] for name in ("torch", "transformers", "sentencepiece")},
    }


def _text_hash(text: BaseText) -> str:
    digest = hashlib.sha256()
    for part in (text.train, text.dev):
        for direction, pairs in part.items():
            digest.update(json.dumps([str(direction), pairs], ensure_ascii=False).encode())
    return digest.hexdigest()[:16]


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
