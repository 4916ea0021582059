"""Build a memory from a site's text: states by teacher forcing, PCA, int8; k, T and lambda are chosen on dev text."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from fedlingua.backbones.codec import Codec
from fedlingua.desk.translating.memory_store import FAISS_FROM, Memory, Mixing, agreed, faiss_index, feed_forward_inputs
from fedlingua.training.batches import IGNORED, by_tokens
from fedlingua.training.head import HeadUse, token_nlls
from fedlingua.training.outputs import decoder_output, output_head
from fedlingua.training.translation import PairExample

DIMENSIONS = 64
FITTED_STATES = 50_000
"""States that PCA and the scales are fitted on, from sentences drawn at random: 200 MB for mBART-50."""
TOKENS_AT_ONCE = 4000
"""Padded target tokens in a batch."""
NEIGHBOURS = (4, 8, 16)
"""Candidates for k. A larger k gives dev tokens slightly more probability, but its search takes longer."""
TEMPERATURES = (0.1, 0.3, 1.0, 3.0)
"""Candidates for T, as multiples of the mean squared distance between a dev token and its nearest key, to follow the model's scale."""
WEIGHTS = tuple(step / 10 for step in range(10))


def make_memory(
    model: PreTrainedModel, codec: Codec, examples: Sequence[PairExample], fingerprint: str, most_keys: int = 0
) -> Memory:
    """Build the datastore of training examples, with lambda 0. most_keys: draw sentences up to so many keys; 0: take all."""
    order = Random(0).sample(range(len(examples)), len(examples))
    chosen = [examples[number] for number in sorted(_first(order, examples, most_keys or math.inf))]
    fitted = [examples[number] for number in _first(order, examples, min(FITTED_STATES, most_keys or FITTED_STATES))]
    sample = np.concatenate([states.cpu().numpy() for states, _, _ in _states(model, codec, fitted)])
    mean, axes = principal_axes(sample, DIMENSIONS)
    scale = np.abs((sample - mean) @ axes).max(axis=0) / 127 + np.float32(1e-12)
    keys, values = [], []
    for states, tokens, _ in _states(model, codec, chosen):
        keys.append(quantized((states.cpu().numpy() - mean) @ axes, scale))
        values.append(tokens.cpu().numpy().astype(np.int32))
    stored, followed = np.concatenate(keys), np.concatenate(values)
    index = faiss_index(stored, scale) if len(stored) >= FAISS_FROM else None
    arrays = {"keys": stored, "values": followed, "mean": mean, "axes": axes, "scale": scale}
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    about, mixing = {"sentences": len(chosen)}, Mixing(0.0, 1.0, 1)
    return Memory(**tensors, fingerprint=fingerprint, mixing=mixing, about=about, index=index).to(model.device)


def principal_axes(states: np.ndarray[Any, Any], dimensions: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Fit PCA; return the mean, (width,), and the axes, (width, dimensions) or fewer, most variance first, in float32."""
    mean = states.mean(axis=0, dtype=np.float64)
    centred = states - mean
    _, axes = np.linalg.eigh(centred.T @ centred)
    return mean.astype(np.float32), np.ascontiguousarray(axes[:, ::-1][:, :dimensions], dtype=np.float32)


def quantized(reduced: np.ndarray[Any, Any], scale: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Quantize (n, d) to int8, symmetrically, with one scale per dimension; values out of range are clipped."""
    rounded: np.ndarray[Any, Any] = np.rint(reduced / scale).clip(-127, 127).astype(np.int8)
    return rounded


def choose_mixings(model: PreTrainedModel, codec: Codec, memory: Memory, dev: Sequence[PairExample]) -> dict[float, Mixing]:
    """Map each lambda above 0 to its mixing, with the k and T that give dev tokens the most probability by teacher forcing."""
    squared, tokens, right, log_model = (torch.cat(parts) for parts in zip(*_dev_tokens(model, codec, memory, dev), strict=True))
    unit = float(squared[:, 0].mean()) or 1.0
    best: dict[float, tuple[float, Mixing]] = {}
    for neighbours, times in itertools.product(NEIGHBOURS, TEMPERATURES):
        near = tokens[:, :neighbours]
        shares = agreed(squared[:, :neighbours], near, unit * times)
        # Several neighbours with the right token each hold the sum, so the maximum counts it once.
        p_neighbour = torch.where(near == right[:, None], shares, 0).amax(dim=1).double()
        for weight in WEIGHTS[1:]:
            nll = -float((weight * p_neighbour + (1 - weight) * log_model.double().exp()).log().mean())
            if weight not in best or nll < best[weight][0]:
                best[weight] = nll, Mixing(weight, unit * times, neighbours)
    return {weight: mixing for weight, (_, mixing) in best.items()}


def choose(memory: Memory, mixings: dict[float, Mixing], score: Callable[[Memory | None], float]) -> Memory:
    """Return the memory with the lambda whose dev translations score best, the smallest of equal ones; 0 is the model alone."""
    scores = {0.0: score(None), **{weight: score(replace(memory, mixing=mixing)) for weight, mixing in mixings.items()}}
    weight = max(scores, key=lambda weight: (scores[weight], -weight))
    about = {**memory.about, "dev": {str(weight): value for weight, value in scores.items()}}
    return replace(memory, mixing=mixings.get(weight, memory.mixing), about=about)


def _first(order: Sequence[int], examples: Sequence[PairExample], most: float) -> list[int]:
    """Return the first numbers of `order` whose examples have at most `most` states together; at least one number."""
    sizes = itertools.accumulate(examples[number].num_targets - 1 for number in order)
    return [number for place, (number, size) in enumerate(zip(order, sizes, strict=True)) if size <= most or not place]


@torch.no_grad()
def _states(model: PreTrainedModel, codec: Codec, examples: Sequence[PairExample]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield for each batch: states (n, width) float32, the tokens that follow them (n,), and the decoder's outputs (n, width).

    The first token of a target is its language, which is forced and therefore left out.
    """
    model.eval()
    with feed_forward_inputs(model) as held:
        for chosen in by_tokens(examples, TOKENS_AT_ONCE, Random(0)):
            batch = PairExample.stack(chosen, codec).to(model.device)
            outputs = decoder_output(model, batch.input_ids, batch.attention_mask, batch.decoder_input_ids)
            real = batch.labels != IGNORED
            real[:, 0] = False
            yield held[0][real].float(), batch.labels[real], outputs[real]


def _dev_tokens(
    model: PreTrainedModel, codec: Codec, memory: Memory, dev: Sequence[PairExample]
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield per batch, for each token: its neighbours' squared distances and tokens, itself, the model's log probability."""
    head = output_head(model)
    for states, tokens, outputs in _states(model, codec, dev):
        yield *memory.nearest(states, max(NEIGHBOURS)), tokens, -token_nlls(head, outputs, tokens, HeadUse(512))
