"""Every family of models beside transformers itself: the same ids, the same loss, the same translation, and adapters that learn."""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoTokenizer

from fedlingua.backbones.bottleneck import AdapterConfig, attach_adapters
from fedlingua.backbones.load import Backbone, load_backbone
from fedlingua.backbones.lora import LowRank, attach_lora
from fedlingua.backbones.precision import cast, hold
from fedlingua.common.errors import BackboneError
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.evaluation.decode import translate
from fedlingua.exchange.tensor_sets import tensor_set
from fedlingua.settings.config import Settings
from fedlingua.training.batches import IGNORED, pad
from fedlingua.training.loop import train_locally
from fedlingua.training.masked_language import MaskedExample, encode_text
from fedlingua.training.objective import examples_nll
from fedlingua.training.translation import encode_pairs
from tests.families import ENCODERS, TRANSLATING
from tests.gate import cases

DE_FR = Direction("de", "fr")
DECODERS = ("llama", "qwen2", "qwen3", "gemma2", "gemma3")
Loader = Callable[[str], Backbone]


@pytest.fixture
def load(family_folder: Callable[[str], Path]) -> Loader:
    return lambda name: load_backbone(family_folder(name), name)


@pytest.fixture
def pairs(phrases: dict[str, list[str]]) -> list[Pair]:
    return [Pair(*both) for both in zip(phrases["de"][:6], phrases["fr"][:6], strict=True)]


def prompt(name: str, tokenizer: Any, source: str) -> str:
    if tokenizer.chat_template:
        asked = [{"role": "user", "content": f"Translate from German into French:\n{source}"}]
        return str(tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True))
    return f"German: {source}\nFrench:"


def own_source(name: str, tokenizer: Any, source: str) -> list[int]:
    """As the family's documentation has it given to the tokenizer."""
    if name == "nllb":
        tokenizer.src_lang = "deu_Latn"
    before = {"marian-to-many": ">>fra<<", "t5": "translate German to French: ", "madlad": "<2fr> "}.get(name, "")
    text = prompt(name, tokenizer, source) if name in DECODERS else before + source
    ids: list[int] = tokenizer(text, add_special_tokens=not (name in DECODERS and tokenizer.chat_template))["input_ids"]
    return ids


def own_target(name: str, tokenizer: Any, source: str, target: str) -> list[int]:
    if name in DECODERS:
        text = prompt(name, tokenizer, source)
        special = {"add_special_tokens": not tokenizer.chat_template}
        whole = tokenizer(f"{text}{'' if tokenizer.chat_template else ' '}{target}", **special)["input_ids"]
        return [*whole[len(own_source(name, tokenizer, source)) :], tokenizer.eos_token_id]
    if name == "nllb":
        tokenizer.tgt_lang = "fra_Latn"
    ids: list[int] = tokenizer(text_target=target)["input_ids"]
    return ids


@pytest.mark.parametrize("name", TRANSLATING)
def test_ids_are_those_of_the_familys_own_tokenizer(name: str, load: Loader, pairs: list[Pair]) -> None:
    backbone = load(name)
    tokenizer = backbone.codec.tokenizer
    for pair, example in zip(pairs, encode_pairs(pairs, DE_FR, backbone.codec, 64), strict=True):
        assert example.source == own_source(name, tokenizer, pair.source)
        assert example.target == own_target(name, tokenizer, pair.source, pair.target)
    assert backbone.codec.decode([example.target]) == [pair.target]


@pytest.mark.parametrize("name", TRANSLATING)
def test_a_long_sentence_is_cut_and_keeps_what_stands_around_it(name: str, load: Loader, pairs: list[Pair]) -> None:
    codec = load(name).codec
    long = Pair(" ".join(pair.source for pair in pairs), " ".join(pair.target for pair in pairs))
    (whole,), (cut,) = (encode_pairs([long], DE_FR, codec, most) for most in (500, 40))
    assert len(cut.target) == 40 < len(whole.target)
    assert cut.target == [*whole.target[:39], codec.end_id]
    if name in DECODERS:
        (nothing,) = codec.encode_source([""], DE_FR, 40)
        assert len(nothing) + 36 <= len(cut.source) <= len(nothing) + 42
    else:
        assert cut.source == [*whole.source[:39], codec.end_id]


