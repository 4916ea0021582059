"""Find sentences that several sites have, by keyed hashes, so that no text leaves a site.

Sentences that are the same to cleaning and splitting (`as_seen`) are the same here, and so are those that differ in case or outer
punctuation alone: what is looked for is what a model may have learned at another site, and nothing is dropped for it but dev and test.

The digest of a sentence is 64 bits of keyed BLAKE2b over its language and its normalised form, under a key that the sites share.
Equal digests mean equal sentences: among a hundred million different ones, the probability of any collision is below one in a
thousand. Whoever has the digests without the key can compare and count them, but not test guessed sentences; whoever has the
key can test any sentence.

A pair of dev or test leaks if one of its two sides occurs in the training text of another site.
"""

import hashlib
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import regex
from safetensors import SafetensorError, safe_open

from fedlingua.common.errors import CorpusError, ExchangeError
from fedlingua.common.languages import plain_code
from fedlingua.common.visible import as_seen
from fedlingua.corpora.read import Pair
from fedlingua.corpora.split import SPLITS, Side, Split, sides
from fedlingua.corpora.texts import SiteText
from fedlingua.exchange.tensors import save_tensors

Digests = np.ndarray[Any, Any]
"""Digests of distinct sentences: (sentences,) uint64, ascending."""
SiteDigests = Mapping[Split, Mapping[str, Digests]]
"""train, dev and test -> language, without country and script -> digests of its sentences."""
DTYPE = np.dtype(np.uint64)
JUDGED: tuple[Split, ...] = ("dev", "test")
"""Splits that are checked for leaks."""
REASON = "trained-elsewhere"
"""Reason under which removed pairs are counted, one of fedlingua.corpora.clean.REASONS."""
ALL = "all"
"""Key, in counts of shared sentences, for all splits of a site together."""
LEAKS_FILE = "leaks.safetensors"
"""File in a site's folder of a run with the digests of its leaking sentences, written after the comparison."""
_OUTER = regex.compile(r"^[ \p{P}]+|[ \p{P}]+$")
_PERSON = b"overlap 1"
"""Version of normalising and hashing, mixed into each hash; digests of different versions never match."""


def normalised(sentence: str) -> str:
    """Normalise a sentence, so that editions of it become equal: what is the same sentence (`as_seen`), in any case and with any
    punctuation at either end. A sentence of punctuation alone, as "?!", keeps it.
    """
    folded = as_seen(sentence).casefold()
    # Case folding can decompose letters.
    words = folded if folded.isascii() else " ".join(unicodedata.normalize("NFKC", folded).split())
    return _OUTER.sub("", words) or words


def digest(key: bytes, side: Side) -> int:
    """Return a sentence's keyed digest of 64 bits. key: 16 to 64 bytes."""
    language, sentence = side
    made = hashlib.blake2b(f"{language}\x1f{normalised(sentence)}".encode(), key=key, digest_size=8, person=_PERSON)
    return int.from_bytes(made.digest(), "big")


def key_check(key: bytes) -> str:
    """Return 16 hexadecimal digits that identify a key without revealing it."""
    return hashlib.blake2b(b"which key this is", key=key, digest_size=8, person=_PERSON).hexdigest()


def digests_of(texts: Iterable[SiteText], key: bytes) -> dict[Split, dict[str, Digests]]:
    """Return the digests of the sentences of a site's texts, by split and language."""
    texts = list(texts)
    languages = sorted({plain_code(code) for text in texts for code in text.direction.sides})
    return {
        split: {
            language: np.unique(np.fromiter((digest(key, side) for side in _sides(texts, split, language)), DTYPE))
            for language in languages
        }
        for split in SPLITS
    }


def _sides(texts: Iterable[SiteText], split: Split, language: str) -> Iterable[Side]:
    for text in texts:
        for code, place in {code: place for place, code in enumerate(text.direction.sides)}.items():
            if plain_code(code) == language:
                yield from ((language, pair[place]) for pair in text.splits[split])


# --- Comparing ------------------------------------------------------------------------------------------------------------------------


def shared_sentences(sites: Mapping[str, SiteDigests]) -> dict[str, dict[str, Any]]:
    """Count each site's distinct sentences, and those that other sites have, too: site -> language -> counts.

    Counts: `sentences` (distinct ones), `elsewhere` (those at any other site) and `at` (those at each other site with the
    language), each for `all`, train, dev and test. `all` counts matches in all of the other's text, a split those in its train.
    `trained` counts those of dev and test in the site's own train.
    """
    whole = {
        site: {language: np.unique(np.concatenate([own[split][language] for split in SPLITS])) for language in own["train"]}
        for site, own in sites.items()
    }
    return {site: {language: _shared(site, language, sites, whole) for language in whole[site]} for site in sites}


