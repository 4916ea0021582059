"""Read, clean, split and cut to size the text of a federation's sites, translated or in one language.

Documents are de-identified, split into sentences and cleaned, and each sentence is counted. In text in one language, a sentence is
a pair of itself with itself, so that all code that reads pairs can read it.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.clean import Account, CleaningRules, clean, judge, judged, normalized, usable
from fedlingua.corpora.deidentify import Failure, deidentify, load_hook
from fedlingua.corpora.formats import SplitFiles
from fedlingua.corpora.read import Pair, PairDocuments
from fedlingua.corpora.registers import Register
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.scripts import in_order
from fedlingua.corpora.sentences import split_sentences
from fedlingua.corpora.sites import Federation, Site, check_deidentified, sizes_asked
from fedlingua.corpora.sizes import Sizes, check_found, first_sentences, more_sentences, take
from fedlingua.corpora.split import SPLITS, Document, Side, Split, split_documents, split_sites


@dataclass(frozen=True)
class SiteText:
    """One site's cleaned pairs by split, and the counts of what was read, kept and dropped. documents: pair -> the name of its document,
    if the corpus has names."""

    direction: Direction
    account: Account
    splits: Mapping[Split, Sequence[Pair]]
    documents: Mapping[Pair, str] = field(default_factory=dict)


def read_sites(federation: Federation, base: set[Side] | frozenset[Side] = frozenset()) -> dict[str, SiteText]:
    """Read, clean and split every site's text, as `read_text` does; `base` has the sentences that the backbone was trained on."""
    return read_text(federation.sites, federation.rules, base)


def read_text(sites: Iterable[Site], rules: TextRules, base: set[Side] | frozenset[Side] = frozenset()) -> dict[str, SiteText]:
    """Read, clean, split and cut the text of some of a federation's sites, by the federation's rules.

    A register without a number of sentences grows until the sizes are met or it has its largest size.

    Raises:
        CorpusError: a corpus cannot be read, has nothing left after cleaning, or is too small for its sizes.
        ConfigError: a size is above its limit, `splits` do not fit the [split] mode, or a required hook is not given or not
            installed here.
    """
    sites = tuple(sites)
    for site in sites:
        check_deidentified(site, rules)
    wanted = {site.name: sizes_asked(site, rules) for site in sites}
    growing = {
        site.name: first_sentences(wanted[site.name], rules.split)
        for site in sites
        if isinstance(site.corpus, Register) and site.corpus.sentences is None
    }
    while True:
        texts = _split_text(sites, rules, base, growing)
        grown = {name: more_sentences(count, texts[name].splits, wanted[name]) for name, count in growing.items()}
        if grown == growing:
            return {name: _cut(name, text, wanted[name], rules) for name, text in texts.items()}
        growing = grown


def _split_text(
    sites: Sequence[Site], rules: TextRules, base: set[Side] | frozenset[Side], sentences: Mapping[str, int]
) -> dict[str, SiteText]:
    """Return the text cleaned and split, not yet cut. sentences: how many to generate at sites whose register gives no number."""
    accounts = {site.name: Account() for site in sites}
    hooks = {site.name: load_hook(site.deidentify_with, f"site {site.name}") for site in sites if site.deidentify_with}
    splits: dict[str, dict[Split, list[Pair]]] = {}
    cleaned: dict[str, tuple[Direction, list[Pair]]] = {}
    documents: dict[str, tuple[Direction, list[Document]]] = {}
    for site in sites:
        account, here, corpus = accounts[site.name], f"site {site.name}", site.corpus
        assert corpus is not None, here  # check_corpora refuses a site without a corpus
        if isinstance(corpus, Register) and site.name in sentences:
            corpus = dataclasses.replace(corpus, sentences=sentences[site.name])
        if isinstance(corpus, SplitFiles):
            # Each file is cleaned by itself, so that a pair is a duplicate only inside its split.
            splits[site.name] = {"base": []}
            for split, file in corpus.files.items():
                splits[site.name][split] = list(clean(file.read(), site.direction, rules.cleaning, account, str(file.path)))
        elif site.direction.is_one_language:
            usable_documents = take_in(corpus.read(), site.direction, rules.cleaning, hooks.get(site.name), account, here)
            documents[site.name] = (site.direction, usable_documents)
        elif isinstance(corpus, PairDocuments):
            documents[site.name] = (site.direction, _grouped(corpus, site.direction, rules.cleaning, account, here))
        else:
            pairs = clean(corpus.read(), site.direction, rules.cleaning, account, here)
            cleaned[site.name] = (site.direction, list(pairs))
        account.check(here, "sentences" if site.direction.is_one_language else "pairs", () if account.read else corpus.paths())
    if cleaned:
        splits |= split_sites(cleaned, rules.split, base, rules.directions)
    if documents:
        splits |= split_documents(documents, rules.split, base)
    for name in (*cleaned, *documents):
        accounts[name].take_back("in-train", accounts[name].kept - sum(map(len, splits[name].values())))
    names = {
        name: {pair: document.text for document in of_site for pair in document.sentences}
        for name, (direction, of_site) in documents.items()
        if not direction.is_one_language
    }
    return {
        site.name: SiteText(site.direction, accounts[site.name], splits[site.name], names.get(site.name, {})) for site in sites
    }


