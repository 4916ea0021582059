"""The head's cross-entropy by hand, in chunks as whole, on models as on plain layers, and how much of the scores is ever there."""

import math
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel

from fedlingua.backbones.codec import TextCodec
from fedlingua.backbones.load import Backbone
from fedlingua.training import head
from fedlingua.training.batches import Batch, pad
from fedlingua.training.head import Head, HeadUse, cross_entropy
from fedlingua.training.masked_language import MaskedExample, TextExample
from fedlingua.training.translation import PairExample
from tests.mbart import tiny_mbart

USES = [HeadUse(), HeadUse(chunk=1), HeadUse(chunk=3), HeadUse(chunk=100)]


@pytest.fixture
def by_hand() -> Head:
    """d = 1; of a hidden state of 1 the probabilities are 1/6, 2/6 and 3/6."""
    layer = nn.Linear(1, 3, bias=False).requires_grad_(False)
    layer.weight.copy_(torch.tensor([[0.0], [math.log(2)], [math.log(3)]]))
    return Head(layer)


@pytest.mark.parametrize("use", USES, ids=str)
def test_loss_and_gradient_by_hand(by_hand: Head, use: HeadUse) -> None:
    hidden = torch.ones(2, 1, requires_grad=True)
    nll = cross_entropy(by_hand, hidden, torch.tensor([2, 0]), use=use)
    nll.backward()
    assert float(nll.detach()) == pytest.approx(math.log(2) + math.log(6))
    # Of each token: the mean of the weights under the model minus the target's.
    mean = (2 * math.log(2) + 3 * math.log(3)) / 6
    assert hidden.grad is not None
    assert hidden.grad[:, 0].tolist() == pytest.approx([mean - math.log(3), mean])


@pytest.mark.parametrize("use", USES, ids=str)
def test_smoothing_by_hand(by_hand: Head, use: HeadUse) -> None:
    """0.7 of the target's, 0.3 of the mean over the vocabulary."""
    hidden = torch.ones(1, 1, requires_grad=True)
    nll = cross_entropy(by_hand, hidden, torch.tensor([2]), 0.3, use)
    nll.backward()
    mean_nll = (math.log(6) + math.log(3) + math.log(2)) / 3
    assert float(nll.detach()) == pytest.approx(0.7 * math.log(2) + 0.3 * mean_nll)
    wanted = (2 * math.log(2) + 3 * math.log(3)) / 6 - 0.7 * math.log(3) - 0.3 * (math.log(2) + math.log(3)) / 3
    assert hidden.grad is not None
    assert float(hidden.grad) == pytest.approx(wanted)


@pytest.mark.parametrize("use", USES[1:], ids=str)
@pytest.mark.parametrize("more", [{"cap": 0.5}, {"added": torch.linspace(-3, 3, 7)}], ids=["capped", "two biases"])
def test_a_cap_and_a_second_bias_count_in_chunks_too(more: dict[str, Any], use: HeadUse) -> None:
    torch.manual_seed(1)
    of, hidden, targets = Head(nn.Linear(4, 7), **more), torch.randn(5, 4), torch.tensor([0, 3, 6, 1, 2])
    whole, cut = (float(cross_entropy(of, hidden, targets, use=each).detach()) for each in (HeadUse(), use))
    assert cut == pytest.approx(whole)


@pytest.mark.parametrize("rows", [13, 16])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("with_bias", [False, True])
def test_a_head_in_half_precision_has_the_loss_and_the_slopes_of_fp32(
    monkeypatch: pytest.MonkeyPatch, rows: int, smoothing: float, with_bias: bool
) -> None:
    """Also where its rows are no multiple of 8 and are filled up, and where a target has nearly all of the probability."""
    monkeypatch.setattr(head, "ROWS", {"cpu": 8})
    torch.manual_seed(3)
    weight = torch.randn(rows, 8).bfloat16().float()
    added = torch.randn(rows).bfloat16().float() if with_bias else None
    hidden = torch.randn(5, 8).bfloat16().float()
    targets = torch.tensor([0, 12, 3, 7, 12])
    hidden[4] = (weight[12] / weight[12].norm() * 6).bfloat16().float()
    losses, slopes = [], []
    for dtype in (torch.float32, torch.bfloat16):
        layer = nn.Linear(8, rows, bias=False, dtype=dtype).requires_grad_(False)
        layer.weight.copy_(weight)
        given = hidden.detach().clone().to(dtype).requires_grad_()
        nll = cross_entropy(Head(layer, added if added is None else added.to(dtype)), given, targets, smoothing, HeadUse(2))
        nll.backward()
        assert given.grad is not None
        losses.append(float(nll.detach()))
        slopes.append(given.grad.float())
    assert losses[1] == pytest.approx(losses[0], rel=0.01)
    for wanted, got in zip(*slopes, strict=True):
        assert torch.allclose(got, wanted, rtol=0.03, atol=0.03 * float(wanted.abs().max()))


