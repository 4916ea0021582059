"""Frozen weights in 8 and 4 bits: they are, each family computes nearly what it computed, and what trains stays in fp32."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedlingua.backbones.layouts import layout_of
from fedlingua.backbones.load import load_backbone
from fedlingua.common import devices
from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.evaluation.decode import translate
from fedlingua.exchange.tensor_sets import read_tensors
from fedlingua.exchange.trainable import Trainable, build_trainable
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar, Settings
from fedlingua.settings.conflicts import QUANTIZED
from fedlingua.settings.experiment import default_run_config
from fedlingua.settings.methods import SMALL_SETS
from fedlingua.training.accumulate import StepGradient
from fedlingua.training.loop import train_locally
from fedlingua.training.masked_language import encode_text
from fedlingua.training.objective import examples_nll
from fedlingua.training.translation import encode_pairs
from tests.families import ENCODERS, TRANSLATING
from tests.fedlingua.privacy.test_clipping import clipped, one_by_one
from tests.mbart import build_mbart50

FAMILIES = [*TRANSLATING, *ENCODERS, "mbart"]
RATE = 0.003
Folder = Callable[[str], Path]

pytestmark = pytest.mark.usefixtures("quantizes_on_cpu")


@pytest.fixture
def folder(family_folder: Folder, phrases: dict[str, list[str]], tmp_path: Path) -> Folder:
    sentences = [line for language in ("de", "fr", "es") for line in phrases[language][:100]]
    return lambda name: build_mbart50(tmp_path / name, sentences) if name == "mbart" else family_folder(name)


def built(folder: Path, name: str, bits: int, tensors: str = "adapters", computes: bool = True, **changes: Any) -> Trainable:
    torch.set_num_threads(1)
    config: dict[str, Scalar] = {**default_run_config(), "backbone": str(folder), "method": "adapter-fed", "tensor-set": tensors}
    more: dict[str, Scalar] = {"frozen-bits": bits, "max-tokens": 48, "lora.rank": 4, "adapter.dim": 8}
    if name in ENCODERS:
        more["task"] = "masked-language"
    if name == "mbart":
        more["max-decode-tokens"] = 64
    if name == "modernbert":
        more["lora.targets"] = "Wqkv"
    return build_trainable(settings_from({**config, **more, **changes}), computes)


def some(trainable: Trainable, name: str, phrases: dict[str, list[str]]) -> Any:
    codec = trainable.backbone.codec
    if name in ENCODERS:
        return encode_text(phrases["de"][:8], codec, 24, 0.3)  # type: ignore[arg-type]
    pairs = [Pair(*both) for both in zip(phrases["de"][:6], phrases["fr"][:6], strict=True)]
    return encode_pairs(pairs, Direction("de", "fr"), codec, 48)


def quantized(model: nn.Module) -> dict[str, Any]:
    return {name: module for name, module in model.named_modules() if type(module).__name__ in ("Linear8bitLt", "Linear4bit")}


def held_bytes(layer: Any) -> int:
    """Of a weight with all its scales."""
    if type(layer).__name__ == "Linear8bitLt":
        layer(torch.zeros(1, layer.in_features))  # moves the scales to where they stay
        return int(layer.weight.nbytes + layer.state.SCB.nbytes)
    state = layer.weight.quant_state
    return int(layer.weight.nbytes + state.absmax.nbytes + state.state2.absmax.nbytes)


def trained(trainable: Trainable, examples: Any, rate: float, epochs: int = 8, **changes: Any) -> None:
    how = Settings(batch_size=4, local_epochs=epochs, learning_rate=rate, whole_steps=False)
    names = trainable.trained.names
    train_locally(trainable.model, names, [examples], trainable.backbone.codec, dataclasses.replace(how, **changes), "seed")


def loss(trainable: Trainable, examples: Any) -> float:
    measured = [one.fixed("k")[0] if hasattr(one, "fixed") else one for one in examples]
    nll, tokens = examples_nll(trainable.model, trainable.backbone.codec, measured, "fp32")
    return nll / tokens


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_computes_nearly_the_same_and_learns(
    name: str, bits: int, folder: Folder, phrases: dict[str, list[str]]
) -> None:
    plain, small = (built(folder(name), name, number) for number in (0, bits))
    layers, of_plain = quantized(small.model), dict(plain.model.named_modules())
    # All linear modules of the layers, except adapters' and T5's last projections.
    wanted = {
        path
        for path, module in of_plain.items()
        if type(module) is nn.Linear and layout_of(plain.model).place(path)[1] is not None and ".adapters." not in path
    }
    assert set(layers) == {path for path in wanted if not path.endswith(".wo")} != set()
    assert (len(wanted) > len(layers)) == (name in ("t5", "madlad"))
    drawn = torch.Generator().manual_seed(1)
    for path, layer in layers.items():
        full: Any = of_plain[path]
        # A block of 64 has a byte of scale; a row of at least 32 weights four bytes.
        assert held_bytes(layer) <= full.weight.numel() * bits / 8 * (1.2 if bits == 8 else 1.1) + 64
        given = torch.randn(16, full.in_features, generator=drawn)
        wrong = (layer(given) - full(given)).norm() / (full(given) - (0 if full.bias is None else full.bias)).norm()
        # NF4 rounds normal weights with a root mean square error of 0.1 of theirs; 8 bits with 1 / (127 sqrt(12)) of the largest.
        assert (0.002 < wrong < 0.015) if bits == 8 else (0.05 < wrong < 0.14), path
    examples = some(plain, name, phrases)
    before, exact = loss(small, examples), loss(plain, examples)
    assert before != exact
    assert before == pytest.approx(exact, rel=0.005 if bits == 8 else 0.03)
    assert small.fingerprint == plain.fingerprint
    assert small.backbone.num_parameters == plain.backbone.num_parameters
    stored = {path: (layer.weight.clone(), layer.bias) for path, layer in layers.items()}
    trained(small, examples, RATE)
    assert loss(small, examples) < before
    assert all(torch.equal(layer.weight, stored[path][0]) and layer.bias is stored[path][1] for path, layer in layers.items())


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("tensors", SMALL_SETS)
def test_what_trains_is_fp32_is_the_servers_and_alone_has_gradients(
    tensors: str, bits: int, folder: Folder, phrases: dict[str, list[str]]
) -> None:
    small = built(folder("nllb"), "nllb", bits, tensors)
    server = built(folder("nllb"), "nllb", bits, tensors, False, device="cuda")  # which it needs not have
    assert quantized(server.model) == {}
    assert server.model.device.type == "cpu"
    assert len(quantized(small.model)) == 32
    assert small.fingerprint == server.fingerprint == built(folder("nllb"), "nllb", 0, tensors).fingerprint
    assert small.initial.keys() == server.initial.keys()
    assert all((small.initial[name] == array).all() for name, array in server.initial.items())
    examples, seen = some(small, "nllb", phrases), dict[str, torch.dtype]()
    names = set(small.trained.names)
    for name, parameter in small.model.named_parameters():
        parameter.requires_grad_(name in names)
    StepGradient(small.model, small.backbone.codec, Settings())([examples])
    for name, parameter in small.model.named_parameters():
        if parameter.grad is not None:
            seen[name] = parameter.dtype
            assert parameter.grad.dtype == torch.float32
    assert set(seen) == names
    assert set(seen.values()) == {torch.float32}
    before, ends = loss(small, examples), []
    small.model.zero_grad(set_to_none=True)
    for changes in ({}, {"gradient_checkpointing": True}, {"head_chunk": 5}):
        again = built(folder("nllb"), "nllb", bits, tensors)
        trained(again, examples, RATE, **changes)
        ends.append({name: array.tobytes() for name, array in read_tensors(again.model, again.trained).items()})
        assert loss(again, examples) < before
    assert ends[0] == ends[1]  # the same seed, and activations computed again


@pytest.mark.parametrize("bits", [8, 4])
def test_gradients_are_those_of_the_rounded_weights(bits: int, folder: Folder) -> None:
    """Beside a plain product with what the layer has stored."""
    layer = next(iter(quantized(built(folder("nllb"), "nllb", bits).model).values())).train()
    with torch.no_grad():
        rounded = layer(torch.eye(layer.in_features)).T - layer.bias[:, None]
    given, slope = torch.randn(2, 5, layer.in_features, requires_grad=True), torch.randn(2, 5, layer.out_features)
    (found,) = torch.autograd.grad(layer(given), given, slope)
    torch.testing.assert_close(found, slope @ rounded, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.usefixtures("native_bf16")
def test_beside_half_precision_too(bits: int, folder: Folder, phrases: dict[str, list[str]]) -> None:
    """As on a GPU: stored in half, computed in half, trained in fp32."""
    plain = load_backbone(folder("nllb")).model.to(torch.bfloat16)  # type: ignore[call-arg]
    half = folder("nllb").parent / "nllb-half"
    if not half.is_dir():
        half.mkdir()
        for file in folder("nllb").iterdir():
            (half / file.name).write_bytes(file.read_bytes())
        plain.save_pretrained(half)
    exact, small = (built(half, "nllb", number, precision="bf16") for number in (0, bits))
    assert small.model.dtype == torch.bfloat16
    assert len(quantized(small.model)) == 32
    examples = some(small, "nllb", phrases)
    before = loss(small, examples)
    assert before == pytest.approx(loss(exact, examples), rel=0.03)
    trained(small, examples, RATE, precision="bf16")
    assert loss(small, examples) < before
    assert {parameter.dtype for name, parameter in small.model.named_parameters() if name in small.trained.names} == {
        torch.float32
    }


def test_it_translates_and_is_its_base_again(folder: Folder, phrases: dict[str, list[str]]) -> None:
    small = built(folder("marian"), "marian", 4, "lora")
    how: Any = (small.backbone.codec, phrases["de"][:3], Direction("de", "fr"), 2, 48, 8)

    def base() -> list[str]:
        with small.as_base() as model:
            return translate(model, *how)

    before = base()
    trained(small, some(small, "marian", phrases), 0.03)
    assert any(before)
    assert translate(small.model, *how) != before
    assert base() == before


def test_outliers_of_8_bits_are_found_over_a_batch(folder: Folder) -> None:
    """Why 8 bits do not go with dp.epsilon: a row changes what another row becomes."""
    layer = next(iter(quantized(built(folder("nllb"), "nllb", 8).model).values()))
    row = torch.linspace(-3, 3, layer.in_features)[None]
    beside = torch.cat([row, torch.full_like(row, 20.0)])
    assert not torch.equal(layer(row)[0], layer(beside)[0])
    with pytest.raises(ConfigError, match=r"dp\.epsilon = 8\.0, and frozen-bits = 8 looks for outliers"):
        built(folder("nllb"), "nllb", 8, **{"dp.epsilon": 8.0})


def test_clipped_gradients_of_4_bits_are_those_of_single_sentences(folder: Folder, phrases: dict[str, list[str]]) -> None:
    small = built(folder("nllb"), "nllb", 4, "lora")
    examples = some(small, "nllb", phrases)
    trained(small, examples, 0.03)  # away from the start, where half of the gradients are 0
    parameters = {name: small.model.get_parameter(name) for name in small.trained.names}
    gradients, norms = one_by_one(small.backbone, parameters, examples)
    clip = float(norms.median())
    found = clipped(small.backbone, parameters, [examples], clip)
    factors = (clip / norms).clamp(max=1.0)
    for name in parameters:
        wanted = sum(factor * one[name] for factor, one in zip(factors, gradients, strict=True))
        torch.testing.assert_close(found[name], wanted, rtol=1e-4, atol=1e-4 * clip)


REFUSED: dict[str, dict[str, Scalar]] = {
    "device": {},
    "tensor-set": {"tensor-set": "full"},
    "method": {"method": "model-fed"},
}


@pytest.mark.parametrize("key", REFUSED)
def test_what_does_not_go_with_quantized_weights_is_refused_by_name(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert set(REFUSED) == set(QUANTIZED)
    device = {"device": "cpu" if key == "device" else "cuda"}
    config = {**default_run_config(), **device, **REFUSED[key]}
    with pytest.raises(ConfigError, match=f"^frozen-bits = 4, and {key} = '.+' .*; give .*"):
        settings_from({**config, "frozen-bits": 4})
    settings_from(config)


def test_other_bits_and_a_missing_library_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="frozen-bits = 3; wanted 8 or 4, or 0"):
        settings_from({**default_run_config(), "frozen-bits": 3})
    devices.check_bits(4)
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"frozen-bits = 4 needs bitsandbytes, .*pip install 'fedlingua\[bitsandbytes\]'"):
        devices.check_bits(4)
    with pytest.raises(ConfigError, match="needs bitsandbytes"):
        build_trainable(settings_from({**default_run_config(), "frozen-bits": 4}))
    build_trainable(settings_from({**default_run_config(), "frozen-bits": 4}), computes=False)
    devices.check_bits(0)
