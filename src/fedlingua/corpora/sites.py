"""Federation files (docs/files.md): the sites, their corpora, and the rules for their text."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fedlingua.clustering.clusters import Clusters, Relatives, given_clusters
from fedlingua.common.errors import ConfigError, all_at_once
from fedlingua.common.files import read_toml
from fedlingua.common.languages import Direction, parse_direction, parse_language
from fedlingua.common.tables import count, fill, flag, refuse_unknown, table
from fedlingua.corpora.clean import read_cleaning
from fedlingua.corpora.deidentify import Hook, read_hook
from fedlingua.corpora.formats import PAIR_FORMATS, TEXT_FORMATS, SplitFiles, corpus_of, listed, options_of
from fedlingua.corpora.read import Corpus, PairDocuments
from fedlingua.corpora.rules import IntakeRules, TextRules
from fedlingua.corpora.sizes import Sizes, check_limits, read_sizes
from fedlingua.corpora.split import SPLITS, SplitRules, check_shares
from fedlingua.settings.kinds import FEDERATION, refuse_other_kind

FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Allowed names of sites and recipes, since folders are named after them."""
POOLED = "pooled"
"""Name of the single pseudo-site of a centralized method, which no site may have."""


@dataclass(frozen=True)
class Site:
    """One institution: its name, its direction or language, and its corpus, which the server of a deployment does not know.

    public_key: key of the only node that may act for the site, in OpenSSH's form; "" where nodes are not identified by keys.
    sizes: the site's own sizes, used before the federation's. Only for text in one language: public (whether a centralized run on
    public text may use it) and deidentify_with (the hook that every document passes through).
    """

    name: str
    direction: Direction
    corpus: Corpus[Any] | None
    public_key: str = ""
    sizes: Sizes = field(default_factory=Sizes)
    public: bool = False
    deidentify_with: Hook | None = None


@dataclass(frozen=True)
class Federation:
    """The sites of one federation file, in its order, and the rules for their text."""

    name: str
    sites: tuple[Site, ...]
    rules: TextRules
    families: Mapping[str, str]
    """language code -> family name, for the families that the file defines"""
    base: Path | None
    clusters: Clusters | None = None
    """which sites are averaged together, if the file defines clusters"""

    @property
    def site_names(self) -> list[str]:
        return [site.name for site in self.sites]

    def relatives(self, cluster_by: str) -> Relatives:
        """Return the languages that are averaged together: families if `cluster_by` is "family", else groups."""
        return Relatives(self.families, "family" if cluster_by == "family" else "group")


