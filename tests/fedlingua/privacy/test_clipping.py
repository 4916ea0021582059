"""Clipped sums beside a loop over single sentences, and noise of the right size from the right source."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from fedlingua.backbones.load import Backbone, load_backbone
from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.exchange.tensor_sets import TENSOR_SETS, tensor_set
from fedlingua.privacy.clipping import ROUNDING, Clipping, PrivateSteps, Use, _use, gaussian, squared_norms
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings
from fedlingua.settings.experiment import default_run_config
from fedlingua.training import pieces
from fedlingua.training.accumulate import StepGradient
from fedlingua.training.batches import pad
from fedlingua.training.translation import encode_pairs

SMALL = {"adapter.dim": 4, "lora.rank": 3}
WHOLE = Settings(micro_tokens=-1)


@pytest.fixture
def load(family_folder: Callable[[str], Path]) -> Callable[[str], Backbone]:
    return lambda name: load_backbone(family_folder(name), name)


def prepared(backbone: Backbone, name: str, **options: Any) -> dict[str, nn.Parameter]:
    """Attach a tensor set, away from its start, where some gradients are 0; return its parameters."""
    settings = settings_from({**default_run_config(), **SMALL, **options, "method": "adapter-fed", "tensor-set": name})
    TENSOR_SETS[name].attach(backbone.model, settings)
    trained = set(tensor_set(backbone.model, name).names)
    drawn = torch.Generator().manual_seed(5)
    found = {key: parameter for key, parameter in backbone.model.named_parameters() if key in trained}
    with torch.no_grad():
        for parameter in found.values():
            parameter += 0.05 * torch.randn(parameter.shape, generator=drawn)
    return found


def some(backbone: Backbone, phrases: dict[str, list[str]], number: int = 7) -> list[Any]:
    pairs = [Pair(*both) for both in zip(phrases["de"][:number], phrases["fr"][:number], strict=True)]
    return encode_pairs(pairs, Direction("de", "fr"), backbone.codec, 32)


def one_by_one(
    backbone: Backbone, trained: dict[str, nn.Parameter], examples: list[Any]
) -> tuple[list[dict[str, Tensor]], Tensor]:
    """The gradient of each sentence's mean loss a token by autograd, and its norm."""
    backbone.model.requires_grad_(False)
    for parameter in trained.values():
        parameter.requires_grad_(True)
    gradients = []
    for example in examples:
        nll, tokens = pad([example], backbone.codec).nll(backbone.model)
        found = torch.autograd.grad(nll / tokens, list(trained.values()))
        gradients.append(dict(zip(trained, found, strict=True)))
    return gradients, torch.stack([torch.cat([each.flatten() for each in one.values()]).norm() for one in gradients])


def clipped(
    backbone: Backbone, trained: dict[str, nn.Parameter], step: list[list[Any]], clip: float, settings: Settings = WHOLE
) -> dict[str, Tensor]:
    """The same sum by book-keeping, without noise."""
    backbone.model.requires_grad_(False)
    clipping = Clipping(backbone.model, trained, PrivateSteps(1.0, clip, 0.0), 1.0)
    with clipping.recording():
        StepGradient(backbone.model, backbone.codec, settings, clipping=clipping)(step)
    found = {name: parameter.grad for name, parameter in trained.items() if parameter.grad is not None}
    backbone.model.zero_grad(set_to_none=True)
    return found


