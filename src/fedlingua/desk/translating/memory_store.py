"""kNN-MT (Khandelwal et al. 2021): while a model translates, a site's own training text changes the scores of every next token.

A datastore holds a decoder state for every target token of that text, and the token itself (eq. 1). The state that predicts the
next token is compared with its k nearest keys: p_kNN(y) is the softmax of -d / T over them, summed where they agree on y (eq. 2),
and p(y) = lambda p_kNN(y) + (1 - lambda) p_MT(y) (eq. 3). A state is the input of the last decoder layer's feed-forward network,
after its layer norm, as in the paper, which follows kNN-LM in this; d is the squared L2 distance between the first 64 PCA
dimensions of the states, the datastore's in int8.

Below FAISS_FROM keys the search is exact, in torch, with the threads and on the device that translate; from there on faiss
searches the nearest cells of an inverted file. A key takes 68 bytes on disk, and 328 in memory if the search is exact: 64 numbers
in int8, 65 in float32, and its token.
"""

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import LogitsProcessor, PreTrainedModel

from fedlingua.backbones.layouts import layout_of
from fedlingua.common.errors import ConfigError, RunError
from fedlingua.exchange.tensors import save_tensors

FAISS_FROM = 1_000_000
"""Number of keys from which an exact search takes longer than a decoding step of most models."""
CELLS_A_ROOT, CELLS_LOOKED_AT = 4, 32
"""faiss's inverted file: cells / square root of the number of keys, and cells that a search reads, as in the paper."""
SCORES_AT_ONCE = 1 << 21
"""Scores of states and keys computed in one step: 8 MiB, which stay in a cache."""
BLOCK = 64
"""Keys in a block. The best score of each block is compared first: the k best keys lie in the k blocks with the best scores."""


@dataclass(frozen=True)
class Mixing:
    """How a memory is mixed in. weight: lambda, in [0, 1). temperature: T, in squared distance. neighbours: k."""

    weight: float
    temperature: float
    neighbours: int


@dataclass(frozen=True)
class Memory:
    """A datastore and how it is used.

    Attributes:
        keys: (n, d) int8; times `scale` they are states in PCA's dimensions.
        values: (n,) int32, the token that follows each key.
        mean: (width,), of the states. axes: (width, d), of PCA. scale: (d,), of the keys.
        index: (bytes,) uint8, faiss's own file; None below FAISS_FROM keys.
        fingerprint: Of the model that the states come from.
        about: Further facts in the file, for people.
    """

    keys: Tensor
    values: Tensor
    mean: Tensor
    axes: Tensor
    scale: Tensor
    fingerprint: str
    mixing: Mixing
    about: dict[str, Any] = field(default_factory=dict)
    index: Tensor | None = None

    def to(self, device: torch.device) -> Self:
        """Return the memory on a device; faiss's index stays on the CPU."""
        moved = {name: getattr(self, name).to(device) for name in ("keys", "values", "mean", "axes", "scale")}
        return replace(self, **moved)

    def save(self, file: Path) -> None:
        """Write the file whole or not at all: to a temporary file, which is then renamed."""
        names = ("keys", "values", "mean", "axes", "scale", *(("index",) if self.index is not None else ()))
        about = {**self.about, "fingerprint": self.fingerprint, "mixing": vars(self.mixing)}
        save_tensors({name: getattr(self, name).cpu().numpy() for name in names}, file, {"memory": json.dumps(about)})

    @classmethod
    def load(cls, file: Path, fingerprint: str) -> Self:
        """Load the memory of the model with this fingerprint; raise RunError if it is damaged, or of another model."""
        again = "build it again with `fedlingua memory` (at a deployed site `fedlingua site memory`), or leave it out with --no-memory"
        try:
            with safe_open(file, "pt") as stored:
                about = json.loads(stored.metadata()["memory"])
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118, it is no dict
            memory = cls(**tensors, fingerprint=about.pop("fingerprint"), mixing=Mixing(**about.pop("mixing")), about=about)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise RunError(f"{file}: the memory is damaged ({type(error).__name__}); {again}") from error
        if memory.fingerprint != fingerprint:
            raise RunError(
                f"{file}: the memory was built with another model ({memory.fingerprint[:12]}) than the one that translates "
                f"({fingerprint[:12]}); {again}"
            )
        return memory

    def nearest(self, states: Tensor, neighbours: int) -> tuple[Tensor, Tensor]:
        """Return the nearest keys of states (rows, width), any float dtype: squared distances (rows, k) float32, tokens (rows, k) int64."""
        queries = (states.float() - self.mean) @ self.axes  # (rows, d)
        if self.index is not None:
            distances, keys = self._faiss.search(queries.cpu().numpy(), neighbours)
            squared, numbers = torch.from_numpy(distances).to(states.device), torch.from_numpy(keys).to(states.device)
            squared = squared.masked_fill(numbers < 0, math.inf)  # fewer keys in the cells than asked for
        else:
            scores, numbers = _best(self._halves, queries, min(neighbours, len(self.keys)))
            squared = (queries.square().sum(dim=1, keepdim=True) - 2 * scores).clamp(min=0)
        return squared, self.values[numbers].long()

    @contextmanager
    def over(self, model: PreTrainedModel, sentences: Sequence[str], beam: int) -> Iterator[LogitsProcessor]:
        """Give the processor that mixes the memory in while the model translates: a guide of `decode.translate`."""
        with feed_forward_inputs(model) as states:
            yield _Mixed(self, states, beam)

    @cached_property
    def _halves(self) -> Tensor:
        """k and -|k|^2 / 2 of each key, (n, d + 1), n padded to whole blocks. Padding gets the score -inf."""
        keys = self.keys.float() * self.scale
        halves = torch.cat([keys, -keys.square().sum(dim=1, keepdim=True) / 2], dim=1)
        missing = -len(keys) % BLOCK
        return torch.cat([halves, halves.new_tensor([[0.0] * keys.shape[1] + [-math.inf]]).expand(missing, -1)])

    @cached_property
    def _faiss(self) -> Any:
        assert self.index is not None
        index = faiss_or_refuse().deserialize_index(self.index.numpy())
        index.nprobe = CELLS_LOOKED_AT
        return index


