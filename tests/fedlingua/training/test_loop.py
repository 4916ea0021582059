"""Local training: what changes, what does not, and what the seed decides."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from fedlingua.backbones.bottleneck import AdapterConfig, attach_adapters
from fedlingua.backbones.load import Backbone
from fedlingua.exchange.tensor_sets import Tensors, TensorSet, read_tensors, tensor_set, write_tensors
from fedlingua.training.batches import pad
from fedlingua.training.loop import LocalResult, LocalTraining, train_locally
from fedlingua.training.objective import corpus_nll
from fedlingua.training.translation import PairExample, translation_nll

HOW = LocalTraining(batch_size=8, accumulation=1, epochs=1, learning_rate=1e-3, whole_steps=True, precision="fp32")


class Site:
    """A backbone with adapters that trains from the same tensors as often as it is asked to."""

    def __init__(self, backbone: Backbone, examples: list[PairExample]) -> None:
        self.model, self.codec, self.examples = backbone.model, backbone.codec, examples
        attach_adapters(self.model, AdapterConfig(4), seed=1)
        self.set: TensorSet = tensor_set(self.model, "adapters")
        self.initial = read_tensors(self.model, self.set)
        self.result: LocalResult | None = None

    def trained(self, how: LocalTraining = HOW, seed: str = "2022/site/1", examples: list[PairExample] | None = None) -> Tensors:
        write_tensors(self.model, self.initial)
        self.result = train_locally(self.model, self.set.names, [examples or self.examples], self.codec, how, seed)
        return read_tensors(self.model, self.set)

    def without_dropout(self) -> None:
        for module in self.model.modules():
            if isinstance(getattr(module, "dropout", None), float):
                module.dropout = 0.0


@pytest.fixture
def site(backbone: Backbone, examples: list[PairExample]) -> Site:
    torch.set_num_threads(1)
    return Site(backbone, examples)


def as_bytes(tensors: Tensors) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in tensors.items()}


def test_only_the_named_parameters_change(site: Site) -> None:
    before = {name: value.clone() for name, value in site.model.named_parameters()}
    site.trained()
    changed = {name for name, value in site.model.named_parameters() if not torch.equal(value, before[name])}
    assert changed == set(site.set.names)


def test_the_model_is_frozen_and_evaluates_afterwards(site: Site) -> None:
    site.trained()
    assert not site.model.training
    assert not any(parameter.requires_grad for parameter in site.model.parameters())


def test_training_lowers_the_loss(site: Site) -> None:
    batches = [pad(site.examples, site.codec)]
    before, _ = corpus_nll(site.model, batches)
    site.trained(dataclasses.replace(HOW, epochs=5))
    assert corpus_nll(site.model, batches)[0] < before


def test_one_step_is_adam_on_the_mean_over_the_steps_tokens(site: Site) -> None:
    site.without_dropout()
    examples = site.examples[:8]
    got = site.trained(examples=examples)
    write_tensors(site.model, site.initial)
    parameters = {name: value for name, value in site.model.named_parameters() if name in site.initial}
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    nll, num_tokens = translation_nll(site.model, pad(examples, site.codec))
    (nll / num_tokens).backward()
    for name, parameter in parameters.items():
        assert parameter.grad is not None
        gradient = parameter.grad.numpy().astype(np.float64)
        # Adam's first step: both moments are the gradient's own, once their bias is corrected.
        wanted = site.initial[name] - 1e-3 * gradient / (np.abs(gradient) + 1e-8)
        clear = np.abs(gradient) > 1e-5
        np.testing.assert_allclose(got[name][clear], wanted[clear], rtol=0, atol=1e-6)
    site.model.requires_grad_(False)


def test_four_small_batches_make_the_same_update_as_one_large(site: Site) -> None:
    site.without_dropout()
    large = site.trained(HOW)
    small = site.trained(dataclasses.replace(HOW, batch_size=2, accumulation=4))
    for name in large:
        np.testing.assert_allclose(small[name], large[name], rtol=0, atol=1e-6)


def test_the_seed_decides_the_bytes(site: Site) -> None:
    first, again, other = site.trained(seed="1/a/1"), site.trained(seed="1/a/1"), site.trained(seed="1/a/2")
    assert as_bytes(first) == as_bytes(again)
    assert as_bytes(first) != as_bytes(other)


def test_dropout_is_the_seeds_too(site: Site) -> None:
    """One example, one step: no order is left for the seed to decide."""
    one = site.examples[:1]
    assert as_bytes(site.trained(seed="a", examples=one)) != as_bytes(site.trained(seed="b", examples=one))
    site.without_dropout()
    assert as_bytes(site.trained(seed="a", examples=one)) == as_bytes(site.trained(seed="b", examples=one))


def test_adam_is_made_anew_for_each_round(site: Site) -> None:
    first = site.trained()
    site.trained(dataclasses.replace(HOW, epochs=3), seed="something else between")
    assert as_bytes(site.trained()) == as_bytes(first)


def test_whole_steps_drop_the_remainder(site: Site) -> None:
    site.trained(HOW)  # 21 examples, 8 a step
    assert site.result is not None
    assert (site.result.num_examples, site.result.steps) == (16, 2)
    site.trained(dataclasses.replace(HOW, batch_size=2, accumulation=5))
    assert (site.result.num_examples, site.result.steps) == (20, 2)
    site.trained(dataclasses.replace(HOW, whole_steps=False))
    assert (site.result.num_examples, site.result.steps) == (21, 3)


def test_less_text_than_one_step_takes_is_kept_whole(site: Site) -> None:
    site.trained(HOW, examples=site.examples[:5])
    assert site.result is not None
    assert (site.result.num_examples, site.result.steps) == (5, 1)


def test_another_round_drops_another_remainder(site: Site) -> None:
    kept = set()
    for number in range(6):
        site.trained(HOW, seed=f"1/a/{number}")
        assert site.result is not None
        kept.add(site.result.num_tokens)
    assert len(kept) > 1


def test_the_result_is_the_sums_over_every_epoch(site: Site) -> None:
    site.without_dropout()
    how = dataclasses.replace(HOW, epochs=2, learning_rate=0.0, whole_steps=False)
    site.trained(how)
    nll_sum, num_tokens = corpus_nll(site.model, [pad(site.examples, site.codec)])
    assert site.result is not None
    assert (site.result.num_tokens, site.result.num_examples, site.result.steps) == (2 * num_tokens, 42, 6)
    assert site.result.nll_sum == pytest.approx(2 * nll_sum, rel=1e-5)


def test_bf16_trains_float32_tensors(site: Site) -> None:
    trained = site.trained(dataclasses.replace(HOW, precision="bf16"))
    assert all(array.dtype == np.float32 and np.isfinite(array).all() for array in trained.values())
    assert as_bytes(trained) != as_bytes(site.trained())
    assert all(isinstance(p, nn.Parameter) and p.dtype == torch.float32 for p in site.model.parameters())