def read_federation(path: Path, data_dir: Path) -> Federation:
    """Parse and check a federation file; opens no corpus.

    Raises:
        ConfigError: no such file, an unknown key, language or register, a repeated name, no site, shares that do not add up to 1,
            a size above its limit, sites with and without `splits`, mixed text of a site without a corpus, sites with a direction
            and sites with a language, or no hook where de-identification is required.
    """
    raw = read_toml(path)
    refuse_other_kind(path, raw, FEDERATION)
    where = path.name
    tables = {name: table(raw, name, where) for name in ("split", "sizes", "cleaning", "text", "families", "clusters")}
    if not isinstance(raw.get("site", []), list):
        raise ConfigError(f"{where}: [site] is one table; write [[site]] for each site")
    if not isinstance(raw.get("base", ""), str):
        raise ConfigError(f"{where}: base = {raw['base']!r}; wanted the path of a recipe")
    own_split = dict(tables["split"])
    most = {part: own_split.pop(f"max-{part}", 0) for part in SPLITS}
    checks: list[Callable[[], Any]] = [
        lambda: refuse_unknown(raw, {"name", "base", "site", *tables}, where),
        lambda: refuse_unknown(tables["sizes"], set(SPLITS), f"{where} [sizes]"),
        lambda: Sizes(*(count(number, f"{where} [split]: max-{name}") for name, number in most.items())),
        lambda: fill(SplitRules, own_split, f"{where} [split]"),
        lambda: read_cleaning(tables["cleaning"], f"{where} [cleaning]"),
        lambda: read_sizes(tables["sizes"], f"{where} [sizes]"),
        lambda: fill(IntakeRules, tables["text"], f"{where} [text]"),
        *(partial(read_site, entry, number, where, data_dir) for number, entry in enumerate(raw.get("site", []), start=1)),
    ]
    _, _, limits, split, cleaning, sizes, text, *entries = all_at_once(checks)
    sites: tuple[Site, ...] = tuple(entries)
    check_shares(split, f"{where} [split]")
    if not sites:
        raise ConfigError(f"{where} has no [[site]]; give at least one with name, direction and a corpus")
    if "base" in raw and split.mode != "components":
        raise ConfigError(
            f"{where}: base = {raw['base']!r} needs [split] mode = 'components'; {split.mode!r} cannot keep its text out"
        )
    if split.mixed and (without := [site.name for site in sites if site.corpus is None]):
        raise ConfigError(
            f"{where}: [split] mixed = true mixes all sites' text, which only a simulation can, but {', '.join(without)} "
            "has no corpus here; leave mixed out, or give every site its corpus"
        )
    if split.mixed and split.mode == "shared-side":
        raise ConfigError(
            f"{where}: [split] mixed = true with mode = 'shared-side' would deal a site sentences of its own test text; give another mode"
        )
    _check_languages(sites, split, where)
    names = [site.name for site in sites]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{where}: {names.count(name)} sites have the name {name!r}; every site needs its own")
    rules = TextRules(split, limits, cleaning, tuple(site.direction for site in sites), sizes, text)
    for site in sites:
        sizes_asked(site, rules)
        check_deidentified(site, rules)
    return Federation(
        name=raw.get("name", path.stem),
        sites=sites,
        rules=rules,
        families=_families(tables["families"], where),
        base=(path.parent / raw["base"]).resolve() if "base" in raw else None,
        clusters=given_clusters(tables["clusters"], names, where) if "clusters" in raw else None,
    )


def _check_languages(sites: Sequence[Site], split: SplitRules, where: str) -> None:
    """Raise ConfigError if some sites translate or name documents and others do not, or if text in one language has mode = "given"."""
    of_one = [site.name for site in sites if site.direction.is_one_language]
    if of_one and len(of_one) < len(sites):
        others = ", ".join(site.name for site in sites if site.name not in of_one)
        raise ConfigError(
            f"{where}: got a language ({', '.join(of_one)}) and a direction ({others}); a federation either translates or trains on text "
            "in one language, so give every site the same of the two"
        )
    named = [site.name for site in sites if isinstance(site.corpus, PairDocuments)]
    if named and (unnamed := [site.name for site in sites if site.corpus and site.name not in named]):
        raise ConfigError(
            f"{where}: documents are named at {', '.join(named)} and not at {', '.join(unnamed)}; text is split by document or by "
            "sentence, and what one site tests on another could train on: give documents at every site or at none"
        )
    if of_one and split.mode == "given":
        raise ConfigError(
            f"{where}: [split] mode = 'given' is for translated text that is already split; text in one language takes 'components', "
            "'shared-side' or 'paper'"
        )


def check_deidentified(site: Site, rules: TextRules) -> None:
    """Raise ConfigError if the rules require a hook and the site has a corpus without one."""
    if rules.text.deidentify == "required" and site.corpus and not site.deidentify_with:
        how = "name its hook in deidentify-with"
        if not site.direction.is_one_language:
            how = "hooks are for text in one language, so leave deidentify out"
        raise ConfigError(f"site {site.name}: [text] deidentify = 'required', but no hook de-identifies this site's text; {how}")


def sizes_asked(site: Site, rules: TextRules) -> Sizes:
    """Return a site's sizes, which replace the federation's; raise ConfigError for one above its limit, or a wrong mode."""
    given, divided = rules.split.mode == "given", isinstance(site.corpus, SplitFiles)
    if site.corpus and given != divided:
        raise ConfigError(
            f"site {site.name}: got {'splits' if divided else 'a corpus that is not divided'} and [split] mode = {rules.split.mode!r}; "
            "mode = 'given' and `splits` go together, for every site"
        )
    sizes = site.sizes.before(rules.sizes)
    check_limits(sizes, rules.limits, f"site {site.name}")
    return sizes


