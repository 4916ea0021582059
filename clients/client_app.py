"""The ClientApp: turns messages into calls of a site's trainer, and its answers into messages."""

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import NDArrays

from clients.hosted import federation_of, hosted_sites, site_directory, site_texts
from clients.translation import TranslationClient
from fedlingua import protocol
from fedlingua.config import Settings, settings_from
from fedlingua.errors import ExchangeError, FedlinguaError
from fedlingua.evaluation.scores import ScoreSums
from fedlingua.exchange.records import pack, unpack
from fedlingua.exchange.tensor_sets import check_tensors
from fedlingua.exchange.trainable import Trainable, build_trainable
from fedlingua.runs import code_hash

app = ClientApp()
_log = logging.getLogger("fedlingua.client")

SITE_FAILED = 100
"""Code of an error reply; its reason is the site's own words."""


def _named(handle: Callable[[Message, Context], RecordDict]) -> Callable[[Message, Context], Message]:
    """Answer a failure with its reason. What is not ours to word may hold text, so of that only the type leaves the site."""

    def answer(message: Message, context: Context) -> Message:
        try:
            return Message(handle(message, context), reply_to=message)
        except FedlinguaError as error:
            _log.error("%s", error)
            return Message(Error(SITE_FAILED, f"{type(error).__name__}: {error}"), reply_to=message)
        except Exception as error:
            _log.exception("the site failed")
            return Message(Error(SITE_FAILED, f"{type(error).__name__}; the site's log has the rest"), reply_to=message)

    return answer


def _settings(context: Context) -> Settings:
    return settings_from(context.run_config)


@lru_cache(maxsize=1)
def _trainable(settings: Settings) -> Trainable:
    """Built once for each process; every message then overwrites all tensors that an earlier one trained."""
    return build_trainable(settings)


@app.query("describe")
@_named
def describe(message: Message, context: Context) -> RecordDict:
    """Who this node hosts, how much text each has, and what its tensors mean."""
    settings = _settings(context)
    trainable = _trainable(settings)
    texts = site_texts(settings.federation_path, settings.data_dir)
    records = RecordDict({protocol.NODE: ConfigRecord({"fingerprint": trainable.fingerprint, "code": code_hash()})})
    for name in hosted_sites(context, federation_of(settings)):
        text = texts[name]
        trainable.backbone.codec.check([text.direction])
        about = ConfigRecord({"directions": [str(text.direction)], "read": text.account.read, "kept": text.account.kept})
        about["reasons"], about["dropped"] = list(text.account.dropped), list(text.account.dropped.values())
        for split, pairs in text.splits.items():
            about[split] = len(pairs)
        records[f"{protocol.SITE_PREFIX}{name}"] = about
    return records


@app.train()
@_named
def train(message: Message, context: Context) -> RecordDict:
    """One round of local training for one site."""
    task, client, parameters = _task(message, context)
    arrays, _, metrics = client.fit(parameters, {"round": int(cast(int, task["round"]))})
    tensors = dict(zip(client.trainable.tensor_set.names, arrays, strict=True)) if arrays else {}
    return RecordDict({protocol.ARRAYS: pack(tensors), protocol.TASK: task, protocol.METRICS: MetricRecord(cast(Any, metrics))})


@app.evaluate()
@_named
def evaluate(message: Message, context: Context) -> RecordDict:
    """The dev loss of what one site would use now."""
    task, client, parameters = _task(message, context)
    _, _, metrics = client.evaluate(parameters, {"round": int(cast(int, task["round"]))})
    return RecordDict({protocol.TASK: task, protocol.METRICS: MetricRecord(cast(Any, metrics))})


@app.evaluate("finish")
@_named
def finish(message: Message, context: Context) -> RecordDict:
    """The best round's tensors arrive for good; score them once."""
    task, client, parameters = _task(message, context)
    scores, base = client.finish(parameters, int(cast(int, task["round"])))
    return RecordDict({protocol.TASK: task, protocol.SCORES: _sums(scores), protocol.BASE_SCORES: _sums(base)})


def _sums(sums: ScoreSums) -> MetricRecord:
    return MetricRecord({"sentences": sums.sentences, "bleu": list(sums.bleu), "chrf": list(sums.chrf)})


def _task(message: Message, context: Context) -> tuple[ConfigRecord, TranslationClient, NDArrays]:
    """A request's task, the trainer of its site, and the checked arrays that came with it.

    Raises:
        ExchangeError: a site that this node does not host, or tensors that are not the run's.
    """
    settings = _settings(context)
    task = message.content.config_records[protocol.TASK]
    site = str(task["site"])
    hosted = hosted_sites(context, federation_of(settings))
    if site not in hosted:
        raise ExchangeError(f"got a message for site {site!r}; this node hosts {', '.join(hosted)}")
    trainable = _trainable(settings)
    text = site_texts(settings.federation_path, settings.data_dir)[site]
    client = TranslationClient(site, text, trainable, settings, site_directory(context, settings, site))
    received = unpack(message.content.array_records[protocol.ARRAYS])
    parameters = list(check_tensors(received, trainable.tensor_set).values()) if received else []
    return task, client, parameters
