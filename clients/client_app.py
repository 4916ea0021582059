"""The ClientApp: turns messages into calls of a site's trainer, and its answers into messages."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial, reduce
from operator import add
from typing import Any, cast

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import NDArrays

from clients.guard import log, rules_of
from clients.hosted import Host, host_of, is_deployed, site_file_of
from clients.masked_language import MaskedLanguageClient
from clients.selecting import SelectingClient
from clients.sending import Sent
from clients.translation import TranslationClient
from fedlingua.common.devices import computed_in
from fedlingua.common.errors import ExchangeError, FedlinguaError, without_words
from fedlingua.common.languages import Direction
from fedlingua.corpora.leaks_file import keep_leaks, left_of
from fedlingua.corpora.overlap import digests_of, key_check, left_out, without_leaks
from fedlingua.corpora.split import SPLITS
from fedlingua.corpora.texts import SiteText
from fedlingua.evaluation.tasks import check_task
from fedlingua.exchange import protocol
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.protocol import Task, Threshold
from fedlingua.exchange.records import from_record, opened, pack, to_record, unpack
from fedlingua.exchange.trainable import Trainable, build_trainable
from fedlingua.runs.folder import code_hash
from fedlingua.selection.masks import selection_of
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings

app = ClientApp()
_log = logging.getLogger("fedlingua.client")

CLIENTS: dict[str, type[SelectingClient]] = {"translation": TranslationClient, "masked-language": MaskedLanguageClient}
"""One line a task: `task` -> a site's trainer."""
SITE_FAILED = 100
"""Code of an error reply; its reason is the site's own words."""


def _named(handle: Callable[[Message, Host], RecordDict]) -> Callable[[Message, Context], Message]:
    """Answer a failure with its reason. What is not ours to word may hold text, so of that only the type leaves the site, and only
    the type and the place in the code stand in the site's log. A deployed site enters every message into its audit log first."""

    def answer(message: Message, context: Context) -> Message:
        about, note = _about(message), dict[str, Any]()
        try:
            host = host_of(context, settings_from(context.run_config))
            made = partial(handle, message, host)
            content, note = (
                host.guard.answer(message, context.run_id, made, partial(_num_tensors, host)) if host.guard else (made(), {})
            )
            reply = Message(content, reply_to=message)
            _log.info("%s: done", about)
        except FedlinguaError as error:
            _log.error("%s: %s", about, error)
            # What we say ourselves quotes no text, but it may name a file: that stays at a site on a machine of its own.
            words = (
                f": {error}" if isinstance(error, ExchangeError) or not is_deployed(context) else "; the site's log has the rest"
            )
            reply = Message(Error(SITE_FAILED, f"{type(error).__name__}{words}"), reply_to=message)
        except Exception as error:
            _log.error("%s: %s", about, without_words(error))
            reply = Message(Error(SITE_FAILED, f"{type(error).__name__}; the site's log has the rest"), reply_to=message)
        if reply.has_error():
            _trainable.cache_clear()  # what was broken off may have left the model anyhow
        return _logged(message, context, reply, note) if is_deployed(context) else reply

    return answer


def _logged(message: Message, context: Context, reply: Message, note: Mapping[str, Any]) -> Message:
    """The reply, once the site's audit log has it; else an error."""
    try:
        log(site_file_of(context), message, context.run_id, reply, note)
    except Exception as error:
        _log.error("%s: the audit log: %s", _about(message), without_words(error))
        return Message(Error(SITE_FAILED, "the site's audit log cannot be written, so nothing is answered"), reply_to=message)
    return reply


def _num_tensors(host: Host, content: RecordDict) -> int:
    """Tensors that are in a reply; of an update those of which anything is sent."""
    record = content.array_records.get(protocol.ARRAYS, ArrayRecord())
    if not record or protocol.METRICS not in content:
        return len(record)
    return selection_of(opened(record), _trainable(host.settings).tensor_set).num_tensors


def _about(message: Message) -> str:
    task = message.content.config_records.get(protocol.TASK, ConfigRecord())
    where = f"site {task['site']!s}, round {task['round']!s}, " if {"site", "round"} <= set(task) else ""
    return f"{where}{message.metadata.message_type}"


@lru_cache(maxsize=1)
def _trainable(settings: Settings) -> Trainable:
    """Built once for each process; every message then overwrites all tensors that an earlier one trained."""
    return build_trainable(settings)


