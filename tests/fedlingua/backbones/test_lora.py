"""LoRA against its equation, where it stands, and what is refused."""

import ast
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor

import fedlingua
from fedlingua.backbones.load import Backbone, load_backbone
from fedlingua.backbones.lora import LowRank, attach_lora, is_lora, peft_bypassed
from fedlingua.common.errors import BackboneError
from fedlingua.desk.export.merging import lora_modules, merge_peft, peft_name, peft_targets
from fedlingua.exchange.tensor_sets import tensor_set
from fedlingua.exchange.tensors import TensorSet
from tests.mbart import mbart_50


@pytest.fixture
def tokens() -> dict[str, Tensor]:
    return {"input_ids": torch.tensor([[5, 9, 7, 2]]), "decoder_input_ids": torch.tensor([[2, 11, 12]])}


def attached(backbone: Backbone, config: LowRank, seed: int = 1) -> TensorSet:
    attach_lora(backbone.model, config, seed)
    return tensor_set(backbone.model, "lora", config.layers)


@torch.no_grad()
def test_an_addition_is_its_equation_and_an_identity_at_start(backbone: Backbone, tokens: dict[str, Tensor]) -> None:
    base = backbone.model(**tokens).logits
    attached(backbone, LowRank(rank=2, alpha=6.0, targets="fc2"))
    assert torch.equal(backbone.model(**tokens).logits, base)
    layer: Any = backbone.model.get_submodule("model.encoder.layers.0.fc2")
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    assert (a.shape, b.shape) == ((2, 64), (32, 2))
    assert a.any()
    b.copy_(torch.randn(b.shape, generator=torch.Generator().manual_seed(1)))
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(2))
    wanted = x @ layer.base_layer.weight.T + layer.base_layer.bias + 6 / 2 * (x @ a.T @ b.T)
    torch.testing.assert_close(layer(x), wanted)
    added = backbone.model(**tokens).logits
    with peft_bypassed(backbone.model):
        assert torch.equal(backbone.model(**tokens).logits, base)
    assert torch.equal(backbone.model(**tokens).logits, added)
    with pytest.raises(LookupError), peft_bypassed(backbone.model):
        raise LookupError
    assert torch.equal(backbone.model(**tokens).logits, added)
    assert not torch.allclose(added, base)
    assert not any(parameter.requires_grad for parameter in backbone.model.parameters())


