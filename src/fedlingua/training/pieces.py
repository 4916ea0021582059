"""How a large model's step is cut where the run does not say: by the model's shape, its kind of device and the step's lengths alone, never
by a clock or by free memory, so that the same seed gives the same bytes on every machine. Loads no torch.

On a CPU a layer of a large model costs what its weights cost for each padded token, and a pass more costs little; a small model's pass is
mostly overhead. On a GPU a pass more costs as much as thousands of tokens.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

LARGE_MODEL = 50_000_000
"""Parameters from which on a model's batches are cut."""
LARGE_HEAD = 2**24
"""Numbers of a frozen output head from which on it is gone through in chunks."""
PASS_TOKENS = 32
"""What a pass costs besides its tokens: as much as so many padded ones."""
CHUNK = 128
"""Predicted tokens of a chunk."""


def pass_tokens(micro_tokens: int, parameters: int, device: str) -> int:
    """Cost of a pass in padded tokens where batches are to be cut by it; 0: they stay as they are.

    micro_tokens: as in `memory.micro-tokens`; device: "cpu" or "cuda".
    """
    return PASS_TOKENS if micro_tokens == 0 and parameters >= LARGE_MODEL and device == "cpu" else 0


def chunk_size(asked: int, head_numbers: int, frozen: bool, device: str) -> int:
    """Predicted tokens that the head scores at a time; 0: all of a batch.

    asked: as in `memory.head-chunk`; head_numbers: vocabulary x d; frozen: a head that trains would add up its gradient chunk by chunk.
    """
    if asked:
        return max(0, asked)
    return CHUNK if head_numbers >= LARGE_HEAD and frozen and device == "cpu" else 0


def cut(lengths: Sequence[int], cost: int) -> Iterator[slice]:
    """Runs of neighbours for which padded tokens, and `cost` for each run, are the least in all; the fewest passes among equals."""
    least, starts = [0], [0]
    for end in range(1, len(lengths) + 1):
        longest, best = 0, (0, 0)
        for start in range(end - 1, -1, -1):
            longest = max(longest, lengths[start])
            total = least[start] + longest * (end - start) + cost
            if start == end - 1 or total <= best[0]:
                best = total, start
        least.append(best[0])
        starts.append(best[1])
    ends = [len(lengths)]
    while ends[-1]:
        ends.append(starts[ends[-1]])
    return (slice(first, last) for first, last in pairwise(reversed(ends)))