@app.query("describe")
@_named
def describe(message: Message, host: Host) -> RecordDict:
    """Who this node hosts, how much text each has, and what its tensors mean."""
    computed_in(host.settings.precision, host.settings.device, _log.warning)
    records, directions = RecordDict(), list[Direction]()
    for name in host.names:
        texts = host.texts(name, rules_of(message))
        _check_text(host, texts)
        directions += (here := [text.direction for text in texts.values()])
        check_task(host.settings.task, here)
        records[f"{protocol.SITE_PREFIX}{name}"] = _about_texts(list(texts.values()))
    trainable = _trainable(host.settings)
    trainable.backbone.codec.check(directions)
    records[protocol.NODE] = ConfigRecord({"fingerprint": trainable.fingerprint, "code": code_hash()})
    return records


def _about_texts(texts: Sequence[SiteText]) -> ConfigRecord:
    """A site's directions and sizes: what was read, kept and dropped, what its hook failed on, and what is in each split, over all
    its texts."""
    account = reduce(add, (text.account for text in texts))
    about = ConfigRecord({"directions": [str(text.direction) for text in texts], "read": account.read, "kept": account.kept})
    about["reasons"], about["dropped"] = list(account.dropped), list(account.dropped.values())
    if account.failed_documents:
        failed = account.failed_documents
        about["failures"], about["failed_documents"] = list(failed), list(failed.values())
    for split in SPLITS:
        about[split] = sum(len(text.splits[split]) for text in texts)
    return about


@app.query("signature")
@_named
def signature(message: Message, host: Host) -> RecordDict:
    """What this site's clusters are found by: the gradient of an adapter of each part, or its private form."""
    task, client, _ = _task(message, host)
    arrays = client.signature(host.signatures(task.site, task.run), host.consent(task.site))
    return RecordDict({protocol.TASK: ConfigRecord(task.reply()), protocol.ARRAYS: to_record(arrays)})


@app.query("digests")
@_named
def digests(message: Message, host: Host) -> RecordDict:
    """Keyed hashes of this site's sentences, to be compared with those of other sites."""
    task, key = _compared(message, host)
    texts = host.texts(task.site, rules_of(message))
    _check_text(host, texts)
    found = digests_of(texts.values(), key)
    arrays = {
        protocol.digests_name(split, name): each for split, by_language in found.items() for name, each in by_language.items()
    }
    records = RecordDict({protocol.TASK: ConfigRecord(task.reply()), protocol.KEY: ConfigRecord({"check": key_check(key)})})
    records[protocol.ARRAYS] = to_record(arrays)
    return records


@app.query("leaks")
@_named
def leaks(message: Message, host: Host) -> RecordDict:
    """Which of them stand in the training text of another site: kept where the run leaves them out; how many pairs they make."""
    task, key = _compared(message, host)
    leaking = from_record(message.content.array_records[protocol.ARRAYS])[protocol.LEAKING]
    texts = host.texts(task.site, rules_of(message))
    without = {name: without_leaks(text, leaking, key) for name, text in texts.items()}
    _check_text(host, without)
    counts = left_out(texts.values(), without.values())
    if host.settings.overlap == "remove":
        keep_leaks(host.directory(task.site, task.run), leaking, key)
    return RecordDict({protocol.TASK: ConfigRecord(task.reply()), protocol.METRICS: MetricRecord(cast(Any, counts))})


def _compared(message: Message, host: Host) -> tuple[Task, bytes]:
    """The task of a message about the comparison of sites' text, and the key for it.

    Raises:
        ExchangeError: the run compares nothing, a site that this node does not host, or one that has no key.
    """
    if host.settings.overlap == "off":
        raise ExchangeError("asked for hashes of this site's sentences, and the run's overlap = 'off' compares nothing")
    return _hosted_task(message, host), host.overlap_key()


@app.train()
@_named
def train(message: Message, host: Host) -> RecordDict:
    """One round of local training for one site."""
    task, client, parameters = _task(message, host)
    arrays, metrics = _fit(host, client, parameters, task)
    reply = RecordDict({protocol.TASK: ConfigRecord(task.reply())})
    if client.settings.selected_by == "all":
        tensors = dict(zip(client.trainable.tensor_set.names, arrays, strict=True)) if arrays else {}
        reply[protocol.ARRAYS] = pack(tensors, client.trainable.tensor_set)
    else:
        sent, seconds = client.selected(arrays, parameters, task)
        _enter(reply, sent)
        metrics |= seconds | ({} if sent.theta is None else {protocol.THETA: sent.theta})
    reply[protocol.METRICS] = MetricRecord(cast(Any, metrics))
    return reply


@app.train("probe")
@_named
def probe(message: Message, host: Host) -> RecordDict:
    """The same, but that the update stays here until the server has made the round's threshold of all sites' losses."""
    task, client, parameters = _task(message, host)
    arrays, metrics = _fit(host, client, parameters, task)
    sums = MetricRecord({**cast(Any, metrics), **client.probed(arrays, parameters, task)})
    return RecordDict({protocol.TASK: ConfigRecord(task.reply()), protocol.METRICS: sums})


