"""What a site's reply is checked against, and the check of a dev loss."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import MetricRecord

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange import checks
from fedlingua.exchange.tensors import TensorSet
from fedlingua.settings.config import Settings

Sums = Mapping[str, float]


@dataclass(frozen=True)
class Expected:
    """The request that a reply is checked against.

    Args:
        about: The site's own account of its text.
        earlier: The digest of its last accepted update, if any.
        most_loss: The highest possible loss, in nats a token. most_seconds: The longest possible duration.
        measures: Whether the request also asks for the dev loss of an earlier round. dev: The sums of such a loss, if known.
    """

    site: str
    settings: Settings
    about: Mapping[str, Any]
    tensor_set: TensorSet
    earlier: str | None
    most_loss: float = math.inf
    most_seconds: float = math.inf
    measures: bool = False
    dev: Sums | None = None


def parse_dev_loss(record: MetricRecord, expected: Expected) -> Sums:
    """Return the sums of a dev loss; every round's must be over the same text."""
    dev, settings = int(expected.about["dev"]), expected.settings
    # Text in one language is measured in sequences, which hold a sentence or more.
    tokens = (1 if settings.task == "translation" else 0, settings.max_tokens)
    possible = checks.Possible((dev, dev), tokens, expected.most_loss, expected.most_seconds, settings.evaluate_share)
    sums = checks.check_sums(record, checks.EVALUATION_SUMS, possible)
    if expected.dev and sums["num_tokens"] != expected.dev["num_tokens"]:
        raise ExchangeError(f"num_tokens = {sums['num_tokens']!r}; its dev text had {expected.dev['num_tokens']!r} before")
    return sums
