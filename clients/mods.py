"""Flower's mods around every handler of the ClientApp, from the outermost: the audit log, error replies, a deployed site's guard.

Each takes a message, its context and what comes next, and returns the reply.
"""

import logging
from functools import cached_property, partial
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from clients.guard import MOST_WORDS, log
from clients.node import Node, is_deployed, node_of, site_file_of, trainable_of
from fedlingua.common.errors import ExchangeError, FedlinguaError, without_words
from fedlingua.common.terminal import one_line
from fedlingua.exchange import protocol
from fedlingua.exchange.held import NotHeldError
from fedlingua.exchange.records import opened
from fedlingua.exchange.selected import selection_of
from fedlingua.privacy.fixed_point import COUNTERS_PART, UNSENT
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings

_log = logging.getLogger("fedlingua.client")
SITE_FAILED = 100
"""Code of an error reply that the site itself made, with its reason; except `protocol.NOT_HELD`."""


class NodeContext(Context):
    """The context of one message, with the node that answers it. note: What the guard says of the reply for the audit log."""

    def __init__(self, context: Context) -> None:
        super().__init__(**vars(context))
        self.note = dict[str, Any]()

    @classmethod
    def of(cls, context: Context) -> "NodeContext":
        """Return what an outer mod has made of a message's context, or make it."""
        return context if isinstance(context, cls) else cls(context)

    @cached_property
    def node(self) -> Node:
        """The node under the run's settings; raise FedlinguaError if it cannot work under them."""
        return node_of(self, settings_from(self.run_config))


def audit_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Write a deployed site's reply to its audit log before it leaves."""
    here = NodeContext.of(context)
    reply = call_next(message, here)
    if not is_deployed(context):
        return reply
    try:
        log(site_file_of(context), message, context.run_id, reply, here.note)
    except Exception as error:
        _log.error("%s: the audit log: %s", _about(message), without_words(error))
        unlogged = Error(SITE_FAILED, "the site's audit log cannot be written, so no request is answered")
        return Message(unlogged, reply_to=message)
    return reply


def errors_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Turn an exception into an error reply.

    Only the messages of our own exceptions leave the site. Of any other exception only the type does, because its text may quote a
    sentence; in a simulation with code of the user's own at the site, all of it.
    """
    about = _about(message)
    try:
        reply = call_next(message, context)
        _log.info("%s: done", about)
        return reply
    except FedlinguaError as error:
        _log.error("%s: %s", about, error)
        # Our own messages quote no text, but they may name a file, so a deployed site sends only those of an ExchangeError.
        leaves = isinstance(error, ExchangeError) or not is_deployed(context)
        words = type(error).__name__ + (f": {error}" if leaves else "; the site's log has the rest")
        code = protocol.NOT_HELD if isinstance(error, NotHeldError) else SITE_FAILED
    except Exception as error:
        place = without_words(error)
        _log.error("%s: %s", about, place)
        leaves = any(context.run_config.get(key) for key in ("client", "layers")) and not is_deployed(context)
        words = one_line(f"{place}: {error}") if leaves else f"{type(error).__name__}; the site's log has the rest"
        code = SITE_FAILED
    trainable_of.cache_clear()  # an interrupted call may have left the model in any state
    return Message(Error(code, words), reply_to=message)


def guard_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Let a deployed site's guard check a message, and answer it with its stored reply or with that of the handler."""
    here = NodeContext.of(context)
    if not here.node.guard:
        return call_next(message, here)

    def handle() -> RecordDict:
        return call_next(message, here).content

    num_tensors = partial(_num_tensors, message, here.node.settings)
    content, here.note = here.node.guard.answer(message, context.run_id, handle, num_tensors)
    return Message(content, reply_to=message)


def _about(message: Message) -> str:
    """Return what a message is about, for the site's log: its site and round, if it names them, and its type."""
    task = message.content.config_records.get(protocol.TASK, ConfigRecord())
    said = [one_line(str(task[name])[:MOST_WORDS]) for name in ("site", "round") if name in task]
    where = "site {}, round {}, ".format(*said) if len(said) == 2 else ""
    return f"{where}{message.metadata.message_type}"


def _num_tensors(message: Message, settings: Settings, content: RecordDict) -> int:
    """Count the tensors in a reply; one of an update counts if any of its numbers is sent, under masks or not."""
    record = content.array_records.get(protocol.ARRAYS, ArrayRecord())
    if COUNTERS_PART in record:
        scales: dict[str, Any] = dict(message.content.config_records[protocol.SECURE])
        return sum(scale != UNSENT for part in record if part != COUNTERS_PART for scale in scales[part])
    if not record or protocol.METRICS not in content:
        return len(record)
    return selection_of(opened(record), trainable_of(settings).tensor_set).num_tensors
