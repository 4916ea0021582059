"""Parse replies: one function for each phase, which returns the content of a plausible reply.

It refuses any other reply with an ExchangeError that says what it got and what it wanted.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from flwr.app import Message, MetricRecord

from fedlingua.common.errors import ExchangeError
from fedlingua.evaluation.sums import Scores as Scores
from fedlingua.exchange import protocol
from fedlingua.exchange.held import digest_of
from fedlingua.exchange.joined import Joined, Numbers, flat_parts, runs
from fedlingua.exchange.records import opened, view
from fedlingua.exchange.tensors import NOTHING, NamedTensors, TensorSet
from fedlingua.selection.masks import everything, unpack_selected
from fedlingua.selection.second_filter import SIZE
from fedlingua.settings.config import Settings
from fedlingua.training.sampling import most_samples, num_samples
from strategies.aggregation.coded import decoded_selection, decoded_update
from strategies.aggregation.updates import Update
from strategies.checks import reply as checks
from strategies.checks.norms import NO_CHANGE, Change, change_of
from strategies.metrics import masked, translation
from strategies.progress import Sums

MEASURES: dict[str, ModuleType] = {"translation": translation, "masked-language": masked}
"""`task` -> the module that scores its sites at the end, with `check_sums`, `measured_on`, `site_scores`, `all_scores` and `MOST_GAIN`;
one line for each task."""


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


@dataclass(frozen=True)
class Training:
    """A site's update and the sums of its training.

    change: What the update changed. digest: The hash of its numbers, equal for two replies with the same update, in whatever bytes.
    Without tensors they are NO_CHANGE and "". deviations: Those of all tensors, if the selection uses them. dev: The sums of an earlier
    round's dev loss, if the request asked for it.
    """

    update: Update
    sums: Sums
    change: Change
    digest: str
    deviations: Numbers | None = None
    dev: Sums | None = None


@dataclass(frozen=True)
class Evaluation:
    """A site's dev loss, as sums, and its part in the meta step of MetaSend."""

    sums: Sums
    meta: Mapping[str, Any] | None = None


def parse_training(reply: Message, expected: Expected, received: NamedTensors | None, probed: Sums | None = None) -> Training:
    """Parse a training reply. Tensors that are sent whole and without a code are not copied out of the reply's bytes.

    Args:
        received: The tensors that training started from; None if tensors stay at the site.
        probed: The sums of the site's probe, if any, to which the reply adds only the seconds of the selection."""
    settings, tensor_set = expected.settings, expected.tensor_set
    besides = {protocol.DEVIATIONS: settings.by_deviation, protocol.MEASURED: expected.measures}
    checks.check_records(reply, {protocol.TASK, protocol.METRICS, protocol.ARRAYS, *(name for name in besides if besides[name])})
    metrics, arrays = reply.content.metric_records[protocol.METRICS], reply.content.array_records[protocol.ARRAYS]
    if probed is None:
        selects = [protocol.SELECT_S] if settings.selected_by != "all" else []
        theta = [protocol.THETA] if settings.by_deviation else []
        sums = _training_sums(metrics, (*checks.TRAINING_SUMS, *selects, *theta), expected)
    else:
        seconds = checks.check_numbers(metrics, (protocol.SELECT_S,))
        checks.check_seconds(seconds, expected.most_seconds)
        sums = {**probed, protocol.SELECT_S: probed[protocol.SELECT_S] + seconds[protocol.SELECT_S]}
    dev = parse_dev_loss(reply.content.metric_records[protocol.MEASURED], expected) if expected.measures else None
    # The size that weights by size use: the sentences trained on (Liu et al. 2023, eq. 2) or, if these are a sample, all that they
    # are drawn from (N_i of Manoel et al. 2022, eq. 2).
    size = int(expected.about["train"] if settings.draws or settings.trains_privately else sums["num_examples"])
    if received is None:
        if arrays:
            raise ExchangeError("carries tensors, which stay at the sites under this method")
        return Training(Update(expected.site, Joined({}, NOTHING), size), sums, NO_CHANGE, "", dev=dev)
    selection, code = None, settings.code_up
    if settings.selected_by != "all":
        chosen = opened(arrays)
        if code.method == "none":
            digest = digest_of(*(chosen[name] for name in sorted(chosen)))
        else:
            chosen, digest = decoded_selection(chosen, received, tensor_set, code)
        tensors, selection = unpack_selected(chosen, tensor_set, runs(received, tensor_set))
    elif code.method != "none":
        tensors, digest = decoded_update(opened(arrays), received, tensor_set, code)
    else:
        tensors = view(arrays, tensor_set)
        digest = digest_of(*(numbers[: len(numbers)] for numbers in tensors.parts.values()))
    starts = received.parts if isinstance(received, Joined) else flat_parts(received, tensor_set)
    change = change_of(tensors, starts, selection or everything(tensor_set))
    if settings.max_update_norm and change.norm > settings.max_update_norm:
        raise ExchangeError(
            f"the update changes the tensors by {change.norm:.4g} (L2 norm); robust.max-norm = {settings.max_update_norm:g}"
        )
    if change.norm and digest == expected.earlier:
        raise ExchangeError("sends the update of an earlier round again")
    deviations = checks.check_deviations(reply, tensor_set) if settings.by_deviation else None
    update = Update(expected.site, tensors, size, selection, sums["nll_sum"] / sums["num_tokens"] if "nll_sum" in sums else 0.0)
    return Training(update, sums, change, digest, deviations, dev)


