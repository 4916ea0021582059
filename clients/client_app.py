"""The ClientApp: turn messages into calls of a site's client, and their results into messages.

A deployed node handles each message in its own process. Heavy modules (torch, transformers and all that import them) are therefore
imported where they are used, because requests about text need none of them.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any, cast

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from clients.guard import rules_of
from clients.mods import NodeContext, audit_mod, errors_mod, guard_mod
from clients.node import Node, trainable_of
from fedlingua.backbones.knowledge import unknown_characters
from fedlingua.common.errors import ConfigError, ExchangeError
from fedlingua.common.languages import Direction
from fedlingua.common.loading import uncollected
from fedlingua.corpora.damage import doubts_about
from fedlingua.corpora.overlap import check_hashes, digests_of, key_check, left_out, load_without_leaks, save_leaks, without_leaks
from fedlingua.corpora.split import SPLITS
from fedlingua.corpora.texts import SiteText, check_documents
from fedlingua.evaluation.tasks import check_task
from fedlingua.exchange import protocol
from fedlingua.exchange.held import digest_of
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.protocol import Task, Threshold
from fedlingua.exchange.records import from_record, pack, to_record
from fedlingua.exchange.tensors import NamedTensors
from fedlingua.layers.layer import Outgoing
from fedlingua.layers.selection import SiteSelection
from fedlingua.runs.folder import code_hash
from fedlingua.settings.checks import for_round
from fedlingua.settings.config import Settings
from fedlingua.settings.own_code import check_arguments, named_class

if TYPE_CHECKING:
    from clients.site_client import SiteClient
    from fedlingua.layers.secure_site import SecureSite

app = ClientApp(mods=[audit_mod, errors_mod, guard_mod])
_log = logging.getLogger("fedlingua.client")
Records = Mapping[str, ConfigRecord]

CLIENTS = {
    "translation": "clients.translation:TranslationClient",
    "masked-language": "clients.masked_language:MaskedLanguageClient",
}
"""`task` -> its client class. A run's option `client` may name another class."""


def _answered(handle: Callable[[Message, Node], RecordDict]) -> ClientAppCallable:
    """Make what a handler returns for a message and its node the content of a reply."""
    return lambda message, context: Message(handle(message, NodeContext.of(context).node), reply_to=message)


# --- Text and signatures ------------------------------------------------------------------------------------------------


@app.query("describe")
@_answered
def describe(message: Message, node: Node) -> RecordDict:
    """Describe this node: its sites, their directions and text sizes, and hashes of its backbone and code."""
    from fedlingua.common.devices import computed_in

    with uncollected():
        client_class(node.settings)  # raises if the class is missing, before anything is loaded
    computed_in(node.settings.precision, node.settings.device, _log.warning)
    records, directions = RecordDict(), list[Direction]()
    sentences: dict[tuple[str, bool], list[str]] = {}
    for name in node.names:
        texts = node.texts(name, rules_of(message.content.config_records))
        _check_text(node, texts)
        for text in texts.values():
            for doubt in doubts_about(text.splits["train"], text.direction, f"site {name}"):
                _log.warning("%s", doubt)
            for written, language in enumerate(text.direction.sides[: 1 if text.direction.is_one_language else 2]):
                sentences.setdefault((language, bool(written)), []).extend(pair[written] for pair in text.splits["train"])
        directions += (here := [text.direction for text in texts.values()])
        check_task(node.settings.task, here)
        records[f"{protocol.SITE_PREFIX}{name}"] = _about_texts(list(texts.values()))
    trainable = trainable_of(node.settings)
    trainable.backbone.codec.check(directions)
    for (language, written), side in sentences.items():
        node.warn(unknown_characters(trainable.backbone, language, side, written))
    records[protocol.NODE] = ConfigRecord({"fingerprint": trainable.fingerprint, "code": code_hash()})
    return records


