"""Private local training: which sentences are in a step, what a step is, and that the seed decides nothing of it."""

from collections import Counter
from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from fedlingua.backbones.bottleneck import AdapterConfig, attach_adapters
from fedlingua.backbones.load import Backbone
from fedlingua.common.errors import StuckError
from fedlingua.exchange.tensor_sets import read_tensors, tensor_set, write_tensors
from fedlingua.exchange.tensors import Tensors
from fedlingua.privacy.clipping import PrivateSteps
from fedlingua.settings.config import Settings
from fedlingua.training.batches import pad
from fedlingua.training.loop import LocalResult, private_steps, train_locally

HOW = Settings(batch_size=8, accumulation=1, local_epochs=1, learning_rate=0.5, whole_steps=True, optimizer="sgd")


class Site:
    """A backbone with adapters, without dropout, that trains privately from the same tensors as often as it is asked to."""

    def __init__(self, backbone: Backbone, examples: list[Any]) -> None:
        self.model, self.codec, self.examples = backbone.model, backbone.codec, examples
        attach_adapters(self.model, AdapterConfig(4), seed=1)
        self.set = tensor_set(self.model, "adapters")
        self.initial = read_tensors(self.model, self.set)
        for module in self.model.modules():
            if isinstance(getattr(module, "dropout", None), float):
                module.dropout = 0.0

    def trained(self, private: PrivateSteps, how: Settings = HOW, **more: Any) -> tuple[Tensors, LocalResult]:
        write_tensors(self.model, self.initial)
        result = train_locally(self.model, self.set.names, [self.examples], self.codec, how, "seed", private=private, **more)
        return read_tensors(self.model, self.set), result


@pytest.fixture
def site(backbone: Backbone, examples: list[Any]) -> Site:
    torch.set_num_threads(1)
    return Site(backbone, examples)


