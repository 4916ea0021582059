"""How a large model's step is cut by default. The model's shape, the kind of device and the step's lengths decide it, never a clock
or free memory, so that the same seed gives the same bytes on every machine. Imports no torch.

On a CPU the cost of a large model's layer is proportional to the padded tokens, and one more pass costs little; a small model's
pass is mostly overhead. On a GPU one more pass costs as much as thousands of tokens.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

LARGE_MODEL = 5_000_000
"""Least number of parameters of a model whose batches are cut."""
LARGE_HEAD = 2**24
"""Least size, vocabulary x d, of a frozen output head that is computed in chunks."""
PASS_TOKENS = 32
"""Fixed cost of a pass, in padded tokens."""
CHUNK = {"cpu": 128, "cuda": 2048}
"""Predicted tokens in a chunk: few enough for a CPU's cache, and enough for a GPU's products to take longer than their launches."""
ON_A_GPU = 16
"""How many times as many tokens a GPU takes at once without gradients, where a pass of few tokens is mostly launches of kernels."""
MOST_SCORES = 2**29
"""Upper bound of tokens x vocabulary of such a batch: 2 GiB in fp32."""


def pass_tokens(micro_tokens: int, parameters: int, device: str) -> int:
    """Return the fixed cost of a pass, in padded tokens, by which batches are cut; 0: they are not cut.

    micro_tokens: as in `memory.micro-tokens`; device: "cpu" or "cuda".
    """
    return PASS_TOKENS if micro_tokens == 0 and parameters >= LARGE_MODEL and device == "cpu" else 0


def chunk_size(asked: int, head_numbers: int, frozen: bool, device: str) -> int:
    """Return how many predicted tokens the head scores at a time; 0: all of a batch.

    asked: as in `memory.head-chunk`; head_numbers: vocabulary x d; frozen: if not, each chunk would add to the head's gradient.
    """
    if asked:
        return max(0, asked)
    return CHUNK.get(device, 0) if head_numbers >= LARGE_HEAD and frozen else 0


def tokens_at_once(on_cpu: int, device: str, vocabulary: int) -> int:
    """Return the padded tokens of a batch without gradients: `on_cpu` or, on a GPU, more. vocabulary: scores kept of each token; 0: few."""
    if device == "cpu":
        return on_cpu
    most = on_cpu * ON_A_GPU
    return max(on_cpu, min(most, MOST_SCORES // vocabulary) if vocabulary else most)


def cut(lengths: Sequence[int], cost: int) -> Iterator[slice]:
    """Cut examples, in order, into runs with the least sum of padded tokens plus `cost` per run; among equal sums, the fewest runs."""
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
