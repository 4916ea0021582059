"""Local training: what changes, what does not, and what the seed decides."""

import dataclasses
import random
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

from fedlingua.backbones.bottleneck import AdapterConfig, attach_adapters
from fedlingua.backbones.load import Backbone
from fedlingua.exchange.tensor_sets import read_tensors, tensor_set, write_tensors
from fedlingua.exchange.tensors import Tensors, TensorSet
from fedlingua.settings.config import Settings
from fedlingua.training.batches import optimizer_steps, pad
from fedlingua.training.loop import LocalResult, _pull_back, steps_of, steps_of_round, train_locally
from fedlingua.training.objective import corpus_nll
from fedlingua.training.optimizers import OPTIMIZERS, Numbers
from fedlingua.training.translation import PairExample

HOW = Settings(batch_size=8, accumulation=1, local_epochs=1, learning_rate=1e-3, whole_steps=True)


class Site:
    """A backbone with adapters that trains from the same tensors as often as it is asked to."""

    def __init__(self, backbone: Backbone, examples: list[PairExample]) -> None:
        self.model, self.codec, self.examples = backbone.model, backbone.codec, examples
        attach_adapters(self.model, AdapterConfig(4), seed=1)
        self.set: TensorSet = tensor_set(self.model, "adapters")
        self.initial = read_tensors(self.model, self.set)
        self.result: LocalResult | None = None

    def trained(
        self, how: Settings = HOW, seed: str = "2022/site/1", examples: list[PairExample] | None = None, **more: Any
    ) -> Tensors:
        write_tensors(self.model, self.initial)
        self.result = train_locally(self.model, self.set.names, [examples or self.examples], self.codec, how, seed, **more)
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
    site.trained(dataclasses.replace(HOW, local_epochs=5))
    assert corpus_nll(site.model, batches)[0] < before


def test_one_step_is_adam_on_the_mean_over_the_steps_tokens(site: Site) -> None:
    site.without_dropout()
    examples = site.examples[:8]
    got = site.trained(examples=examples)
    write_tensors(site.model, site.initial)
    parameters = {name: value for name, value in site.model.named_parameters() if name in site.initial}
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    nll, num_tokens = pad(examples, site.codec).nll(site.model)
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
    how = dataclasses.replace(HOW, group_by_length=False)  # which sorts other examples together in other batches
    large = site.trained(how)
    small = site.trained(dataclasses.replace(how, batch_size=2, accumulation=4))
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
    site.trained(dataclasses.replace(HOW, local_epochs=3), seed="something else between")
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


