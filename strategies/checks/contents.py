"""Parse replies: one function for each phase, which returns the content of a plausible reply.

It refuses any other reply with an ExchangeError that says what it got and what it wanted.
"""

import math
from collections.abc import Sequence
from types import ModuleType

from flwr.app import Message, MetricRecord

from fedlingua.common.errors import ExchangeError
from fedlingua.evaluation import of_masked_text, of_translation
from fedlingua.evaluation.sums import Scores as Scores
from fedlingua.exchange import checks, protocol
from fedlingua.exchange.expected import Expected, Sums, parse_dev_loss
from fedlingua.exchange.held import digest_of
from fedlingua.exchange.joined import Joined, flat_parts
from fedlingua.exchange.measured_change import NO_CHANGE, change_of
from fedlingua.exchange.records import view
from fedlingua.exchange.selected import everything
from fedlingua.exchange.tensors import NOTHING
from fedlingua.exchange.updates import Update
from fedlingua.layers.layer import Incoming, Training
from fedlingua.training.steps import examples_of, in_an_epoch
from strategies.checks.reply import check_choice

MEASURES: dict[str, ModuleType] = {"translation": of_translation, "masked-language": of_masked_text}
"""`task` -> the module that scores its sites at the end, with `check_sums`, `measured_on`, `site_scores`, `all_scores` and `MOST_GAIN`;
one line for each task."""


def parse_training(incoming: Incoming) -> Training:
    """Check a training reply that its layers have read. Tensors that are sent whole are not copied out of the reply's bytes."""
    expected, content = incoming.expected, incoming.content
    settings, tensor_set, site = expected.settings, expected.tensor_set, expected.site
    dev = parse_dev_loss(content.metric_records[protocol.MEASURED], expected) if protocol.MEASURED in content else None
    if not incoming.is_open:
        return Training(Update(site, Joined({}, NOTHING), int(expected.about["train"])), {}, NO_CHANGE, "", dev)
    sums = {**training_sums(content.metric_records[protocol.METRICS], expected, incoming.has_loss), **incoming.sums}
    # The size that weights by size use: the sentences trained on (Liu et al. 2023, eq. 2) or, if these are a sample, all that they
    # are drawn from (N_i of Manoel et al. 2022, eq. 2).
    size = int(expected.about["train"] if settings.draws or not incoming.has_loss else sums["num_examples"])
    arrays = content.array_records[protocol.ARRAYS]
    if incoming.start is None:
        if arrays:
            raise ExchangeError("carries tensors, which stay at the sites under this method")
        return Training(Update(site, Joined({}, NOTHING), size), sums, NO_CHANGE, "", dev, incoming.figures)
    tensors = view(arrays, tensor_set) if incoming.tensors is None else incoming.tensors
    digest = incoming.digest or digest_of(*(numbers[: len(numbers)] for numbers in tensors.parts.values()))
    starts = incoming.start.parts if isinstance(incoming.start, Joined) else flat_parts(incoming.start, tensor_set)
    change = change_of(tensors, starts, incoming.selection or everything(tensor_set))
    if settings.max_update_norm and change.norm > settings.max_update_norm:
        raise ExchangeError(
            f"the update changes the tensors by {change.norm:.4g} (L2 norm); robust.max-norm = {settings.max_update_norm:g}"
        )
    if change.norm and digest == expected.earlier:
        raise ExchangeError("sends the update of an earlier round again")
    loss = sums["nll_sum"] / sums["num_tokens"] if incoming.has_loss else 0.0
    return Training(
        Update(site, tensors, size, incoming.selection, loss), sums, change, digest, dev, incoming.figures, incoming.more
    )


def training_sums(metrics: MetricRecord, expected: Expected, has_loss: bool = True, more: Sequence[str] = ()) -> Sums:
    """Return the sums of a training, if the settings and the site's account of its text allow them. more: Further sums, any numbers."""
    settings, epochs = expected.settings, expected.settings.local_epochs
    if not has_loss:
        sums = checks.check_numbers(metrics, ("seconds", "steps", *more))
        checks.check_seconds(sums, expected.most_seconds)
        if sums["steps"] != epochs:
            raise ExchangeError(f"steps = {sums['steps']!r}; wanted {epochs}, one in each epoch of private training")
        return sums
    least, most = (in_an_epoch(number, settings) * epochs for number in examples_of(settings, expected.about))
    possible = checks.Possible((least, most), (1, settings.max_tokens), expected.most_loss, expected.most_seconds)
    sums = checks.check_sums(metrics, (*checks.TRAINING_SUMS, *more), possible)
    # All epochs have the same number of examples.
    of_epoch, rest = divmod(int(sums["num_examples"]), epochs)
    fewest = most_steps = math.ceil(of_epoch / (settings.batch_size * settings.accumulation))
    if settings.tokens_per_batch:  # a batch has one example or more, and room for the longest
        of_step = settings.accumulation * settings.tokens_per_batch
        fewest, most_steps = math.ceil(sums["num_tokens"] / epochs / of_step), of_epoch
    if rest or of_epoch != in_an_epoch(of_epoch, settings) or not fewest * epochs <= sums["steps"] <= most_steps * epochs:
        raise ExchangeError(
            f"steps = {sums['steps']!r} over num_examples = {sums['num_examples']!r}; wanted {fewest * epochs} to "
            f"{most_steps * epochs} steps over as many examples in each of {epochs} epochs as the settings leave of the site's text"
        )
    return sums


def parse_evaluation(reply: Message, expected: Expected) -> Sums:
    """Parse a reply that holds only the sums of a dev loss."""
    checks.check_records(reply.content, {protocol.TASK, protocol.METRICS})
    return parse_dev_loss(reply.content.metric_records[protocol.METRICS], expected)


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
    checks.check_records(reply.content, {protocol.TASK, *wanted, *(possible & set(records))})
    by_text = {}
    for text in texts:
        keys = {name: f"{prefix}{text}" for name, prefix in prefixes.items() if f"{prefix}{text}" in records}
        sums = {name: measure.check_sums(records[key], most, expected.most_loss) for name, key in keys.items()}
        measured_on = [measure.measured_on(each)[: None if name in ("result", "base") else 3] for name, each in sums.items()]
        if any(other[:3] != measured_on[0][:3] for other in measured_on[1:]) or measured_on[0] != measured_on[1]:
            raise ExchangeError(f"the scores of {text} and those of its base are not of the same sentences and references")
        choice = check_choice(records.get(f"{protocol.CHOICE_PREFIX}{text}"), sums, measure.MOST_GAIN)
        by_text[text] = Scores(**sums, **choice)
    scored = sum(scores.result.sentences for scores in by_text.values())
    if scored > most or (scored < most and not mixed):
        raise ExchangeError(f"the scores are of {scored} sentences; the site has {most} of {split}")
    return by_text
