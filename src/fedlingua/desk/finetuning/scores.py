"""Scores of tagging and of labels, all 0 to 1.

Entities are matched as in SemEval-2013, task 9 (Segura-Bedmar et al. 2013), counted by nervaluate. Strict: same boundaries, same
type. Type: same type, and at least one token in common. A predicted I without a B before it begins an entity, as nervaluate and
conlleval read it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from nervaluate import Evaluator
from sklearn.metrics import precision_recall_fscore_support

from fedlingua.desk.finetuning.iob import OUTSIDE

FIGURES = ("precision", "recall", "f1", "support")
Score = dict[str, float]
"""FIGURES -> their values. support: number of gold entities (or texts)."""
Scores = dict[str, Any]
"""Scores of one split: F1 means and other single figures, and by_label: the Score of each entity type, or label.

micro_f1: over all entities. macro_f1: plain mean of the types' F1. weighted_f1: the same, weighted by support. Types are those
that occur in gold or prediction.
"""


def tagging_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Scores:
    """Return the scores of IOB tags: micro, macro and weighted F1 under strict matching (micro is strict F1), and both matchings' own."""
    types = sorted({tag[2:] for tags in (*gold, *predicted) for tag in tags if tag != OUTSIDE})
    results = Evaluator([list(tags) for tags in gold], [list(tags) for tags in predicted], types, loader="list").evaluate()
    by_type = {kind: _score(results["entities"][kind]["strict"]) for kind in types}
    matched = {name: _score(results["overall"][key]) for name, key in (("strict", "strict"), ("type", "ent_type"))}
    both = {f"{name}_{figure}": score[figure] for name, score in matched.items() for figure in ("f1", "precision", "recall")}
    return {"micro_f1": both["strict_f1"], **_means(by_type), **both, "by_label": by_type}


def label_scores(gold: Sequence[str], predicted: Sequence[str]) -> Scores:
    """Return the scores of one label per text. Every label counts, "no relation" included, so micro F1 is the accuracy."""
    labels = sorted({*gold, *predicted})
    columns = precision_recall_fscore_support(gold, predicted, labels=labels, zero_division=0.0)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    by_label = {label: dict(zip(FIGURES, row, strict=True)) for label, row in zip(labels, rows, strict=True)}
    accuracy = sum(wanted == got for wanted, got in zip(gold, predicted, strict=True)) / len(gold)
    return {"micro_f1": accuracy, **_means(by_label), "accuracy": accuracy, "by_label": by_label}


def _means(scores: Mapping[str, Score]) -> dict[str, float]:
    """Return macro and weighted F1; 0 if there is nothing to find and nothing was found."""
    support = sum(score["support"] for score in scores.values())
    return {
        "macro_f1": sum(score["f1"] for score in scores.values()) / max(len(scores), 1),
        "weighted_f1": sum(score["f1"] * score["support"] for score in scores.values()) / max(support, 1),
    }


def _score(result: Any) -> Score:
    figures = float(result.precision), float(result.recall), float(result.f1), int(result.possible)
    return dict(zip(FIGURES, figures, strict=True))