def test_the_result_is_the_sums_over_every_epoch(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.without_dropout()
    monkeypatch.setattr(Settings, "step_learning_rate", 0.0)
    how = dataclasses.replace(HOW, local_epochs=2, whole_steps=False)
    site.trained(how)
    nll_sum, num_tokens = corpus_nll(site.model, [pad(site.examples, site.codec)])
    assert site.result is not None
    assert (site.result.num_tokens, site.result.num_examples, site.result.steps) == (2 * num_tokens, 42, 6)
    assert site.result.nll_sum == pytest.approx(2 * nll_sum, rel=1e-5)


@pytest.mark.usefixtures("native_bf16")
def test_bf16_trains_float32_tensors(site: Site) -> None:
    trained = site.trained(dataclasses.replace(HOW, precision="bf16"))
    assert all(array.dtype == np.float32 and np.isfinite(array).all() for array in trained.values())
    assert as_bytes(trained) != as_bytes(site.trained())
    assert all(isinstance(p, nn.Parameter) and p.dtype == torch.float32 for p in site.model.parameters())


# --- Samples, optimizers, and what they are set by ---------------------------------------------------------------------------


def test_what_is_off_changes_no_byte(site: Site) -> None:
    """Written out, and as two texts instead of one, with their temperature: nothing is drawn."""
    plain = site.trained()
    explicit = dataclasses.replace(HOW, optimizer="adam", weight_decay=0.0, optimizer_epsilon=1e-8, sampling_temperature=9.0)
    assert as_bytes(site.trained(explicit)) == as_bytes(plain)
    write_tensors(site.model, site.initial)
    train_locally(site.model, site.set.names, [site.examples[:5], site.examples[5:]], site.codec, HOW, "2022/site/1")
    assert as_bytes(read_tensors(site.model, site.set)) == as_bytes(plain)


# --- Options of a step ---------------------------------------------------------------------------------------------------------------


def gradient(site: Site, examples: list[PairExample], label_smoothing: float = 0.0) -> Tensors:
    """Of the mean loss over the examples' tokens, from the first tensors, without dropout."""
    write_tensors(site.model, site.initial)
    parameters = {name: value for name, value in site.model.named_parameters() if name in site.initial}
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    nll, tokens = pad(examples, site.codec).nll(site.model, label_smoothing)
    (nll / tokens).backward()
    found = {name: value.grad.numpy().copy() for name, value in parameters.items() if value.grad is not None}
    site.model.zero_grad(set_to_none=True)
    site.model.requires_grad_(False)
    return found


SGD = dataclasses.replace(HOW, optimizer="sgd", learning_rate=0.5, batch_size=21, whole_steps=False)


def assert_stepped(site: Site, got: Tensors, slopes: Tensors, rate: float = 0.5) -> None:
    """One step of SGD from the first tensors."""
    for name, slope in slopes.items():
        np.testing.assert_allclose(got[name], site.initial[name] - rate * slope, rtol=0, atol=1e-6)
    assert any(np.abs(rate * slope).max() > 1e-4 for slope in slopes.values())


@pytest.mark.parametrize("share", [0.25, 4.0])
def test_a_gradient_longer_than_the_norm_is_scaled_down_to_it_over_all_tensors(site: Site, share: float) -> None:
    site.without_dropout()
    slopes = gradient(site, site.examples)
    norm = float(np.sqrt(sum(np.square(slope.astype(np.float64)).sum() for slope in slopes.values())))
    got = site.trained(dataclasses.replace(SGD, clip_norm=share * norm))
    assert_stepped(site, got, {name: min(share, 1.0) * slope for name, slope in slopes.items()})


def test_the_proximal_term_pulls_back_to_what_the_round_began_with(site: Site) -> None:
    """Li et al. 2020, eq. 2: nothing in the first step, rate x mu x (w1 - w0) in the second."""
    site.without_dropout()
    first, second = (site.trained(dataclasses.replace(SGD, local_epochs=epochs)) for epochs in (1, 2))
    pulled = site.trained(dataclasses.replace(SGD, local_epochs=2), proximal_mu=0.8, towards=site.initial)
    at_once = site.trained(SGD, proximal_mu=0.8, towards=site.initial)
    for name, begun in site.initial.items():
        np.testing.assert_allclose(at_once[name], first[name], rtol=0, atol=1e-6)
        np.testing.assert_allclose(pulled[name], second[name] - 0.5 * 0.8 * (first[name] - begun), rtol=0, atol=1e-6)
    assert any(np.abs(pulled[name] - second[name]).max() > 1e-4 for name in second)


def test_a_tensor_without_a_gradient_is_pulled_back_too() -> None:
    parameter = nn.Parameter(torch.tensor([3.0]))
    _pull_back({"w": parameter}, {"w": torch.tensor([1.0])}, 0.5)
    assert parameter.grad is not None
    assert parameter.grad.tolist() == [1.0]


def test_the_pull_is_to_the_mean_of_the_tensors_that_have_one(site: Site) -> None:
    """The step from v is to v - rate x (slope + mu x (v - w)); what has no mean is not pulled."""
    site.without_dropout()
    slopes, rng = gradient(site, site.examples), np.random.default_rng(1)
    mean = {name: rng.standard_normal(array.shape, np.float32) for name, array in list(site.initial.items())[::2]}
    write_tensors(site.model, site.initial)
    train_locally(site.model, site.set.names, [site.examples], site.codec, SGD, "seed", proximal_mu=0.3, towards=mean)
    got = read_tensors(site.model, site.set)
    pulls = {name: 0.3 * (array - mean.get(name, array)) for name, array in site.initial.items()}
    assert_stepped(site, got, {name: slope + pulls[name] for name, slope in slopes.items()})
    assert 0 < len(mean) < len(got)


def test_smoothing_is_of_the_loss_that_is_trained_on(site: Site) -> None:
    site.without_dropout()
    slopes = gradient(site, site.examples, label_smoothing=0.2)
    assert_stepped(site, site.trained(dataclasses.replace(SGD, label_smoothing=0.2)), slopes)
    plain = gradient(site, site.examples)
    assert any(np.abs(plain[name] - slopes[name]).max() > 1e-3 for name in plain)


def test_a_schedule_is_over_the_steps_of_all_rounds(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps an epoch, two epochs, two rounds: twelve steps, of which two warm up, and ten go down in tenths."""
    rates: list[float] = []
    step = torch.optim.SGD.step

    def noted(self: torch.optim.SGD, *rest: Any) -> Any:
        rates.append(self.param_groups[0]["lr"])
        return step(self, *rest)

    monkeypatch.setattr(torch.optim.SGD, "step", noted)
    how = dataclasses.replace(SGD, batch_size=8, local_epochs=2, schedule="linear", warmup_steps=2)
    for number in (1, 2):
        train_locally(site.model, site.set.names, [site.examples], site.codec, how, "seed", this_round=(number, 2))
    assert rates == pytest.approx([0.25, 0.5, *(0.5 * tenths / 10 for tenths in range(10, 0, -1))])


def test_a_warm_up_shortens_the_first_step(site: Site) -> None:
    site.without_dropout()
    slopes = gradient(site, site.examples)
    assert_stepped(site, site.trained(dataclasses.replace(SGD, warmup_steps=4)), slopes, 0.125)


def test_a_budget_of_tokens_cuts_batches_and_every_example_is_trained_on_once(site: Site) -> None:
    """Steps of two batches; nothing is left over, though whole_steps is on."""
    seen: list[list[list[int]]] = []
    how = dataclasses.replace(HOW, tokens_per_batch=60, accumulation=2, whole_steps=True)
    site.trained(how)
    assert site.result is not None
    train_locally(
        site.model,
        site.set.names,
        [site.examples],
        site.codec,
        how,
        "seed",
        before_step=lambda step: seen.append([[example.length[0] for example in batch] for batch in step]),
    )
    batches = [batch for step in seen for batch in step]
    assert all(max(batch) * len(batch) <= 60 for batch in batches)
    assert sorted(length for batch in batches for length in batch) == sorted(e.length[0] for e in site.examples)
    assert {len(step) for step in seen[:-1]} == {2}
    assert (site.result.num_examples, site.result.steps) == (21, len(seen))


def test_the_mean_stays_over_tokens_when_a_budget_cuts_the_batches(site: Site) -> None:
    site.without_dropout()
    how = dataclasses.replace(SGD, tokens_per_batch=60, accumulation=100)
    assert_stepped(site, site.trained(how), gradient(site, site.examples))


def test_steps_that_are_cut_by_length_are_the_same_steps(site: Site) -> None:
    """The very examples, in batches of at most 40 padded tokens, and the same tensors but for the order of sums."""
    site.without_dropout()
    plain, cut = dataclasses.replace(SGD, batch_size=8), dataclasses.replace(SGD, batch_size=8, micro_tokens=40)
    wanted, pieces = (steps_of(how, [site.examples], random.Random(1)) for how in (plain, cut))
    assert [sorted(e for batch in step for e in batch) for step in pieces] == [sorted(step[0]) for step in wanted]
    assert all(max(e.length[0] for e in batch) * len(batch) <= 40 for step in pieces for batch in step)
    assert all(len(step) > 1 for step in pieces)
    tensors, of_pieces = site.trained(plain), site.trained(cut)
    for name in tensors:
        np.testing.assert_allclose(of_pieces[name], tensors[name], rtol=0, atol=1e-5)


def test_layers_that_are_computed_again_have_the_dropout_that_they_had(site: Site) -> None:
    """The same bytes, dropout and all, and each layer run twice a step."""
    runs = 0

    def count(*_: Any) -> None:
        nonlocal runs
        runs += 1

    hook = site.model.model.encoder.layers[0].fc1.register_forward_pre_hook(count)
    plain, once = site.trained(), runs
    again, twice = site.trained(dataclasses.replace(HOW, gradient_checkpointing=True)), runs - once
    hook.remove()
    assert as_bytes(again) == as_bytes(plain)
    assert twice == 2 * once > 0
    assert not site.model.is_activation_checkpointing


def test_a_head_in_chunks_trains_the_same_tensors(site: Site) -> None:
    plain, in_chunks = site.trained(SGD), site.trained(dataclasses.replace(SGD, head_chunk=7))
    for name in plain:
        np.testing.assert_allclose(in_chunks[name], plain[name], rtol=0, atol=1e-5)


# --- What has no gradient to take ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    ("frozen", "in_graph"),
    [
        ([], [1, 1, 1, 1]),
        (["encoder.layers.0"], [0, 1, 1, 1]),
        (["encoder.layers.0", "decoder.layers.0"], [0, 1, 1, 1]),  # it looks at the encoder's output
        (["encoder", "decoder.layers.0"], [0, 0, 0, 1]),
    ],
)
def test_what_lies_below_the_first_trained_tensor_has_no_graph(
    site: Site, frozen: list[str], in_graph: list[int], again: bool
) -> None:
    """Nor where layers are computed again on the way back."""
    names = [name for name in site.set.names if not any(name.startswith(f"model.{part}") for part in frozen)]
    assert graph_of(site, names, dataclasses.replace(HOW, gradient_checkpointing=again)) == ([0, 0], in_graph)


def graph_of(site: Site, names: list[str], how: Settings) -> tuple[list[int], list[int]]:
    """Whether what embeddings give, and what the layers of both stacks give, belongs to a graph of gradients."""
    stacks = site.model.model.encoder, site.model.model.decoder
    embeddings, layers = [stack.embed_tokens for stack in stacks], [layer for stack in stacks for layer in stack.layers]
    found: dict[torch.nn.Module, int] = {}

    def note(module: torch.nn.Module, _: Any, output: torch.Tensor) -> None:
        found.setdefault(module, int(output.requires_grad))

    hooks = [module.register_forward_hook(note) for module in (*embeddings, *layers)]
    train_locally(site.model, names, [site.examples[:8]], site.codec, how, "seed")
    for hook in hooks:
        hook.remove()
    return [found[module] for module in embeddings], [found[module] for module in layers]


def test_a_sample_is_drawn_anew_in_every_epoch(site: Site) -> None:
    site.trained(dataclasses.replace(HOW, local_epochs=3, sample_least=40))
    assert site.result is not None
    assert (site.result.num_examples, site.result.steps) == (120, 15)
    draws = set()
    for number in range(4):
        site.trained(dataclasses.replace(HOW, sample_share=0.4), seed=f"1/a/{number}")
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
    nll, num_tokens = pad(examples, site.codec).nll(site.model)
    (nll / num_tokens).backward()
    for name, parameter in parameters.items():
        assert parameter.grad is not None
        wanted = site.initial[name] - 0.5 * (parameter.grad.numpy() + 0.25 * site.initial[name])
        np.testing.assert_allclose(got[name], wanted, rtol=0, atol=1e-6)
    site.model.requires_grad_(False)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_a_kept_state_over_two_rounds_is_one_training(site: Site, optimizer: str) -> None:
    """Against torch's own loop over the same batches with one optimizer that nobody interrupts."""
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
    one = OPTIMIZERS[optimizer](trained, how.learning_rate, how.weight_decay, how.optimizer_epsilon)
    for number in (1, 2):
        rng = random.Random(f"1/a/{number}")
        rng.getrandbits(63)  # torch's own seed, for dropout
        ((batch,),) = optimizer_steps(site.examples, 21, 1, rng)
        nll, tokens = pad(batch, site.codec).nll(site.model)
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


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"whole_steps": False, "accumulation": 2},
        {"tokens_per_batch": 120, "accumulation": 3},
        {"sample_share": 0.7, "whole_steps": False},
        {"sample_least": 21, "sample_replacement": True, "tokens_per_batch": 120},
        {"micro_tokens": 60},
    ],
)
def test_the_steps_of_a_round_are_known_before_it(site: Site, changes: dict[str, Any]) -> None:
    """Also those that draws of an earlier pass decide, as those of masks do."""

    class Drawn(PairExample):
        def drawn(self, rng: random.Random) -> Any:
            rng.random()
            return self

    seen, examples = list[list[list[Any]]](), [Drawn(*example) for example in site.examples]
    how = dataclasses.replace(HOW, local_epochs=2, **changes)
    site.trained(how, "2022/site/3", examples=cast(Any, examples), this_round=(3, 4), before_step=seen.append)
    assert list(steps_of_round(how, [examples], "2022/site/3", 3)) == seen
    assert len(seen) > 3