def _about_texts(texts: Sequence[SiteText]) -> ConfigRecord:
    """Return a site's description of its texts, with totals over all of them."""
    account = reduce(add, (text.account for text in texts))
    about = ConfigRecord({"directions": [str(text.direction) for text in texts], "read": account.read, "kept": account.kept})
    about["reasons"], about["dropped"] = list(account.dropped), list(account.dropped.values())
    if failed := account.failed_documents:
        about["failures"], about["failed_documents"] = list(failed), list(failed.values())
    for split in SPLITS:
        about[split] = sum(len(text.splits[split]) for text in texts)
    return about


@app.query("signature")
@_answered
def signature(message: Message, node: Node) -> RecordDict:
    """Return this site's signatures for clustering."""
    from clients.signature import signature as signature_of

    task, client = _client(message.content.config_records, node)
    of = task.site, task.run
    about = client.examples("train"), client.trainable, client.settings, node.signatures(*of), node.consent(*of)
    return _reply(task, arrays=signature_of(task.site, *about))


@app.query("digests")
@_answered
def digests(message: Message, node: Node) -> RecordDict:
    """Return keyed hashes of this site's sentences, for comparison with other sites'."""
    task, key = _compared(message.content.config_records, node)
    texts = node.texts(task.site, rules_of(message.content.config_records))
    _check_text(node, texts)
    by_split = digests_of(texts.values(), key)
    arrays = {
        protocol.digests_name(split, name): each for split, by_language in by_split.items() for name, each in by_language.items()
    }
    records = _reply(task, arrays=arrays)
    records[protocol.KEY] = ConfigRecord({"check": key_check(key)})
    return records


@app.query("leaks")
@_answered
def leaks(message: Message, node: Node) -> RecordDict:
    """Count the pairs that contain a sentence on which another site trains; store which, if the run leaves these pairs out."""
    task, key = _compared(message.content.config_records, node)
    leaking = from_record(message.content.array_records[protocol.ARRAYS])[protocol.LEAKING]
    check_hashes(protocol.LEAKING, leaking)
    texts = node.texts(task.site, rules_of(message.content.config_records))
    if node.guard:
        node.guard.check_leaks(task.site, key_check(key), digest_of(leaking))
    without = {name: without_leaks(text, leaking, key) for name, text in texts.items()}
    _check_text(node, without)
    counts = left_out(texts.values(), without.values())
    if node.settings.overlap == "remove":
        save_leaks(node.directory(task.site, task.run), leaking, key)
    return _reply(task, {str(split): count for split, count in counts.items()})


def _compared(records: Records, node: Node) -> tuple[Task, bytes]:
    """Return the task of a request that compares sites' text, and the hash key; raise ExchangeError if the run compares none."""
    if node.settings.overlap == "off":
        raise ExchangeError("asked for hashes of this site's sentences, but overlap = 'off' in this run")
    return _hosted_task(records, node), node.overlap_key()


# --- Secure sums --------------------------------------------------------------------------------------------------------


@app.query("keys")
@_answered
def keys(message: Message, node: Node) -> RecordDict:
    """Return this site's public keys, one for each secure sum of an attempt."""
    task = _hosted_task(message.content.config_records, node)
    return _reply(task, secure=_secure(task, node).public_keys(node.settings.rounds))


@app.query("shares")
@_answered
def shares(message: Message, node: Node) -> RecordDict:
    """Accept the roster of the secure sums and return the shares of this site's secrets, each sealed for its holder."""
    task = _hosted_task(message.content.config_records, node)
    return _reply(task, secure=_secure(task, node).accept_roster(_of_sum(message)))


@app.train("unmask")
@_answered
def unmask(message: Message, node: Node) -> RecordDict:
    """Return the shares from which the server removes the masks of a round's sums."""
    task = _hosted_task(message.content.config_records, node)
    return _reply(task, secure=_secure(task, node).give_shares(_of_sum(message)))


def _of_sum(message: Message) -> dict[str, Any]:
    """Return what a request says of a secure sum."""
    return dict(message.content.config_records[protocol.SECURE])


