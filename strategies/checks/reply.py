"""Checks that a reply must pass. Each raises an ExchangeError that says what is wrong, what was received, and what was wanted."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord

from fedlingua.common.errors import ExchangeError
from fedlingua.corpora.clean import REASONS
from fedlingua.corpora.deidentify import KIND
from fedlingua.exchange import protocol
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.records import opened
from fedlingua.exchange.tensors import TensorSet
from fedlingua.personalization.choice import ALONE, ALONE_ENSEMBLE, BASE, CANDIDATES, ENSEMBLE, FEDERATION, WITHOUT

LEAST_LOSS = 1e-9
"""Lowest credible mean loss in nats a token: below it, float32 would have rounded the probability of nearly all tokens to 1."""
MOST_LOSS = 4.0
"""Highest possible loss as a multiple of ln(vocabulary), the loss of a model that guesses uniformly."""
EVALUATION_SUMS = ("nll_sum", "num_tokens", "num_examples", "seconds")
TRAINING_SUMS = (*EVALUATION_SUMS, "steps")
SECRET_SUMS = ("nll_sum", "num_tokens", "num_examples")
"""Under private training these sums stay at the site, because no noise covers them."""
ACCOUNT_KEYS = {"directions", "read", "kept", "reasons", "dropped", "train", "dev", "test"}
DOCUMENT_KEYS = {"failures", "failed_documents"}
"""Additional keys, present if a site's hook failed on some documents."""

WITHOUT_TENSORS = 64 * 1024
"""Most bytes of a reply without its tensors: sums, names, headers."""
SHARE = 0.01
"""Share of the numbers' bytes that framing may add: Flower cuts long arrays into chunks."""


def size_limit(tensor_set: TensorSet | None, selects_numbers: bool = False) -> int:
    """Return the most bytes of a reply that carries the tensors of the set; of one without tensors if the set is None.

    selects_numbers: It carries a mask, too, one bit a number.
    """
    if tensor_set is None:
        return WITHOUT_TENSORS
    bytes_a_number = 4 + (1 / 8 if selects_numbers else 0)
    return WITHOUT_TENSORS + int((1 + SHARE) * bytes_a_number * tensor_set.num_parameters)


def check_records(reply: Message, wanted: Collection[str]) -> None:
    """Refuse a reply with other records than `wanted`."""
    missing, extra = set(wanted) - set(reply.content), set(reply.content) - set(wanted)
    if missing or extra:
        wrong = [f"no {name!r}" for name in sorted(missing)] + [f"an unknown {name!r}" for name in sorted(extra)]
        raise ExchangeError(f"the reply has {' and '.join(wrong)}; wanted the records {', '.join(sorted(wanted))}")


def check_task(reply: Message, asked: Task) -> None:
    """Refuse a reply to another task: another site, run, attempt or round."""
    answer = reply.content.config_records.get(protocol.TASK, ConfigRecord())
    for key, wanted in asked.reply().items():
        if answer.get(key) != wanted:
            raise ExchangeError(
                f"answers {key} {answer.get(key)!r}; wanted {wanted!r} (site {asked.site!r}, round {asked.round})"
            )


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


def check_deviations(reply: Message, tensor_set: TensorSet) -> Numbers:
    """Return every tensor's deviation: (tensors,) float32, 0 or above; infinity is allowed."""
    deviations = check_array(reply.content.get(protocol.DEVIATIONS), protocol.DEVIATIONS, (len(tensor_set.specs),))
    if not (deviations >= 0).all():
        raise ExchangeError(f"the deviations are {deviations.min()} at the least; wanted 0 or above")
    return deviations


def check_array(record: Any, name: str, shape: tuple[int, ...]) -> Numbers:
    """Return the only array of a record, float32 of the given shape."""
    arrays = opened(record or ArrayRecord())
    if set(arrays) != {name}:
        raise ExchangeError(f"the reply has the {name} {', '.join(sorted(arrays)) or 'none'}; wanted {name}")
    if arrays[name].shape != shape or arrays[name].dtype != np.float32:
        raise ExchangeError(f"the {name} are {arrays[name].dtype} {arrays[name].shape}; wanted float32 {shape}")
    return arrays[name]


