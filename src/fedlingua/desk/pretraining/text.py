"""A backbone's training and dev text, and everything that determines the backbone's bytes. Does not import torch."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fedlingua.common.errors import BackboneError
from fedlingua.common.languages import Direction
from fedlingua.corpora.clean import Account
from fedlingua.corpora.read import Pair
from fedlingua.corpora.recipe import cleaned_text
from fedlingua.corpora.split import Components, sides
from fedlingua.desk.pretraining.recipe import Recipe


@dataclass(frozen=True)
class BaseText:
    """A backbone's training and dev text, with the account of each corpus."""

    train: dict[Direction, list[Pair]]
    dev: dict[Direction, list[Pair]]
    accounts: dict[Direction, Account]


def base_text(recipe: Recipe) -> BaseText:
    """Read, clean and choose the backbone's text; a component of equal sentences goes as a whole to train or to dev."""
    cleaned, accounts = cleaned_text(recipe)
    components, base = Components(cleaned), recipe.base
    train: dict[Direction, list[Pair]] = {}
    dev: dict[Direction, list[Pair]] = {}
    for direction, pairs in cleaned:
        for pair in pairs:
            side = sides(pair, direction)[0]
            if components.is_among(side, base.share, base.key, "base"):
                part = dev if components.is_among(side, base.dev, base.key, "pretrain-dev") else train
                part.setdefault(direction, []).append(pair)
                if recipe.both_ways:
                    part.setdefault(direction.reverse, []).append(Pair(pair.target, pair.source))
    if base.dev and train and not dev:
        raise BackboneError(f"[base] dev = {base.dev:g} leaves no dev text; give a larger dev, more text, or dev = 0")
    return BaseText(train, dev, accounts)


def made_of(recipe: Recipe, text: BaseText, versions: Mapping[str, str]) -> dict[str, Any]:
    """Return everything that determines a backbone's bytes, by dotted key as in the recipe: settings, text, numerical libraries.

    The interval of checkpoints is left out, since it does not affect them.
    """
    tables = {name: asdict(getattr(recipe, name)) for name in ("base", "cleaning", "model", "training", "watching")}
    del tables["watching"]["checkpoint_minutes"]
    return {
        **{f"{table}.{key.replace('_', '-')}": value for table, content in tables.items() for key, value in content.items()},
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