def _secure(task: Task, node: Node) -> "SecureSite":
    """Return the site's side of the secure sums; raise ExchangeError if the run has none."""
    from fedlingua.layers.secure_site import SecureSite

    if not node.settings.sums_securely:
        raise ExchangeError("asked about a secure sum, but privacy.sum = 'plain' in this run")
    temperature = node.settings.sampling_temperature
    return SecureSite(node.directory(task.site, task.run), task, node.least_sites, node.trust, temperature)


# --- A round ------------------------------------------------------------------------------------------------------------


@app.train()
@_answered
def train(message: Message, node: Node) -> RecordDict:
    """Train one round for one site and return its update or the selected part of it; first measure an earlier round if asked."""
    task, client = _client_to_train(message.content.config_records, node)
    received = client.received.receive(message.content)
    dev = None if task.measure is None else client.measure(received, replace(task, round=task.measure))
    update, sums = client.train(received, task)
    return _sent(task, client, Outgoing(message.content, update, received, sums, dev))


@app.train("probe")
@_answered
def probe(message: Message, node: Node) -> RecordDict:
    """Train one round and store the update until the server has computed the threshold from all sites' losses."""
    task, client = _client_to_train(message.content.config_records, node)
    received = client.received.receive(message.content)
    update, sums = client.train(received, task)
    return _reply(task, {**sums, **SiteSelection(client).probe(update, received, task)})


@app.train("send")
@_answered
def send(message: Message, node: Node) -> RecordDict:
    """Send the part of the stored update that the round's threshold selects."""
    task, client = _client(message.content.config_records, node)
    theta = Threshold.of(message.content.config_records[protocol.THRESHOLD]).theta
    return _sent(task, client, SiteSelection(client).send(message.content, task, theta, _network(message)))


def _sent(task: Task, client: "SiteClient", going: Outgoing) -> RecordDict:
    """Return the reply with what a site's layers send of its update."""
    going = client.layers.update(client, task, going)
    reply = _reply(task, going.sums)
    chosen = client.trainable.tensor_set
    reply[protocol.ARRAYS] = pack(going.update, chosen) if going.arrays is None else to_record(going.arrays)
    if going.dev is not None:
        reply[protocol.MEASURED] = MetricRecord(dict(going.dev))
    reply.update(going.records)
    return reply


@app.evaluate()
@_answered
def evaluate(message: Message, node: Node) -> RecordDict:
    """Measure the dev loss of the model that the site would use now; if asked, also the loss's slope with respect to the threshold."""
    task, client = _client(message.content.config_records, node)
    received = client.received.receive(message.content)
    sums = client.measure(received, task)
    if hidden := client.layers.hide("evaluate", client, task, message.content, received, sums):
        return _reply(task, arrays=hidden)
    reply = _reply(task, sums)
    if protocol.THRESHOLD in message.content:
        from clients.threshold_slope import dev_batches, threshold_slope

        if not client.settings.learns_threshold:
            raise ExchangeError("asked for the slope of a threshold, but the run learns none")
        threshold = Threshold.of(message.content.config_records[protocol.THRESHOLD])
        least = node.guard.file.limits.min_dev if node.guard else 0
        drawn = dev_batches(client.measured_examples(), client.settings, node.seed(f"{task.site}/{task.round}/meta"), least)
        reply[protocol.META] = MetricRecord(threshold_slope(SiteSelection(client), task, threshold, _network(message), drawn))
    return reply


@app.evaluate("finish")
@_answered
def finish(message: Message, node: Node) -> RecordDict:
    """Given the best round's tensors, choose the model that the site keeps, and score it. This is the run's last request to a site."""
    from fedlingua.personalization.choice import CANDIDATES

    task, client = _client(message.content.config_records, node)
    if node.guard and node.guard.asked.chooses and not node.settings.chooses:
        _log.info("site %s keeps what it was sent: this site's file forbids choosing ([limits] keep-choose)", task.site)
    records = _reply(task)
    received = client.received.receive(message.content)
    finished = client.finish(received, task.round, task.own)
    if node.guard and node.settings.trains_privately:
        finished = {name: scores.of_federation() for name, scores in finished.items()}
    if hidden := client.layers.hide("finish", client, task, message.content, received, finished):
        return _reply(task, arrays=hidden)
    for name, scores in finished.items():
        for field, prefix in protocol.SCORES_PREFIXES.items():
            if (sums := getattr(scores, field)) is not None:
                records[f"{prefix}{name}"] = MetricRecord(sums.record())
        if scores.candidate:
            names = {protocol.KEPT: scores.candidate, protocol.REFERENCE: scores.reference_name}
            choice: dict[str, Any] = {key: CANDIDATES.index(name) for key, name in names.items()}
            choice[protocol.OVER_REFERENCE] = list(scores.over_reference or ())
            records[f"{protocol.CHOICE_PREFIX}{name}"] = MetricRecord(cast(Any, choice))
    return records


