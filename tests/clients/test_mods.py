"""What surrounds every handler of the ClientApp: one node a message, and no model that an error has interrupted."""

from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Message, RecordDict

from clients import mods, node
from clients.mods import errors_mod
from clients.node import trainable_of
from fedlingua.exchange import protocol
from fedlingua.settings.config import Settings
from tests.hostile.server_table import Site, settings


def test_a_message_has_one_node_of_which_flowers_context_knows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard that checks a message is the one that the handler tells its sizes. A simulation pickles a context with its reply."""
    made = list[node.Node]()

    def counted(context: Context, of: Settings) -> node.Node:
        made.append(node.node_of(context, of))
        return made[-1]

    monkeypatch.setattr(mods, "node_of", counted)
    contexts = list[Context]()

    class Seen(Context):
        def __init__(self, *about: Any) -> None:
            super().__init__(*about)
            contexts.append(self)

    monkeypatch.setattr("tests.hostile.server_table.Context", Seen)
    site, config = Site(tmp_path), settings()
    site.approve(config)
    for number in (1, 2):
        assert not site.ask(protocol.DESCRIBE, config).has_error()
        assert len(made) == number
    assert {type(value) for context in contexts for value in vars(context).values()} == {int, dict, RecordDict}


def test_a_model_that_an_error_interrupted_is_not_used_again(tmp_path: Path) -> None:
    site, config = Site(tmp_path), settings()
    site.approve(config)

    def interrupted(message: Message, context: Context) -> Message:
        raise MemoryError

    reply = site.ask(protocol.DESCRIBE, config)
    assert trainable_of.cache_info().currsize == 1
    context = Context(1, 1, {}, RecordDict(), config)
    assert errors_mod(reply, context, lambda message, context: message) is reply
    assert trainable_of.cache_info().currsize == 1
    assert str(errors_mod(reply, context, interrupted).error.reason) == "MemoryError; the site's log has the rest"
    assert trainable_of.cache_info().currsize == 0
