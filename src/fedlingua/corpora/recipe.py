"""The text of a backbone that was trained from scratch: what of its recipe (docs/files.md) a federation has to know.

`fedlingua pretrain` trains on it; dev and test of a federation that names the recipe as its base must not contain it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import read_toml
from fedlingua.common.languages import Direction, parse_direction, parse_language
from fedlingua.common.tables import check_choice, fill, refuse_unknown, table
from fedlingua.corpora.clean import Account, CleaningRules, clean, read_cleaning
from fedlingua.corpora.formats import FILE_FORMATS, Format, corpus_of, listed, options_of
from fedlingua.corpora.read import Corpus, LineFiles, Pair
from fedlingua.corpora.split import Side, base_sides
from fedlingua.settings.kinds import RECIPE, refuse_other_kind
from fedlingua.settings.tasks import TASKS


@dataclass(frozen=True)
class BaseShare:
    """The text that the backbone uses: a `share` of the components, chosen by `key`, of which a share `dev` is its dev text."""

    key: str = "fedlingua"
    share: float = 1.0
    dev: float = 0.01


@dataclass(frozen=True)
class RecipeText:
    """The text of a recipe.

    Attributes:
        base: Which share of it is used; cleaning: what of it is left out.
        corpora: Each corpus with its direction; sources: for each, the file, folder or dataset that the recipe names.
    """

    base: BaseShare
    cleaning: CleaningRules
    corpora: tuple[tuple[Direction, Corpus[Pair]], ...]
    sources: tuple[str, ...]


TEXT_FORMATS = {"lines": Format(lambda entry: LineFiles(entry.path, entry.path)), "nway": FILE_FORMATS["nway"]}
"""Formats of text in one language: each line is a sentence, used as both sides of a pair. At a site, a line of `lines` is a document."""


def read_recipe_text(path: Path, data_dir: Path) -> RecipeText:
    """Parse and check what a recipe file says of its text; opens no corpus. Errors as in `recipe_text`."""
    content = read_toml(path)
    refuse_other_kind(path, content, RECIPE)
    return recipe_text(content, path.name, data_dir)


def recipe_text(raw: Mapping[str, Any], where: str, data_dir: Path) -> RecipeText:
    """Return the text of a parsed recipe.

    Raises:
        ConfigError: An unknown task or language, no corpus, one that is listed twice, or an invalid value; begins with `where`.
    """
    task = raw.get("task", "translation")
    check_choice(task, TASKS, f"{where}: task =")
    translates = task == "translation"
    formats = FILE_FORMATS if translates else TEXT_FORMATS
    entries = raw.get("corpus", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(f"{where}: corpus = {entries!r}; wanted tables, [[corpus]] with keys below each")
    corpora = [_corpus(entry, formats, f"{where}, corpus {number}", data_dir) for number, entry in enumerate(entries, start=1)]
    for number, corpus in enumerate(corpora, start=1):
        if corpus in corpora[: number - 1]:
            raise ConfigError(f"{where}, corpus {number}: is listed twice; remove one of the two")
    if not corpora:
        wanted = f"{'direction and one of' if translates else 'language and'} {listed(formats)}"
        raise ConfigError(f"{where} has no [[corpus]]; give at least one with {wanted}")
    base = fill(BaseShare, table(raw, "base", where), f"{where} [base]")
    if not 0 < base.share <= 1:
        raise ConfigError(f"{where} [base]: share = {base.share:g}; wanted a number above 0, at most 1")
    return RecipeText(
        base=base,
        cleaning=read_cleaning(table(raw, "cleaning", where), f"{where} [cleaning]"),
        corpora=tuple(corpora),
        sources=tuple(str(next(entry[name] for name in formats if name in entry)) for entry in entries),
    )


def _corpus(entry: Mapping[str, Any], formats: Mapping[str, Format], here: str, data_dir: Path) -> tuple[Direction, Corpus[Pair]]:
    key, parse = ("language", parse_language) if formats is TEXT_FORMATS else ("direction", parse_direction)
    refuse_unknown(entry, {key, *formats, *options_of(formats)}, here)
    direction = parse(str(entry.get(key, "")), f"{here}: {key}")
    return direction, corpus_of(entry, direction, here, data_dir, formats)


def forbidden_sides(recipe: RecipeText) -> set[Side]:
    """Return every sentence of the components that the backbone trains on."""
    return base_sides(cleaned_text(recipe)[0], recipe.base.key, recipe.base.share)


def cleaned_text(recipe: RecipeText) -> tuple[list[tuple[Direction, list[Pair]]], dict[Direction, Account]]:
    """Read and clean every corpus; return the text, and the accounts by direction."""
    accounts: dict[Direction, Account] = {}
    cleaned = []
    for direction, corpus in recipe.corpora:
        account = Account()
        pairs = list(clean(corpus.read(), direction, recipe.cleaning, account, f"corpus {direction}"))
        account.check(f"corpus {direction}")
        accounts[direction] = accounts.get(direction, Account()) + account
        cleaned.append((direction, pairs))
    return cleaned, accounts
