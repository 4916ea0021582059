"""The ClientApp: turn messages into calls of a site's client, and their results into messages.

A deployed node handles each message in its own process. Heavy modules (torch, transformers and all that import them) are therefore
imported where they are used, because requests about text need none of them.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any, cast

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
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
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.split import SPLITS
from fedlingua.corpora.texts import SiteText
from fedlingua.evaluation.tasks import check_task
from fedlingua.exchange import protocol
from fedlingua.exchange.protocol import Task
from fedlingua.layers.layer import Outgoing, Records
from fedlingua.layers.order import MESSAGES, layers_of
from fedlingua.runs.folder import code_hash
from fedlingua.settings.checks import for_round
from fedlingua.settings.config import Settings
from fedlingua.settings.own_code import check_arguments, named_class

if TYPE_CHECKING:
    from clients.site_client import SiteClient

app = ClientApp(mods=[audit_mod, errors_mod, guard_mod])
_log = logging.getLogger("fedlingua.client")
MakeClient = Callable[[], "SiteClient"]

CLIENTS = {
    "translation": "clients.translation:TranslationClient",
    "masked-language": "clients.masked_language:MaskedLanguageClient",
}
"""`task` -> its client class. A run's option `client` may name another class."""


def _answered(answer: Callable[[Any, Task, RecordDict, MakeClient], Records]) -> ClientAppCallable:
    """Make an answer to requests of one site the handler of a message; raise ExchangeError if the node does not host the site."""

    def handle(message: Message, context: Context) -> Message:
        node, asked = NodeContext.of(context).node, message.content
        task = Task.of(asked.config_records[protocol.TASK])
        if task.site not in node.names:
            raise ExchangeError(f"got a message for site {task.site!r}; this node hosts {', '.join(node.names)}")
        task = task.with_config(asked.config_records.get(protocol.CONFIG, ConfigRecord()))
        reply = RecordDict({protocol.TASK: ConfigRecord(task.reply())})
        reply.update(answer(node, task, asked, partial(make_client, node, task, rules_of(asked.config_records))))
        return Message(reply, reply_to=message)

    return handle


for kind, answer in MESSAGES.items():
    category, _, action = kind.partition(".")
    getattr(app, category)(action)(_answered(answer))


@app.query("describe")
def describe(message: Message, context: Context) -> Message:
    """Describe this node: its sites, their directions and text sizes, and hashes of its backbone and code."""
    from fedlingua.common.devices import computed_in

    node = NodeContext.of(context).node
    with uncollected():
        client_class(node.settings)  # raises if a class is missing, before anything is loaded
        layers_of(node.settings)
    computed_in(node.settings.precision, node.settings.device, _log.warning)
    records, directions = RecordDict(), list[Direction]()
    sentences: dict[tuple[str, bool], list[str]] = {}
    for name in node.names:
        texts = node.texts(name, rules_of(message.content.config_records))
        node.check_text(texts)
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
    return Message(records, reply_to=message)


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


# --- A round ------------------------------------------------------------------------------------------------------------


@app.train()
@_answered
def train(node: Node, task: Task, asked: RecordDict, make: MakeClient) -> Records:
    """Train one round for one site and return its update or the selected part of it; first measure an earlier round if asked."""
    client = make()
    node.check_update(client, task)
    received = client.received.receive(asked)
    dev = None if task.measure is None else client.measure(received, replace(task, round=task.measure))
    update, sums = client.train(received, task)
    going = client.layers.update(client, task, Outgoing(asked, update, received, sums, dev))
    return going.reply(client.trainable.tensor_set)


@app.evaluate()
@_answered
def evaluate(node: Node, task: Task, asked: RecordDict, make: MakeClient) -> Records:
    """Measure the dev loss of the model that the site would use now."""
    client = make()
    received = client.received.receive(asked)
    sums = client.measure(received, task)
    return client.layers.measured("evaluate", client, task, asked, received, sums, {protocol.METRICS: MetricRecord(sums)})


@app.evaluate("finish")
@_answered
def finish(node: Node, task: Task, asked: RecordDict, make: MakeClient) -> Records:
    """Given the best round's tensors, choose the model that the site keeps, and score it. This is the run's last request to a site."""
    from fedlingua.personalization.choice import CANDIDATES

    client = make()
    received = client.received.receive(asked)
    finished = client.finish(received, task.round, task.own)
    if node.guard:
        finished = node.guard.without_choice(task.site, finished)
    records = dict[str, Any]()
    for name, scores in finished.items():
        for field, prefix in protocol.SCORES_PREFIXES.items():
            if (sums := getattr(scores, field)) is not None:
                records[f"{prefix}{name}"] = MetricRecord(sums.record())
        if scores.candidate:
            names = {protocol.KEPT: scores.candidate, protocol.REFERENCE: scores.reference_name}
            choice: dict[str, Any] = {key: CANDIDATES.index(name) for key, name in names.items()}
            choice[protocol.OVER_REFERENCE] = list(scores.over_reference or ())
            records[f"{protocol.CHOICE_PREFIX}{name}"] = MetricRecord(cast(Any, choice))
    return client.layers.measured("finish", client, task, asked, received, finished, records)


# --- A site's client ------------------------------------------------------------------------------------------------------


def make_client(node: Node, task: Task, rules: TextRules) -> "SiteClient":
    """Make the client of a request's site."""
    texts = node.texts(task.site, rules)
    texts = layers_of(node.settings).texts(node, task, texts)
    node.check_text(texts)
    settings, folder = for_round(node.settings, task.by_round), node.directory(task.site, task.run)
    client = client_class(node.settings)(task.site, texts, trainable_of(node.settings), settings, folder, node.base_results)
    client.node, client.note = node, partial(node.note, task.site)
    client.ledger = node.consent(task.site, task.run).ledger
    return client


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
