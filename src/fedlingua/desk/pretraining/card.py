"""The model card of a backbone trained from scratch: README.md beside its weights, made from pretraining.json alone."""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from fedlingua.common.language_codes import known_as
from fedlingua.common.languages import language_name, parse_written

About = Mapping[str, Any]
"""The content of pretraining.json."""
HEADER = ["language", "library_name", "pipeline_tag", "license", "tags"]


def model_card(about: About) -> str:
    """Return the card."""
    from huggingface_hub import ModelCardData  # imports yaml; it and jinja2 are only needed at a training's end
    from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

    from fedlingua.desk.templates import markdown

    recipe, training, translates = about["recipe"], about["recipe"]["training"], "dev_bleu" in about
    codes = sorted({code for each in map(parse_written, recipe["corpora"]) for code in each.sides})
    header = ModelCardData(
        language=codes,
        library_name="transformers",
        pipeline_tag="translation" if translates else "fill-mask",
        license="other",
        tags=["fedlingua"],
    )
    threads = f"{training['threads']} thread{'s' if training['threads'] > 1 else ''} of a CPU"
    signatures: dict[str, list[str]] = {}
    for target, signature in about["bleu_signatures"].items() if translates else ():
        signatures.setdefault(signature, []).append(f"into {target}")
    sources: dict[str, list[str]] = {}
    for direction, source in zip(recipe["corpora"], recipe["sources"], strict=True):
        sources.setdefault(direction, []).append(f"`{source}`")
    first = parse_written(recipe["corpora"][0])
    return markdown(
        Path(__file__).with_name("card.md.jinja"),
        **about,
        header=header.to_yaml(original_order=HEADER),
        translates=translates,
        languages=", ".join(map(language_name, codes)),
        source_code=known_as(first.source, FAIRSEQ_LANGUAGE_CODES["m2m100"]),
        target_code=known_as(first.target, FAIRSEQ_LANGUAGE_CODES["m2m100"]),
        on=about["device"] or threads,
        mean_bleu=fmean(about["dev_bleu"].values()) if about.get("dev_bleu") else None,
        signatures=signatures,
        sources=sources,
        directions=dict.fromkeys([*about["accounts"], *about["trains"]]),
    )
