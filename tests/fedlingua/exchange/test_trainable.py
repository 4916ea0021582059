"""What both sides build from a run config: the same tensors, the same fingerprint."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from fedlingua.backbones.load import Backbone
from fedlingua.common.errors import BackboneError
from fedlingua.exchange.tensor_sets import TENSOR_SETS, read_tensors, write_tensors
from fedlingua.exchange.tensors import Tensors
from fedlingua.exchange.trainable import Trainable, build_trainable
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar


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
    assert build_trainable(settings_from({**tiny_run_config, "adapter.dim": 5})).fingerprint != trainable.fingerprint


def test_adapters_travel_with_10_adapters_and_12_norms(trainable: Trainable) -> None:
    assert trainable.adapter is not None
    one_adapter, one_norm = 32 * 4 + 4 + 4 * 32 + 32, 2 * 32
    assert trainable.tensor_set.num_parameters == 10 * one_adapter + (2 * 2 + 2 * 3 + 2) * one_norm


def test_the_full_model_travels_without_adapters(tiny_run_config: dict[str, Scalar], backbone: Backbone) -> None:
    trainable = build_trainable(settings_from({**tiny_run_config, "method": "model-fed"}))
    assert trainable.adapter is None
    assert trainable.tensor_set.num_parameters == backbone.num_parameters


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("adapter.layers", "input-end"),
        *[("tensor-set", name) for name in ("full", "controllers", "lora")],
    ],
)
def test_another_tensor_set_is_another_fingerprint(
    trainable: Trainable, tiny_run_config: dict[str, Scalar], key: str, value: str
) -> None:
    assert build_trainable(settings_from({**tiny_run_config, key: value})).fingerprint != trainable.fingerprint


def test_what_travels_is_in_the_fingerprint_as_well(tiny_run_config: dict[str, Scalar]) -> None:
    built = build_trainable(settings_from({**tiny_run_config, "tensor-set": "controllers"}))
    assert dataclasses.replace(built, tensor_set=built.trained).fingerprint != built.fingerprint


def test_all_trains_and_only_the_added_layers_travel_with_controllers(tiny_run_config: dict[str, Scalar]) -> None:
    built = build_trainable(settings_from({**tiny_run_config, "tensor-set": "controllers", "controllers": 1}))
    norm, attention, feed_forward = 2 * 32, 4 * (32 * 32 + 32), 32 * 64 + 64 + 64 * 32 + 32
    added = (attention + feed_forward + 2 * norm) + (2 * attention + feed_forward + 3 * norm)
    assert built.tensor_set.num_parameters == added
    assert built.trained.num_parameters == built.backbone.num_parameters + added
    assert list(built.sent_first) == built.tensor_set.names
    assert list(built.initial) == built.trained.names


@torch.no_grad()
def test_an_encoder_takes_as_many_tokens_as_it_has_positions_for_and_no_more(
    tiny_run_config: dict[str, Scalar], tiny_encoder: Path
) -> None:
    """66 positions, of which RoBERTa's kind leaves two unused."""
    config = {**tiny_run_config, "task": "masked-language", "method": "model-fed", "backbone": str(tiny_encoder)}
    built = build_trainable(settings_from({**config, "max-tokens": 64}))
    assert built.model(input_ids=torch.full((1, 64), 5)).logits.shape[1] == 64
    with pytest.raises(
        BackboneError, match=r"max-tokens = 65, and backbone = .* has positions for 64 .* max-tokens = 64 or less"
    ):
        build_trainable(settings_from({**config, "max-tokens": 65}))
    build_trainable(settings_from({**tiny_run_config, "max-tokens": 65}))  # M2M-100, with 64 positions that it computes more of


@pytest.mark.parametrize("name", list(TENSOR_SETS))
@torch.no_grad()
def test_as_base_is_the_published_backbone_whatever_was_trained(
    tiny_run_config: dict[str, Scalar], backbone: Backbone, name: str
) -> None:
    trainable = build_trainable(settings_from({**tiny_run_config, "tensor-set": name}))
    tokens = {"input_ids": torch.tensor([[5, 9, 7, 2]]), "decoder_input_ids": torch.tensor([[2, 11, 12]])}
    base = backbone.model(**tokens).logits
    write_tensors(trainable.model, {name: array + np.float32(0.5) for name, array in trainable.initial.items()})
    assert not torch.allclose(trainable.model(**tokens).logits, base)
    with trainable.as_base() as model:
        assert torch.equal(model(**tokens).logits, base)
    assert as_bytes(read_tensors(trainable.model, trainable.trained)) == as_bytes(trainable.initial)


@pytest.mark.parametrize("name", ["adapters", "lora", "controllers", "full"])
def test_a_second_model_has_its_own_trained_tensors_and_shares_the_frozen_ones(
    tiny_run_config: dict[str, Scalar], name: str
) -> None:
    settings = settings_from({**tiny_run_config, "tensor-set": name})
    trainable = build_trainable(settings)
    second = trainable.second(settings, {key: array + 1 for key, array in trainable.initial.items()})
    assert as_bytes(read_tensors(second, trainable.trained)) == as_bytes({k: a + 1 for k, a in trainable.initial.items()})
    assert as_bytes(read_tensors(trainable.model, trainable.trained)) == as_bytes(trainable.initial)
    ours = {**dict(trainable.model.named_parameters()), **dict(trainable.model.named_buffers())}
    both = (*second.named_parameters(), *second.named_buffers())
    shared = {key for key, tensor in both if tensor.data_ptr() == ours[key].data_ptr()}
    assert shared == set(ours) - set(trainable.trained.names)
