"""What a reply says, once it can be believed: one function a phase, each refusing with an ExchangeError what is not as it has to be."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import Message

from fedlingua import protocol
from fedlingua.config import Settings
from fedlingua.errors import ExchangeError
from fedlingua.evaluation.sums import TextSums
from fedlingua.exchange.joined import Joined, Numbers
from fedlingua.exchange.tensors import TensorSet
from fedlingua.selection.second_filter import SIZE
from fedlingua.training.sampling import most_samples
from strategies import checks
from strategies.aggregation import Update
from strategies.measures import MEASURES
from strategies.norms import NO_CHANGE, Change
from strategies.progress import Sums


@dataclass(frozen=True)
class Asked:
    """What a site was asked to train, which its update is held against.

    about: what it told of its text. sent: part -> the numbers that it started from, None where they stay with it. earlier: digest of its
    last accepted update.
    """

    site: str
    settings: Settings
    about: Mapping[str, Any]
    tensor_set: TensorSet
    sent: Mapping[str, Sequence[Numbers]] | None
    earlier: str | None


@dataclass(frozen=True)
class Training:
    """A site's update and the sums of its training.

    change: of the update. digest: of its bytes, so two replies with one digest carry the same update. Nothing and "" where tensors stay
    with the site. deviations: every tensor's, where the selection goes by them.
    """

    update: Update
    sums: Sums
    change: Change
    digest: str
    deviations: Numbers | None = None


@dataclass(frozen=True)
class Scores:
    """Score sums of one text: of what was trained, and of the base."""

    result: TextSums
    base: TextSums


def read_training(reply: Message, size: int, asked: Asked) -> Training:
    """A training reply of `size` bytes; its update's tensors lie in the reply's own bytes.

    Raises:
        ExchangeError: with what was got and what was wanted.
    """
    checks.check_size(size, checks.size_limit(None if asked.sent is None else asked.tensor_set, asked.settings.selects_numbers))
    checks.check_records(reply, {protocol.TASK, protocol.METRICS, *_with_tensors(asked.settings)})
    most = _most_examples(asked.settings, asked.about)
    wanted = (*checks.TRAINING_SUMS, *_of_selection(asked.settings))
    sums = checks.check_sums(reply.content.metric_records[protocol.METRICS], wanted, most)
    if asked.sent is not None:
        return _read_update(reply, asked, sums)
    if reply.content.array_records[protocol.ARRAYS]:
        raise ExchangeError("carries tensors, which stay at the sites under this method")
    nothing = Joined({}, TensorSet(asked.tensor_set.name, ()))
    return Training(Update(asked.site, nothing, _size(asked, sums)), sums, NO_CHANGE, "")


def read_probe(reply: Message, size: int, settings: Settings, about: Mapping[str, Any]) -> Sums:
    """The sums of a training whose update waits at the site, and the median of its deviations.

    Raises:
        ExchangeError: with what was got and what was wanted.
    """
    checks.check_size(size, checks.size_limit(None))
    checks.check_records(reply, {protocol.TASK, protocol.METRICS})
    wanted = (*checks.TRAINING_SUMS, "deviation", protocol.SELECT_S)
    return checks.check_sums(reply.content.metric_records[protocol.METRICS], wanted, _most_examples(settings, about))


def read_sent(reply: Message, size: int, asked: Asked, sums: Sums) -> Training:
    """What a site has selected of its update. sums: as its probe gave them, to which the seconds of selecting are added.

    Raises:
        ExchangeError: with what was got and what was wanted.
    """
    checks.check_size(size, checks.size_limit(asked.tensor_set))
    checks.check_records(reply, {protocol.TASK, protocol.METRICS, *_with_tensors(asked.settings)})
    seconds = checks.check_numbers(reply.content.metric_records[protocol.METRICS], (protocol.SELECT_S,))[protocol.SELECT_S]
    return _read_update(reply, asked, {**sums, protocol.SELECT_S: sums[protocol.SELECT_S] + seconds})


def _most_examples(settings: Settings, about: Mapping[str, Any]) -> int:
    """That a site may have trained on: every one of its sentences in each epoch, or as many as it may draw, which may be more."""
    sentences, texts = int(about["train"]), len(about["directions"])
    in_an_epoch = most_samples(sentences, texts, settings.sample_least, settings.sample_share) if settings.draws else sentences
    return in_an_epoch * settings.local_epochs


def _size(asked: Asked, sums: Sums) -> int:
    """What a site counts by where sites count by size: what it trained on, as Liu et al. 2023 have it in eq. 2; where that is a sample,
    the whole text that it is drawn from, N_i of Manoel et al. 2022, eq. 2.
    """
    return int(asked.about["train"] if asked.settings.draws else sums["num_examples"])


def _of_selection(settings: Settings) -> tuple[str, ...]:
    """What the sums say besides where an update is selected from."""
    if settings.selected_by == "all":
        return ()
    return (protocol.SELECT_S, *((protocol.THETA,) if settings.by_deviation else ()))


def _with_tensors(settings: Settings) -> set[str]:
    return {protocol.ARRAYS, protocol.DEVIATIONS} if settings.by_deviation else {protocol.ARRAYS}


def _read_update(reply: Message, asked: Asked, sums: Sums) -> Training:
    settings, tensor_set = asked.settings, asked.tensor_set
    assert asked.sent is not None, "what stays with the sites is no update"
    # Flower's own SHA-256 over the arrays, which counting the reply's bytes has made already.
    digest = reply.content.array_records[protocol.ARRAYS].object_id
    selects = settings.selected_by != "all"
    tensors, selection, change = checks.check_update(reply, tensor_set, asked.sent, selects, settings.max_update_norm)
    if change.norm and digest == asked.earlier:
        raise ExchangeError("sends the update of an earlier round again")
    deviations = checks.check_deviations(reply, tensor_set) if settings.by_deviation else None
    update = Update(asked.site, tensors, _size(asked, sums), selection, sums["nll_sum"] / sums["num_tokens"])
    return Training(update, sums, change, digest, deviations)


def read_evaluation(reply: Message, size: int, about: Mapping[str, Any]) -> Sums:
    """The sums of a dev loss.

    Raises:
        ExchangeError: with what was got and what was wanted.
    """
    checks.check_size(size, checks.size_limit(None))
    checks.check_records(reply, {protocol.TASK, protocol.METRICS})
    return checks.check_sums(reply.content.metric_records[protocol.METRICS], checks.EVALUATION_SUMS, int(about["dev"]))


def read_slope(record: Any, settings: Settings) -> dict[str, Any]:
    """A site's part in what is learned from a round: sums, and the gradient of the second filter where there is one. What is no number is
    let through, to be left out and named.

    Raises:
        ExchangeError: it is not there, lacks something, or has something of another form.
    """
    slope = {"slope", protocol.SLOPE_S} if settings.meta_estimator != "loss" or settings.second_filter else set()
    wanted = {"nll_sum", "num_tokens", protocol.BATCHES_S, *slope, *({"filter"} if settings.second_filter else ())}
    if record is None or set(record) != wanted:
        raise ExchangeError(f"the reply's part in the meta step has {sorted(record or ())}; wanted {sorted(wanted)}")
    sums = {key: value for key, value in record.items() if key != "filter"}
    if not all(isinstance(value, int | float) for value in sums.values()) or sums["num_tokens"] < 1:
        raise ExchangeError(f"the reply's part in the meta step is {sums}; wanted numbers, and num_tokens of 1 or more")
    if not all(math.isfinite(sums[key]) and sums[key] >= 0 for key in (protocol.BATCHES_S, protocol.SLOPE_S) if key in sums):
        raise ExchangeError(f"the reply's part in the meta step is {sums}; wanted finite seconds, 0 or more")
    if settings.second_filter and (not isinstance(record["filter"], list) or len(record["filter"]) != SIZE):
        raise ExchangeError(f"the second filter's gradient is {type(record['filter']).__name__}; wanted a list of {SIZE} numbers")
    return {
        **{key: float(value) for key, value in sums.items()},
        **({"filter": record["filter"]} if settings.second_filter else {}),
    }


def read_scores(
    reply: Message, size: int, settings: Settings, about: Mapping[str, Any], texts: Sequence[str]
) -> dict[str, Scores]:
    """The sums of the scores of each of the site's `texts`.

    Raises:
        ExchangeError: with what was got and what was wanted.
    """
    checks.check_size(size, checks.size_limit(None))
    keys = {text: (f"{protocol.SCORES_PREFIX}{text}", f"{protocol.BASE_SCORES_PREFIX}{text}") for text in texts}
    checks.check_records(reply, {protocol.TASK, *(key for pair in keys.values() for key in pair)})
    records, most, check = reply.content.metric_records, int(about[settings.score_split]), MEASURES[settings.task].check
    return {text: Scores(check(records[result], most), check(records[base], most)) for text, (result, base) in keys.items()}
