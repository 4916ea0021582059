"""Checks of a reply's records and numbers. Each raises an ExchangeError that says what is wrong, what was received, and what was wanted."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, MetricRecord

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange import protocol
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.records import opened
from fedlingua.exchange.tensors import TensorSet

LEAST_LOSS = 1e-9
"""Lowest credible mean loss in nats a token: below it, float32 would have rounded the probability of nearly all tokens to 1."""
MOST_LOSS = 4.0
"""Highest possible loss as a multiple of ln(vocabulary), the loss of a model that guesses uniformly."""
EVALUATION_SUMS = ("nll_sum", "num_tokens", "num_examples", "seconds")
TRAINING_SUMS = (*EVALUATION_SUMS, "steps")
WITHOUT_TENSORS = 64 * 1024
"""Most bytes of a reply without its tensors: sums, names, headers."""
SHARE = 0.01
"""Share of the numbers' bytes that framing may add: Flower cuts long arrays into chunks."""


def size_limit(tensor_set: TensorSet | None, more_bits: int = 0) -> int:
    """Return the most bytes of a reply that carries the tensors of the set; of one without tensors if the set is None.

    more_bits: What it carries besides, for each number.
    """
    if tensor_set is None:
        return WITHOUT_TENSORS
    bytes_a_number = 4 + more_bits / 8
    return WITHOUT_TENSORS + int((1 + SHARE) * bytes_a_number * tensor_set.num_parameters)


def check_records(content: Collection[str], wanted: Collection[str]) -> None:
    """Refuse a reply with other records than `wanted`."""
    missing, extra = set(wanted) - set(content), set(content) - set(wanted)
    if missing or extra:
        wrong = [f"no {name!r}" for name in sorted(missing)] + [f"an unknown {name!r}" for name in sorted(extra)]
        raise ExchangeError(f"the reply has {' and '.join(wrong)}; wanted the records {', '.join(sorted(wanted))}")


def check_numbers(record: MetricRecord, wanted: Sequence[str]) -> dict[str, float]:
    """Return the record's numbers; they must be exactly those `wanted`, each finite and 0 or more."""
    for key in sorted(set(wanted) ^ set(record)):
        raise ExchangeError(f"the sums lack {key!r}" if key in wanted else f"there is an unknown sum {key!r}; wanted {wanted}")
    values: dict[str, float] = {}
    for key in wanted:
        value = record[key]
        if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise ExchangeError(f"{key} = {value!r}; wanted a finite number, 0 or more")
        values[key] = value
    return values


@dataclass(frozen=True)
class Possible:
    """The bounds of a site's sums. examples: least and most; tokens: least and most per example; loss: most nats a token;
    seconds: most; share: share of the examples whose tokens are counted."""

    examples: tuple[int, int]
    tokens: tuple[int, int]
    loss: float
    seconds: float
    share: float = 1.0


def check_sums(record: MetricRecord, wanted: Sequence[str], possible: Possible) -> dict[str, float]:
    """Return the sums after the checks of `check_numbers` and of the bounds in `possible`."""
    values = check_numbers(record, wanted)
    tokens, examples, (least, most) = values["num_tokens"], values["num_examples"], possible.examples
    for key in ("num_tokens", "num_examples"):
        if values[key] < 1 or values[key] % 1:
            raise ExchangeError(f"{key} = {values[key]!r}; wanted a whole number, at least 1")
    if examples > most:
        raise ExchangeError(f"num_examples = {examples!r}; the site has {most}")
    if examples < least:
        raise ExchangeError(f"num_examples = {examples!r}; wanted at least {least}, by the site's own account and the settings")
    measured = max(1, round(possible.share * examples))
    fewest, most_tokens = (number * measured for number in possible.tokens)
    if not fewest <= tokens <= most_tokens:
        raise ExchangeError(f"num_tokens = {tokens!r}, of {measured} examples; wanted {fewest} to {most_tokens}")
    check_loss(values["nll_sum"], tokens, possible.loss)
    check_seconds(values, possible.seconds)
    return values


def check_loss(nll_sum: float, num_tokens: float, most: float) -> None:
    """Refuse a loss below LEAST_LOSS or above `most` nats a token."""
    loss = nll_sum / num_tokens
    if not LEAST_LOSS <= loss <= most:
        raise ExchangeError(f"nll_sum / num_tokens = {loss:.4g} nats a token; wanted {LEAST_LOSS:g} to {most:.4g}")


def check_seconds(values: Mapping[str, float], most: float) -> None:
    """Refuse durations longer than `most`, the seconds since the round began."""
    for key in {"seconds", protocol.SELECT_S, protocol.BATCHES_S, protocol.SLOPE_S} & set(values):
        if values[key] > most:
            raise ExchangeError(f"{key} = {values[key]:.4g}; the round has not lasted so long")


def check_array(record: Any, name: str, shape: tuple[int, ...]) -> Numbers:
    """Return the only array of a record, float32 of the given shape."""
    arrays = opened(record or ArrayRecord())
    if set(arrays) != {name}:
        raise ExchangeError(f"the reply has the {name} {', '.join(sorted(arrays)) or 'none'}; wanted {name}")
    if arrays[name].shape != shape or arrays[name].dtype != np.float32:
        raise ExchangeError(f"the {name} are {arrays[name].dtype} {arrays[name].shape}; wanted float32 {shape}")
    return arrays[name]