@torch.no_grad()
@pytest.mark.parametrize("name", TRANSLATING)
def test_the_loss_is_transformers_own(name: str, load: Loader, pairs: list[Pair]) -> None:
    backbone = load(name)
    codec, model = backbone.codec, backbone.model
    examples = encode_pairs(pairs, DE_FR, codec, 64)
    wanted = tokens = 0.0
    for source, target in examples:  # one by one: what pads cannot matter then
        if name in DECODERS:
            ids, labels = [*source, *target], [IGNORED] * len(source) + target
            loss = model(input_ids=torch.tensor([ids]), labels=torch.tensor([labels])).loss
        else:
            loss = model(input_ids=torch.tensor([source]), labels=torch.tensor([target])).loss
        wanted, tokens = wanted + float(loss) * len(target), tokens + len(target)
    batch = pad(examples, codec)
    nll, count = batch.nll(model)
    assert count == tokens
    assert float(nll) == pytest.approx(wanted, rel=1e-5)
    each, counts = batch.token_nlls(model)
    assert float(each.sum()) == pytest.approx(wanted, rel=1e-5)
    assert counts == [len(example.target) for example in examples]


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("name", TRANSLATING)
def test_a_translation_is_what_generate_gives_alone(name: str, beam: int, load: Loader, pairs: list[Pair]) -> None:
    backbone = load(name)
    tokenizer, model = backbone.codec.tokenizer, backbone.model
    sentences = [pair.source for pair in pairs]
    wanted = []
    for sentence in sentences:
        source = torch.tensor([own_source(name, tokenizer, sentence)])
        first = {"forced_bos_token_id": tokenizer.convert_tokens_to_ids("fra_Latn")} if name == "nllb" else {}
        made = model.generate(  # type: ignore[operator]
            input_ids=source, attention_mask=torch.ones_like(source), num_beams=beam, do_sample=False, max_new_tokens=8, **first
        )
        given = source.shape[1] if name in DECODERS else 0
        wanted.append(tokenizer.decode(made[0, given:], skip_special_tokens=True).strip())
    assert any(wanted)
    assert translate(model, backbone.codec, sentences, DE_FR, beam, 64, 8) == wanted


@torch.no_grad()
@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoders_loss_and_guesses_are_transformers_own(name: str, load: Loader, phrases: dict[str, list[str]]) -> None:
    backbone = load(name)
    codec, model = backbone.codec, backbone.model
    texts = encode_text(phrases["de"][:8], codec, 24, 0.3)  # type: ignore[arg-type]
    examples: list[MaskedExample] = [text.drawn(Random(3)) for text in texts]
    batch = pad(examples, codec)
    labels: Tensor = batch.labels  # type: ignore[attr-defined]
    out = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, labels=labels)  # type: ignore[attr-defined]
    nll, count = batch.nll(model)
    assert count == int((labels != IGNORED).sum()) > 8
    assert float(nll) / count == pytest.approx(float(out.loss), rel=1e-5)
    head, hidden, targets = batch.before_head(model)
    scores = head.scores(hidden)
    assert torch.allclose(scores, out.logits[labels != IGNORED], atol=1e-5)
    assert targets.tolist() == labels[labels != IGNORED].tolist()