def test_an_epoch_is_a_step_along_the_mean_of_the_sentences_gradients(site: Site) -> None:
    """Without noise, and with a clip that clips nothing."""
    wanted = {name: np.zeros_like(array) for name, array in site.initial.items()}
    parameters = {name: site.model.get_parameter(name) for name in site.set.names}
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    for example in site.examples:
        nll, tokens = pad([example], site.codec).nll(site.model)
        for name, slope in zip(parameters, torch.autograd.grad(nll / tokens, list(parameters.values())), strict=True):
            wanted[name] += slope.numpy() / len(site.examples)
    got, result = site.trained(PrivateSteps(1.0, 1e6, 0.0))
    assert (result.steps, result.num_examples) == (1, 21)
    for name in wanted:
        np.testing.assert_allclose(got[name], site.initial[name] - 0.5 * wanted[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("changes", [{"batch_size": 3}, {"tokens_per_batch": 64}, {"micro_tokens": 40}, {"head_chunk": 4}])
def test_how_a_step_is_cut_changes_nothing(site: Site, changes: dict[str, Any]) -> None:
    plain, _ = site.trained(PrivateSteps(1.0, 0.2, 0.0))
    cut, result = site.trained(PrivateSteps(1.0, 0.2, 0.0), replace(HOW, **changes))
    assert (result.steps, result.num_examples) == (1, 21)
    for name in plain:
        np.testing.assert_allclose(cut[name], plain[name], rtol=1e-4, atol=1e-6)


def test_noise_moves_every_tensor_by_rate_x_noise_x_clip_over_the_expected_sentences(site: Site) -> None:
    private = PrivateSteps(0.5, clip=0.01, noise=40.0)
    got, _ = site.trained(private)
    moved = np.concatenate([(got[name] - site.initial[name]).ravel() for name in got])
    assert moved.std() == pytest.approx(0.5 * 40.0 * 0.01 / (0.5 * 21), rel=0.1)


def test_two_trainings_with_one_seed_have_other_noise(site: Site) -> None:
    (one, _), (other, _) = (site.trained(PrivateSteps(1.0, 0.1, 1.0)) for _ in range(2))
    moved = [np.concatenate([(each[name] - site.initial[name]).ravel() for name in each]) for each in (one, other)]
    assert not np.isclose(*moved, rtol=1e-3).mean() > 0.05
    assert abs(np.corrcoef(*moved)[0, 1]) < 0.9


def test_two_trainings_with_one_seed_draw_other_sentences(site: Site) -> None:
    (one, _), (other, _) = (site.trained(PrivateSteps(0.5, 1e6, 0.0)) for _ in range(2))
    assert any(not np.array_equal(one[name], other[name]) for name in one)


def test_what_does_not_move_before_the_noise_is_added_is_no_error_that_would_tell_of_the_text(site: Site) -> None:
    too_low = replace(HOW, learning_rate=1e-60)  # 0 in float32
    site.trained(PrivateSteps(1.0, 1.0, 0.0), too_low)
    with pytest.raises(StuckError, match="an epoch did not move it"):
        site.trained(PrivateSteps(1.0, 1.0, 1.0), too_low)


def test_each_sentence_is_in_a_step_by_itself_with_the_same_probability() -> None:
    """400 steps on 50 numbers with 0.3: each comes 120 times, with a deviation of 9.2; the sizes have a variance of 10.5."""

    class One(int):
        length = (3, 3)

    drawn, texts = Random(3), [[One(number) for number in range(20)], [One(number) for number in range(20, 50)]]
    times, sizes = Counter[int](), list[int]()
    for _ in range(400):
        (step,) = private_steps(HOW, texts, drawn, PrivateSteps(0.3, 1.0, 0.0))  # type: ignore[arg-type]
        taken: list[Any] = [one for batch in step for one in batch]
        assert len(set(taken)) == len(taken)
        assert all(0 < len(batch) <= 8 for batch in step)
        times.update(taken)
        sizes.append(len(taken))
    assert all(abs(times[number] - 120) < 5 * 9.2 for number in range(50))
    assert np.var(sizes) == pytest.approx(10.5, rel=0.35)
    assert np.mean(sizes) == pytest.approx(15.0, abs=0.8)


def test_a_document_is_in_a_step_whole_or_not_at_all() -> None:
    """400 steps on 10 documents with 0.3: each comes 120 times, with a deviation of 9.2."""
    drawn, texts = Random(3), [[f"{name}{number}" for number in range(1 + place % 4)] for place, name in enumerate("abcdefghij")]
    private, times = PrivateSteps(0.3, 1.0, 0.0, documents=True), Counter[str]()
    for _ in range(400):
        (step,) = private_steps(HOW, [*texts, []], drawn, private)  # type: ignore[list-item]
        assert all(batch in texts for batch in step)
        times.update(batch[0][0] for batch in step)  # type: ignore[index]
    assert all(abs(times[name] - 120) < 5 * 9.2 for name in "abcdefghij")


def test_a_step_over_documents_is_divided_by_their_expected_number(site: Site) -> None:
    private = PrivateSteps(0.5, clip=0.01, noise=40.0, documents=True)
    write_tensors(site.model, site.initial)
    texts = [site.examples[:5], site.examples[5:7], site.examples[7:]]
    result = train_locally(site.model, site.set.names, texts, site.codec, HOW, "seed", private=private)
    got = read_tensors(site.model, site.set)
    moved = np.concatenate([(got[name] - site.initial[name]).ravel() for name in got])
    assert moved.std() == pytest.approx(0.5 * 40.0 * 0.01 / (0.5 * 3), rel=0.1)
    assert result.num_examples in {sum(sizes) for n in range(4) for sizes in combinations((5, 2, 14), n)}


def test_a_step_may_draw_nobody_and_is_noise_then(site: Site) -> None:
    assert private_steps(HOW, [site.examples], Random(1), PrivateSteps(1e-9, 1.0, 0.0)) == [[]]
    got, result = site.trained(PrivateSteps(1e-9, 1e-8, 0.5), replace(HOW, local_epochs=2))
    assert (result.steps, result.num_examples, result.num_tokens) == (2, 0, 0)
    moved = np.concatenate([(got[name] - site.initial[name]).ravel() for name in got])
    assert moved.std() == pytest.approx(2**0.5 * 0.5 * 0.5 * 1e-8 / (1e-9 * 21), rel=0.1)


def test_adams_state_and_the_pull_to_the_start_work_on_noised_gradients(site: Site) -> None:
    state: dict[str, Any] = {}
    how = replace(HOW, optimizer="adam", learning_rate=1e-3, local_epochs=3, clip_norm=1.0)
    got, _ = site.trained(PrivateSteps(1.0, 0.1, 1.0), how, state=state, proximal_mu=0.1, towards=site.initial)
    assert {float(state[f"{name}/step"][0]) for name in got} == {3.0}
    assert all(np.isfinite(array).all() for array in got.values())
    assert not any(parameter.requires_grad for parameter in site.model.parameters())
    assert not any(module._forward_hooks for name, module in site.model.named_modules() if name.endswith((".down", ".up")))
