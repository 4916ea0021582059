"""Where a model's tensors stand: part and layer of every kind of name, and a layout for every type that is known."""

import pytest
import torch
from transformers import CamembertConfig, CamembertForMaskedLM, PreTrainedModel, RobertaConfig, RobertaForMaskedLM

from fedlingua.backbones.layouts import layout_of, most_tokens
from fedlingua.backbones.load import Backbone
from fedlingua.backbones.parts import Part
from fedlingua.exchange.tensor_sets import tensor_set
from tests.encoders import SHAPE
from tests.mbart import tiny_mbart


@pytest.mark.parametrize(
    ("tensor", "part", "layer"),
    [
        ("roberta.embeddings.word_embeddings.weight", "shared", None),
        ("roberta.embeddings.LayerNorm.weight", "shared", None),
        ("roberta.encoder.layer.0.attention.self.query.weight", "encoder", 0),
        ("roberta.encoder.layer.11.output.LayerNorm.bias", "encoder", 11),
        ("roberta.encoder.layer.3.adapters.attention.up.weight", "encoder", 3),
        ("lm_head.dense.weight", "shared", None),
        ("lm_head.layer_norm.weight", "shared", None),
        ("lm_head.decoder.weight", "shared", None),  # an output layer, no decoder
    ],
)
def test_an_encoders_layers_are_its_encoder_and_all_else_is_shared(
    tensor: str, part: Part, layer: int | None, encoder: Backbone
) -> None:
    assert layout_of(encoder.model).place(tensor) == (part, layer)


@pytest.mark.parametrize(
    ("tensor", "part", "layer"),
    [
        ("model.shared.weight", "shared", None),
        ("lm_head.weight", "shared", None),
        ("model.encoder.layers.10.fc2.weight", "encoder", 10),
        ("model.encoder.layer_norm.weight", "encoder", None),
        ("model.encoder.layernorm_embedding.bias", "encoder", None),
        ("model.decoder.layers.1.encoder_attn.q_proj.weight", "decoder", 1),
        ("model.decoder.layer_norm.bias", "decoder", None),
    ],
)
def test_a_translation_models_stacks_are_its_parts(tensor: str, part: Part, layer: int | None) -> None:
    assert layout_of(tiny_mbart()).place(tensor) == (part, layer)


def test_every_tensor_of_a_model_is_placed_in_a_layer_that_it_has(backbone: Backbone, encoder: Backbone) -> None:
    for model in (backbone.model, tiny_mbart(2)):
        specs = tensor_set(model, "full").specs
        assert {(spec.part, spec.layer) for spec in specs if spec.layer is not None} == {
            (part, number) for part in ("encoder", "decoder") for number in (0, 1)
        }
    specs = tensor_set(encoder.model, "full").specs
    assert {(spec.part, spec.layer) for spec in specs} == {("encoder", 0), ("encoder", 1), ("shared", None)}
    shared = {spec.name for spec in specs if spec.part == "shared"}
    assert {"lm_head.decoder.weight", "lm_head.dense.weight", "roberta.embeddings.LayerNorm.weight"} <= shared


@pytest.mark.parametrize(
    ("config", "kind"),
    [(RobertaConfig, RobertaForMaskedLM), (CamembertConfig, CamembertForMaskedLM)],
    ids=["roberta", "camembert"],
)
def test_an_encoder_of_another_type_has_the_same_places(config: type, kind: type) -> None:
    model: PreTrainedModel = kind(config(vocab_size=20, max_position_embeddings=10, **SHAPE))
    stack = layout_of(model).stacks["encoder"]
    layers = stack.held(model)
    assert len(layers) == model.config.num_hidden_layers == 2
    assert all(isinstance(layers[0].get_submodule(place), torch.nn.Linear) for place in stack.places.values())
    assert model.base_model is model.roberta


def test_learned_positions_bound_a_sequence_and_computed_ones_do_not(backbone: Backbone, encoder: Backbone) -> None:
    assert [most_tokens(model.config) for model in (backbone.model, tiny_mbart(), encoder.model)] == [None, 64, 66 - 2]
