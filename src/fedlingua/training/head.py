"""The output head's cross-entropy, computed from all scores at once or in chunks of a few predicted tokens.

Scores, (tokens, vocabulary), take most of a step's memory. The loss's gradient in the scores is their softmax minus the one-hot
targets. So a chunk's gradient in the head's input, (tokens, d), is computed right after its scores, which are then freed.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedlingua.training.pieces import chunk_size


@dataclass(frozen=True)
class Head:
    """A model's last layer, (vocabulary, d): linear, or its embeddings. added: a bias in addition to the layer's own,
    (vocabulary,), as in mBART. cap: scores become cap x tanh(scores / cap), as in Gemma 2."""

    layer: nn.Linear | nn.Embedding
    added: Tensor | None = None
    cap: float | None = None

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the scores, (tokens, vocabulary). hidden: (tokens, d)."""
        is_linear = not isinstance(self.layer, nn.Embedding)
        scores: Tensor = self.layer(hidden) if is_linear else nn.functional.linear(hidden, self.layer.weight)
        scores = scores if self.added is None else scores + self.added
        return scores if self.cap is None else self.cap * torch.tanh(scores / self.cap)

    @property
    def bias(self) -> Tensor | None:
        """The sum of both biases."""
        biases = [bias for bias in (getattr(self.layer, "bias", None), self.added) if bias is not None]
        return sum(biases[1:], biases[0]) if biases else None


@dataclass(frozen=True)
class HeadUse:
    """How an output head is used. chunk: Predicted tokens to score at a time, as in `memory.head-chunk`."""

    chunk: int = 0

    def size(self, head: Head) -> int:
        """Return how many predicted tokens a chunk of this head has; 0: the whole batch."""
        weight = head.layer.weight
        return chunk_size(self.chunk, weight.numel(), not weight.requires_grad, weight.device.type)


ROWS = {"cuda": 8}
"""Device -> the number of which a head in 16 bits should have a multiple of rows; otherwise its products take three times as long."""
WHOLE = HeadUse()


def cross_entropy(head: Head, hidden: Tensor, targets: Tensor, label_smoothing: float = 0.0, use: HeadUse = WHOLE) -> Tensor:
    """Return the negative log-likelihood of `targets`, (tokens,), summed, in nats; smoothed as in torch's own cross-entropy.

    hidden: (tokens, d), the input of the head's linear layer.
    """
    size = use.size(head)
    if size and head.cap is None:
        operands = (hidden, head.layer.weight, head.bias)
        if not torch.is_grad_enabled():
            operands = tuple(None if operand is None else operand.detach() for operand in operands)  # type: ignore[assignment]
        nll: Tensor = _InChunks.apply(*operands, targets, size, label_smoothing)  # type: ignore[no-untyped-call]
        return nll
    return nn.functional.cross_entropy(head.scores(hidden).float(), targets, reduction="sum", label_smoothing=label_smoothing)


@torch.no_grad()
def token_nlls(head: Head, hidden: Tensor, targets: Tensor, use: HeadUse = WHOLE) -> Tensor:
    """Return the negative log-likelihood of each target, (tokens,) float32, in nats. hidden: (tokens, d)."""
    size = use.size(head) or max(1, len(targets))
    parts = zip(hidden.split(size), targets.split(size), strict=True)
    return torch.cat([nn.functional.cross_entropy(head.scores(h).float(), t, reduction="none") for h, t in parts])


class _InChunks(torch.autograd.Function):
    """Cross-entropy in chunks. Gradients are computed in the forward pass; a frozen head has none."""

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
            rows = len(weight)
            weight, bias = _aligned(weight.to(dtype), None if bias is None else bias.to(dtype))
            for first in range(0, len(targets), chunk):
                part = slice(first, first + chunk)
                given, asked = hidden[part].to(dtype), targets[part]
                scores = nn.functional.linear(given, weight, bias)
                if dtype == torch.float32:  # in place: a chunk's scores are once in memory
                    log_probs = scores.sub_(scores.logsumexp(dim=1, keepdim=True))
                else:
                    log_probs = scores.log_softmax(dim=1, dtype=torch.float32)
                of_targets = log_probs.gather(1, asked[:, None])[:, 0]
                nll -= _smoothed(of_targets, log_probs[:, :rows], label_smoothing).sum()
                if to_hidden is None and to_weight is None and to_bias is None:
                    continue
                # Softmax minus the smoothed targets. In half precision a probability near 1 minus 1 would be 0.
                slope = torch.exp(log_probs, out=scores)
                spread = label_smoothing / rows
                if spread:
                    slope -= spread
                at_targets = of_targets.expm1() + label_smoothing - spread
                slope[torch.arange(len(asked), device=asked.device), asked] = at_targets.to(dtype)
                if to_bias is not None:
                    to_bias += slope[:, :rows].sum(dim=0, dtype=torch.float32)
                if to_hidden is not None:
                    to_hidden[part] = slope @ weight
                if to_weight is not None:
                    to_weight += slope[:, :rows].T @ given
        ctx.save_for_backward(to_hidden, to_weight, to_bias)
        return nll

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        (of_loss,) = slopes
        return (*(None if slope is None else slope * of_loss.to(slope.dtype) for slope in ctx.saved_tensors), None, None, None)


def _smoothed(of_targets: Tensor, log_probs: Tensor, label_smoothing: float) -> Tensor:
    """Return (1 - e) x log-probability of the target + e x mean log-probability of the vocabulary, (tokens,); e: `label_smoothing`."""
    return (1 - label_smoothing) * of_targets + label_smoothing * log_probs.mean(dim=1) if label_smoothing else of_targets


def _aligned(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return a head in 16 bits with ids of probability 0 at its end, so that its rows are a multiple of the device's in `ROWS`."""
    extra = -len(weight) % ROWS.get(weight.device.type, 1) if weight.element_size() == 2 else 0
    if not extra:
        return weight, bias
    bias = weight.new_zeros(len(weight)) if bias is None else bias
    return nn.functional.pad(weight, (0, 0, 0, extra)), nn.functional.pad(bias, (0, extra), value=-math.inf)
