"""Local training: what changes, what does not, and what the seed decides."""

import dataclasses
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedlingua.backbones.bottleneck import AdapterConfig, attach_adapters
from fedlingua.backbones.load import Backbone
from fedlingua.config_checks import settings_from
from fedlingua.exchange.tensor_sets import Tensors, TensorSet, read_tensors, tensor_set, write_tensors
from fedlingua.training.batches import optimiser_steps, pad
from fedlingua.training.loop import LocalResult, LocalTraining, train_locally
from fedlingua.training.objective import corpus_nll
from fedlingua.training.optimizers import OPTIMIZERS, Numbers
from fedlingua.training.sampling import Sampling
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


# --- Samples, optimisers, and what they are set by ---------------------------------------------------------------------------


def test_the_run_config_says_how_a_site_trains(run_config: dict[str, Any]) -> None:
    changes = {
        "batch-size": 3,
        "accumulation": 2,
        "local-epochs": 4,
        "learning-rate": 0.5,
        "whole-steps": False,
        "precision": "bf16",
        "optimizer": "sgd",
        "weight-decay": 0.25,
        "optimizer-epsilon": 0.125,
        "sample-least": 7,
        "sample-share": 0.75,
        "sampling-temperature": 3.0,
    }
    how = LocalTraining.of(settings_from({**run_config, **changes}))
    assert how == LocalTraining(3, 2, 4, 0.5, False, "bf16", "sgd", 0.25, 0.125, Sampling(7, 0.75, 3.0))
    assert LocalTraining.of(settings_from(run_config)) == LocalTraining(16, 1, 1, 0.01, True, "fp32")


def test_what_is_off_changes_no_byte(site: Site) -> None:
    """Written out, and as two texts instead of one, with their temperature: nothing is drawn."""
    plain = site.trained()
    explicit = dataclasses.replace(HOW, optimizer="adam", weight_decay=0.0, epsilon=1e-8, sampling=Sampling(0, 0.0, 9.0))
    assert as_bytes(site.trained(explicit)) == as_bytes(plain)
    write_tensors(site.model, site.initial)
    train_locally(site.model, site.set.names, [site.examples[:5], site.examples[5:]], site.codec, HOW, "2022/site/1")
    assert as_bytes(read_tensors(site.model, site.set)) == as_bytes(plain)


def test_a_sample_is_drawn_anew_in_every_epoch(site: Site) -> None:
    site.trained(dataclasses.replace(HOW, epochs=3, sampling=Sampling(least=40)))
    assert site.result is not None
    assert (site.result.num_examples, site.result.steps) == (120, 15)
    draws = set()
    for number in range(4):
        site.trained(dataclasses.replace(HOW, sampling=Sampling(share=0.4)), seed=f"1/a/{number}")
        assert site.result.num_examples == 8  # of 21
        draws.add(site.result.num_tokens)
    assert len(draws) > 1


def test_one_step_of_sgd_is_the_gradient_times_the_rate(site: Site) -> None:
    site.without_dropout()
    examples = site.examples[:8]
    got = site.trained(dataclasses.replace(HOW, optimizer="sgd", learning_rate=0.5, weight_decay=0.25), examples=examples)
    write_tensors(site.model, site.initial)
    parameters = {name: value for name, value in site.model.named_parameters() if name in site.initial}
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    nll, num_tokens = translation_nll(site.model, pad(examples, site.codec))
    (nll / num_tokens).backward()
    for name, parameter in parameters.items():
        assert parameter.grad is not None
        wanted = site.initial[name] - 0.5 * (parameter.grad.numpy() + 0.25 * site.initial[name])
        np.testing.assert_allclose(got[name], wanted, rtol=0, atol=1e-6)
    site.model.requires_grad_(False)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_a_kept_state_over_two_rounds_is_one_training(site: Site, optimizer: str) -> None:
    """Against torch's own loop over the same batches with one optimiser that nobody interrupts."""
    site.without_dropout()
    how = dataclasses.replace(HOW, optimizer=optimizer, weight_decay=0.01, whole_steps=False, batch_size=21)
    write_tensors(site.model, site.initial)
    kept: dict[str, Numbers] = {}
    for number in (1, 2):
        train_locally(site.model, site.set.names, [site.examples], site.codec, how, f"1/a/{number}", kept)
    ours = as_bytes(read_tensors(site.model, site.set))
    write_tensors(site.model, site.initial)
    trained = [value for name, value in site.model.named_parameters() if name in site.initial]
    for parameter in trained:
        parameter.requires_grad_(True)
    one = OPTIMIZERS[optimizer](trained, how.learning_rate, how.weight_decay, how.epsilon)
    for number in (1, 2):
        rng = random.Random(f"1/a/{number}")
        rng.getrandbits(63)  # torch's own seed, for dropout
        ((batch,),) = optimiser_steps(site.examples, 21, 1, rng)
        nll, tokens = translation_nll(site.model, pad(batch, site.codec))
        (nll / tokens).backward()
        one.step()
        one.zero_grad()
    assert as_bytes(read_tensors(site.model, site.set)) == ours
    site.model.requires_grad_(False)
    fresh = [None, None]
    write_tensors(site.model, site.initial)
    for number, state in enumerate(fresh, start=1):
        train_locally(site.model, site.set.names, [site.examples], site.codec, how, f"1/a/{number}", state)
    assert (as_bytes(read_tensors(site.model, site.set)) == ours) == (optimizer == "sgd")  # which remembers nothing