@pytest.mark.parametrize(
    ("family", "name"),
    [(family, name) for family in ("nllb", "qwen3", "gemma3") for name in ("adapters", "lora", "full")]
    + [("nllb", "controllers"), ("t5", "adapters"), ("marian", "lora")],
)
def test_the_clipped_sum_is_that_of_single_sentences(
    family: str, name: str, load: Callable[[str], Backbone], phrases: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = load(family)
    options = {"lora.targets": "q_proj,v_proj,fc1" if family == "nllb" else "q_proj,v_proj"}
    trained = prepared(backbone, name, **options)
    examples = some(backbone, phrases)
    gradients, norms = one_by_one(backbone, trained, examples)
    clip = float(norms.median())
    factors = (clip / norms).clamp(max=1.0)
    assert 0 < (factors < 1).sum() < len(factors)
    wanted = {key: sum(factor * one[key] for factor, one in zip(factors, gradients, strict=True)) for key in trained}
    scale = max(float(each.abs().max()) for each in wanted.values())
    monkeypatch.setattr(pieces, "LARGE_MODEL", 1)
    monkeypatch.setattr(pieces, "PASS_TOKENS", 8)
    monkeypatch.setattr("fedlingua.privacy.clipping.ROUNDING", 0.0)
    in_pieces = Settings(head_chunk=5)
    for step, settings in (([examples], WHOLE), ([examples[:3], examples[3:]], WHOLE), ([examples], in_pieces)):
        found = clipped(backbone, trained, step, clip, settings)
        for key in trained:
            torch.testing.assert_close(
                found[key], wanted[key], rtol=1e-5, atol=1e-5 * scale, msg=lambda text, key=key: f"{key}: {text}"
            )


@pytest.mark.parametrize("size", [1.0, 1e8])
def test_tokens_that_cancel_cannot_make_a_norm_too_small(size: float) -> None:
    """Eight rows whose sum is 0 but for rounding, with the same large column: what is left may be anything, its norm may not be less."""
    drawn = torch.Generator().manual_seed(1)
    rows = torch.randn(100, 8, 64, generator=drawn)
    rows[:, -1] = -rows[:, :-1].sum(1)
    use = Use(rows, size * torch.randn(100, 1, 32, generator=drawn).expand(100, 8, 32))
    norms = squared_norms([use]).sqrt()
    for place in range(100):
        added = torch.zeros(64, 32)
        use.add_to(added, torch.eye(100)[place] / norms[place])
        assert float(added.norm()) < 0.01


def test_what_cancels_between_two_uses_of_a_matrix_is_counted_in_both() -> None:
    """Gradients of 3 and -3: nothing is left, and rounding may leave a share of 6."""
    rows, columns = torch.tensor([[[3.0]]]), torch.ones(1, 1, 1)
    assert squared_norms([Use(rows, columns), Use(-rows, columns)]).tolist() == pytest.approx([(ROUNDING * 6) ** 2], rel=1e-5)


def test_the_embedding_of_padding_has_no_gradient_as_in_torch() -> None:
    use = _use(nn.Embedding(3, 2, padding_idx=0), torch.tensor([[0, 1]]), torch.ones(1, 2, 2))
    assert use.columns.tolist() == [[[0.0, 0.0], [1.0, 1.0]]]


def test_a_sentence_whose_norm_is_no_number_counts_as_nothing() -> None:
    """The squares of its slopes are infinite, and infinity times the 0 between its orthogonal inputs is NaN."""
    model: Any = nn.Sequential(nn.Linear(2, 1, bias=False))
    model.get_input_embeddings = lambda: nn.Embedding(1, 1)
    clipping = Clipping(model, dict(model.named_parameters()), PrivateSteps(1.0, 1.0, 0.0), 1)
    inputs = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]])
    slopes = torch.tensor([[[1e30], [1e30]], [[1.0], [0.0]]])
    assert squared_norms([Use(slopes, inputs)]).isnan().tolist() == [True, False]
    clipping._passed.append((model[0], inputs, slopes))
    clipping.add(torch.ones(2, 2, dtype=torch.bool))
    assert model[0].weight.grad.tolist() == [[0.5, 0.0]]


def test_no_sentence_is_scaled_down_much_for_rounding(backbone: Backbone, examples: list[Any]) -> None:
    trained = prepared(backbone, "adapters")
    gradients, norms = one_by_one(backbone, trained, examples)
    clip = 0.5 * float(norms.min())
    found = clipped(backbone, trained, [examples], clip)
    for name, summed in found.items():
        wanted = sum(clip / norm * one[name] for norm, one in zip(norms, gradients, strict=True))
        torch.testing.assert_close(summed, wanted, rtol=0.01, atol=0.01 * float(summed.abs().max()))


