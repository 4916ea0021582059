"""Scores of tagging and of labels, all 0 to 1.

Entities are matched as in SemEval-2013, task 9 (Segura-Bedmar et al. 2013), counted by nervaluate. Strict: same boundaries, same
type. Type: same type, and at least one token in common. A predicted I without a B before it begins an entity, as nervaluate and
conlleval read it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nervaluate import Evaluator
from sklearn.metrics import precision_recall_fscore_support

from fedlingua.desk.finetuning.iob import OUTSIDE


@dataclass(frozen=True)
class Score:
    """Precision, recall and F1. support: number of gold entities (or texts)."""

    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class Scores:
    """Scores of one split. overall: F1 means and other single figures; by_label: scores of each entity type, or label.

    micro_f1: over all entities. macro_f1: plain mean of the types' F1. weighted_f1: the same, weighted by support. Types are those
    that occur in gold or prediction.
    """

    overall: dict[str, float]
    by_label: dict[str, Score]

    def as_json(self) -> dict[str, Any]:
        return {**self.overall, "by_label": {label: asdict(score) for label, score in self.by_label.items()}}


def tagging_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Scores:
    """Return the scores of IOB tags: micro, macro and weighted F1 under strict matching (micro is strict F1), and both matchings' own."""
    types = sorted({tag[2:] for tags in (*gold, *predicted) for tag in tags if tag != OUTSIDE})
    results = Evaluator([list(tags) for tags in gold], [list(tags) for tags in predicted], types, loader="list").evaluate()
    by_type = {kind: _score(results["entities"][kind]["strict"]) for kind in types}
    strict, of_type = _score(results["overall"]["strict"]), _score(results["overall"]["ent_type"])
    overall = {"micro_f1": strict.f1, **_means(by_type)}
    for name, score in (("strict", strict), ("type", of_type)):
        overall |= {f"{name}_f1": score.f1, f"{name}_precision": score.precision, f"{name}_recall": score.recall}
    return Scores(overall, by_type)


def label_scores(gold: Sequence[str], predicted: Sequence[str]) -> Scores:
    """Return the scores of one label per text. Every label counts, "no relation" included, so micro F1 is the accuracy."""
    labels = sorted({*gold, *predicted})
    columns = precision_recall_fscore_support(gold, predicted, labels=labels, zero_division=0.0)
    rows = zip(labels, *(column.tolist() for column in columns), strict=True)
    by_label = {label: Score(precision, recall, f1, support) for label, precision, recall, f1, support in rows}
    accuracy = sum(wanted == got for wanted, got in zip(gold, predicted, strict=True)) / len(gold)
    return Scores({"micro_f1": accuracy, **_means(by_label), "accuracy": accuracy}, by_label)


def _means(scores: Mapping[str, Score]) -> dict[str, float]:
    """Return macro and weighted F1; 0 if there is nothing to find and nothing was found."""
    support = sum(score.support for score in scores.values())
    return {
        "macro_f1": sum(score.f1 for score in scores.values()) / max(len(scores), 1),
        "weighted_f1": sum(score.f1 * score.support for score in scores.values()) / max(support, 1),
    }


def _score(result: Any) -> Score:
    return Score(float(result.precision), float(result.recall), float(result.f1), int(result.possible))
