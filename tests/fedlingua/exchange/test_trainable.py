"""What both sides build from a run config: the same tensors, the same fingerprint."""

import numpy as np
import pytest
import torch

from fedlingua.backbones.load import Backbone
from fedlingua.config import Scalar, settings_from
from fedlingua.exchange.tensor_sets import Tensors, read_tensors, write_tensors
from fedlingua.exchange.trainable import Trainable, build_trainable


@pytest.fixture
def trainable(tiny_run_config: dict[str, Scalar]) -> Trainable:
    return build_trainable(settings_from(tiny_run_config))


def as_bytes(tensors: Tensors) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in tensors.items()}


def test_two_sides_of_one_config_build_the_same(trainable: Trainable, tiny_run_config: dict[str, Scalar]) -> None:
    other_side = build_trainable(settings_from(tiny_run_config))
    assert other_side.fingerprint == trainable.fingerprint
    assert as_bytes(other_side.initial) == as_bytes(trainable.initial)


def test_the_seed_decides_the_first_tensors_but_not_their_meaning(
    trainable: Trainable, tiny_run_config: dict[str, Scalar]
) -> None:
    other = build_trainable(settings_from({**tiny_run_config, "seed": 7}))
    assert as_bytes(other.initial) != as_bytes(trainable.initial)
    assert other.fingerprint == trainable.fingerprint


def test_another_adapter_size_is_another_fingerprint(trainable: Trainable, tiny_run_config: dict[str, Scalar]) -> None:
    assert build_trainable(settings_from({**tiny_run_config, "adapter-dim": 5})).fingerprint != trainable.fingerprint


def test_adapters_travel_with_10_adapters_and_12_norms(trainable: Trainable) -> None:
    assert trainable.adapter is not None
    one_adapter, one_norm = 32 * 4 + 4 + 4 * 32 + 32, 2 * 32
    assert trainable.tensor_set.num_parameters == 10 * one_adapter + (2 * 2 + 2 * 3 + 2) * one_norm


def test_the_full_model_travels_without_adapters(tiny_run_config: dict[str, Scalar], backbone: Backbone) -> None:
    trainable = build_trainable(settings_from({**tiny_run_config, "method": "model-fed"}))
    assert trainable.adapter is None
    assert trainable.tensor_set.num_parameters == backbone.num_parameters


@torch.no_grad()
def test_as_base_is_the_published_backbone_whatever_was_trained(trainable: Trainable, backbone: Backbone) -> None:
    tokens = {"input_ids": torch.tensor([[5, 9, 7, 2]]), "decoder_input_ids": torch.tensor([[2, 11, 12]])}
    base = backbone.model(**tokens).logits
    write_tensors(trainable.model, {name: array + np.float32(0.5) for name, array in trainable.initial.items()})
    assert not torch.allclose(trainable.model(**tokens).logits, base)
    with trainable.as_base() as model:
        assert torch.equal(model(**tokens).logits, base)
    assert as_bytes(read_tensors(trainable.model, trainable.tensor_set)) == as_bytes(trainable.initial)
    assert not torch.equal(trainable.model(**tokens).logits, base)