# --- Models --------------------------------------------------------------------------------------------------------------------------


def mbart_and_batch(backbone: Backbone, examples: list[PairExample]) -> tuple[PreTrainedModel, Batch]:
    model = tiny_mbart(vocab_size=backbone.model.config.vocab_size)
    model.final_logits_bias.normal_(generator=torch.Generator().manual_seed(6))
    return model, pad(examples[:6], backbone.codec)


def encoder_and_batch(encoder: Backbone) -> tuple[PreTrainedModel, Batch]:
    codec = encoder.codec
    assert isinstance(codec, TextCodec)
    encoder.model.lm_head.bias.data.normal_(generator=torch.Generator().manual_seed(6))
    texts = [TextExample([codec.start_id, *range(10, 10 + n), codec.end_id], codec, 0.3) for n in (20, 15)]
    return encoder.model, MaskedExample.stack([text.drawn(Random(1)) for text in texts], codec)


@pytest.fixture(params=["m2m_100", "mbart", "xlm-roberta"])
def model_and_batch(
    request: pytest.FixtureRequest, backbone: Backbone, encoder: Backbone, examples: list[PairExample]
) -> tuple[PreTrainedModel, Batch]:
    if request.param == "m2m_100":
        return backbone.model, pad(examples[:6], backbone.codec)
    return mbart_and_batch(backbone, examples) if request.param == "mbart" else encoder_and_batch(encoder)


def gradients(model: PreTrainedModel, batch: Batch, use: HeadUse, smoothing: float) -> tuple[float, dict[str, Tensor]]:
    model.zero_grad(set_to_none=True)
    nll, tokens = batch.nll(model, smoothing, use)
    (nll / tokens).backward()
    return float(nll.detach()), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("trains", ["all", "layers"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_chunks_give_a_model_the_same_loss_and_gradients(
    model_and_batch: tuple[PreTrainedModel, Batch], smoothing: float, trains: str
) -> None:
    """With the head trained, which is the embedding too, and frozen."""
    model, batch = model_and_batch
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(trains == "all" or ".layer" in name)
    nll, wanted = gradients(model, batch, HeadUse(), smoothing)
    in_chunks, got = gradients(model, batch, HeadUse(chunk=3), smoothing)
    assert in_chunks == pytest.approx(nll, rel=1e-6)
    assert got.keys() == wanted.keys()
    assert len(got) > 10
    for name in wanted:
        torch.testing.assert_close(got[name], wanted[name], rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_a_loss_without_gradients_is_the_same(model_and_batch: tuple[PreTrainedModel, Batch]) -> None:
    model, batch = model_and_batch
    model.requires_grad_(True)
    assert float(batch.nll(model, 0.0, HeadUse(chunk=2))[0]) == pytest.approx(float(batch.nll(model)[0]), rel=1e-6)


def test_bf16_chunks_are_as_near_as_bf16_is(backbone: Backbone, examples: list[PairExample]) -> None:
    batch = pad(examples[:6], backbone.codec)
    for name, parameter in backbone.model.named_parameters():
        parameter.requires_grad_(".layers." in name)
    with torch.autocast("cpu", torch.bfloat16):
        nll, wanted = gradients(backbone.model, batch, HeadUse(), 0.0)
        in_chunks, got = gradients(backbone.model, batch, HeadUse(chunk=4), 0.0)
    assert in_chunks == pytest.approx(nll, rel=1e-3)
    for name in wanted:
        assert float((got[name] - wanted[name]).norm()) <= 0.02 * float(wanted[name].norm()) + 1e-6


class _Largest(TorchDispatchMode):
    """The most numbers that any one result has."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.dim() == 2:
            self.numbers = max(self.numbers, result.numel())
        return result


def test_the_scores_of_more_than_a_chunk_are_never_there() -> None:
    layer = nn.Linear(4, 500, bias=False).requires_grad_(False)
    hidden, targets = torch.randn(60, 4, requires_grad=True), torch.arange(60)
    with _Largest() as whole:
        cross_entropy(Head(layer), hidden, targets).backward()
    with _Largest() as in_chunks:
        cross_entropy(Head(layer), hidden, targets, use=HeadUse(chunk=6)).backward()
    assert (whole.numbers, in_chunks.numbers) == (60 * 500, 6 * 500)