def _shared(
    site: str, language: str, sites: Mapping[str, SiteDigests], whole: Mapping[str, Mapping[str, Digests]]
) -> dict[str, Any]:
    own: dict[str, Digests] = {ALL: whole[site][language]}
    own |= {split: sites[site][split][language] for split in SPLITS}
    anywhere = {part: np.zeros(len(digests), bool) for part, digests in own.items()}
    at = {}
    for other in sites:
        if other == site or language not in whole[other]:
            continue
        train = sites[other]["train"][language]
        shared = {part: np.isin(digests, whole[other][language] if part == ALL else train) for part, digests in own.items()}
        at[other] = {part: int(mask.sum()) for part, mask in shared.items()}
        anywhere = {part: anywhere[part] | mask for part, mask in shared.items()}
    return {
        "sentences": {part: len(digests) for part, digests in own.items()},
        "elsewhere": {part: int(mask.sum()) for part, mask in anywhere.items()},
        "at": at,
        "trained": {split: int(np.isin(own[split], own["train"]).sum()) for split in JUDGED},
    }


def check_hashes(name: str, hashes: np.ndarray[Any, Any]) -> None:
    """Raise ExchangeError unless received hashes are a row of uint64 that rises. The same bytes in another type are other hashes."""
    if hashes.dtype != DTYPE or hashes.ndim != 1:
        raise ExchangeError(f"the hashes {name} are {hashes.dtype} {hashes.shape}; wanted a row of {DTYPE}")
    if (hashes[1:] <= hashes[:-1]).any():
        raise ExchangeError(f"the hashes {name} do not rise; wanted each once, sorted")


def leaks(sites: Mapping[str, SiteDigests]) -> dict[str, Digests]:
    """Return, for each site, the digests of its dev and test that also occur in another site's training text."""
    leaking = {site: [np.empty(0, DTYPE)] for site in sites}
    for site, other in permutations(sites, 2):
        for split in JUDGED:
            for language, own in sites[site][split].items():
                if language in sites[other]["train"]:
                    leaking[site].append(own[np.isin(own, sites[other]["train"][language])])
    return {site: np.unique(np.concatenate(digests)) for site, digests in leaking.items()}


# --- Leaving out ----------------------------------------------------------------------------------------------------------------------


def without_leaks(text: SiteText, leaking: Digests, key: bytes) -> SiteText:
    """Return the text without the pairs of dev and test that have a side in `leaking`; these are counted as dropped."""
    known = set(leaking.tolist())

    def leaks(pair: Pair) -> bool:
        return any(digest(key, side) in known for side in sides(pair, text.direction))

    left = {split: [pair for pair in text.splits[split] if not leaks(pair)] for split in JUDGED}
    account = replace(text.account, dropped=dict(text.account.dropped))
    account.take_back(REASON, sum(len(text.splits[split]) - len(left[split]) for split in JUDGED))
    return replace(text, account=account, splits={**text.splits, **left})


def left_out(before: Iterable[SiteText], after: Iterable[SiteText]) -> dict[Split, int]:
    """Count the pairs of dev and of test that were removed between `before` and `after`."""
    both = list(zip(before, after, strict=True))
    return {split: sum(len(text.splits[split]) - len(left.splits[split]) for text, left in both) for split in JUDGED}


def check_left(sites: Mapping[str, Mapping[Split, int]], left_out: Mapping[str, Mapping[Split, int]]) -> None:
    """Raise CorpusError if all of a site's dev or test would be removed. sites: site -> split -> pairs before removal."""
    empty = [
        f"{site}: all {sites[site][split]} pairs of {split}"
        for site, counts in left_out.items()
        for split, count in counts.items()
        if 0 < sites[site][split] <= count
    ]
    if empty:
        raise CorpusError(
            f"nothing would be left of what other sites train on ({'; '.join(empty)}): divide the text so that equal sentences stay in one "
            "split ([split] mode = 'components'), or take overlap = 'report'"
        )


def save_leaks(folder: Path, leaking: Digests, key: bytes) -> None:
    """Write the file of leaking digests atomically. leaking: (sentences,) uint64."""
    save_tensors({"digests": leaking}, folder / LEAKS_FILE, {"key": key_check(key)})


def load_without_leaks(texts: Mapping[str, SiteText], folder: Path, key: bytes) -> dict[str, SiteText]:
    """Return a site's texts without the leaks that the file in `folder` lists.

    Raises:
        ExchangeError: the file is missing, damaged, or made under another key; the message names no path.
    """
    try:
        with safe_open(folder / LEAKS_FILE, "numpy") as file:
            made_under, leaking = (file.metadata() or {}).get("key"), file.get_tensor("digests")
    except (OSError, SafetensorError) as error:
        raise ExchangeError(
            f"this site has lost the list of pairs that it leaves out in this run ({type(error).__name__} of {LEAKS_FILE}), which "
            "is made before the first round: start a new run"
        ) from error
    if made_under != key_check(key):
        raise ExchangeError(
            "this site's overlap key differs from the one under which the sites' text was compared when the run began; put that one back, "
            "or start a new run"
        )
    return {name: without_leaks(text, leaking, key) for name, text in texts.items()}