def check_documents(texts: Mapping[str, SiteText], unit: str) -> None:
    """Raise ConfigError if documents are to be hidden (`unit`, the run's dp.unit) and a text does not tell them. texts: name -> text."""
    for name, text in texts.items():
        if unit == "document" and not text.documents:
            raise ConfigError(
                f"site {name}: dp.unit = 'document', and the site's corpus does not say which document a pair is from; name a file that "
                "does with documents, beside the corpus (no splits, no mixed text), or give dp.unit = 'sentence'"
            )


def _grouped(corpus: PairDocuments, direction: Direction, rules: CleaningRules, account: Account, where: str) -> list[Document]:
    """Return the documents of a corpus with the pairs that cleaning keeps. A repeated pair is dropped, in any document, whatever the rules
    say: a pair belongs to one document."""
    rules = dataclasses.replace(rules, drop_duplicates=True)
    pairs = judged(normalized(in_order(corpus.read(), direction, where), rules), judge(direction, rules, where), account)
    documents = dict[str, list[Pair]]()
    for number, (judgement, name) in enumerate(zip_longest(pairs, corpus.names()), start=1):
        if judgement is None or name is None:
            fewer, more = ("pairs", corpus.file) if judgement is None else (corpus.file, "pairs")
            raise CorpusError(
                f"{where}: {fewer} end after {number - 1}, before {more}; each line of {corpus.file} names a pair's document"
            )
        if judgement[1] is None:
            documents.setdefault(name, []).append(judgement[0])
    return [Document(name, sentences) for name, sentences in documents.items()]


def _cut(name: str, text: SiteText, sizes: Sizes, rules: TextRules) -> SiteText:
    """Return the text with every split cut to its size or limit; raise CorpusError for an empty or too small split."""
    check_found(name, text.splits, sizes)
    for split in SPLITS:
        if not text.splits[split]:
            counts = ", ".join(f"{part} {len(pairs)}" for part, pairs in text.splits.items())
            shared = text.account.dropped.get("in-train", 0)
            why = f"; {shared} of dev and test have a sentence that train has, too, and are left out" if shared else ""
            raise CorpusError(
                f"site {name}: no {split} sentence is left ({counts}{why}); give more text, or other shares in [split]"
            )
    parts = {
        split: take(pairs, split, sizes.of(split), rules.split)[: rules.limits.of(split) or len(pairs)]
        for split, pairs in text.splits.items()
    }
    return dataclasses.replace(text, splits=parts)


def take_in(
    documents: Iterable[str],
    language: Direction,
    rules: CleaningRules,
    hook: Callable[[str], Any] | None,
    account: Account,
    where: str,
) -> list[Document]:
    """Return the de-identified documents that have any sentence left, with the sentences that every rule keeps.

    A repeated sentence is dropped, in any document. A document on which the hook fails is not used; it is counted by the type of failure,
    and the sentences of its raw text are counted as not-deidentified.

    Raises:
        CorpusError: the hook fails on every document (the message has the types of failure, never their text), or strict `rules`
            would drop a sentence.
    """
    against, failures, passed = judge(language, rules, where), account.failed_documents, 0
    usable_documents = []
    for raw in documents:
        text = deidentify(raw, hook) if hook else raw
        if isinstance(text, Failure):
            failures[text.kind] = failures.get(text.kind, 0) + 1
            lost = len(split_sentences(raw, language.source, rules.max_words))
            account.read += lost
            account.drop("not-deidentified", lost)
            continue
        passed += 1
        pairs = (Pair(sentence, sentence) for sentence in split_sentences(text, language.source, rules.max_words))
        if sentences := list(usable(normalized(pairs, rules), against, account)):
            usable_documents.append(Document(text, sentences))
    if failures and not passed:
        raise CorpusError(
            f"{where}: deidentify-with failed on all of {sum(failures.values())} documents ({list_failures(failures)}); "
            "try it on one of them"
        )
    return usable_documents


def list_failures(failures: Mapping[str, int]) -> str:
    """Return the types of failure with their numbers of documents, for a message."""
    return ", ".join(f"{kind} {count}" for kind, count in sorted(failures.items()))
