"""The text of a federation's sites: read, cleaned, split and cut to the sizes asked."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedlingua.corpora import phrasebook
from fedlingua.corpora.clean import Account, clean
from fedlingua.corpora.divided import SplitFiles, read_divided
from fedlingua.corpora.read import Pair, read_pairs
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.sites import Federation, Register, Site, check_files, sizes_asked
from fedlingua.corpora.sizes import REGISTER_SENTENCES, Sizes, check_found, first_sentences, more_sentences, take
from fedlingua.corpora.split import SPLITS, Side, Split, split_sites
from fedlingua.errors import CorpusError
from fedlingua.languages import Direction


@dataclass(frozen=True)
class SiteText:
    """One site's cleaned pairs by split, and the account of what was read."""

    direction: Direction
    account: Account
    splits: Mapping[Split, Sequence[Pair]]


def read_sites(federation: Federation, base: set[Side] | frozenset[Side]) -> dict[str, SiteText]:
    """Read, clean and split every site's text; `base` is what the backbone was trained on.

    Raises:
        CorpusError: a corpus that cannot be read, of which nothing is left, or that is too small for the sizes asked.
    """
    return read_text(federation.sites, federation.rules, base)


def check_sizes(federation: Federation, base: set[Side] | frozenset[Side] = frozenset()) -> None:
    """Refuse a federation whose text cannot be read or is too small, before anything is started; reads all of it.

    Raises:
        ConfigError, CorpusError: as `check_files` and `read_sites`, of the first site that is not as it has to be.
    """
    check_files(federation)
    read_sites(federation, base)


def read_text(sites: Iterable[Site], rules: TextRules, base: set[Side] | frozenset[Side] = frozenset()) -> dict[str, SiteText]:
    """Read, clean, split and cut the text of some of a federation's sites, by the rules of all.

    A register without a number of sentences grows until the sizes asked are met, or it has no more.

    Raises:
        CorpusError: a corpus that cannot be read, of which nothing is left, or that is too small for the sizes asked.
        ConfigError: a size above its limit, or splits where the rules divide text, or the other way about.
    """
    sites = tuple(sites)
    wanted = {site.name: sizes_asked(site, rules) for site in sites}
    growing = {site.name: first_sentences(wanted[site.name], rules.split) for site in sites if _grows(site)}
    while True:
        texts = _split_text(sites, rules, base, growing)
        grown = {name: more_sentences(count, texts[name].splits, wanted[name]) for name, count in growing.items()}
        if grown == growing:
            return {name: _cut(name, text, wanted[name], rules) for name, text in texts.items()}
        growing = grown


def _grows(site: Site) -> bool:
    return isinstance(site.corpus, Register) and site.corpus.sentences is None


def _split_text(
    sites: Sequence[Site], rules: TextRules, base: set[Side] | frozenset[Side], sentences: Mapping[str, int]
) -> dict[str, SiteText]:
    """Cleaned and split, not yet cut. sentences: of the sites whose register gives no number."""
    accounts = {site.name: Account() for site in sites}
    divided: dict[str, dict[Split, list[Pair]]] = {}
    cleaned: dict[str, tuple[Direction, list[Pair]]] = {}
    for site in sites:
        account = accounts[site.name]
        if isinstance(site.corpus, SplitFiles):
            divided[site.name] = read_divided(site.corpus, site.direction, rules.cleaning, account)
        else:
            pairs = _pairs(site, sentences.get(site.name, REGISTER_SENTENCES))
            cleaned[site.name] = (site.direction, list(clean(pairs, site.direction, rules.cleaning, account)))
        account.check(f"site {site.name}")
    splits = divided or split_sites(cleaned, rules.split, base, rules.directions)
    return {site.name: SiteText(site.direction, accounts[site.name], splits[site.name]) for site in sites}


def _cut(name: str, text: SiteText, sizes: Sizes, rules: TextRules) -> SiteText:
    """Every split at the size asked, or within its limit."""
    check_found(name, text.splits, sizes)
    for split in SPLITS:
        if not text.splits[split]:
            told = ", ".join(f"{part} {len(pairs)}" for part, pairs in text.splits.items())
            raise CorpusError(f"site {name}: no {split} sentence is left ({told}); give more text, or other shares in [split]")
    limits = dataclasses.asdict(rules.limits)
    parts = {
        split: take(pairs, split, sizes.of(split), rules.split)[: limits.get(split) or len(pairs)]
        for split, pairs in text.splits.items()
    }
    return dataclasses.replace(text, splits=parts)


def _pairs(site: Site, sentences: int) -> Iterable[Pair]:
    """sentences: of a register that gives no number."""
    assert site.corpus is not None, site.name  # check_corpora refuses it before
    if not isinstance(site.corpus, Register):
        assert not isinstance(site.corpus, SplitFiles), site.name  # divided already
        return read_pairs(site.corpus)
    try:
        given = site.corpus.sentences
        text = phrasebook.register_corpus(site.corpus.name, sentences if given is None else given, site.corpus.seed)
    except ValueError as error:
        raise CorpusError(f"site {site.name}: {error}") from error
    return map(Pair, text[site.direction.source], text[site.direction.target])