def _best(halves: Tensor, queries: Tensor, neighbours: int) -> tuple[Tensor, Tensor]:
    """Find the nearest keys, those with the highest q.k - |k|^2 / 2: (rows, k) scores, highest first, and key numbers."""
    asked = torch.cat([queries, queries.new_ones(len(queries), 1)], dim=1)
    size = max(1, SCORES_AT_ONCE // (BLOCK * len(queries))) * BLOCK
    scores, numbers = queries.new_empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.long, device=queries.device)
    for first in range(0, len(halves), size):
        here = asked @ halves[first : first + size].T
        blocks = here.view(len(queries), -1, BLOCK)
        top = blocks.amax(dim=2).topk(min(neighbours, blocks.shape[1]), sorted=False).indices
        among = blocks.gather(1, top[:, :, None].expand(-1, -1, BLOCK)).flatten(1)
        best = among.topk(min(neighbours, among.shape[1]))
        at = first + top.gather(1, best.indices // BLOCK) * BLOCK + best.indices % BLOCK
        merged = torch.cat([scores, best.values], dim=1).topk(min(neighbours, scores.shape[1] + best.values.shape[1]))
        scores, numbers = merged.values, torch.cat([numbers, at], dim=1).gather(1, merged.indices)
    return scores, numbers


def mixed(log_model: Tensor, squared: Tensor, tokens: Tensor, mixing: Mixing) -> Tensor:
    """Return log(lambda p_kNN + (1 - lambda) p_MT), eqs. 2 and 3; a token that the model forbids (-inf) stays forbidden.

    Args:
        log_model: (rows, vocabulary), log p_MT.
        squared: (rows, k), squared distances of the neighbours. tokens: (rows, k) int64, their tokens.
    """
    log_neighbour = agreed(squared, tokens, mixing.temperature).log() + math.log(mixing.weight)
    log_mixed = log_model + math.log1p(-mixing.weight)
    there = log_mixed.gather(1, tokens)
    # Neighbours that agree write the same number, so their order does not matter.
    return log_mixed.scatter(1, tokens, torch.where(there == -math.inf, there, there.logaddexp(log_neighbour)))


def agreed(squared: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """Return p_kNN of each neighbour's token, (rows, k): the softmax of -d / T, summed over all neighbours with this token."""
    shares = (-squared / temperature).softmax(dim=1)
    return ((tokens[:, :, None] == tokens[:, None, :]) * shares[:, None, :]).sum(dim=2)


@contextmanager
def feed_forward_inputs(model: PreTrainedModel) -> Iterator[list[Tensor]]:
    """Give a list that holds the latest input of the last decoder layer's feed-forward network, (rows, len, width)."""
    decoder = model.get_submodule(layout_of(model).stacks["decoder"].path.rpartition(".")[0])
    norm = [module for name, module in decoder.named_modules() if name.endswith("final_layer_norm")][-1]
    held: list[Tensor] = []

    def hold(module: Any, inputs: Any, output: Tensor) -> None:
        held[:] = [output]

    hook = norm.register_forward_hook(hold)
    try:
        yield held
    finally:
        hook.remove()


class _Mixed(LogitsProcessor):
    """Mixes a memory in. states: of `feed_forward_inputs`. beam: above 1 transformers gives log probabilities, else logits."""

    def __init__(self, memory: Memory, states: list[Tensor], beam: int) -> None:
        self.memory, self.states, self.beam = memory, states, beam

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the mixed scores. input_ids: (rows, len). scores: (rows, vocabulary)."""
        if input_ids.shape[1] == 1:  # the next token is the target's language, which is forced
            return scores
        log_model = scores if self.beam > 1 else scores.log_softmax(dim=1)
        squared, tokens = self.memory.nearest(self.states[0][:, -1], self.memory.mixing.neighbours)
        return mixed(log_model, squared, tokens, self.memory.mixing)


def faiss_or_refuse() -> Any:
    """Return the module faiss, an optional dependency; raise ConfigError if it is not installed."""
    if find_spec("faiss") is None:
        raise ConfigError(
            f"a memory of {FAISS_FROM:,} keys and more needs faiss, an extra; install it with pip install 'fedlingua[memory]', or give "
            "--most-keys"
        )
    import faiss

    return faiss


def faiss_index(keys: np.ndarray[Any, Any], scale: np.ndarray[Any, Any]) -> Tensor:
    """Build an inverted file over the keys, 8 bits per dimension, as bytes of faiss's file. k-means uses faiss's fixed seed."""
    faiss = faiss_or_refuse()
    cells, width = max(1, int(CELLS_A_ROOT * math.sqrt(len(keys)))), keys.shape[1]
    index = faiss.IndexIVFScalarQuantizer(faiss.IndexFlatL2(width), width, cells, faiss.ScalarQuantizer.QT_8bit)
    index.train((keys[:: max(1, len(keys) // (64 * cells))] * scale).astype(np.float32))
    for first in range(0, len(keys), 1 << 16):
        index.add((keys[first : first + (1 << 16)] * scale).astype(np.float32))
    return torch.from_numpy(faiss.serialize_index(index))
