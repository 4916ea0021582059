"""Format scores, counts, bytes, durations and shares for people."""

import math

from fedlingua.common.units import NOTHING as NOTHING
from fedlingua.common.units import byte_unit as byte_unit
from fedlingua.common.units import data as data
from fedlingua.common.units import duration as duration


def score(value: float | None) -> str:
    """Format a score with two decimals."""
    return NOTHING if value is None else f"{value:.2f}"


def mean_and_sd(mean: float | None, sd: float | None = None) -> str:
    """Format a mean score, with its standard deviation if there is one."""
    return score(mean) + ("" if sd is None else f" ± {score(sd)}")


def gain(value: float | None) -> str:
    """Format a difference of scores with its sign; one that rounds to zero reads +0.00, never -0.00."""
    return NOTHING if value is None else f"{round(value, 2) + 0.0:+.2f}"


def count(value: float | None) -> str:
    """Format a whole number with commas between thousands."""
    return NOTHING if value is None else f"{value:,.0f}"


def parameters(value: float | None) -> str:
    """Format a number of parameters, in millions or billions if it is large."""
    if value is None:
        return NOTHING
    for size, unit in ((1e9, " B"), (1e6, " M")):
        if value >= size:
            return f"{value / size:.2f}{unit}"
    return count(value)


def seconds(value: float | None) -> str:
    """Format seconds with three significant digits and at most six decimals; without a unit, for columns."""
    if not value:
        return NOTHING if value is None else "0"
    return f"{value:.{min(6, max(0, 2 - math.floor(math.log10(abs(value)))))}f}"


def transfer(value: float) -> str:
    """Format seconds for a sentence, with more decimals the shorter they are; two minutes and more as `duration` does."""
    if value >= 120:
        return duration(value)
    if value >= 10 or value == 0:
        return f"{value:.0f} s"
    decimals = 1 if value >= 1 else 2 if value >= 0.1 else 3
    return f"{value:.{decimals}f} s" if value >= 0.001 else "< 1 ms"


def share(value: float | None) -> str:
    """Format a share, 0 to 1, in per cent; one above 0 never reads 0 %."""
    if value is None:
        return NOTHING
    percent = 100 * value
    if 0 < percent < 0.01:
        return "< 0.01 %"
    return f"{percent:.2f} %" if 0 < percent < 1 else f"{percent:.1f} %" if percent else "0 %"


def bandwidth(value: float) -> str:
    """Format a bandwidth in megabits (10^6 bits) a second."""
    return f"{value:,.10g} Mbit/s"