# --- Shared by several requests -------------------------------------------------------------------------------------------


def _client(records: Records, node: Node) -> "tuple[Task, SiteClient]":
    """Return a request's task and the client of its site; raise ExchangeError if the node does not host it."""
    task = _hosted_task(records, node)
    texts, folder = node.texts(task.site, rules_of(records)), node.directory(task.site, task.run)
    if node.settings.overlap == "remove" and not node.settings.how.pooled:
        texts = load_without_leaks(texts, folder, node.overlap_key())
    _check_text(node, texts)
    settings = for_round(node.settings, task.by_round)
    about = task.site, texts, trainable_of(node.settings), settings, folder, node.base_results
    client = client_class(node.settings)(*about)
    client.note = partial(node.note, task.site)
    client.ledger, client.trust = node.consent(task.site, task.run).ledger, node.trust
    client.least_sites = node.least_sites
    return task, client


def client_class(settings: Settings) -> "Callable[..., SiteClient]":
    """Return the class that the option `client` names, with its arguments, or else the task's; raise ConfigError if it does not fit."""
    value = settings.client or CLIENTS[settings.task]
    named, arguments = named_class(
        "client", value, "clients.site_client.SiteClient", "; TranslationClient of clients.translation is one"
    )
    from clients.site_client import SiteClient  # takes seconds, and a class that is none does without

    check_arguments("client", value, named, SiteClient, arguments)
    for unused in ("fit", "evaluate", "get_parameters"):
        if getattr(named, unused) is not getattr(SiteClient, unused):
            raise ConfigError(
                f"client = {settings.client!r}: it overrides {unused}, which a run does not call; wanted train or measure"
            )
    return partial(named, **arguments)


def _client_to_train(records: Records, node: Node) -> "tuple[Task, SiteClient]":
    """Return the task and client of a training request; raise ExchangeError if the site's limits forbid its update."""
    task, client = _client(records, node)
    if node.guard:
        node.guard.check_update(partial(client.step_sizes, task.round))
    return task, client


def _network(message: Message) -> Numbers | None:
    """Return the second filter's network; None if the run has no such filter."""
    record = message.content.array_records.get(protocol.FILTER)
    return from_record(record)[protocol.FILTER] if record else None


def _reply(
    task: Task,
    metrics: Mapping[str, Any] | None = None,
    arrays: NamedTensors | None = None,
    secure: Mapping[str, Any] | None = None,
) -> RecordDict:
    records = RecordDict({protocol.TASK: ConfigRecord(task.reply())})
    if metrics is not None:
        records[protocol.METRICS] = MetricRecord(dict(metrics))
    if arrays is not None:
        records[protocol.ARRAYS] = to_record(arrays)
    if secure is not None:
        records[protocol.SECURE] = ConfigRecord(dict(secure))
    return records


def _check_text(node: Node, texts: Mapping[str, SiteText]) -> None:
    check_documents(texts, node.settings.dp_unit)
    if node.guard:
        node.guard.check_text(texts)


def _hosted_task(records: Records, node: Node) -> Task:
    task = Task.of(records[protocol.TASK])
    if task.site not in node.names:
        raise ExchangeError(f"got a message for site {task.site!r}; this node hosts {', '.join(node.names)}")
    return task.with_config(records.get(protocol.CONFIG, ConfigRecord()))