@torch.no_grad()
def test_merged_additions_are_the_same_function_under_the_backbones_own_names(
    backbone: Backbone, tokens: dict[str, Tensor]
) -> None:
    names = list(backbone.model.state_dict())
    chosen = attached(backbone, LowRank(rank=2, targets="fc2,self_attn.q_proj"))
    base = backbone.model(**tokens).logits
    parameters = dict(backbone.model.named_parameters())
    for name in chosen.names:
        parameters[name].normal_(generator=torch.Generator().manual_seed(3))
    added = backbone.model(**tokens).logits
    merge_peft(backbone.model)
    assert list(backbone.model.state_dict()) == names
    torch.testing.assert_close(backbone.model(**tokens).logits, added, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(added, base, atol=1e-2)


def test_only_low_rank_tensors_are_in_the_set(backbone: Backbone) -> None:
    chosen = attached(backbone, LowRank(rank=3))
    # q_proj and v_proj of 2 encoder layers with one attention and 2 decoder layers with two.
    assert len(chosen.specs) == 2 * 2 * (2 * 1 + 2 * 2)
    assert all(".lora_A." in name or ".lora_B." in name for name in chosen.names)
    assert chosen.num_parameters == 2 * 6 * 2 * 3 * 32


def test_of_mbart_50_rank_8_of_queries_and_values_is_1_2_million() -> None:
    model = mbart_50()
    attach_lora(model, LowRank(rank=8), seed=1)
    assert tensor_set(model, "lora").num_parameters == 2 * (12 + 24) * 8 * 2 * 1024 == 1_179_648


@pytest.mark.parametrize(("layers", "kept"), [("input-end", 0), ("output-end", 1)])
def test_a_third_has_additions_in_its_layers_alone(backbone: Backbone, layers: str, kept: int) -> None:
    chosen = attached(backbone, LowRank(rank=2, targets="fc1,encoder_attn.k_proj", layers=layers))
    assert {spec.layer for spec in chosen.specs} == {kept}
    with_one = {name.partition(".lora_")[0] for name, _ in backbone.model.named_parameters() if ".lora_" in name}
    assert with_one == {
        f"model.{module}"
        for module in (
            f"encoder.layers.{kept}.fc1",
            f"decoder.layers.{kept}.fc1",
            f"decoder.layers.{kept}.encoder_attn.k_proj",
        )
    }


def test_the_seed_decides_the_additions_and_the_global_randomness_has_no_say(tiny_backbone: Any) -> None:
    def drawn(seed: int, before: int) -> bytes:
        torch.manual_seed(before)
        backbone = load_backbone(tiny_backbone)
        state = torch.random.get_rng_state()
        chosen = attached(backbone, LowRank(rank=2), seed)
        assert torch.equal(torch.random.get_rng_state(), state)
        parameters = dict(backbone.model.named_parameters())
        return b"".join(parameters[name].numpy().tobytes() for name in chosen.names)

    assert drawn(1, 10) == drawn(1, 11)
    assert drawn(1, 10) != drawn(2, 10)


@pytest.mark.parametrize("targets", ["q_proj,w_proj", "proj", "", "lm_head"])
def test_a_target_that_no_layer_has_is_refused_with_the_known_ones(backbone: Backbone, targets: str) -> None:
    with pytest.raises(BackboneError, match=r"the layers have fc1, fc2, k_proj, out_proj, q_proj, v_proj"):
        attach_lora(backbone.model, LowRank(targets=targets), seed=1)


def test_attaching_twice_is_refused(backbone: Backbone) -> None:
    attach_lora(backbone.model, LowRank(rank=2), seed=1)
    with pytest.raises(BackboneError, match="already has low-rank matrices"):
        attach_lora(backbone.model, LowRank(rank=2), seed=1)


def test_peft_is_imported_only_where_it_is_needed() -> None:
    """No module of what a node runs takes it as it is loaded itself: only a function does."""
    files = [file for file in Path(fedlingua.__file__).parent.rglob("*.py") if "desk" not in file.parts]
    assert files
    for file in files:
        statements = map(ast.unparse, ast.parse(file.read_text()).body)
        assert not any(statement.startswith(("import peft", "from peft")) for statement in statements), file


@torch.no_grad()
def test_an_encoders_queries_and_values_take_additions(encoder: Backbone) -> None:
    tokens = {"input_ids": torch.tensor([[0, 17, 15, 16, 2]])}
    base = encoder.model(**tokens).logits
    chosen = attached(encoder, LowRank(rank=2, targets="query,value"))
    assert {name.partition(".lora_")[0] for name in chosen.names} == {
        f"roberta.encoder.layer.{number}.attention.self.{target}" for number in (0, 1) for target in ("query", "value")
    }
    assert chosen.num_parameters == 2 * 2 * 2 * 2 * 32
    assert torch.equal(encoder.model(**tokens).logits, base)
    for name, parameter in encoder.model.named_parameters():
        if ".lora_B." in name:
            parameter.fill_(0.5)
    assert not torch.allclose(encoder.model(**tokens).logits, base)
    with peft_bypassed(encoder.model):
        assert torch.equal(encoder.model(**tokens).logits, base)


def test_queries_and_values_are_found_by_what_an_encoder_calls_them(encoder: Backbone) -> None:
    attach_lora(encoder.model, LowRank(), seed=1)
    assert {name.rpartition(".")[2] for name in lora_modules(dict(encoder.model.named_parameters()))} == {"query", "value"}


def test_a_target_that_no_layer_has_is_refused_with_those_there_are(encoder: Backbone) -> None:
    with pytest.raises(BackboneError, match=r"no linear layer's name ends in 'fc1'; the layers have dense, key, query, value"):
        attach_lora(encoder.model, LowRank(targets="fc1"), seed=1)


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        (LowRank(targets="v_proj,q_proj"), ["q_proj", "v_proj"]),
        (LowRank(targets="encoder_attn.q_proj"), ["encoder_attn.q_proj"]),
        (
            LowRank(targets="encoder_attn.q_proj,fc1", layers="output-end"),
            r"model\.encoder\.layers\.(1)\.(fc1)|model\.decoder\.layers\.(1)\.(encoder_attn\.q_proj|fc1)",
        ),
    ],
)
def test_peft_chooses_the_same_layers_of_the_plain_backbone(
    tiny_backbone: Path, backbone: Backbone, config: LowRank, wanted: list[str] | str
) -> None:
    chosen = attached(backbone, config)
    told = peft_targets(backbone.model, lora_modules(chosen.names), config.targets.split(","))
    assert told == wanted
    plain = load_backbone(tiny_backbone).model
    wrapped = get_peft_model(plain, LoraConfig(r=config.rank, target_modules=told))
    assert {name for name, _ in wrapped.named_parameters() if is_lora(name)} == {
        peft_name(name).replace(".weight", ".default.weight") for name in chosen.names
    }


def test_an_end_that_the_head_has_too_becomes_a_pattern(encoder: Backbone) -> None:
    chosen = attached(encoder, LowRank(targets="dense"))
    told = peft_targets(encoder.model, lora_modules(chosen.names), ["dense"])
    assert told == r"roberta\.encoder\.layer\.(0|1)\.(attention\.output\.dense|intermediate\.dense|output\.dense)"


def test_names_in_pefts_files() -> None:
    name = "model.encoder.layers.0.fc1.lora_A.default.weight"
    assert peft_name(name) == "base_model.model.model.encoder.layers.0.fc1.lora_A.weight"
    assert lora_modules([name, name.replace("_A", "_B"), "model.encoder.layer_norm.weight"]) == {"model.encoder.layers.0.fc1"}
