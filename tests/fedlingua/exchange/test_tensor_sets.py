"""Tensor sets: the paper's count for mBART-50, parts and layers."""

from typing import Any

import numpy as np
import pytest
import torch

from fedlingua.backbones.bottleneck import AdapterConfig, BottleneckAdapter, attach_adapters
from fedlingua.backbones.load import Backbone
from fedlingua.exchange.tensor_sets import TENSOR_SETS, read_tensors, tensor_set, write_tensors
from fedlingua.settings.checks import settings_from
from tests.mbart import mbart_50


def test_mbart_50_has_60_adapters_and_the_papers_8_million_parameters_travel() -> None:
    model = mbart_50()
    attach_adapters(model, AdapterConfig(dim=64), seed=1)
    adapters = [name for name, module in model.named_modules() if isinstance(module, BottleneckAdapter)]
    assert sum(".encoder." in name for name in adapters) == 24
    assert sum(".decoder." in name for name in adapters) == 36
    chosen = tensor_set(model, "adapters")
    one_adapter, one_norm = 1024 * 64 + 64 + 64 * 1024 + 1024, 2 * 1024
    assert sum(int(np.prod(spec.shape)) for spec in chosen.specs if ".adapters." in spec.name) == 60 * one_adapter == 7_929_600
    assert chosen.num_parameters == 60 * one_adapter + 62 * one_norm == 8_056_576
    # 12 encoder layers of two norms, 12 decoder layers of three, and one norm at the end of each stack.
    for part, num_adapters, num_norms in (("encoder", 24, 25), ("decoder", 36, 37)):
        specs = chosen.of_part(part)  # type: ignore[arg-type]
        assert len(specs) == 4 * num_adapters + 2 * num_norms
        assert sum(int(np.prod(spec.shape)) for spec in specs) == num_adapters * one_adapter + num_norms * one_norm
    assert not chosen.of_part("shared")
    assert not any("layernorm_embedding" in name for name in chosen.names)


def test_the_whole_of_mbart_50_has_610_9_million_parameters_with_tied_embeddings_once() -> None:
    chosen = tensor_set(mbart_50(), "full")
    assert chosen.num_parameters == 610_879_488
    assert [spec.name for spec in chosen.specs if spec.shape == (250054, 1024)] == ["model.shared.weight"]
    assert [spec.name for spec in chosen.of_part("shared")] == ["model.shared.weight"]


def test_every_tensor_knows_its_part_and_layer(backbone: Backbone) -> None:
    attach_adapters(backbone.model, AdapterConfig(4), seed=1)
    specs = {spec.name: spec for spec in tensor_set(backbone.model, "full").specs}
    assert (specs["model.shared.weight"].part, specs["model.shared.weight"].layer) == ("shared", None)
    norm = specs["model.encoder.layer_norm.weight"]
    assert (norm.part, norm.layer, norm.shape) == ("encoder", None, (32,))
    cross = specs["model.decoder.layers.1.encoder_attn.k_proj.weight"]
    assert (cross.part, cross.layer) == ("decoder", 1)
    adapter = specs["model.encoder.layers.0.adapters.self_attn.down.weight"]
    assert (adapter.part, adapter.layer, adapter.shape) == ("encoder", 0, (4, 32))


def test_what_was_read_does_not_follow_a_model_that_trains_on(backbone: Backbone) -> None:
    chosen = tensor_set(backbone.model, "full")
    read = read_tensors(backbone.model, chosen)
    before = {name: array.copy() for name, array in read.items()}
    with torch.no_grad():
        for parameter in backbone.model.parameters():
            parameter.add_(1.0)
    assert all(np.array_equal(read[name], before[name]) for name in chosen.names)
    assert list(read) == chosen.names


def test_what_is_written_is_read_again_and_the_rest_stays(backbone: Backbone) -> None:
    chosen = tensor_set(backbone.model, "adapters")
    rest = backbone.model.get_submodule("model.encoder.layers.0.fc1").weight.clone()  # type: ignore[operator]
    rng = np.random.default_rng(1)
    tensors = {spec.name: rng.standard_normal(spec.shape, np.float32) for spec in chosen.specs}
    write_tensors(backbone.model, tensors)
    read = read_tensors(backbone.model, chosen)
    assert {name: array.tobytes() for name, array in read.items()} == {n: a.tobytes() for n, a in tensors.items()}
    assert torch.equal(backbone.model.get_submodule("model.encoder.layers.0.fc1").weight, rest)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TENSOR_SETS)
def test_what_stays_private_is_said_of_the_sets_as_they_are(run_config: dict[str, Any], name: str) -> None:
    kind, settings = TENSOR_SETS[name], settings_from({**run_config, "tensor-set": name})
    assert (kind.travels is not kind.trains) == settings.splits_model