def check_choice(record: MetricRecord | None, sums: Mapping[str, Any], most: float) -> dict[str, Any]:
    """Return a site's choice of a model as the fields of Scores other than checked sums; {} if it chose none.

    Args:
        sums: "result" and "base", and if the site chose also "federated", "single", and those of "alone" and "alone_ensemble" that there
            are -> checked sums.
        most: Largest magnitude of a gain.
    """
    if record is None or not {"federated", "single"} <= set(sums):
        if record is not None or len(sums) > 2:
            raise ExchangeError("the reply has a part of a choice: wanted the scores of all models and the choice, or neither")
        return {}
    wanted = (protocol.KEPT, protocol.REFERENCE, protocol.OVER_REFERENCE)
    if set(record) != set(wanted):
        raise ExchangeError(f"the choice holds {', '.join(sorted(record))}; wanted {', '.join(wanted)}")
    places: list[Any] = [record[key] for key in wanted[:2]]
    for key, place in zip(wanted, places, strict=False):
        if type(place) is not int or not 0 <= place < len(CANDIDATES):
            raise ExchangeError(f"{key} = {place!r}; wanted the number of a candidate, 0 to {len(CANDIDATES) - 1}")
    candidate, reference = (CANDIDATES[place] for place in places)
    fields = {BASE: "base", ALONE: "alone", FEDERATION: "federated", ALONE_ENSEMBLE: "alone_ensemble"}
    of_one = "result" if candidate in (ENSEMBLE, ALONE_ENSEMBLE) else "single"
    for same in (fields.get(candidate, "result"), of_one):
        if same not in sums or _without_more(sums["result"]) != _without_more(sums[same]):
            raise ExchangeError(f"keeps {candidate}, and the scores of what it keeps are not those of {candidate}")
    if reference not in WITHOUT or fields[reference] not in sums:
        raise ExchangeError(f"compares with {reference}; wanted one of {', '.join(WITHOUT)}, and its scores")
    values: list[Any] = record[protocol.OVER_REFERENCE] if isinstance(record[protocol.OVER_REFERENCE], list) else []  # type: ignore[assignment]
    are_numbers = all(isinstance(end, int | float) and abs(end) <= most for end in values)
    if len(values) != 2 or not are_numbers or values[0] > values[1]:
        got = f"{protocol.OVER_REFERENCE} = {record[protocol.OVER_REFERENCE]!r}"
        raise ExchangeError(f"{got}; wanted two numbers from {-most:g} to {most:g}, the lower one first")
    chosen = {"candidate": candidate, "reference_name": reference, "reference": sums[fields[reference]]}
    return {**chosen, "over_reference": (float(values[0]), float(values[1]))}


def _without_more(sums: Any) -> Any:
    """Return the sums without those of additional metrics, which only the result and the base have."""
    return replace(sums, more={}, comet_checkpoint=0) if hasattr(sums, "more") else sums


def check_about(record: Mapping[str, Any], directions: Sequence[str]) -> None:
    """Refuse a site's account of itself at registration if its directions differ from `directions` or its sizes do not add up."""
    wanted = ACCOUNT_KEYS | (DOCUMENT_KEYS if DOCUMENT_KEYS & set(record) else set())
    missing, extra = wanted - set(record), set(record) - wanted
    if missing or extra:
        raise ExchangeError(
            f"does not tell its {', '.join(sorted(missing))}" if missing else f"tells an unknown {sorted(extra)[0]!r}"
        )
    if record["directions"] != list(directions):
        raise ExchangeError(f"has the directions {record['directions']}; the federation file says {list(directions)}")
    reasons, dropped = _two_lists(record["reasons"], record["dropped"], "reasons and numbers of what is dropped")
    failed = record.get("failures", []), record.get("failed_documents", [])
    kinds, documents = _two_lists(*failed, "types of failure and numbers of documents")
    if not set(reasons) <= set(REASONS):
        raise ExchangeError(f"drops sentences for reasons that are not known; wanted some of {', '.join(REASONS)}")
    if not all(isinstance(kind, str) and KIND.fullmatch(kind) for kind in kinds):  # one word cannot carry text
        raise ExchangeError("names a type of failure that is not one word of 40 letters at most")
    sizes = [(key, record[key]) for key in ("read", "kept", "train", "dev", "test")]
    for key, count in [*sizes, *zip(reasons, dropped, strict=True), *(("failed_documents", number) for number in documents)]:
        if type(count) is not int or not 0 <= count < 2**53:
            raise ExchangeError(f"{key} = {count!r}; wanted a count")
    if record["kept"] + sum(dropped) != record["read"] or record["train"] + record["dev"] + record["test"] > record["kept"]:
        raise ExchangeError(
            "its numbers of sentences do not add up: read = kept + dropped, and the splits are some of what is kept"
        )


def _two_lists(keys: Any, counts: Any, what: str) -> tuple[list[Any], list[Any]]:
    if not isinstance(keys, list) or not isinstance(counts, list) or len(keys) != len(counts):
        raise ExchangeError(f"its {what} are not two lists of one length")
    return keys, counts
