"""The model card says what pretraining.json holds."""

from typing import Any

import pytest

from fedlingua.desk.pretraining.card import model_card

RECIPE: dict[str, Any] = {
    "name": "small",
    "base": {"key": "k", "share": 0.5, "dev": 0.01},
    "cleaning": {"min_words": 2},
    "model": {"d_model": 32, "encoder_layers": 2, "decoder_layers": 1, "vocab_size": 8000},
    "training": {"precision": "bf16", "threads": 1},
    "corpora": ["de-en", "de-en", "zh-en"],
    "sources": ["a/de-en.tsv", "b/{}.txt", "a/zh-en.tsv"],
    "both_ways": True,
    "licences": {"a": "CC0"},
    "watching": {"keep": "best"},
}
NEW: dict[str, Any] = {
    "recipe": RECIPE,
    "parameters": 81675776,
    "steps": 4757,
    "kept_step": 4000,
    "seconds": 4236.0,
    "device": "a GPU",
    "dev_loss": 2.3638,
    "dev_bleu": {"de-en": 10.0, "zh-en": 5.0},
    "dev_sentences": {"de-en": 50, "zh-en": 7},
    "bleu_signatures": {"en": "nrefs:1|tok:13a"},
    "accounts": {"de-en": {"read": 15000, "kept": 14985, "dropped": {"too-short": 15}}},
    "trains": {"de-en": 7000, "en-de": 7000},
    "watches": {"de-en": 70, "en-de": 70},
    "versions": {"torch": "2.13.0"},
}


def test_languages_stand_in_the_hubs_header_each_once() -> None:
    assert model_card(NEW).startswith("---\nlanguage:\n- de\n- en\n- zh\nlibrary_name: transformers\npipeline_tag: translation\n")


def test_the_snippet_asks_for_languages_by_the_tokenizers_own_codes() -> None:
    card = model_card(NEW | {"recipe": RECIPE | {"corpora": ["pbt-nb", "pbt-nb", "zh-en"]}})
    assert 'tokenizer.src_lang = "ps"' in card
    assert 'get_lang_id("no")' in card


@pytest.mark.parametrize(
    "told",
    [
        "# small\n\nAn M2M-100 of 81,675,776 parameters (width 32, 2 + 1 layers, vocabulary 8,000)",
        "Languages: German, English, Chinese.",
        '`backbone = "small"`',
        "4,757 steps in 1.18 hours on a GPU, bf16; the weights kept are those of step 4,000. Dev loss 2.364",
        "mean over 2 directions: **7.50**",
        "| zh-en | 7 | 5.0 |",
        "sacreBLEU: `nrefs:1|tok:13a` (into en).",
        "| de-en | `a/de-en.tsv`, `b/{}.txt` | 15,000 | 14,985 | 7,000 | 70 |",
        "| en-de |  |  |  | 7,000 | 70 |",
        "Every pair trains in both directions.",
        "- a: CC0",
        "| model | d-model 32, encoder-layers 2, decoder-layers 1, vocab-size 8000 |",
        "torch 2.13.0.",
    ],
)
def test_the_card_tells(told: str) -> None:
    assert told in model_card(NEW)


def test_what_is_not_known_is_not_told() -> None:
    recipe = {**RECIPE, "licences": {}}
    card = model_card({**NEW, "recipe": recipe, "kept_step": 4757, "device": None, "dev_bleu": {}, "bleu_signatures": {}})
    assert "4,757 steps in 1.18 hours on 1 thread of a CPU, bf16. Dev loss" in card
    assert "The recipe says nothing of the licences" in card
    assert "sacreBLEU" not in card


def test_an_encoder_has_a_perplexity_and_no_translations() -> None:
    model = {"d_model": 192, "layers": 4, "vocab_size": 6000}
    about = {key: value for key, value in NEW.items() if "bleu" not in key and key != "dev_sentences"}
    about |= {"recipe": {**RECIPE, "model": model, "corpora": ["ar", "es", "ar"]}, "dev_perplexity": 83.68}
    card = model_card(about)
    assert "language:\n- ar\n- es\n" in card
    assert "pipeline_tag: fill-mask" in card
    assert "perplexity 83.7." in card
    assert "AutoModelForMaskedLM" in card
    assert "BLEU" not in card
    assert "Dev loss" in card
    assert "are those of step 4,000.\n\n## What it was trained on" in model_card({**about, "watches": {}})


def test_without_a_dev_text_there_is_no_dev_loss() -> None:
    card = model_card({**NEW, "dev_bleu": {}, "bleu_signatures": {}, "watches": {}})
    assert "are those of step 4,000.\n\n## What it was trained on" in card
