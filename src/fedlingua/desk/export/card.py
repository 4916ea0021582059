"""The model card of an exported model, README.md: the hub's header, how to load it, and all of export.json that a reader wants to know."""

import json
from collections.abc import Mapping
from typing import Any

from fedlingua.common import units
from fedlingua.common.languages import language_name, parse_written
from fedlingua.desk.export.usage import usage
from fedlingua.settings.metrics import METRICS, OF_TEXT, Metric

Told = Mapping[str, Any]
"""What export.json holds; at a site it lacks what only the server knows, and then the card says less."""


def model_card(told: Told) -> str:
    """Markdown with YAML front matter."""
    parts = [
        _header(told),
        f"# {_title(told)}\n\n{_what_it_is(told)}",
        "## How to use it\n\n" + usage(told),
        _scores(told),
        _training(told),
        _privacy(told),
        _limits(told),
        _versions(told),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _header(told: Told) -> str:
    translates = told["task"] == "translation"
    name, library = told["backbone"]["name"], "peft" if told["form"] == "peft" else told["form"]
    tags = ["fedlingua", "federated-learning", *(["lora"] if told["tensor_set"] == "lora" else [])]
    # JSON's strings are YAML's, too; unquoted, Norwegian ("no") would be a false.
    lists = {"language": told["languages"], "tags": tags}
    if translates and told.get("scores"):
        lists["metrics"] = ["bleu", "chrf"]
    plain = {
        "license": "other",
        "library_name": "fedlingua" if library == "adapter" else library,
        "pipeline_tag": "translation" if translates else "fill-mask",
        **({"base_model": name} if "/" in name else {}),
    }
    lines = [f"{key}:\n" + "".join(f"- {json.dumps(one)}\n" for one in values) for key, values in lists.items()]
    lines += [f"{key}: {json.dumps(value)}\n" for key, value in plain.items()]
    return f"---\n{''.join(lines)}---"


def _title(told: Told) -> str:
    return f"{told['direction']}, {told['site']}" if told["site"] else str(told["direction"])


def _what_it_is(told: Told) -> str:
    direction = parse_written(told["direction"])
    names = f"from {language_name(direction.source)} into {language_name(direction.target)}"
    what = "is an encoder for text" if direction.is_one_language else f"translates {names}"
    forms = {
        "adapter": "What was trained, without its backbone, for fedlingua to load.",
        "peft": "Low-rank additions (LoRA), without their backbone, for peft to load.",
        "transformers": "A whole model, for transformers to load; what was trained is part of its weights.",
        "ctranslate2": "A whole model, for CTranslate2 to load; what was trained is part of its weights.",
    }
    whose = (
        f"as site `{told['site']}` uses it" if told["site"] else "made of the clusters nearest to its languages; no site's own"
    )
    how = "a training on all sites' text in one place" if told["pooled"] else "a federated training"
    backbone = told["backbone"]
    revision = f" at revision `{backbone['revision']}`" if backbone["revision"] else ""
    drawn = ", its weights drawn at random before training" if backbone["drawn_at_random"] else ""
    return (
        f"It {what}: the result of {how} by fedlingua, {whose}. {forms[told['form']]}\n\n"
        f"Backbone: `{backbone['name']}`{revision}{drawn}, files with sha256 `{backbone['fingerprint']}` together."
    )


def _scores(told: Told) -> str:
    scores = told.get("scores")
    if not scores:
        why = (
            "The server scored it; its figures are not known at the site."
            if "run" not in told
            else "Nobody scored this direction."
        )
        return f"## Scores\n\n{why}"
    rows = ["| | backbone | this model | measured by |", "|---|---|---|---|"]
    wanted = [*METRICS[told["task"]], *(one for one in OF_TEXT.values() if one not in METRICS[told["task"]])]
    rows += [_score_row(one, scores) for one in wanted if one.key in scores]
    size = f", {scores['sentences']:,} sentences" if "sentences" in scores else ""
    return f"## Scores\n\nOn the site's own {told['scored_on']} text{size}:\n\n" + "\n".join(rows)


def _score_row(metric: Metric, scores: Told) -> str:
    keys = {"bleu": scores.get("signature"), "chrf": scores.get("chrf_signature"), **scores.get("signatures", {})}
    before, after = (units.score(_shown(metric, scores.get(key))) for key in (f"base_{metric.key}", metric.key))
    signature = keys.get(metric.key)
    return f"| {metric.name} | {before} | {after} | {f'`{signature}`'.replace('|', chr(92) + '|') if signature else ''} |"


def _shown(metric: Metric, value: float | None) -> float | None:
    return None if value is None else value * metric.scale


def _training(told: Told) -> str:
    whose = "all sites together" if told["pooled"] else "the site"
    lines = [
        ("method", f"`{told['method']}`, tensor set `{told['tensor_set']}`"),
        ("rounds", _rounds(told)),
        (
            "aggregation",
            told["aggregation"]
            and f"`{told['aggregation']}`" + ("" if told["selection"] == "all" else f" of what `{told['selection']}` sends"),
        ),
        ("sites", told.get("sites") and f"{told['sites']}: {', '.join(told['directions'])}"),
        ("averaged with", _together(told)),
        (
            f"sentences of {whose}",
            told.get("sentences") and ", ".join(f"{key} {number:,}" for key, number in told["sentences"].items()),
        ),
        ("numbers", _numbers(told)),
        (f"exchanged by {whose}", _bytes(told)),
        ("seed", str(told["seed"])),
        ("settings", f"config hash `{told['config_hash']}`" + (f", run `{told['run']['id']}`" if "run" in told else "")),
    ]
    return "## How it was trained\n\n| | |\n|---|---|\n" + "\n".join(f"| {what} | {said} |" for what, said in lines if said)


def _rounds(told: Told) -> str:
    of_all = f" of {told['rounds']}" if told.get("rounds") else ""
    return f"this model is of round {told['round']}{of_all}" if told["round"] is not None else ""


def _together(told: Told) -> str:
    together = told.get("together_with") or {}
    return "; ".join(
        f"{part}: {number - 1} other sites" if number > 1 else f"{part}: nobody" for part, number in together.items()
    )


def _numbers(told: Told) -> str:
    if told.get("trained_parameters") is None:
        return ""
    return f"{told['trained_parameters']:,} trained, {told['exchanged_parameters'] or 0:,} of them exchanged"


def _bytes(told: Told) -> str:
    counted = told.get("bytes")
    return (
        f"{units.data(counted['uplink_bytes'])} up, {units.data(counted['downlink_bytes'])} down, over the whole run"
        if counted
        else ""
    )


def _privacy(told: Told) -> str:
    lines = [
        "## Privacy",
        "",
        _what_left(told),
    ]
    signatures = told["signatures"]
    if signatures and signatures["form"] == "private":
        lines[-1] += (
            f" To be grouped, every site sent a noised signature of its text once: ε = {signatures['epsilon']:.3g} at δ = "
            f"{signatures['delta']:g} for each of its sentences. The training itself has no such bound."
        )
    elif signatures:
        lines[-1] += (
            " To be grouped, every site sent a gradient of its text once, without noise. No ε bounds that or the training."
        )
    else:
        lines[-1] += " No ε bounds the training: it adds no noise."
    return "\n".join(lines)


def _what_left(told: Told) -> str:
    leaks = "tensors can leak training text to who has them, and so can this model."
    if told["pooled"]:
        return f"It was trained on the text of all sites in one place, as no federation does. Its {leaks}"
    if not told["travels"]:
        return f"No text and no tensor left the sites; sums did. Where this model goes, its {leaks}"
    return f"No text left the sites. Tensors and sums did; {leaks}"


def _limits(told: Told) -> str:
    licence = told["backbone"]["licence"]
    known = f"The backbone's licence is `{licence}`." if licence else "The backbone's licence is not known to fedlingua."
    what = (
        "It is meant for text like the site's, in this direction. Elsewhere it can be worse than its backbone. No "
        "translation of it should be relied on unread, least of all in medicine, law or where somebody may come to harm."
        if told["task"] == "translation"
        else "It is meant to be fine-tuned, on text like the sites'; it answers no questions and writes no text."
    )
    owners = "The text that it was trained on has owners too: who passes this model on settles under which licence."
    return f"## What it is for\n\n{what}\n\n{known} {owners}"


def _versions(told: Told) -> str:
    run: Told = (told.get("run") or {}).get("versions") or {}
    lines = ["## Versions", ""]
    lines += ["Trained with " + ", ".join(f"{name} {version}" for name, version in run.items()) + ".", ""] if run else []
    return "\n".join(
        [*lines, "Exported with " + ", ".join(f"{name} {version}" for name, version in told["versions"].items()) + "."]
    )