def parse_probe(reply: Message, expected: Expected) -> Sums:
    """Return the sums of a training whose update is stored at the site, with the median of its deviations."""
    checks.check_records(reply, {protocol.TASK, protocol.METRICS})
    metrics = reply.content.metric_records[protocol.METRICS]
    return _training_sums(metrics, (*checks.TRAINING_SUMS, "deviation", protocol.SELECT_S), expected)


def _training_sums(metrics: MetricRecord, wanted: Sequence[str], expected: Expected) -> Sums:
    """Return the sums of a training, if the settings and the site's account of its text allow them."""
    settings, epochs = expected.settings, expected.settings.local_epochs
    if settings.trains_privately:
        sums = checks.check_numbers(metrics, [name for name in wanted if name not in checks.SECRET_SUMS])
        checks.check_seconds(sums, expected.most_seconds)
        if sums["steps"] != epochs:
            raise ExchangeError(f"steps = {sums['steps']!r}; wanted {epochs}, one in each epoch of private training")
        return sums
    least, most = (_in_an_epoch(number, settings) * epochs for number in _examples(settings, expected.about))
    possible = checks.Possible((least, most), (1, settings.max_tokens), expected.most_loss, expected.most_seconds)
    sums = checks.check_sums(metrics, wanted, possible)
    # All epochs have the same number of examples.
    of_epoch, rest = divmod(int(sums["num_examples"]), epochs)
    fewest = most_steps = math.ceil(of_epoch / (settings.batch_size * settings.accumulation))
    if settings.tokens_per_batch:  # a batch has one example or more, and room for the longest
        of_step = settings.accumulation * settings.tokens_per_batch
        fewest, most_steps = math.ceil(sums["num_tokens"] / epochs / of_step), of_epoch
    if rest or of_epoch != _in_an_epoch(of_epoch, settings) or not fewest * epochs <= sums["steps"] <= most_steps * epochs:
        raise ExchangeError(
            f"steps = {sums['steps']!r} over num_examples = {sums['num_examples']!r}; wanted {fewest * epochs} to "
            f"{most_steps * epochs} steps over as many examples in each of {epochs} epochs as the settings leave of the site's text"
        )
    return sums


def _examples(settings: Settings, about: Mapping[str, Any]) -> tuple[int, int]:
    """Return the least and the most examples of one epoch, before they are cut to whole steps. Each pair is an example. A sequence of
    text in one language holds one sentence or more."""
    sentences, texts = int(about["train"]), len(about["directions"])
    least = sentences if settings.task == "translation" else 1
    if not settings.draws:
        return least, sentences
    drawn = num_samples(least, settings.sample_least, settings.sample_share)
    return max(1, drawn - texts + 1), most_samples(sentences, texts, settings.sample_least, settings.sample_share)


def most_steps(settings: Settings, about: Mapping[str, Any]) -> int:
    """Return the most optimizer steps that a site takes in a round, by its own account of its text."""
    if settings.trains_privately:
        return settings.local_epochs
    of_epoch = _in_an_epoch(_examples(settings, about)[1], settings)
    window = 1 if settings.tokens_per_batch else settings.batch_size * settings.accumulation
    return math.ceil(of_epoch / window) * settings.local_epochs


