"""The output head's cross-entropy: over all scores at once, or over those of a few predicted tokens at a time.

Scores, (tokens, vocabulary), are most of a step's memory. The loss's gradient towards them is their softmax minus what was to be predicted:
a chunk's share of the gradient towards the head's input, (tokens, d), is taken as soon as its scores are there, and the scores can go.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedlingua.training.pieces import chunk_size


@dataclass(frozen=True)
class Head:
    """A model's last layer, (vocabulary, d): linear, or its embeddings. added: a bias beside the layer's own, (vocabulary,): mBART has
    one. cap: scores become cap x tanh(scores / cap), as Gemma 2's do."""

    layer: nn.Linear | nn.Embedding
    added: Tensor | None = None
    cap: float | None = None

    def scores(self, hidden: Tensor) -> Tensor:
        """hidden: (tokens, d). Gives (tokens, vocabulary)."""
        is_linear = not isinstance(self.layer, nn.Embedding)
        scores: Tensor = self.layer(hidden) if is_linear else nn.functional.linear(hidden, self.layer.weight)
        scores = scores if self.added is None else scores + self.added
        return scores if self.cap is None else self.cap * torch.tanh(scores / self.cap)

    def rows(self, vocabulary: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """(weight, bias) of these ids; None: of all."""
        biases = [bias for bias in (getattr(self.layer, "bias", None), self.added) if bias is not None]
        bias = sum(biases[1:], biases[0]) if biases else None
        if vocabulary is None:
            return self.layer.weight, bias
        return self.layer.weight[vocabulary], None if bias is None else bias[vocabulary]


@dataclass(frozen=True)
class HeadUse:
    """chunk: predicted tokens whose scores are there at a time, as in `memory.head-chunk`. vocabulary: ids that probability is spread over,
    (rows,) int64, ascending, with all that is to be predicted among them; None: all there are.
    """

    chunk: int = 0
    vocabulary: Tensor | None = None

    def size(self, head: Head) -> int:
        """Predicted tokens of a chunk of this head; 0: of a whole batch."""
        weight = head.layer.weight
        return chunk_size(self.chunk, weight.numel(), not weight.requires_grad, weight.device.type)


WHOLE = HeadUse()
"""The whole vocabulary: what a loss is measured by."""


def cross_entropy(head: Head, hidden: Tensor, targets: Tensor, label_smoothing: float = 0.0, use: HeadUse = WHOLE) -> Tensor:
    """Sum over tokens of minus the log probability of `targets`, (tokens,), in nats; smoothed as torch's own cross-entropy is.

    hidden: (tokens, d), what the head's linear layer takes.
    """
    if use.vocabulary is not None:
        targets = torch.searchsorted(use.vocabulary, targets)
    size = use.size(head)
    if size and head.cap is None:
        operands = (hidden, *head.rows(use.vocabulary))
        if not torch.is_grad_enabled():
            operands = tuple(None if operand is None else operand.detach() for operand in operands)  # type: ignore[assignment]
        nll: Tensor = _InChunks.apply(*operands, targets, size, label_smoothing)  # type: ignore[no-untyped-call]
        return nll
    if use.vocabulary is not None and head.cap is None:
        scores = nn.functional.linear(hidden, *head.rows(use.vocabulary))
    else:
        scores = head.scores(hidden) if use.vocabulary is None else head.scores(hidden)[:, use.vocabulary]
    return nn.functional.cross_entropy(scores.float(), targets, reduction="sum", label_smoothing=label_smoothing)


@torch.no_grad()
def token_nlls(head: Head, hidden: Tensor, targets: Tensor, use: HeadUse = WHOLE) -> Tensor:
    """Minus the log probability of each of `targets`, (tokens,) float32, in nats, over the whole vocabulary. hidden: (tokens, d)."""
    size = use.size(head) or max(1, len(targets))
    parts = zip(hidden.split(size), targets.split(size), strict=True)
    return torch.cat([nn.functional.cross_entropy(head.scores(h).float(), t, reduction="none") for h, t in parts])


class _InChunks(torch.autograd.Function):
    """The gradients are taken on the way forward; a frozen head has none."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, chunk: int, label_smoothing: float
    ) -> Tensor:
        device = hidden.device.type
        to_hidden, to_weight, to_bias = (
            torch.zeros_like(operand) if operand is not None and needed else None
            for operand, needed in zip((hidden, weight, bias), ctx.needs_input_grad, strict=False)
        )
        nll = torch.zeros((), dtype=torch.float32, device=hidden.device)
        # Cast once: autocast would cast a frozen weight anew for every chunk.
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
        with torch.autocast(device, enabled=False):
            weight = weight.to(dtype)
            for first in range(0, len(targets), chunk):
                part = slice(first, first + chunk)
                given, asked = hidden[part].to(dtype), targets[part]
                scores = nn.functional.linear(given, weight).float()
                if bias is not None:
                    scores += bias
                log_total = scores.logsumexp(dim=1)
                nll += _smoothed(scores, log_total, asked, label_smoothing)
                if to_hidden is None and to_weight is None and to_bias is None:
                    continue
                slope = scores.sub_(log_total[:, None]).exp_()  # softmax
                if label_smoothing:
                    slope -= label_smoothing / slope.shape[1]
                slope[torch.arange(len(asked), device=asked.device), asked] -= 1 - label_smoothing
                if to_bias is not None:
                    to_bias += slope.sum(dim=0)
                slope = slope.to(dtype)
                if to_hidden is not None:
                    to_hidden[part] = slope @ weight
                if to_weight is not None:
                    to_weight += slope.T @ given
        ctx.save_for_backward(to_hidden, to_weight, to_bias)
        return nll

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        (of_loss,) = slopes
        return (*(None if slope is None else slope * of_loss.to(slope.dtype) for slope in ctx.saved_tensors), None, None, None)


def _smoothed(scores: Tensor, log_total: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    """(1 - e) x nll of the target + e x mean nll of the vocabulary, summed over tokens."""
    nll = log_total - scores.gather(1, targets[:, None])[:, 0]
    if label_smoothing:
        nll = (1 - label_smoothing) * nll + label_smoothing * (log_total - scores.mean(dim=1))
    return nll.sum()