@pytest.mark.parametrize("tensors", ["adapters", "lora"])
@pytest.mark.parametrize("name", cases([*TRANSLATING, *ENCODERS], {"nllb", "gemma3", "modernbert"}))
@pytest.mark.usefixtures("native_bf16")
def test_every_family_trains_with_its_frozen_weights_and_activations_in_half(
    name: str, tensors: str, load: Loader, pairs: list[Pair], phrases: dict[str, list[str]]
) -> None:
    """As a GPU has them: without autocast, and the loss falls as it does in fp32."""
    losses = {}
    for precision in ("fp32", "bf16"):
        backbone = load(name)
        model, codec = backbone.model, backbone.codec
        if tensors == "adapters":
            attach_adapters(model, AdapterConfig(8), seed=1)
        else:
            attach_lora(model, LowRank(targets="Wqkv" if name == "modernbert" else "q_proj,v_proj"), seed=1)
        if precision == "bf16":
            model.to(torch.bfloat16)  # type: ignore[call-arg]  # a backbone that is stored so
        trained = tensor_set(model, tensors).names
        hold(model, trained, precision, "cpu")
        text: Any = encode_text(phrases["de"][:8], codec, 24, 0.3) if name in ENCODERS else encode_pairs(pairs, DE_FR, codec, 64)  # type: ignore[arg-type]
        how = Settings(batch_size=8, local_epochs=12, learning_rate=0.003, whole_steps=False, precision=precision)
        dev: Any = [one.fixed("k")[0] for one in text] if name in ENCODERS else text
        before = examples_nll(model, codec, dev, precision)[0]
        train_locally(model, trained, [text], codec, how, "seed")
        losses[precision] = before, examples_nll(model, codec, dev, precision)[0]
        assert model.dtype == (torch.bfloat16 if precision == "bf16" else torch.float32)
    (before, after), (wanted_before, wanted_after) = losses["bf16"], losses["fp32"]
    assert before == pytest.approx(wanted_before, rel=0.01)
    assert after == pytest.approx(wanted_after, rel=0.03)
    assert after < before


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2", "gemma3", "modernbert"])
def test_in_half_precision_rotary_frequencies_are_not_rounded(name: str, family_folder: Callable[[str], Path]) -> None:
    """As transformers keeps them: rounded, positions far from the start would be others."""
    exact = load_backbone(family_folder(name), name).model
    cast(model := load_backbone(family_folder(name), name).model, torch.bfloat16)
    hold(model, [], "bf16", "cpu")
    assert next(model.parameters()).dtype == torch.bfloat16
    frequencies = {path: buffer for path, buffer in model.named_buffers() if "inv_freq" in path}
    assert frequencies
    for path, buffer in frequencies.items():
        assert torch.equal(buffer, exact.get_buffer(path))


def test_the_day_is_in_no_prompt(family_folder: Callable[[str], Path]) -> None:
    """As chat templates of Llama 3 print it."""
    codec = load_backbone(family_folder("qwen3")).codec
    before = codec.as_text("ja", DE_FR)  # type: ignore[attr-defined]
    asked = "{% if strftime_now is defined %}{% set day = strftime_now('%d %b %Y') %}{% endif %}{{ day }}\n"
    codec.tokenizer.chat_template = f"\n  {asked}{codec.tokenizer.chat_template}"
    assert codec.as_text("ja", DE_FR) == f"\n26 Jul 2024\n{before}"  # type: ignore[attr-defined]


@pytest.mark.parametrize("added", [{"text": "myocarditis"}, {"pad_token": "[PAD]"}])
def test_ids_without_an_embedding_are_refused_unless_nothing_has_them(
    added: dict[str, str], family_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "qwen3"
    shutil.copytree(family_folder("qwen3"), folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = load_backbone(folder).model.get_input_embeddings().num_embeddings
    number = 0
    while len(tokenizer) <= rows:
        tokenizer.add_tokens([f"<extra_{number}>"], special_tokens=True)
        number += 1
    tokenizer.save_pretrained(folder)
    load_backbone(folder)
    if "text" in added:
        tokenizer.add_tokens([added["text"]])
    else:
        tokenizer.add_special_tokens(added)
    tokenizer.save_pretrained(folder)
    with pytest.raises(BackboneError, match=rf"the id {len(tokenizer) - 1}, and its model embeddings for {rows} ids"):
        load_backbone(folder)


def test_a_penalty_that_a_model_publishes_changes_no_translation(load: Loader, pairs: list[Pair]) -> None:
    backbone = load("qwen2")
    texts = [pair.source for pair in pairs]
    plain = translate(backbone.model, backbone.codec, texts, DE_FR, 1, 32, 24)
    backbone.model.generation_config.repetition_penalty = 1.5
    assert translate(backbone.model, backbone.codec, texts, DE_FR, 1, 32, 24) == plain


def test_a_sentence_that_spells_the_padding_token_is_not_masked(load: Loader) -> None:
    codec = load("nllb").codec
    long, short = encode_pairs([Pair("drück <pad> jetzt, ja", "oui"), Pair("ja", "oui")], DE_FR, codec, 32)
    batch = pad([long, short], codec)
    assert codec.pad_id in long.source
    assert batch.attention_mask.sum(1).tolist() == [len(long.source), len(short.source)]