def _in_an_epoch(examples: int, settings: Settings) -> int:
    """Return how many of an epoch's examples are trained on: under `whole_steps` a multiple of a step's, if they fill one."""
    window = settings.batch_size * settings.accumulation
    in_part = settings.tokens_per_batch or not settings.whole_steps or examples < window
    return examples if in_part else examples // window * window


def parse_evaluation(reply: Message, expected: Expected) -> Sums:
    """Parse a reply that holds only the sums of a dev loss."""
    checks.check_records(reply, {protocol.TASK, protocol.METRICS})
    return parse_dev_loss(reply.content.metric_records[protocol.METRICS], expected)


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


def parse_slope(record: Any, expected: Expected) -> dict[str, Any]:
    """Return a site's part in the meta step: sums, and the second filter's gradient if there is one. Losses and gradients that are not
    finite are accepted here; the meta step leaves them out and names the site.
    """
    settings = expected.settings
    slope = {"slope", protocol.SLOPE_S} if settings.asks_own_terms else set()
    wanted = {"nll_sum", "num_tokens", protocol.BATCHES_S, *slope, *({"filter"} if settings.second_filter else ())}
    if record is None or set(record) != wanted:
        raise ExchangeError(f"the reply's part in the meta step has {sorted(record or ())}; wanted {sorted(wanted)}")
    sums = {key: value for key, value in record.items() if key != "filter"}
    if not all(isinstance(value, int | float) for value in sums.values()) or sums["num_tokens"] < 1:
        raise ExchangeError(f"the reply's part in the meta step is {sums}; wanted numbers, and num_tokens of 1 or more")
    if not all(math.isfinite(sums[key]) and sums[key] >= 0 for key in (protocol.BATCHES_S, protocol.SLOPE_S) if key in sums):
        raise ExchangeError(f"the reply's part in the meta step is {sums}; wanted finite seconds, 0 or more")
    checks.check_seconds(sums, expected.most_seconds)
    if math.isfinite(sums["nll_sum"]):
        checks.check_loss(sums["nll_sum"], sums["num_tokens"], expected.most_loss)
    if settings.second_filter and (not isinstance(record["filter"], list) or len(record["filter"]) != SIZE):
        raise ExchangeError(f"the second filter's gradient is {type(record['filter']).__name__}; wanted a list of {SIZE} numbers")
    return {key: value if key == "filter" else float(value) for key, value in record.items()}


def parse_scores(reply: Message, expected: Expected, texts: Sequence[str], mixed: bool) -> dict[str, Scores]:
    """Return the score sums of each of the site's `texts`; result and base must be of the same sentences.

    mixed: Whether the site also has dev text of other sites.
    """
    split, settings = expected.settings.score_split, expected.settings
    records, most, measure = reply.content.metric_records, int(expected.about[split]), MEASURES[settings.task]
    prefixes = protocol.SCORES_PREFIXES
    wanted = {f"{prefixes[name]}{text}" for text in texts for name in ("result", "base")}
    of_choice = (*list(prefixes.values())[2:], protocol.CHOICE_PREFIX) if settings.chooses else ()
    possible = {f"{prefix}{text}" for text in texts for prefix in of_choice}
    checks.check_records(reply, {protocol.TASK, *wanted, *(possible & set(records))})
    by_text = {}
    for text in texts:
        keys = {name: f"{prefix}{text}" for name, prefix in prefixes.items() if f"{prefix}{text}" in records}
        sums = {name: measure.check_sums(records[key], most, expected.most_loss) for name, key in keys.items()}
        measured_on = [measure.measured_on(each)[: None if name in ("result", "base") else 3] for name, each in sums.items()]
        if any(other[:3] != measured_on[0][:3] for other in measured_on[1:]) or measured_on[0] != measured_on[1]:
            raise ExchangeError(f"the scores of {text} and those of its base are not of the same sentences and references")
        choice = checks.check_choice(records.get(f"{protocol.CHOICE_PREFIX}{text}"), sums, measure.MOST_GAIN)
        by_text[text] = Scores(**sums, **choice)
    scored = sum(scores.result.sentences for scores in by_text.values())
    if scored > most or (scored < most and not mixed):
        raise ExchangeError(f"the scores are of {scored} sentences; the site has {most} of {split}")
    return by_text
