"""What a reply says, once it can be believed: one function a phase, each refusing with an ExchangeError what is not as it has to be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import Message

from fedlingua import protocol
from fedlingua.config import Settings
from fedlingua.errors import ExchangeError
from fedlingua.evaluation.scores import ScoreSums
from fedlingua.exchange.joined import Joined, Numbers
from fedlingua.exchange.tensor_sets import TensorSet
from strategies import checks
from strategies.aggregation import Update
from strategies.progress import Sums


@dataclass(frozen=True)
class Training:
    """A site's update and the sums of its training.

    norm: L2, of what the update changed. digest: of its bytes, so two replies with one digest carry the same update. 0 and "" where tensors
    stay with the site.
    """

    update: Update
    sums: Sums
    norm: float
    digest: str


@dataclass(frozen=True)
class Scores:
    """Score sums of one text: of what was trained, and of the base."""

    result: ScoreSums
    base: ScoreSums


def read_training(
    reply: Message,
    size: int,
    site: str,
    settings: Settings,
    about: Mapping[str, Any],
    tensor_set: TensorSet,
    sent: Mapping[str, Sequence[Numbers]] | None,
    earlier: str | None,
) -> Training:
    """A training reply of `size` bytes; its update's tensors lie in the reply's own bytes.

    about: what the site told of its text. sent: part -> the numbers it started from, None where they stay with it. earlier: digest of its
    last accepted update.

    Raises:
        ExchangeError: with what was got and what was wanted.
    """
    checks.check_size(size, checks.size_limit(None if sent is None else tensor_set))
    checks.check_records(reply, {protocol.TASK, protocol.METRICS, protocol.ARRAYS})
    most = int(about["train"]) * settings.local_epochs
    sums = checks.check_sums(reply.content.metric_records[protocol.METRICS], checks.TRAINING_SUMS, most)
    arrays = reply.content.array_records[protocol.ARRAYS]
    tensors, norm, digest = Joined({}, TensorSet(tensor_set.name, ())), 0.0, ""
    if sent is not None:
        # Flower's own SHA-256 over the arrays, which counting the reply's bytes has made already.
        digest = arrays.object_id
        tensors, norm = checks.check_update(reply, tensor_set, sent, settings.max_update_norm)
        if norm and digest == earlier:
            raise ExchangeError("sends the update of an earlier round again")
    elif arrays:
        raise ExchangeError("carries tensors, which stay at the sites under this method")
    return Training(Update(site, tensors, int(sums["num_examples"])), sums, norm, digest)


def read_evaluation(reply: Message, size: int, about: Mapping[str, Any]) -> Sums:
    """The sums of a dev loss.

    Raises:
        ExchangeError: with what was got and what was wanted.
    """
    checks.check_size(size, checks.size_limit(None))
    checks.check_records(reply, {protocol.TASK, protocol.METRICS})
    return checks.check_sums(reply.content.metric_records[protocol.METRICS], checks.EVALUATION_SUMS, int(about["dev"]))


def read_scores(reply: Message, size: int, split: str, about: Mapping[str, Any], texts: Sequence[str]) -> dict[str, Scores]:
    """The sums of the scores of each of the site's `texts`.

    Raises:
        ExchangeError: with what was got and what was wanted.
    """
    checks.check_size(size, checks.size_limit(None))
    keys = {text: (f"{protocol.SCORES_PREFIX}{text}", f"{protocol.BASE_SCORES_PREFIX}{text}") for text in texts}
    checks.check_records(reply, {protocol.TASK, *(key for pair in keys.values() for key in pair)})
    records, most = reply.content.metric_records, int(about[split])
    return {
        text: Scores(checks.check_scores(records[result], most), checks.check_scores(records[base], most))
        for text, (result, base) in keys.items()
    }
