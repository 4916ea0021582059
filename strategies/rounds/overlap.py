"""Search for sentences that several sites have: all sites send keyed hashes, and the server compares them, without the key or any text.

It sends two requests before the first round. DIGESTS: every site replies with the hashes of its sentences. LEAKS: every site receives those
hashes of its dev and test sentences that are also in another site's train, replies with the number of pairs that have them and, under
overlap = "remove", leaves these out from then on. The server stores counts and no hash.
"""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from fedlingua.common.errors import CorpusError, ExchangeError, RunError
from fedlingua.common.languages import plain_code
from fedlingua.corpora.overlap import DTYPE, JUDGED, SiteDigests, check_hashes, check_left, leaks, shared_sentences
from fedlingua.corpora.split import SPLITS, Split
from fedlingua.exchange import protocol
from fedlingua.exchange.checks import SHARE, WITHOUT_TENSORS, check_numbers, check_records
from fedlingua.exchange.records import opened, to_record
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.config import Settings
from strategies.rounds.phases import ask_every_site
from strategies.rounds.registration import Registry

FILE = "overlap.json"
_CHECK_DIGITS = 16


def compare_sites(grid: Grid, settings: Settings, registry: Registry, folder: RunFolder) -> None:
    """Compare the sites' text if `overlap` says so; a resumed run reuses what its first attempt has stored."""
    if settings.overlap == "off" or registry.pooled:
        return
    known = folder.read(FILE) if settings.resume else None
    if known is None:
        known = _ask_and_compare(grid, settings, registry, folder)
        folder.write(FILE, known)
    if settings.overlap == "remove":
        registry.leave_out({site: entry["leaks"] for site, entry in known["sites"].items()})


def _ask_and_compare(grid: Grid, settings: Settings, registry: Registry, folder: RunFolder) -> dict[str, Any]:
    """Ask all sites and compare their hashes; return the content of overlap.json."""
    if len(registry.expected) < 2:
        raise RunError(
            f"overlap = {settings.overlap!r} compares sites with each other, and {registry.expected[0]} is the only one; leave it 'off'"
        )
    need = f"overlap = {settings.overlap!r} needs the hashes of every site's sentences"
    ask = partial(ask_every_site, grid, settings, registry, folder)
    replies = ask(protocol.DIGESTS, partial(_digests, registry), need, partial(_most_bytes, registry))
    _check_one_key({site: check for site, (check, _) in replies.items()}, registry)
    digests = {site: hashes for site, (_, hashes) in replies.items()}
    leaking = {site: {protocol.ARRAYS: to_record({protocol.LEAKING: hashes})} for site, hashes in leaks(digests).items()}
    need = f"overlap = {settings.overlap!r} needs every site's number of pairs that leak"
    counts = ask(protocol.LEAKS, partial(_leaks, registry), need, lambda _: WITHOUT_TENSORS, leaking.__getitem__)
    if settings.overlap == "remove":
        sizes = {site: {split: int(registry.about[site][split]) for split in JUDGED} for site in registry.expected}
        try:
            check_left(sizes, counts)
        except CorpusError as error:
            raise RunError(f"overlap = 'remove': {error}") from error
    languages = shared_sentences(digests)
    sites = {site: {"languages": languages[site], "leaks": counts[site]} for site in registry.expected}
    pairs = ", ".join(f"{site} {counts[site]['dev']} of dev, {counts[site]['test']} of test" for site in registry.expected)
    done = "left out" if settings.overlap == "remove" else "kept"
    folder.event("note", text=f"pairs of which another site trains on a sentence, {done}: {pairs}")
    return {"removed": settings.overlap == "remove", "sites": sites}


def _check_one_key(checks: Mapping[str, str], registry: Registry) -> None:
    if len(set(checks.values())) == 1:
        return
    by_key = {check: [site for site in registry.expected if checks[site] == check] for check in sorted(set(checks.values()))}
    keys = "; ".join(f"{check}: {', '.join(sites)}" for check, sites in by_key.items())
    raise RunError(
        f"the sites hash under {len(by_key)} different overlap keys ({keys}), and only hashes under one can be compared; give every "
        "site the same file"
    )


def _languages(registry: Registry, site: str) -> Counter[str]:
    """Return the languages of the site's sentences, each with its number of codes: en-GB and en-US are two of en."""
    return Counter(map(plain_code, sorted({code for one in registry.directions[site] for code in one.sides})))


def _most_bytes(registry: Registry, site: str) -> int:
    """Return the upper bound of a reply with the site's hashes."""
    languages = _languages(registry, site).total()
    sentences = sum(int(registry.about[site][split]) for split in SPLITS)
    return WITHOUT_TENSORS + 1024 * languages + int((1 + SHARE) * DTYPE.itemsize * languages * sentences)


def _digests(registry: Registry, site: str, reply: Message) -> tuple[str, SiteDigests]:
    """Return the check of the site's key and the hashes in a DIGESTS reply."""
    about, languages = registry.about[site], _languages(registry, site)
    check_records(reply.content, {protocol.TASK, protocol.KEY, protocol.ARRAYS})
    check = reply.content.config_records[protocol.KEY].get("check")
    if not isinstance(check, str) or len(check) != _CHECK_DIGITS or set(check) - set("0123456789abcdef"):
        raise ExchangeError(f"check of the overlap key = {check!r}; wanted {_CHECK_DIGITS} hexadecimal digits")
    arrays = opened(reply.content.array_records[protocol.ARRAYS])
    wanted = {
        protocol.digests_name(split, language): codes * int(about[split])
        for split in SPLITS
        for language, codes in languages.items()
    }
    if set(arrays) != set(wanted):
        raise ExchangeError(f"the reply has the arrays {', '.join(sorted(arrays)) or 'none'}; wanted {', '.join(sorted(wanted))}")
    for name, most in wanted.items():
        check_hashes(name, arrays[name])
        if len(arrays[name]) > most:
            raise ExchangeError(f"got {len(arrays[name])} hashes {name}; the site has {most} sentences there")
    return check, {split: {one: arrays[protocol.digests_name(split, one)] for one in languages} for split in SPLITS}


def _leaks(registry: Registry, site: str, reply: Message) -> dict[Split, int]:
    """Return the pairs of dev and test in a LEAKS reply."""
    check_records(reply.content, {protocol.TASK, protocol.METRICS})
    counts = check_numbers(reply.content.metric_records[protocol.METRICS], JUDGED)
    for split in JUDGED:
        most = int(registry.about[site][split])
        if counts[split] > most or counts[split] != int(counts[split]):
            raise ExchangeError(f"{split} = {counts[split]!r} pairs leak; wanted a count, and the site has {most}")
    return {split: int(counts[split]) for split in JUDGED}
