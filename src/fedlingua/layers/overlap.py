"""Search for sentences that several sites have: all sites send keyed hashes, and the server compares them, without the key or any text.

It sends two requests before the first round. DIGESTS: every site replies with the hashes of its sentences. LEAKS: every site receives those
hashes of its dev and test sentences that are also in another site's train, replies with the number of pairs that have them and, under
overlap = "remove", leaves these out from then on. The server stores counts and no hash.
"""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from fedlingua.common.errors import CorpusError, ExchangeError, RunError
from fedlingua.common.languages import plain_code
from fedlingua.corpora.overlap import (
    DTYPE,
    JUDGED,
    SiteDigests,
    check_hashes,
    check_left,
    digests_of,
    key_check,
    leaks,
    left_out,
    load_without_leaks,
    save_leaks,
    shared_sentences,
    without_leaks,
)
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.split import SPLITS, Split
from fedlingua.corpora.texts import SiteText
from fedlingua.exchange import protocol
from fedlingua.exchange.checks import SHARE, WITHOUT_TENSORS, check_numbers, check_records
from fedlingua.exchange.held import digest_of
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.records import from_record, opened, to_record
from fedlingua.layers.layer import Answer, Joining, Layer, Node, Records

FILE = "overlap.json"
_CHECK_DIGITS = 16


class Overlap(Layer):
    """The sites' text is compared before the first round (`overlap`), and under "remove" pairs of dev and test are left out."""

    def join(self, run: Joining, grid: Grid, trainable: Any) -> None:
        known = run.folder.read(FILE) if self.settings.resume else None
        if known is None:
            known = self._compared(run, grid)
            run.folder.write(FILE, known)
        if self.settings.overlap == "remove":
            run.registry.leave_out({site: entry["leaks"] for site, entry in known["sites"].items()})

    def texts(self, node: Node, task: Task, texts: Mapping[str, SiteText]) -> Mapping[str, SiteText]:
        if self.settings.overlap == "report":
            return texts
        return load_without_leaks(texts, node.directory(task.site, task.run), node.overlap_key())

    def _compared(self, run: Joining, grid: Grid) -> dict[str, Any]:
        """Ask all sites and compare their hashes; return the content of overlap.json."""
        registry, said = run.registry, f"overlap = {self.settings.overlap!r}"
        if len(registry.expected) < 2:
            raise RunError(f"{said} compares sites with each other, and {registry.expected[0]} is the only one; leave it 'off'")
        ask, need = partial(run.ask_all, grid), f"{said} needs the hashes of every site's sentences"
        replies = ask(protocol.DIGESTS, partial(_digests, registry), need, partial(_most_bytes, registry))
        _check_one_key({site: check for site, (check, _) in replies.items()}, registry)
        digests = {site: hashes for site, (_, hashes) in replies.items()}
        leaking = {site: {protocol.ARRAYS: to_record({protocol.LEAKING: hashes})} for site, hashes in leaks(digests).items()}
        need = f"{said} needs every site's number of pairs that leak"
        counts = ask(protocol.LEAKS, partial(_leaks, registry), need, lambda _: WITHOUT_TENSORS, leaking.__getitem__)
        removes = self.settings.overlap == "remove"
        if removes:
            sizes = {site: {split: int(registry.about[site][split]) for split in JUDGED} for site in registry.expected}
            try:
                check_left(sizes, counts)
            except CorpusError as error:
                raise RunError(f"{said}: {error}") from error
        languages = shared_sentences(digests)
        sites = {site: {"languages": languages[site], "leaks": counts[site]} for site in registry.expected}
        pairs = ", ".join(f"{site} {counts[site]['dev']} of dev, {counts[site]['test']} of test" for site in registry.expected)
        done = "left out" if removes else "kept"
        run.folder.event("note", text=f"pairs of which another site trains on a sentence, {done}: {pairs}")
        return {"removed": removes, "sites": sites}


# --- At a site ------------------------------------------------------------------------------------------------------------------


