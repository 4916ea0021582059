"""Scores of tagging and of labels, all 0 to 1.

Entities are matched as in SemEval-2013, task 9 (Segura-Bedmar et al. 2013), counted by nervaluate. Strict: same boundaries, same
type. Type: same type, and at least one token in common. A predicted I without a B before it begins an entity, as in conlleval.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from nervaluate import Evaluator
from sklearn.metrics import precision_recall_fscore_support

from fedlingua_lab.finetuning.annotated import OUTSIDE

FIGURES = ("precision", "recall", "f1", "support")
"""Figures of an entity type or a label. support: number of gold entities, or texts."""


def tagging_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return micro, macro and weighted F1 of IOB tags under strict matching, the figures of both matchings, and those by type."""
    types = sorted({tag[2:] for tags in (*gold, *predicted) for tag in tags if tag != OUTSIDE})
    results = Evaluator([*map(list, gold)], [*map(list, predicted)], types, loader="list").evaluate()

    def figures(result: Any) -> dict[str, float]:
        return dict(
            zip(FIGURES, (float(result.precision), float(result.recall), float(result.f1), int(result.possible)), strict=True)
        )

    overall = {name: figures(results["overall"][key]) for name, key in (("strict", "strict"), ("type", "ent_type"))}
    both = {f"{name}_{figure}": overall[name][figure] for name in overall for figure in ("f1", "precision", "recall")}
    return {"micro_f1": both["strict_f1"]} | _scores({kind: figures(results["entities"][kind]["strict"]) for kind in types}, both)


def label_scores(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, Any]:
    """Return the scores of one label per text. Every label counts, "no relation" included, so micro F1 is the accuracy."""
    labels = sorted({*gold, *predicted})
    columns = precision_recall_fscore_support(gold, predicted, labels=labels, zero_division=0.0)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    accuracy = sum(map(str.__eq__, gold, predicted)) / len(gold)
    by_label = {label: dict(zip(FIGURES, row, strict=True)) for label, row in zip(labels, rows, strict=True)}
    return {"micro_f1": accuracy} | _scores(by_label, {"accuracy": accuracy})


def _scores(by_label: Mapping[str, Mapping[str, float]], more: Mapping[str, float]) -> dict[str, Any]:
    """Return macro F1, the plain mean over types that occur in gold or prediction; weighted F1, by support; `more`; and by_label."""
    support = sum(score["support"] for score in by_label.values())
    return {
        "macro_f1": sum(score["f1"] for score in by_label.values()) / max(len(by_label), 1),
        "weighted_f1": sum(score["f1"] * score["support"] for score in by_label.values()) / max(support, 1),
        **more,
        "by_label": by_label,
    }
