"""The text of a federation's sites: read, cleaned, split and cut to the sizes asked; translated, or in one language."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.clean import Account, clean
from fedlingua.corpora.deidentify import load_hook
from fedlingua.corpora.divided import SplitFiles, read_divided
from fedlingua.corpora.documents import DocumentFiles, read_documents
from fedlingua.corpora.formats import CorpusFiles, read_corpus
from fedlingua.corpora.intake import take_in
from fedlingua.corpora.read import Pair
from fedlingua.corpora.registers import Register, register_lines
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.sites import Federation, Site, check_deidentified, check_files, sizes_asked
from fedlingua.corpora.sizes import REGISTER_SENTENCES, Sizes, check_found, first_sentences, more_sentences, take
from fedlingua.corpora.split import SPLITS, Side, Split, split_sites
from fedlingua.corpora.split_documents import Document, split_documents


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
        ConfigError: a size above its limit, splits where the rules divide text, or the other way about, no hook where the rules require
            de-identification, or a hook that is not here.
    """
    sites = tuple(sites)
    for site in sites:
        check_deidentified(site, rules)
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
    hooks = {site.name: load_hook(site.deidentify_with, f"site {site.name}") for site in sites if site.deidentify_with}
    divided: dict[str, dict[Split, list[Pair]]] = {}
    cleaned: dict[str, tuple[Direction, list[Pair]]] = {}
    documents: dict[str, tuple[str, list[Document]]] = {}
    for site in sites:
        account, here, asked = accounts[site.name], f"site {site.name}", sentences.get(site.name, REGISTER_SENTENCES)
        if isinstance(site.corpus, SplitFiles):
            divided[site.name] = read_divided(site.corpus, site.direction, rules.cleaning, account)
        elif site.direction.is_one_language:
            taken = take_in(_documents(site, asked), site.direction, rules.cleaning, hooks.get(site.name), account, here)
            documents[site.name] = (site.direction.source, taken)
        else:
            pairs = clean(_pairs(site, asked), site.direction, rules.cleaning, account, here)
            cleaned[site.name] = (site.direction, list(pairs))
        account.check(here, "sentences" if site.direction.is_one_language else "pairs")
    splits = dict(divided)
    if cleaned:
        splits |= split_sites(cleaned, rules.split, base, rules.directions)
    if documents:
        splits |= split_documents(documents, rules.split, base)
    for name in documents:
        accounts[name].take_back("in-train", accounts[name].kept - sum(map(len, splits[name].values())))
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
    if isinstance(site.corpus, Register):
        text = register_lines(site.corpus, sentences, f"site {site.name}")
        return map(Pair, text[site.direction.source], text[site.direction.target])
    assert isinstance(site.corpus, CorpusFiles), site.name  # check_corpora refuses what is not there, read_site what does not fit
    return read_corpus(site.corpus)


def _documents(site: Site, sentences: int) -> Iterable[str]:
    """Of a register each sentence. sentences: where it gives no number."""
    if isinstance(site.corpus, Register):
        return register_lines(site.corpus, sentences, f"site {site.name}")[site.direction.source]
    assert isinstance(site.corpus, DocumentFiles), site.name  # as above
    return read_documents(site.corpus)