@app.train("send")
@_named
def send(message: Message, host: Host) -> RecordDict:
    """The threshold has come: what of the update is sent."""
    task, client, _ = _task(message, host)
    theta = Threshold.of(message.content.config_records[protocol.THRESHOLD]).theta
    sent, seconds = client.above_or_below(task, theta, _network(message))
    reply = RecordDict({protocol.TASK: ConfigRecord(task.reply()), protocol.METRICS: MetricRecord(cast(Any, seconds))})
    _enter(reply, sent)
    return reply


def _network(message: Message) -> Numbers | None:
    """The second filter's network, where the run has one."""
    record = message.content.array_records.get(protocol.FILTER)
    return from_record(record)[protocol.FILTER] if record else None


def _enter(reply: RecordDict, sent: Sent) -> None:
    reply[protocol.ARRAYS] = to_record(sent.arrays)
    if sent.deviations is not None:
        reply[protocol.DEVIATIONS] = to_record({protocol.DEVIATIONS: sent.deviations})


@app.evaluate()
@_named
def evaluate(message: Message, host: Host) -> RecordDict:
    """The dev loss of what one site would use now."""
    task, client, parameters = _task(message, host)
    _, _, metrics = client.evaluate(parameters, _config(task))
    reply = RecordDict({protocol.TASK: ConfigRecord(task.reply()), protocol.METRICS: MetricRecord(cast(Any, metrics))})
    if protocol.THRESHOLD in message.content:
        if not client.settings.learns_threshold or client.settings.meta_frozen:
            raise ExchangeError("asked for the slope of a threshold, and the run learns none")
        direction = from_record(message.content.array_records.get(protocol.DIRECTION, ArrayRecord()))
        threshold = Threshold.of(message.content.config_records[protocol.THRESHOLD])
        reply[protocol.META] = MetricRecord(cast(Any, client.slope(task, threshold, direction, _network(message), parameters)))
    return reply


@app.evaluate("finish")
@_named
def finish(message: Message, host: Host) -> RecordDict:
    """The best round's tensors arrive for good; score them once."""
    task, client, parameters = _task(message, host)
    records = RecordDict({protocol.TASK: ConfigRecord(task.reply())})
    for name, (scores, base) in client.finish(parameters, task.round, task.own).items():
        records[f"{protocol.SCORES_PREFIX}{name}"] = MetricRecord(cast(Any, scores.record()))
        records[f"{protocol.BASE_SCORES_PREFIX}{name}"] = MetricRecord(cast(Any, base.record()))
    return records


def _config(task: Task) -> dict[str, Any]:
    """A task as NumPyClient's config: scalars only."""
    own_round, own_attempt = task.own
    stages = {"round": task.round, "attempt": task.attempt, "own_round": own_round, "own_attempt": own_attempt}
    return {**stages, protocol.PROXIMAL_MU: task.proximal_mu}


def _task(message: Message, host: Host) -> tuple[Task, SelectingClient, NDArrays]:
    """A request's task, the trainer of its site, and the checked arrays that came with it.

    Raises:
        ExchangeError: a site that this node does not host, or tensors that are not the run's.
    """
    task = _hosted_task(message, host)
    texts = host.texts(task.site, rules_of(message))
    if host.settings.overlap == "remove" and not host.settings.how.pooled:
        texts = left_of(texts, host.directory(task.site, task.run), host.overlap_key())
    _check_text(host, texts)
    trainable = _trainable(host.settings)
    folders = host.directory(task.site, task.run), host.base_results
    client = CLIENTS[host.settings.task](task.site, texts, trainable, host.settings, *folders)
    received = message.content.array_records.get(protocol.ARRAYS)
    parameters = list(unpack(received, trainable.tensor_set).values()) if received else []
    return task, client, parameters


def _fit(host: Host, client: SelectingClient, parameters: NDArrays, task: Task) -> tuple[NDArrays, dict[str, Any]]:
    """What a round of local training gives, and its sums."""
    if host.guard:
        host.guard.check_update(client)
    client.forget(task.keep)
    arrays, _, metrics = client.fit(parameters, _config(task))
    return arrays, metrics


def _check_text(host: Host, texts: Mapping[str, SiteText]) -> None:
    if host.guard:
        host.guard.check_text(texts)


def _hosted_task(message: Message, host: Host) -> Task:
    task = Task.of(message.content.config_records[protocol.TASK])
    if task.site not in host.names:
        raise ExchangeError(f"got a message for site {task.site!r}; this node hosts {', '.join(host.names)}")
    return task.with_config(message.content.config_records.get(protocol.CONFIG, ConfigRecord()))
