"""What trains is fp32, whatever the frozen weights are: the same numbers move as in fp32, and every forward pass works."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import fedlingua_demo
from fedlingua.backbones.load import load_backbone
from fedlingua.backbones.precision import allow_tf32, autocast, hold
from fedlingua.common import devices
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.evaluation.decode import translate
from fedlingua.exchange.tensor_sets import read_tensors, write_tensors
from fedlingua.exchange.tensors import Tensors
from fedlingua.exchange.trainable import Trainable, build_trainable
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar, Settings
from fedlingua.training.batches import pad
from fedlingua.training.loop import train_locally
from fedlingua.training.masked_language import TextExample
from fedlingua.training.objective import examples_nll
from fedlingua.training.translation import encode_pairs
from fedlingua_demo import phrasebook
from tests.gate import cases

RATES = {"adapters": 1e-3, "lora": 1e-3, "full": 5e-5, "controllers": 5e-5}


def stored_as(directory: Path, dtype: torch.dtype, to: Path) -> Path:
    """The same backbone with its weights in another dtype, as a checkpoint in half precision has them."""
    shutil.copytree(directory, to)
    weights = {name: tensor.to(dtype) for name, tensor in load_file(directory / "model.safetensors").items()}
    save_file(weights, to / "model.safetensors", {"format": "pt"})
    config = json.loads((directory / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(config | {"dtype": str(dtype).removeprefix("torch.")}))
    return to


def built(config: dict[str, Scalar], backbone: Path, tensor_set: str, precision: str) -> Trainable:
    torch.set_num_threads(1)
    changes = {"backbone": str(backbone), "tensor-set": tensor_set, "precision": precision, "learning-rate": RATES[tensor_set]}
    return build_trainable(settings_from({**config, **changes}))


def how(tensor_set: str, precision: str, **changes: Any) -> Settings:
    return Settings(learning_rate=RATES[tensor_set], precision=precision, **changes)


def two_rounds(trainable: Trainable, training: Settings, sentences: int) -> tuple[list[Tensors], float]:
    """Two sites whose updates are averaged: (what each of them did in the first round, the last mean's dev loss).

    sentences: of each site's training text, which the demo backbone has not seen; 64 are for dev.
    """
    model, codec = trainable.model, trainable.backbone.codec
    phrases = phrasebook.base_corpus(300, 77)
    texts = []
    for source in ("de", "pl"):
        pairs = [Pair(*both) for both in zip(phrases[source], phrases["fr"], strict=True)]
        texts.append(encode_pairs(pairs, Direction(source, "fr"), codec, 64))
    mean, first = dict(trainable.initial), []
    for number in range(2):
        updates = []
        for site, text in enumerate(texts):
            write_tensors(model, mean)
            train_locally(model, trainable.trained.names, [text[:sentences]], codec, training, f"{number}/{site}")
            updates.append(read_tensors(model, trainable.trained))
        if not number:
            first = [{name: update[name] - mean[name] for name in mean} for update in updates]
        mean = {name: (updates[0][name] + updates[1][name]) / np.float32(2) for name in mean}
    write_tensors(model, mean)
    sums = [examples_nll(model, codec, text[-64:], training.precision) for text in texts]
    return first, sum(nll for nll, _ in sums) / sum(tokens for _, tokens in sums)


@pytest.mark.parametrize(
    ("tensor_set", "sentences", "precisions"),
    [
        ("adapters", 64, ["bf16"]),
        pytest.param("lora", 64, ["bf16"], marks=pytest.mark.slow),
        pytest.param("full", 224, ["bf16", "fp32"], marks=pytest.mark.slow),
    ],
    ids=["adapters", "lora", "full"],
)
@pytest.mark.usefixtures("native_bf16")
def test_the_demo_in_half_precision_learns_what_it_learns_in_fp32(
    run_config: dict[str, Scalar], tmp_path: Path, tensor_set: str, sentences: int, precisions: list[str]
) -> None:
    half = stored_as(fedlingua_demo.BACKBONE, torch.bfloat16, tmp_path / "half")
    in_fp32 = built(run_config, fedlingua_demo.BACKBONE, tensor_set, "fp32")
    wanted, wanted_loss = two_rounds(in_fp32, how(tensor_set, "fp32"), sentences)
    for precision in precisions:
        trainable = built(run_config, half, tensor_set, precision)
        got, loss = two_rounds(trainable, how(tensor_set, precision), sentences)
        for update, of_fp32 in zip(got, wanted, strict=True):
            moved = np.concatenate([(array != 0).ravel() for array in of_fp32.values()])
            also = np.concatenate([(array != 0).ravel() for array in update.values()])
            assert (also & moved).sum() >= 0.99 * moved.sum()
        assert loss == pytest.approx(wanted_loss, rel=0.01)
        assert all(array.dtype == np.float32 for update in got for array in update.values())


def test_what_trains_is_not_rounded_on_its_way_to_a_gpu(
    run_config: dict[str, Scalar], tiny_backbone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frozen fp32 weights become bf16 there. The move itself is left out: this machine may have no GPU."""
    model = built(run_config, tiny_backbone, "adapters", "fp32").model
    stored = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    trained = [name for name in stored if "layer_norm" in name or ".adapters." in name]
    with torch.no_grad():
        model.get_parameter(trained[0]).fill_(1.0001)  # nearest to 1 in bf16
    moved = type(model).to
    monkeypatch.setattr(type(model), "to", lambda self, *where, **how: self if where else moved(self, **how))
    hold(model, trained, "bf16", "cuda")
    for name, parameter in model.named_parameters():
        assert parameter.dtype == (torch.float32 if name in trained else torch.bfloat16)
        if name in trained[1:]:
            assert torch.equal(parameter, stored[name])
    assert float(model.get_parameter(trained[0]).detach()[0]) == np.float32(1.0001)
    assert torch.isfinite(model(input_ids=torch.tensor([[5, 2]]), decoder_input_ids=torch.tensor([[2]])).logits).all()


@pytest.fixture(params=[torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def half_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Path], Path]:
    return lambda directory: stored_as(directory, request.param, tmp_path / "half")


@pytest.mark.parametrize("tensor_set", list(RATES))
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.usefixtures("native_bf16")
def test_what_trains_is_fp32_and_what_is_frozen_is_what_is_computed_in(
    run_config: dict[str, Scalar], tiny_backbone: Path, half_of: Callable[[Path], Path], tensor_set: str, precision: str
) -> None:
    trainable = built(run_config, half_of(tiny_backbone), tensor_set, precision)
    trained = set(trainable.trained.names)
    dtypes = {kind: {p.dtype for n, p in trainable.model.named_parameters() if (n in trained) == kind} for kind in (True, False)}
    assert dtypes[True] == {torch.float32}
    assert dtypes[False] <= {torch.bfloat16 if precision == "bf16" else torch.float32}
    assert trainable.fingerprint == built(run_config, trainable.backbone.directory, tensor_set, "fp32").fingerprint


@pytest.mark.parametrize("tensor_set", cases(RATES, {"adapters", "full"}))
@pytest.mark.usefixtures("native_bf16")
def test_a_half_backbone_trains_translates_and_is_the_base_again(
    run_config: dict[str, Scalar], tiny_backbone: Path, half_of: Callable[[Path], Path], examples: Any, tensor_set: str
) -> None:
    trainable = built(run_config, half_of(tiny_backbone), tensor_set, "bf16")
    model, codec = trainable.model, trainable.backbone.codec

    def base() -> list[str]:
        with trainable.as_base():
            return translate(model, codec, ["a b c", "d"], Direction("de", "fr"), 2, 32, 8)

    before = base()
    for changes in ({}, {"head_chunk": 4, "gradient_checkpointing": True}):
        result = train_locally(
            model, trainable.trained.names, [examples], codec, how(tensor_set, "bf16", batch_size=8, **changes), "x"
        )
        assert np.isfinite(result.nll_sum)
    after = read_tensors(model, trainable.trained)
    assert any((after[name] != array).any() for name, array in trainable.initial.items())
    assert len(translate(model, codec, ["a b c", "d"], Direction("de", "fr"), 2, 32, 8)) == 2
    plain, _ = examples_nll(model, codec, examples, "bf16")
    with torch.autocast("cpu", torch.bfloat16):
        under_autocast, _ = examples_nll(model, codec, examples, "bf16")
    assert plain == pytest.approx(under_autocast, rel=0.02)
    exact = built(run_config, trainable.backbone.directory, tensor_set, "fp32")
    write_tensors(exact.model, after)
    assert plain == pytest.approx(examples_nll(exact.model, codec, examples, "fp32")[0], rel=0.02)
    assert base() == before


@pytest.mark.parametrize("tensor_set", ["adapters", "lora", "full"])
@pytest.mark.usefixtures("native_bf16")
def test_a_half_encoder_trains_too(run_config: dict[str, Scalar], tiny_encoder: Path, tmp_path: Path, tensor_set: str) -> None:
    half = stored_as(tiny_encoder, torch.bfloat16, tmp_path / "half")
    masked: dict[str, Scalar] = {**run_config, "task": "masked-language", "lora.targets": "query,value", "max-tokens": 32}
    trainable = built(masked, half, tensor_set, "bf16")
    codec: Any = trainable.backbone.codec
    text = [TextExample([0, *range(5 + i, 17 + i), 2], codec, 0.3) for i in range(8)]
    train_locally(trainable.model, trainable.trained.names, [text], codec, how(tensor_set, "bf16", batch_size=4), "x")
    after = read_tensors(trainable.model, trainable.trained)
    unchanged = [name for name, array in trainable.initial.items() if not (after[name] != array).any()]
    assert all("key.bias" in name for name in unchanged), unchanged
    batch = pad([one.fixed("k")[0] for one in text], codec)
    assert torch.isfinite(batch.nll(trainable.model)[0])


@pytest.mark.usefixtures("native_bf16")
def test_stored_fp32_stays_fp32_on_a_cpu(run_config: dict[str, Scalar], tiny_backbone: Path) -> None:
    """A cast would give every process that maps the file a copy of its own."""
    trainable = built(run_config, tiny_backbone, "adapters", "bf16")
    assert {parameter.dtype for parameter in trainable.model.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("flags", "precision", "native"),
    [
        ({"avx2"}, "bf16", False),
        ({"avx2", "avx512f", "avx512_bf16"}, "bf16", True),
        ({"amx_bf16"}, "bf16", True),
        ({"asimd", "bf16"}, "bf16", True),
        ({"avx512_bf16"}, "fp32", False),
        ({"avx512_bf16"}, "tf32", False),
    ],
)
def test_a_cpu_without_native_bf16_computes_in_fp32_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tiny_backbone: Path, flags: set[str], precision: str, native: bool
) -> None:
    monkeypatch.setattr(devices, "cpu_flags", lambda: frozenset(flags))
    model = load_backbone(tiny_backbone).model
    with autocast(model, precision):
        assert model.lm_head(torch.zeros(1, 32)).dtype == (torch.bfloat16 if native else torch.float32)
    told: list[str] = []
    assert devices.computed_in(precision, "cpu", told.append) == ("bf16" if native else "fp32")
    lacks = {"bf16": "native bf16", "tf32": "TF32"}.get(precision)
    wanted = [] if native or not lacks else [f"precision = {precision!r}: this CPU has no {lacks} and computes in fp32"]
    assert told == wanted
    assert devices.computed_in(precision, "cuda", told.append) == precision
    assert told == wanted


@pytest.mark.parametrize(("precision", "asked"), [("tf32", "high"), ("fp32", "highest"), ("bf16", "highest")])
def test_tf32_is_asked_of_a_gpu_alone(monkeypatch: pytest.MonkeyPatch, precision: str, asked: str) -> None:
    seen: list[str] = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", seen.append)
    allow_tf32(precision, "cpu")
    assert seen == []
    allow_tf32(precision, "cuda")
    assert seen == [asked]


def test_without_native_bf16_a_half_backbone_trains_to_the_bytes_of_fp32(
    monkeypatch: pytest.MonkeyPatch, run_config: dict[str, Scalar], tiny_backbone: Path, tmp_path: Path, examples: Any
) -> None:
    monkeypatch.setattr(devices, "cpu_flags", frozenset)
    half = stored_as(tiny_backbone, torch.bfloat16, tmp_path / "half")
    trained = []
    for precision in ("fp32", "bf16"):
        trainable = built(run_config, half, "adapters", precision)
        codec = trainable.backbone.codec
        train_locally(trainable.model, trainable.trained.names, [examples], codec, how("adapters", precision), "x")
        trained.append({n: a.tobytes() for n, a in read_tensors(trainable.model, trainable.trained).items()})
    assert trained[0] == trained[1]