@pytest.mark.parametrize(("pass_tokens", "most"), [(0, 99), (8, 99), (0, 2)])
def test_the_clipped_sum_of_documents_is_that_of_their_mean_gradients(
    pass_tokens: int, most: int, backbone: Backbone, examples: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However a document is cut, also where more than `most` sentences at once do not fit into memory, so that the step begins again."""
    trained = prepared(backbone, "adapters")
    gradients, _ = one_by_one(backbone, trained, examples)
    documents = [range(1), range(1, 4), range(4, 9)]
    wholes, tokens = [], [example.num_targets for example in examples]
    for places in documents:
        total = sum(tokens[place] for place in places)
        wholes.append({key: sum(gradients[place][key] * tokens[place] for place in places) / total for key in trained})
    norms = torch.stack([torch.cat([each.flatten() for each in one.values()]).norm() for one in wholes])
    clip = float(norms.median())
    factors = (clip / norms).clamp(max=1.0)
    assert (factors < 1).sum() == 1
    if pass_tokens:
        monkeypatch.setattr(pieces, "LARGE_MODEL", 1)
        monkeypatch.setattr(pieces, "PASS_TOKENS", pass_tokens)
    backbone.model.requires_grad_(False)
    for parameter in trained.values():
        parameter.requires_grad_(True)
    sums = dict[str, Tensor]()
    clipping = Clipping(backbone.model, trained, PrivateSteps(1.0, clip, 0.0, sums, documents=True), 2.0)
    gradient, sizes = StepGradient(backbone.model, backbone.codec, Settings(), clipping=clipping), list[int]()

    def ends(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        sizes.append(len(inputs[0]))
        if sizes[-1] > most:
            raise torch.OutOfMemoryError("CUDA out of memory")

    backbone.model.model.decoder.layers[1].register_forward_pre_hook(ends)
    for _ in range(2):  # a step leaves nothing to the next
        with clipping.recording():
            told = gradient([[examples[place] for place in places] for places in documents])
        assert sum(each[2] for each in told) == 9
        for key, parameter in trained.items():
            wanted = sum(factor * one[key] for factor, one in zip(factors, wholes, strict=True))
            assert parameter.grad is not None
            torch.testing.assert_close(sums[key], wanted, rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(parameter.grad, wanted / 2.0, rtol=1e-4, atol=1e-6)
        backbone.model.zero_grad(set_to_none=True)
    assert (max(sizes) > most) == (most == 2)


def test_a_document_with_an_infinite_gradient_counts_as_nothing(backbone: Backbone, examples: list[Any]) -> None:
    trained = prepared(backbone, "adapters")
    for parameter in trained.values():
        parameter.requires_grad_(True)
        parameter.grad = torch.full_like(parameter, float("inf"))
    clipping = Clipping(backbone.model, trained, PrivateSteps(1.0, 0.1, 0.0, documents=True), 1.0)
    clipping.add_document(5)
    clipping.finish()
    assert all(float(parameter.grad.abs().max()) == 0 for parameter in trained.values() if parameter.grad is not None)


def test_a_clip_longer_than_all_gradients_leaves_their_plain_sum(backbone: Backbone, examples: list[Any]) -> None:
    trained = prepared(backbone, "adapters")
    gradients, norms = one_by_one(backbone, trained, examples)
    found = clipped(backbone, trained, [examples], 2 * float(norms.max()))
    for name, summed in found.items():
        torch.testing.assert_close(summed, sum(one[name] for one in gradients), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "name", "tensor"),
    [("t5", "full", "relative_attention_bias.weight"), ("mbart", "full", "embed_positions.weight")],
)
def test_what_cannot_be_clipped_is_refused_by_name(
    family: str, name: str, tensor: str, load: Callable[[str], Backbone], mbart50: Path
) -> None:
    backbone = load_backbone(mbart50, "mbart") if family == "mbart" else load(family)
    trained = prepared(backbone, name)
    with pytest.raises(ConfigError, match=rf"{tensor}\S* belongs to a \w+, whose gradient cannot be clipped"):
        Clipping(backbone.model, trained, PrivateSteps(1.0, 1.0, 1.0), 1.0)


def test_no_gradient_of_a_single_sentence_is_in_memory(backbone: Backbone, examples: list[Any], monkeypatch: Any) -> None:
    """Nothing that the clipping makes is as large as two sentences' gradients of the largest matrix: batch x height x width."""
    trained = {"model.decoder.layers.0.fc1.weight": backbone.model.get_parameter("model.decoder.layers.0.fc1.weight")}
    largest = max(each.numel() for each in trained.values())
    sizes: list[int] = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = func(*args, **(kwargs or {}))
            if isinstance(made, Tensor):
                sizes.append(made.numel())
            return made

    add = Clipping.add

    def watched(self: Clipping, predicted: Tensor) -> None:
        with Watch():
            add(self, predicted)

    monkeypatch.setattr(Clipping, "add", watched)
    short = [type(one)(one.source[:4], one.target[:4]) for one in examples[:8]]
    clipped(backbone, trained, [short], 0.1)
    assert sizes
    assert max(sizes) <= largest < 8 * largest


def test_noise_is_normal_and_of_the_right_size() -> None:
    """Kolmogorov's statistic of 200,000 numbers is above 0.0054 once in 100,000 times; their mean is off by more than 0.01 once in 10^5."""
    drawn = gaussian(200_001).double()
    assert drawn.shape == (200_001,)
    assert stats.kstest(drawn.numpy(), "norm").statistic < 0.0054
    assert abs(float(drawn.mean())) < 0.01
    assert abs(float(drawn.std()) - 1) < 0.0075
    pairs = torch.corrcoef(torch.stack([drawn[:100_000], drawn[100_001:200_001]]))[0, 1]
    assert abs(float(pairs)) < 0.015


def test_a_step_without_sentences_is_noise_of_clip_times_noise_over_the_expected_number(backbone: Backbone) -> None:
    trained = prepared(backbone, "adapters")
    backbone.model.requires_grad_(False)
    clipping = Clipping(backbone.model, trained, PrivateSteps(0.1, clip=0.5, noise=3.0), expected=4.0)
    torch.manual_seed(7)  # has no part in it
    with clipping.recording():
        assert StepGradient(backbone.model, backbone.codec, Settings(), clipping=clipping)([]) == []
    first = torch.cat([parameter.grad.flatten() for parameter in trained.values()])  # type: ignore[union-attr]
    assert float(first.std()) == pytest.approx(0.5 * 3.0 / 4.0, rel=0.1)
    assert abs(float(first.mean())) < 0.05
    backbone.model.zero_grad(set_to_none=True)
    torch.manual_seed(7)
    clipping.finish()
    again = torch.cat([parameter.grad.flatten() for parameter in trained.values()])  # type: ignore[union-attr]
    assert not torch.isclose(first, again).all()
    assert abs(float(torch.corrcoef(torch.stack([first, again]))[0, 1])) < 0.2


def test_a_sentence_that_makes_no_numbers_moves_the_sum_by_no_more_than_two_clips(
    backbone: Backbone, examples: list[Any]
) -> None:
    """Or tensors of the server's could ask whether it is in the text: the whole step would be NaN, its noise included."""
    trained = prepared(backbone, "adapters")
    clip = float(one_by_one(backbone, trained, examples)[1].median())
    clean = clipped(backbone, trained, [examples], clip)

    def spoilt(module: nn.Module, given: Any, output: Tensor) -> Tensor:
        return torch.cat([torch.full_like(output[:1], torch.inf), output[1:]])

    hook = backbone.model.get_encoder().layers[0].self_attn_layer_norm.register_forward_hook(spoilt)
    found = clipped(backbone, trained, [examples], clip)
    hook.remove()
    moved = torch.cat([(found[name] - clean[name]).flatten() for name in trained]).norm()
    assert 0 < float(moved) <= 2 * clip * 1.001