_PAIR_KEYS, _TEXT_KEYS = ({*formats, *options_of(formats)} for formats in (PAIR_FORMATS, TEXT_FORMATS))
PAIR_ONLY = _PAIR_KEYS - _TEXT_KEYS
"""Keys of an entry that only go with `direction`."""
TEXT_ONLY = (_TEXT_KEYS | {"public", "deidentify-with"}) - _PAIR_KEYS
"""Keys of an entry that only go with `language`."""
CORPUS_KEYS = frozenset({*PAIR_FORMATS, *TEXT_FORMATS})
SITE_KEYS = _PAIR_KEYS | _TEXT_KEYS | TEXT_ONLY | {"name", "direction", "language", "public-key", *SPLITS}


def read_site(entry: Mapping[str, Any], number: int, where: str, data_dir: Path) -> Site:
    """Read one [[site]] table of a federation file or of a site's own file.

    Raises:
        ConfigError: an unknown key, direction, language or register, a bad name, several corpora, or conflicting keys.
    """
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where}: site {number} is {entry!r}; wanted a table, [[site]] with keys below it")
    name = str(entry.get("name", ""))
    here = f"{where}, site {name or number}"
    refuse_unknown(entry, SITE_KEYS, here)
    if not FOLDER_NAME.fullmatch(name):
        raise ConfigError(
            f"{here}: name = {name!r}; wanted letters, digits, '.', '_' or '-', since folders are named after sites"
        )
    if name == POOLED:
        raise ConfigError(f"{here}: centralized methods call all sites together {POOLED!r}; give the site another name")
    direction = _direction(entry, here)
    key, sizes, public = str(entry.get("public-key", "")), read_sizes(entry, here), flag(entry, "public", here)
    if not CORPUS_KEYS & set(entry):
        if own := sorted(((_PAIR_KEYS | _TEXT_KEYS) - CORPUS_KEYS | {*SPLITS, "deidentify-with"}) & set(entry)):
            raise ConfigError(
                f"{here}: got {', '.join(own)} and no corpus; a deployed site says this in its own file, beside its corpus"
            )
        return Site(name, direction, None, key, public=public)
    hook = read_hook(entry["deidentify-with"], here, data_dir) if "deidentify-with" in entry else None
    return Site(name, direction, corpus_of(entry, direction, here, data_dir), key, sizes, public, hook)


def _direction(entry: Mapping[str, Any], here: str) -> Direction:
    """Read an entry's `direction` or `language`; raise ConfigError for keys that belong to the other."""
    if "language" not in entry:
        if odd := sorted(TEXT_ONLY & set(entry)):
            raise ConfigError(
                f"{here}: got {', '.join(odd)}, which goes with language, for text that is not translated; give language"
            )
        return parse_direction(str(entry.get("direction", "")), f"{here}: direction")
    if "direction" in entry:
        raise ConfigError(
            f"{here}: got direction = {entry['direction']!r} and language = {entry['language']!r}; wanted direction for text that is "
            "translated, or language for text in one"
        )
    language = parse_language(str(entry["language"]), f"{here}: language")
    if odd := sorted(PAIR_ONLY & set(entry)):
        raise ConfigError(
            f"{here}: got {', '.join(odd)}, which goes with direction; text in one language is {listed(TEXT_FORMATS)}"
        )
    return language


def _families(raw: Mapping[str, Any], where: str) -> dict[str, str]:
    families: dict[str, str] = {}
    for family, codes in raw.items():
        if not isinstance(codes, list) or not re.fullmatch(r"[\w .-]+", family):
            raise ConfigError(
                f'{where} [families]: {family!r} = {codes!r}; wanted a name of letters and a list, as in Uralic = ["fi", "et"]'
            )
        for code in (parse_language(str(code), f"{where} [families]: {family} = {codes!r}: language").source for code in codes):
            if code in families:
                raise ConfigError(
                    f"{where} [families]: {code!r} is in {families[code]!r} and in {family!r}; give it only one family"
                )
            families[code] = family
    return families
