"""The card of an exported model, README.md: `huggingface_hub` writes the hub's header, card.md.jinja is the rest."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData

from fedlingua.common.languages import language_name, parse_written
from fedlingua.desk import units
from fedlingua.desk.templates import markdown
from fedlingua.settings.metrics import METRICS, OF_TEXT

Facts = Mapping[str, Any]
"""The content of export.json; at a site it lacks what only the server knows, so the card says less."""


def model_card(facts: Facts) -> str:
    """Return the card as Markdown with YAML front matter.

    `ModelCard.from_template` could also fill the template, but leaves a misspelt name empty without an error.
    """
    direction = parse_written(facts["direction"])
    translates, name, form = facts["task"] == "translation", facts["backbone"]["name"], facts["form"]
    header = ModelCardData(
        language=facts["languages"],
        license="other",
        library_name="fedlingua" if form == "adapter" else form,
        pipeline_tag="translation" if translates else "fill-mask",
        base_model=name if "/" in name else None,
        metrics=[metric for metric in ("bleu", "chrf") if metric in (facts.get("scores") or {})] or None,
        tags=["fedlingua", "federated-learning", *(["lora"] if facts["tensor_set"].startswith("lora") else [])],
    )
    return markdown(
        Path(__file__).with_name("card.md.jinja"),
        **facts,
        header=header.to_yaml(),
        source=language_name(direction.source),
        target=language_name(direction.target),
        score_rows=_score_rows(facts["task"], facts.get("scores") or {}),
    )


def _score_rows(task: str, scores: Facts) -> list[tuple[str, str, str, str]]:
    """Return metric, backbone's score, model's score and signature of each metric that was measured."""
    signatures = {"bleu": scores.get("signature"), "chrf": scores.get("chrf_signature"), **scores.get("signatures", {})}
    rows = []
    for metric in dict.fromkeys([*METRICS[task], *OF_TEXT.values()]):
        if metric.key in scores:
            values = (scores.get(f"base_{metric.key}"), scores[metric.key])
            before, after = (units.score(None if value is None else value * metric.scale) for value in values)
            signature = (signatures.get(metric.key) or "").replace("|", "\\|")
            rows.append((metric.name, before, after, f"`{signature}`" if signature else ""))
    return rows
