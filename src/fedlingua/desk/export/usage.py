"""How an exported model is loaded and used, as its card says: code that runs without this project, but for the form `adapter`."""

from collections.abc import Mapping
from typing import Any

from fedlingua.common.languages import language_name, parse_written


def usage(told: Mapping[str, Any]) -> str:
    """Markdown: code, and what has to be known of it. told: what export.json holds."""
    return {"adapter": _use_adapter, "peft": _use_peft, "transformers": _use_plain, "ctranslate2": _use_ctranslate2}[
        told["form"]
    ](told)


def _use_adapter(told: Mapping[str, Any]) -> str:
    loads = (
        'from fedlingua.desk.export.adapter import load_adapter\n\nloaded = load_adapter(Path("this/folder"))\n'
        "model, tokenizer = loaded.model, loaded.backbone.codec.tokenizer"
    )
    shell = "```\nfedlingua translate --adapter this/folder < text.txt\n```\n\n" if told["task"] == "translation" else ""
    where = (
        "`--backbone DIR` says where the backbone lies, if not where its name says" if shell else "`backbone=` says where it lies"
    )
    return f"{shell}{where}; another backbone is refused. In Python:\n\n```python\nfrom pathlib import Path\n\n{loads}\n```"


def _use_peft(told: Mapping[str, Any]) -> str:
    backbone = told["backbone"]
    on_hub = "/" in backbone["name"]
    base = backbone["name"] if on_hub else f"path/to/{backbone['name']}"
    revision = f', revision="{backbone["revision"]}"' if on_hub and backbone["revision"] else ""
    auto = "AutoModelForSeq2SeqLM" if told["task"] == "translation" else "AutoModelForMaskedLM"
    lost = (
        ""
        if on_hub
        else "\n\nThe backbone is not on the hub: `fedlingua export` says where it lies on the machine that made this, and with `--form "
        "transformers` one gets a whole model instead."
    )
    code = f"""from peft import PeftModel
from transformers import {auto}, AutoTokenizer

folder, base = "this/folder", "{base}"
model = PeftModel.from_pretrained({auto}.from_pretrained(base{revision}), folder).eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
{_generate(told)}"""
    return f"```python\n{code}\n```{_of_the_direction(told)}{lost}"


def _use_plain(told: Mapping[str, Any]) -> str:
    auto = "AutoModelForSeq2SeqLM" if told["task"] == "translation" else "AutoModelForMaskedLM"
    code = f"""from transformers import {auto}, AutoTokenizer

folder = "this/folder"
model, tokenizer = {auto}.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
{_generate(told)}"""
    return f"```python\n{code}\n```{_of_the_direction(told)}"


def _use_ctranslate2(told: Mapping[str, Any]) -> str:
    decoding = told["decoding"]
    code = f"""import ctranslate2
from transformers import AutoTokenizer

folder = "this/folder"
translator, tokenizer = ctranslate2.Translator(folder), AutoTokenizer.from_pretrained(folder)
sentences = ["..."]
ids = tokenizer(sentences, truncation=True, max_length={told["max_tokens"]})["input_ids"]
found = translator.translate_batch(
    [tokenizer.convert_ids_to_tokens(row) for row in ids],
    target_prefix=[["{told["use"]["target_token"]}"]] * len(ids),
    beam_size={decoding["beam"]},
    max_decoding_length={decoding["max_new_tokens"]},
)
for one in found:
    print(tokenizer.decode(tokenizer.convert_tokens_to_ids(one.hypotheses[0][1:]), skip_special_tokens=True).strip())"""
    quantized = f"Numbers are stored as {told['quantization']}. " if told["quantization"] else ""
    return (
        f"```python\n{code}\n```{_of_the_direction(told)}\n\n{quantized}CTranslate2 computes and searches in its own way: a translation "
        "can differ from transformers'; the scores below are of the model before it was converted."
    )


def _generate(told: Mapping[str, Any]) -> str:
    """Code that goes on from `model` and `tokenizer`, and decodes as the run did."""
    if told["task"] != "translation":
        return f"""text = f"... {{tokenizer.mask_token}} ..."
inputs = tokenizer([text], return_tensors="pt", truncation=True, max_length={told["max_tokens"]})
print(model(**inputs).logits.shape)"""
    decoding = told["decoding"]
    return f"""sentences = ["..."]
inputs = tokenizer(sentences, return_tensors="pt", padding=True, truncation=True, max_length={told["max_tokens"]})
ids = model.generate(
    **inputs,
    forced_bos_token_id={told["use"]["target_id"]},  # {told["use"]["target_token"]}
    num_beams={decoding["beam"]},
    early_stopping={decoding["beam"] > 1},
    max_new_tokens=min({decoding["max_new_tokens"]}, 4 * inputs["input_ids"].shape[1] + 10),
)
for text in tokenizer.batch_decode(ids, skip_special_tokens=True):
    print(text.strip())"""


def _of_the_direction(told: Mapping[str, Any]) -> str:
    if told["task"] != "translation":
        return ""
    direction = parse_written(told["direction"])
    source, target = map(language_name, (direction.source, direction.target))
    return (
        f"\n\nThe tokenizer takes its text for {source} unless told otherwise; `{told['use']['target_token']}`, the first "
        f"token of every translation, asks for {target}."
    )
