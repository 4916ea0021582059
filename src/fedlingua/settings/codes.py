"""Codes: how updates are compressed, parsed from a setting such as "4bit", "sign top 0.03" or "4bit rank 4"."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import log2, prod

from fedlingua.common.errors import ConfigError

# Two bits, rounded to the nearest level, allow only 0 and the extremes, so signs carry more; factors of signs are too coarse.
_FORM = re.compile(
    r"(?!2bit |sign [nr])(?:(none|lossless)|(sign|[2-8]bit)(?: (nearest)| top (0?\.0*[1-9]\d*)| rank ([1-9]\d?))?)", re.A
)


@dataclass(frozen=True)
class Code:
    """How a change is coded.

    Attributes:
        method: none, lossless, levels, top or rank.
        bits: Bits of each number that travels, before entropy coding: 1 (sign) to 8; 0: all of float32.
        share: With top: share of a part's numbers that travel, those of the greatest magnitude. 0-1.
        rank: With rank: number of columns of the two factors that replace a matrix.
        nearest: Round to the nearest level, not at random (which is unbiased): less error, but it needs error feedback. sign, top
            and rank, which are biased anyway, always round to the nearest.
    """

    method: str
    bits: int = 0
    share: float = 1.0
    rank: int = 0
    nearest: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether decoding restores every bit."""
        return self.bits == 0

    @property
    def top_level(self) -> int:
        """Largest level: numbers travel as integers from -top_level to top_level; signs without 0."""
        return max(1, (1 << self.bits >> 1) - 1)

    def is_factored(self, shape: Sequence[int]) -> bool:
        """Whether a tensor travels as two factors: true of a matrix that has more numbers than they have."""
        return self.method == "rank" and len(shape) == 2 and self.rank * sum(shape) < prod(shape)

    def most_bytes(self, shapes: Sequence[Sequence[int]]) -> int:
        """Return about the most bytes that the change of tensors takes, scales not counted: entropy coding may save more."""
        numbers = sum(self.rank * sum(shape) if self.is_factored(shape) else prod(shape) for shape in shapes)
        if self.share == 1:
            return round(numbers * (self.bits or 32) / 8)
        entropy = -self.share * log2(self.share) - (1 - self.share) * log2(1 - self.share)
        return round(numbers * (self.share * self.bits + max(self.share, entropy)) / 8)  # Huffman's shortest word has a bit


def parse_code(text: str) -> Code:
    """Parse a code as written in the settings; raise ConfigError if it is invalid."""
    form = _FORM.fullmatch(text)
    if not form:
        raise ConfigError(
            f"{text!r} is not a code; give auto, none, lossless, sign, 2bit to 8bit, '4bit nearest' (3 to 8), '4bit top 0.1' (sign or 3 "
            "to 8; a share between 0 and 1) or '4bit rank 4' (3 to 8; a rank of 1 to 99)"
        )
    exact, numbers, nearest, share, rank = form.groups()
    if exact:
        return Code(exact)
    bits = 1 if numbers == "sign" else int(numbers[0])
    method = "top" if share else "rank" if rank else "levels"
    return Code(method, bits, float(share or 1), int(rank or 0), bits == 1 or bool(nearest or share or rank))


EXACT = Code("none")
AUTO = "4bit"
"""The code that "auto" stands for in runs whose updates can be coded."""