def give_digests(node: Node, task: Task, asked: RecordDict, client: Any) -> Records:
    """Return keyed hashes of a site's sentences, for comparison with other sites'."""
    texts, key = _texts_and_key(node, task, asked)
    node.check_text(texts)
    by_split = digests_of(texts.values(), key)
    arrays = {
        protocol.digests_name(split, name): each for split, by_language in by_split.items() for name, each in by_language.items()
    }
    return {protocol.ARRAYS: to_record(arrays), protocol.KEY: ConfigRecord({"check": key_check(key)})}


def count_leaks(node: Node, task: Task, asked: RecordDict, client: Any) -> Records:
    """Count the pairs that contain a sentence on which another site trains; store which, if the run leaves these pairs out."""
    texts, key = _texts_and_key(node, task, asked)
    leaking = from_record(asked.array_records[protocol.ARRAYS])[protocol.LEAKING]
    check_hashes(protocol.LEAKING, leaking)
    if node.guard:
        node.guard.check_leaks(task.site, key_check(key), digest_of(leaking))
    without = {name: without_leaks(text, leaking, key) for name, text in texts.items()}
    node.check_text(without)
    counts = left_out(texts.values(), without.values())
    if node.settings.overlap == "remove":
        save_leaks(node.directory(task.site, task.run), leaking, key)
    return {protocol.METRICS: MetricRecord({str(split): count for split, count in counts.items()})}


def _texts_and_key(node: Node, task: Task, asked: RecordDict) -> tuple[Mapping[str, SiteText], bytes]:
    """Return a site's texts and the hash key; raise ExchangeError if the run compares none."""
    if node.settings.overlap == "off":
        raise ExchangeError("asked for hashes of this site's sentences, but overlap = 'off' in this run")
    key = node.overlap_key()
    return node.texts(task.site, TextRules.from_flat(asked.config_records[protocol.RULES])), key


MESSAGES: Mapping[str, Answer] = {protocol.DIGESTS: give_digests, protocol.LEAKS: count_leaks}


# --- What the server reads of a reply -------------------------------------------------------------------------------------------


def _check_one_key(checks: Mapping[str, str], registry: Any) -> None:
    if len(set(checks.values())) == 1:
        return
    by_key = {check: [site for site in registry.expected if checks[site] == check] for check in sorted(set(checks.values()))}
    keys = "; ".join(f"{check}: {', '.join(sites)}" for check, sites in by_key.items())
    raise RunError(
        f"the sites hash under {len(by_key)} different overlap keys ({keys}), and only hashes under one can be compared; give every "
        "site the same file"
    )


def _languages(registry: Any, site: str) -> Counter[str]:
    """Return the languages of the site's sentences, each with its number of codes: en-GB and en-US are two of en."""
    return Counter(map(plain_code, sorted({code for one in registry.directions[site] for code in one.sides})))


def _most_bytes(registry: Any, site: str) -> int:
    """Return the upper bound of a reply with the site's hashes."""
    languages = _languages(registry, site).total()
    sentences = sum(int(registry.about[site][split]) for split in SPLITS)
    return WITHOUT_TENSORS + 1024 * languages + int((1 + SHARE) * DTYPE.itemsize * languages * sentences)


def _digests(registry: Any, site: str, reply: Message) -> tuple[str, SiteDigests]:
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


def _leaks(registry: Any, site: str, reply: Message) -> dict[Split, int]:
    """Return the pairs of dev and test in a LEAKS reply."""
    check_records(reply.content, {protocol.TASK, protocol.METRICS})
    counts = check_numbers(reply.content.metric_records[protocol.METRICS], JUDGED)
    for split in JUDGED:
        most = int(registry.about[site][split])
        if counts[split] > most or counts[split] != int(counts[split]):
            raise ExchangeError(f"{split} = {counts[split]!r} pairs leak; wanted a count, and the site has {most}")
    return {split: int(counts[split]) for split in JUDGED}
