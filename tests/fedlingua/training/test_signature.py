"""Signatures against finite differences, and their private form by hand."""

from random import Random

import numpy as np
import pytest
import torch

from fedlingua.backbones.bottleneck import AdapterConfig, attach_adapters
from fedlingua.common.errors import ConfigError
from fedlingua.training.batches import pad
from fedlingua.training.signature import (
    chosen_adapter,
    mean_gradient,
    num_weights,
    private_signature,
    projected_gradients,
    random_projection,
)


@pytest.fixture
def model(backbone):
    attach_adapters(backbone.model, AdapterConfig(4), seed=3)
    with torch.no_grad():
        for name, parameter in backbone.model.named_parameters():
            if ".adapters." in name:
                parameter.mul_(25)
    return backbone.model


@pytest.fixture
def adapter(model):
    return chosen_adapter(model, "encoder.-1.fc2")


class NoNoise(Random):
    def gauss(self, mu=0.0, sigma=1.0):
        return 0.0


def loss(model, examples, codec):
    with torch.no_grad():
        nll, tokens = pad(examples, codec).nll(model)
    return float(nll.double()) / tokens


def test_the_gradient_is_that_of_the_loss_a_token_over_all_examples(model, adapter, examples, backbone):
    gradient = mean_gradient(model, adapter, examples, backbone.codec)
    direction = gradient / np.linalg.norm(gradient)
    split = adapter.down.weight.numel()
    step = 0.3

    def moved(by):
        with torch.no_grad():
            adapter.down.weight += torch.from_numpy(by * direction[:split]).reshape(adapter.down.weight.shape)
            adapter.up.weight += torch.from_numpy(by * direction[split:]).reshape(adapter.up.weight.shape)
        return loss(model, examples, backbone.codec)

    ahead, behind = moved(np.float32(step)), moved(np.float32(-2 * step))
    assert (ahead - behind) / (2 * step) == pytest.approx(np.linalg.norm(gradient), rel=0.02)


def test_the_gradient_has_the_numbers_of_the_two_matrices_and_leaves_the_model_as_it_was(model, adapter, examples, backbone):
    model.requires_grad_(False)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    gradient = mean_gradient(model, adapter, examples, backbone.codec)
    assert gradient.shape == (num_weights(adapter),) == (2 * 32 * 4,)
    assert gradient.dtype == np.float32
    assert all(torch.equal(before[name], parameter) for name, parameter in model.named_parameters())
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_an_adapter_of_mbart_50_has_131072_numbers():
    from fedlingua.backbones.bottleneck import BottleneckAdapter

    assert num_weights(BottleneckAdapter(1024, 64)) == 131_072


def test_a_private_signature_is_the_mean_of_clipped_projections(model, adapter, examples, backbone):
    projection = random_projection(8, num_weights(adapter), seed=5)
    each = list(projected_gradients(model, adapter, examples[:5], backbone.codec, projection))
    clip = float(np.median([np.linalg.norm(one) for one in each]))
    wanted = np.mean([one if np.linalg.norm(one) <= clip else one / np.linalg.norm(one) * clip for one in each], axis=0)
    got = private_signature(model, adapter, examples[:5], backbone.codec, projection, clip, 1.0, NoNoise())
    assert got == pytest.approx(wanted.astype(np.float32), rel=1e-5)


def test_replacing_a_sentence_moves_the_sum_by_no_more_than_twice_the_clip(model, adapter, examples, backbone):
    projection, clip = random_projection(8, num_weights(adapter), seed=5), 1e-3

    def total(sentences):
        mean = private_signature(model, adapter, sentences, backbone.codec, projection, clip, 1.0, NoNoise())
        return mean.astype(np.float64) * len(sentences)

    moves = [np.linalg.norm(total([*examples[:5], other]) - total(examples[:6])) for other in examples[6:12]]
    assert max(moves) <= 2 * clip * 1.001
    assert max(moves) > 0


def test_the_noise_on_the_sum_has_the_multiple_of_the_clip_as_its_deviation(model, adapter, examples, backbone):
    projection = random_projection(64, num_weights(adapter), seed=5)
    arguments = (model, adapter, examples[:2], backbone.codec, projection, 0.5, 3.0)
    still = private_signature(*arguments, NoNoise())
    noise = np.concatenate([private_signature(*arguments, Random(seed)) - still for seed in range(8)]) * 2
    assert noise.std() == pytest.approx(3.0 * 0.5, rel=0.1)


def test_the_projection_keeps_lengths_in_the_mean_and_is_the_same_at_every_site():
    vector = np.zeros(1000, np.float32)
    vector[7] = 2.0
    lengths = [np.linalg.norm(random_projection(64, 1000, seed) @ vector) for seed in range(50)]
    assert np.mean(np.square(lengths)) == pytest.approx(4.0, rel=0.1)
    assert np.array_equal(random_projection(3, 5, 1), random_projection(3, 5, 1))


@pytest.mark.parametrize("name", ["encoder.2.fc2", "encoder.-3.fc2", "encoder.0.encoder_attn"])
def test_an_adapter_that_is_not_there_is_refused_with_those_that_are(model, name):
    with pytest.raises(ConfigError, match="PLACE one of self_attn, fc2"):
        chosen_adapter(model, name)


def test_layers_are_counted_from_either_end(model):
    assert chosen_adapter(model, "decoder.1.encoder_attn") is chosen_adapter(model, "decoder.-1.encoder_attn")
