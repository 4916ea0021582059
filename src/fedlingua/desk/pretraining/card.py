"""The model card of a backbone that was trained from nothing: README.md beside its weights, all of it from pretraining.json."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from fedlingua.common.languages import language_name, parse_written, plain_code

About = Mapping[str, Any]
"""What pretraining.json holds; one of an earlier version lacks some keys, and then the card says less."""


def model_card(about: About) -> str:
    """Markdown with the hub's header: languages, figures, text, recipe, versions, what the model is for."""
    recipe = about["recipe"]
    translates = "dev_bleu" in about
    parts = [
        _header(about, translates),
        f"# {recipe['name']}\n\n{_what_it_is(about, translates)}",
        _use(recipe["name"], about, translates),
        _figures(about, translates),
        _text(about),
        _settings(recipe),
        "## Versions\n\n" + ", ".join(f"{name} {version}" for name, version in about["versions"].items()) + ".",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def languages(about: About) -> list[str]:
    """Codes of all languages on either side, sorted."""
    return sorted({code for one in map(parse_written, about["recipe"]["corpora"]) for code in (one.source, one.target)})


def _header(about: About, translates: bool) -> str:
    codes = "".join(f"- {code}\n" for code in languages(about))
    return (
        f"---\nlanguage:\n{codes}library_name: transformers\n"
        f"pipeline_tag: {'translation' if translates else 'fill-mask'}\nlicense: other\ntags:\n- fedlingua\n---"
    )


def _what_it_is(about: About, translates: bool) -> str:
    model = about["recipe"]["model"]
    names = ", ".join(language_name(code) for code in languages(about))
    kind, layers = (
        ("An M2M-100", f"{model['encoder_layers']} + {model['decoder_layers']}")
        if translates
        else ("An XLM-RoBERTa", f"{model['layers']}")
    )
    size = f" of {about['parameters']:,} parameters" if "parameters" in about else ""
    return (
        f"{kind}{size} (width {model['d_model']}, {layers} layers, vocabulary {model['vocab_size']:,}), trained from nothing, its "
        f"SentencePiece included, by `fedlingua pretrain`. Languages: {names}."
    )


def _use(name: str, about: About, translates: bool) -> str:
    what = (
        "A base to adapt, and to compare ways of federated training on; its own translations are those of a small model of little text, "
        "and no translation of it should be relied on unread."
        if translates
        else "A base to go on pre-training from, and to fine-tune; a small model of little text."
    )
    code = f'`backbone = "{name}"` in an experiment of fedlingua takes it'
    if not translates:
        return f"## What it is for\n\n{what} {code}; `AutoModelForMaskedLM.from_pretrained` and `AutoTokenizer` load it."
    direction = parse_written(about["recipe"]["corpora"][0])
    return f"""## What it is for

{what} {code}. In transformers:

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
tokenizer.src_lang = "{plain_code(direction.source)}"
ids = model.generate(**tokenizer("...", return_tensors="pt"), forced_bos_token_id=tokenizer.get_lang_id("{plain_code(direction.target)}"))
print(tokenizer.batch_decode(ids, skip_special_tokens=True))
```"""


def _figures(about: About, translates: bool) -> str:
    training = about["recipe"]["training"]
    on = {"cpu": f"{training['threads']} thread{'s' if training['threads'] > 1 else ''} of a CPU", "cuda": "one GPU"}
    device = about.get("device") or on[training.get("device", "cpu")]
    kept = about.get("kept_step", about["steps"])
    lines = [
        "## What came out",
        "",
        f"{about['steps']:,} steps in {about['seconds'] / 3600:.2f} hours on {device}, {training['precision']}"
        + (f"; the weights kept are those of step {kept:,}." if kept != about["steps"] else "."),
    ]
    if not translates:
        return "\n".join(
            [*lines, f"Dev loss {about['dev_loss']:.3f} nats a masked piece, perplexity {about['dev_perplexity']:.1f}."]
        )
    scores, counts = about["dev_bleu"], about.get("dev_sentences", {})
    lines[-1] += f" Dev loss {about['dev_loss']:.3f} nats a token."
    if not scores:
        return "\n".join(lines)
    lines[-1] += f" BLEU of dev sentences, greedy, mean over {len(scores)} directions: **{fmean(scores.values()):.2f}**."
    lines += ["", "| direction | sentences | BLEU |", "|---|---|---|"]
    lines += [f"| {direction} | {counts.get(direction, '')} | {score:.1f} |" for direction, score in scores.items()]
    if signatures := about.get("bleu_signatures", {}):
        lines += ["", "sacreBLEU: " + "; ".join(f"`{one}` ({', '.join(into)})" for one, into in _by_signature(signatures)) + "."]
    return "\n".join(lines)


def _by_signature(signatures: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Signature -> the target languages that it is of."""
    found: dict[str, list[str]] = {}
    for target, signature in signatures.items():
        found.setdefault(signature, []).append(f"into {target}")
    return list(found.items())


def _text(about: About) -> str:
    recipe, base = about["recipe"], about["recipe"]["base"]
    trains, watches = about.get("trains", {}), about.get("watches", {})
    both = " Every pair trains in both directions." if recipe.get("both_ways") else ""
    lines = [
        "## What it was trained on",
        "",
        f"A share of {base['share']:g} of the components of equal sentences of these corpora (key `{base['key']}`), {base['dev']:g} of "
        f"which watches.{both} Sentences or pairs:",
        "",
        "| | corpora | read | kept by cleaning | trains | watches |",
        "|---|---|---|---|---|---|",
    ]
    sources = _sources(recipe)
    for direction in dict.fromkeys([*about["accounts"], *trains]):
        account = about["accounts"].get(direction, {})
        read, kept = (f"{account[key]:,}" if account else "" for key in ("read", "kept"))
        used = [f"{sizes[direction]:,}" if direction in sizes else "" for sizes in (trains, watches)]
        lines.append(f"| {direction} | {', '.join(sources.get(direction, []))} | {read} | {kept} | {used[0]} | {used[1]} |")
    if licences := recipe.get("licences"):
        lines += ["", "How that text may be used bears on what may be done with the model:", ""]
        lines += [f"- {name}: {licence}" for name, licence in licences.items()]
    else:
        lines += ["", "The recipe says nothing of the licences of this text, which bear on what may be done with the model."]
    return "\n".join(lines)


def _sources(recipe: Mapping[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for direction, source in zip(recipe["corpora"], recipe.get("sources", ()), strict=False):
        found.setdefault(direction, []).append(f"`{source}`")
    return found


def _settings(recipe: Mapping[str, Any]) -> str:
    lines = ["## Recipe", "", "| | |", "|---|---|"]
    for table in ("model", "training", "cleaning", "watching"):
        values = [f"{key.replace('_', '-')} {value}" for key, value in recipe.get(table, {}).items()]
        lines += [f"| {table} | {', '.join(values)} |"] if values else []
    return "\n".join(lines)
