"""Checks that a reply must pass. Each raises an ExchangeError that says what is wrong, what was received, and what was wanted."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flwr.app import ConfigRecord, Message, MetricRecord

from fedlingua.common.errors import ExchangeError
from fedlingua.corpora.clean import REASONS
from fedlingua.corpora.deidentify import KIND
from fedlingua.exchange import protocol
from fedlingua.exchange.protocol import Task
from fedlingua.personalization.choice import ALONE, ALONE_ENSEMBLE, BASE, CANDIDATES, ENSEMBLE, FEDERATION, WITHOUT

ACCOUNT_KEYS = {"directions", "read", "kept", "reasons", "dropped", "train", "dev", "test"}
DOCUMENT_KEYS = {"failures", "failed_documents"}
"""Additional keys, present if a site's hook failed on some documents."""


def check_task(reply: Message, asked: Task) -> None:
    """Refuse a reply to another task: another site, run, attempt or round."""
    answer = reply.content.config_records.get(protocol.TASK, ConfigRecord())
    for key, wanted in asked.reply().items():
        if answer.get(key) != wanted:
            raise ExchangeError(
                f"answers {key} {answer.get(key)!r}; wanted {wanted!r} (site {asked.site!r}, round {asked.round})"
            )


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
