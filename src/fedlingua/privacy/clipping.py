"""DP-SGD (Abadi et al. 2016, algorithm 1): clip the gradient of each sentence, sum them in one backward pass, and add noise.

If documents are hidden, each document's gradient is computed by itself, clipped, and added.

The gradient of a sentence's loss with respect to a matrix is the sum over its tokens of slope x input; the slope is the gradient with
respect to the layer's output. Book-keeping (Bu et al. 2023, algorithm 1) stores both during one pass. They yield the norm of each
sentence's gradient and then the weighted sum of all gradients, so no single sentence's gradient is ever in memory.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from fedlingua.backbones.precision import whole_products
from fedlingua.common.errors import ConfigError, RunError

ROUNDING = 8 * 2.0**-11.5
"""Share of a sentence's largest possible norm that is counted on top of it: 8 times the square root of float32's last bit."""


@dataclass(frozen=True)
class PrivateSteps:
    """How steps are made private.

    Attributes:
        share: The probability that a unit, a sentence or a document, is in a step.
        clip: The L2 norm to which the gradient of a unit's mean loss per token is clipped.
        noise: Standard deviation of the noise on the sum of these gradients, as a multiple of `clip`.
        sums: Filled with the last step's sum of clipped gradients, by parameter, for noise that is added later; None: not wanted.
        documents: Whether each text is a unit, in place of each of its sentences.
    """

    share: float
    clip: float
    noise: float
    sums: dict[str, Tensor] | None = None
    documents: bool = False


@dataclass(frozen=True, eq=False)
class Use:
    """One use of a matrix in a pass. The gradient of a sentence is the sum over its tokens t of rows[t] x columns[t].

    rows: (batch, len, height) or, for one-hot rows, the index of the 1: (batch, len) int64. columns: (batch, len, width).
    """

    rows: Tensor
    columns: Tensor

    def products(self, other: "Use") -> Tensor:
        """Return, for each sentence, the inner product of its gradients in the two uses: (batch,)."""
        left, right = (self.rows, other.rows) if self.rows.dim() >= other.rows.dim() else (other.rows, self.rows)
        if left.dim() == 2:
            of_rows = (self.rows[:, :, None] == other.rows[:, None, :]).to(self.columns)
        elif right.dim() == 2:
            of_rows = left.gather(2, right[:, None, :].expand(-1, left.shape[1], -1))
            of_rows = of_rows if left is self.rows else of_rows.mT
        else:
            of_rows = self.rows @ other.rows.mT
        return (of_rows * (self.columns @ other.columns.mT)).sum((1, 2))

    def add_to(self, total: Tensor, factors: Tensor) -> None:
        """Add the gradients of all sentences to `total`, (height, width), each multiplied by its factor."""
        columns = (self.columns * factors[:, None, None]).flatten(0, 1)
        if self.rows.dim() == 2:
            total.index_add_(0, self.rows.flatten(), columns)
        else:
            total.addmm_(self.rows.flatten(0, 1).T, columns)


def squared_norms(uses: Sequence[Use]) -> Tensor:
    """Return the squared norm of each sentence's gradient of a matrix that is used once or more, (batch,), rounded up.

    Where tokens cancel one another, as a server can arrange by the tensors that it sends, rounding exceeds what is left, and a norm too
    small would clip nothing. So a share of the square that no sentence exceeds, which its tokens have without cancelling, is added: an
    honest sentence's norm grows by less than a hundredth.
    """
    squares = torch.zeros(len(uses[0].columns), device=uses[0].columns.device)
    for first, second in combinations_with_replacement(uses, 2):
        squares += first.products(second) * (1 if first is second else 2)
    lengths = [(1.0 if each.rows.dim() == 2 else each.rows.norm(dim=2)) * each.columns.norm(dim=2) for each in uses]
    most = torch.stack([each.sum(1) for each in lengths]).sum(0)
    return squares.clamp(min=0) + (ROUNDING * most).square()


class Clipping:
    """The clipped gradients of one step, added piece by piece, and its noise.

    Args:
        trained: The parameters that train, by name.
        expected: The expected number of units in a step, by which the noised sum is divided; the actual number stays secret.

    Raises:
        ConfigError: A trained tensor belongs to a layer other than a linear one, a norm or a token embedding; names the tensor.
    """

    def __init__(self, model: PreTrainedModel, trained: Mapping[str, nn.Parameter], steps: PrivateSteps, expected: float) -> None:
        self.trained, self.steps, self.expected = trained, steps, expected
        names = {id(parameter): name for name, parameter in trained.items()}
        self._layers = {
            module: [(name, each) for name, each in module.named_parameters(recurse=False) if id(each) in names]
            for module in model.modules()
        }
        self._layers = {module: own for module, own in self._layers.items() if own}
        of_tokens: Any = model.get_input_embeddings()
        for module, own in self._layers.items():
            if not _is_known(module, of_tokens.weight):
                raise ConfigError(
                    f"dp.epsilon: {names[id(own[0][1])]} belongs to a {type(module).__name__}, whose gradient cannot be clipped by "
                    "sentence; wanted linear layers, norms and embeddings of tokens: give another tensor-set, such as adapters or lora"
                )
        self._seen = set[int]()
        self._passed: list[tuple[nn.Module, Tensor, Tensor]] = []
        self._sums = dict[str, Tensor]()

    def trains(self, weight: Tensor) -> bool:
        """Return whether this parameter is among those that train."""
        return any(weight is each for each in self.trained.values())

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record inputs and slopes of the trained layers. Meanwhile the parameters need no gradient, so autograd computes none for them.
        Where documents are units nothing is recorded, since autograd's gradients are the documents'."""
        if self.steps.documents:
            yield
            return
        # Prepended, to run before hooks that change a layer's output, such as those of adapters.
        hooks = [module.register_forward_hook(self._record, prepend=True) for module in self._layers]
        for parameter in self.trained.values():
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            self.clear()
            for hook in hooks:
                hook.remove()

    def clear(self) -> None:
        """Discard what was recorded since the last `add`, and the sum of documents' gradients."""
        self._passed.clear()
        self._sums.clear()

    def _record(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if torch.is_grad_enabled():
            given = inputs[0].detach()
            if not output.requires_grad:
                output.requires_grad_(True)  # nothing below the first trained layer requires a gradient
            output.register_hook(lambda slope: self._passed.append((module, given, slope)))

    @torch.no_grad()
    @whole_products()
    def add(self, predicted: Tensor) -> None:
        """Add a piece's clipped gradients to the parameters' gradients, after the backward pass of its summed loss.

        Args:
            predicted: (batch, len) bool, the positions of predicted tokens, at least one per sentence; a sentence's loss is their mean.
        """
        matrices, vectors, tokens = dict[int, list[Use]](), dict[int, Tensor](), predicted.sum(1)
        for module, given, slope in self._passed:
            of_tokens = isinstance(module, nn.Embedding)
            # What is no finite number counts as 0: a sentence that makes one must not make the whole step one.
            given, slope = (
                _finite(of_each(each, predicted, of_tokens)) for each in (given if of_tokens else given.float(), slope.float())
            )
            for name, parameter in self._layers[module]:
                if parameter.dim() == 2:
                    matrices.setdefault(id(parameter), []).append(_use(module, given, slope))
                else:
                    summed = _finite((slope if name == "bias" else slope * _scaled_by(module, given)).flatten(1, -2).sum(1))
                    vectors[id(parameter)] = vectors[id(parameter)] + summed if id(parameter) in vectors else summed
        self._passed.clear()
        squares = sum((each.square().sum(1) for each in vectors.values()), torch.zeros(len(tokens), device=tokens.device))
        for uses in matrices.values():
            squares += squared_norms(uses)
        norms = squares.sqrt() / tokens
        factors = (self.steps.clip / norms.clamp(min=self.steps.clip) / tokens).masked_fill(~norms.isfinite(), 0.0)
        for parameter in self.trained.values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            for use in matrices.get(id(parameter), ()):
                use.add_to(parameter.grad, factors)
            if id(parameter) in vectors:
                parameter.grad += factors @ vectors[id(parameter)]
        self._seen |= set(matrices) | set(vectors)

    @torch.no_grad()
    def add_document(self, tokens: int) -> None:
        """Add a document's clipped gradient to the step's sum, after the backward passes of its summed loss over so many tokens."""
        gradients = {name: each.grad for name, each in self.trained.items() if each.grad is not None}
        norm = float(torch.stack([each.float().norm() for each in gradients.values()]).norm()) / tokens
        for name, gradient in gradients.items():
            if math.isfinite(norm):  # a document that makes an infinite gradient counts as 0
                scaled = gradient * (self.steps.clip / max(norm, self.steps.clip) / tokens)
                self._sums[name] = self._sums[name] + scaled if name in self._sums else scaled
            self.trained[name].grad = None
            self._seen.add(id(self.trained[name]))

    @torch.no_grad()
    def finish(self) -> None:
        """Turn the step's sum of clipped gradients into its noised mean, also for a step without sentences.

        Raises:
            RunError: The loss does not depend on a parameter that trains.
        """
        for name, parameter in self.trained.items():
            if self._seen and id(parameter) not in self._seen:
                raise RunError(
                    f"dp.epsilon: no sentence's loss depends on {name}, which would be noise alone; give another tensor-set"
                )
            clipped = self._sums.get(name, parameter.grad)
            clipped = torch.zeros_like(parameter) if clipped is None else clipped
            if self.steps.sums is not None:
                self.steps.sums[name] = clipped.clone()
            if self.steps.noise:
                noise = gaussian(parameter.numel()).view(parameter.shape).to(parameter)
                clipped = clipped + self.steps.noise * self.steps.clip * noise
            parameter.grad = clipped / self.expected
        self._sums.clear()


def _finite(values: Tensor) -> Tensor:
    return torch.nan_to_num(values, 0.0, 0.0, 0.0)


def of_each(values: Tensor, predicted: Tensor, of_tokens: bool = False) -> Tensor:
    """Return a layer's values by sentence, (batch, len, ...). An output head's values have one row per predicted token of the batch."""
    if len(values) == len(predicted) and (of_tokens or values.dim() > 2):
        return values
    if values.dim() != 2 or len(values) != int(predicted.sum()):
        raise RunError(
            f"dp.epsilon: a layer's values have the shape {tuple(values.shape)}; wanted one row a sentence, or a token"
        )
    placed = values.new_zeros(*predicted.shape, values.shape[1])
    placed[predicted] = values
    return placed


def gaussian(number: int) -> Tensor:
    """Draw (number,) float32 standard normal numbers from the system's random generator (Box & Muller 1958).

    They do not depend on the run's seed, because the server knows it.
    """
    half = (number + 1) // 2
    words = torch.frombuffer(bytearray(os.urandom(16 * half)), dtype=torch.int64).view(2, half)
    first, second = ((words >> 11) & (2**53 - 1)).double().add_(0.5).mul_(2.0**-53)
    length, angle = first.log_().mul_(-2).sqrt_(), second.mul_(2 * math.pi)
    return torch.cat([length * angle.cos(), length * angle.sin()])[:number].float()


def _is_known(module: nn.Module, of_tokens: Tensor) -> bool:
    forward = type(module).forward
    if isinstance(module, nn.Embedding):
        if module.weight is not of_tokens:
            return False  # position embeddings are looked up for a batch, not for each sentence
        return forward is nn.Embedding.forward or hasattr(module, "embed_scale")
    if isinstance(module, nn.Linear):
        return forward is nn.Linear.forward
    is_rms_norm = type(module).__name__.endswith("Norm") and [each.dim() for each in module.parameters()] == [1]
    return isinstance(module, nn.LayerNorm) or is_rms_norm


def _use(module: nn.Module, given: Tensor, slope: Tensor) -> Use:
    if isinstance(module, nn.Embedding):
        slope = _finite(slope * getattr(module, "embed_scale", 1.0))
        unpadded = slope if module.padding_idx is None else slope * (given != module.padding_idx)[..., None]
        return Use(given, unpadded)
    return Use(slope, given)


def _scaled_by(norm: nn.Module, given: Tensor) -> Tensor:
    """Return the factor of a norm's weight in its output, which is linear in the weight, whatever is added to it (Gemma's norm adds 1)."""
    if isinstance(norm, nn.LayerNorm):
        return nn.functional.layer_norm(given, norm.normalized_shape, eps=norm.eps)
    own = dict(norm.named_parameters(recurse=False))
    ones, zeros = ({name: torch.full_like(each, value) for name, each in own.items()} for value in (1.0, 0.0))
    one, zero = (torch.func.functional_call(norm, values, (given,)) for values in (ones, zeros))
    scaled: Tensor = (one - zero).float()
    return scaled
