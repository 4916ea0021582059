"""Which code: one line of the settings, as "4bit", "sign top 0.03" or "4bit rank 4"."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from fedlingua.common.errors import ConfigError

METHODS = ("none", "lossless", "levels", "top", "rank")  # their order numbers them in a payload's first byte: only append
MOST_RANK = 256
_FORM = re.compile(r"(none|lossless)|(sign|[2-8]bit)(?: (nearest)| top (0?\.[0-9]+)| rank ([0-9]{1,3}))?")


@dataclass(frozen=True)
class Code:
    """How a change is coded.

    Attributes:
        bits: Of a number that travels, before entropy coding: 1 (sign) to 8; 0 where all of float32 does.
        share: With top: which share of a part's numbers travels, those of greatest magnitude. 0-1.
        rank: With rank: columns of the two factors that stand for a matrix.
        nearest: Round to the nearest level, not at random with the change as the mean of all draws: less error, but it needs error
            feedback. sign, top and rank, biased anyhow, do.
    """

    method: str
    bits: int = 0
    share: float = 1.0
    rank: int = 0
    nearest: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether what comes out is what went in, bit for bit."""
        return self.bits == 0

    @property
    def first_byte(self) -> int:
        return 16 * METHODS.index(self.method) + self.bits

    @property
    def top_level(self) -> int:
        """A number travels as a whole one from -top_level to top_level; of signs, without 0."""
        return max(1, (1 << self.bits >> 1) - 1)

    def is_factored(self, shape: Sequence[int]) -> bool:
        """Whether a tensor travels as two factors: a matrix that is larger than they are."""
        return self.method == "rank" and len(shape) == 2 and self.rank * sum(shape) < prod(shape)


def parse_code(text: str) -> Code:
    """Read a code as the settings write it. Two bits to the nearest are refused: 0 and the extremes, of which signs say more."""
    if form := _FORM.fullmatch(text):
        exact, numbers, nearest, share, rank = form.groups()
        if exact:
            return Code(exact)
        bits = 1 if numbers == "sign" else int(numbers[0])
        to_nearest = bits == 1 or bool(nearest or share or rank)
        code = Code("top" if share else "rank" if rank else "levels", bits, float(share or 1), int(rank or 0), to_nearest)
        if code.share > 0 and (not rank or 1 <= code.rank <= MOST_RANK) and not (to_nearest and bits == 2):
            return code
    raise ConfigError(
        f"{text!r} is no code; give none, lossless, sign, 2bit to 8bit, 3bit nearest to 8bit nearest, or sign or 3bit to 8bit "
        f"followed by a share of the numbers, as in '4bit top 0.1', or by a rank of 1 to {MOST_RANK}, as in '4bit rank 4'"
    )


EXACT = Code("none")


def check_code(text: str) -> None:
    """Raises ConfigError for what is no code."""
    parse_code(text)


def check_code_down(text: str) -> None:
    """The same, where "same" stands for the other way's."""
    if text != "same":
        parse_code(text)
