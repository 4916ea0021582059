"""Scores of all sites as sums of numbers, all that a server learns of them under secure sums (`privacy.scores = "sum"`)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedlingua.common.languages import Direction
from fedlingua.evaluation.perplexity import MaskedScores, accuracy, perplexity
from fedlingua.evaluation.scores import ScoreSums, bleu_score, chrf_score
from fedlingua.evaluation.sums import Scores

ALL_SITES = "all sites"
"""The name under which scores.json has the sums."""
CHOSEN = "each site's own"
"""What stands there for the candidate that sites keep, and for their reference."""
MODELS = ("result", "base", "alone", "federated", "single", "reference")
GAINS = ("gained", "lost")
"""At how many sites the kept model is better or worse than the reference beyond chance: its interval lies above 0, or below."""
MOST = 1e6
"""Largest score that is added up, so that sums weighted by size stay far below 2^63; a perplexity has no bound of its own."""
_PREFIXES = {"result": ("", "{}"), "base": ("base_", "{}")} | {model: ("", f"{model}_{{}}") for model in MODELS[2:]}
"""Model -> what precedes "macro_" in the names of its averages, and what a metric is called after it."""


@dataclass(frozen=True)
class _Form:
    """The sums of a task's texts.

    fields: list of numbers -> its length. metrics: metric -> score of a text. size: a text's weight in a micro mean.
    """

    fields: Mapping[str, int]
    metrics: Mapping[str, Callable[[Any], float]]
    size: Callable[[Any], int]
    make: Callable[..., Any]


_FORMS = {
    "translation": _Form(
        {"bleu": 10, "chrf": 18},
        {"bleu": bleu_score, "chrf": chrf_score},
        lambda sums: sums.sentences,
        ScoreSums,
    ),
    "masked-language": _Form(
        {"nll": 4, "tokens": 4, "correct": 4},
        {"perplexity": perplexity, "accuracy": accuracy},
        lambda sums: sum(sums.tokens),
        partial(MaskedScores, masks=0),
    ),
}


def score_counters(task: str) -> tuple[str, ...]:
    """Return the names of the numbers that a site adds up of its scores."""
    form = _FORMS[task]
    of_text = [name for field, width in form.fields.items() for name in _places(field, width)]
    means = [f"{mean}.{metric}" for mean in ("macro", "micro") for metric in form.metrics]
    return (*GAINS, *(f"{model}.{name}" for model in MODELS for name in ("texts", "size", "sentences", *of_text, *means)))


def counted_scores(task: str, texts: Mapping[str, Scores]) -> dict[str, float]:
    """Return a site's numbers by name. texts: text -> its scores."""
    form, numbers = _FORMS[task], dict.fromkeys(score_counters(task), 0.0)
    for scores in texts.values():
        for name, value in [each for model in MODELS for each in _of_model(model, getattr(scores, model), form)]:
            numbers[name] += value
        low, high = scores.over_reference or (0.0, 0.0)
        numbers["gained"] += low > 0
        numbers["lost"] += high < 0
    return numbers


def _of_model(model: str, sums: Any, form: _Form) -> Iterator[tuple[str, float]]:
    if sums is None:
        return
    size, record = form.size(sums), sums.record()
    yield from ((f"{model}.texts", 1), (f"{model}.size", size), (f"{model}.sentences", sums.sentences))
    for field, width in form.fields.items():
        yield from zip((f"{model}.{name}" for name in _places(field, width)), record[field], strict=True)
    for metric, score in form.metrics.items():
        value = min(score(sums), MOST)
        yield from ((f"{model}.macro.{metric}", value), (f"{model}.micro.{metric}", value * size))


def _places(field: str, width: int) -> list[str]:
    return [f"{field}.{place}" for place in range(width)]


@dataclass(frozen=True)
class Totals:
    """The sums of all sites' scores.

    Args:
        scores: As if all texts were one; a model that some sites lack is missing.
        averages: Name in scores.json -> the mean over texts, plain (macro) or weighted by size (micro).
        choices: Name in GAINS -> how many sites, and `of` -> out of how many.
    """

    scores: Scores
    averages: Mapping[str, float]
    choices: Mapping[str, int]


def totals_of(task: str, numbers: Mapping[str, float]) -> Totals:
    """Return the totals from the sums of what `counted_scores` returned."""
    form, texts = _FORMS[task], round(numbers["result.texts"])
    made: dict[str, Any] = {}
    averages: dict[str, float] = {}
    for model in MODELS:
        if round(numbers[f"{model}.texts"]) < texts:  # a sum over fewer sites compares with nothing
            continue
        fields = {
            field: tuple(values if field == "nll" else map(round, values))
            for field, width in form.fields.items()
            if (values := [numbers[f"{model}.{name}"] for name in _places(field, width)])
        }
        made[model] = form.make(sentences=round(numbers[f"{model}.sentences"]), **fields)
        first, name = _PREFIXES[model]
        for metric in form.metrics:
            of_metric = name.format(metric)
            averages[f"{first}macro_{of_metric}"] = numbers[f"{model}.macro.{metric}"] / texts
            averages[f"{first}micro_{of_metric}"] = numbers[f"{model}.micro.{metric}"] / numbers[f"{model}.size"]
    chose = round(numbers["federated.texts"])
    choices = {name: round(numbers[name]) for name in GAINS} | {"of": chose} if chose else {}
    made |= {"candidate": CHOSEN, "reference_name": CHOSEN} if "federated" in made else {}
    return Totals(Scores(**made), averages, choices)


def common_direction(directions: Mapping[str, Direction]) -> Direction:
    """Return the direction of all sites; `mul`, as ISO 639 calls several languages, on a side on which they differ."""
    sides = ({direction.sides[at] for direction in directions.values()} for at in (0, 1))
    return Direction(*(side.pop() if len(side) == 1 else "mul" for side in sides))
