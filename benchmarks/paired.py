"""Ways of doing the same, timed turn about in one process, so that whatever else the machine does slows all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def turn_about(
    ways: Mapping[str, Callable[[], object]], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """way -> seconds it took in each of `repeats` turns, in which every way comes once; a turn before them warms up.

    clock: time.process_time for what works on one thread, so that what else the machine does counts for nothing.
    """
    times: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(repeats + 1):
        for way, work in ways.items():
            taken = seconds(work, clock)
            if turn:
                times[way].append(taken)
    return times


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    started = clock()
    work()
    return clock() - started


def figures(times: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Medians in seconds, with the quarter and three-quarter marks."""
    found: dict[str, Any] = {"repeats": min(map(len, times.values()))}
    for way, taken in times.items():
        first, middle, third = statistics.quantiles(taken, n=4)
        found[f"{way}_s"] = {
            "median": round(middle, 4),
            "quartiles": [round(first, 4), round(third, 4)],
            "least": round(min(taken), 4),
        }
    return found


def ratio(times: Sequence[float], others: Sequence[float]) -> dict[str, Any]:
    """Of medians, of the least, and of the turns' pairs."""
    pairs = statistics.quantiles([taken / other for taken, other in zip(times, others, strict=True)], n=4)
    return {
        "of_medians": round(statistics.median(times) / statistics.median(others), 2),
        "of_least": round(min(times) / min(others), 2),
        "of_pairs_quartiles": [round(mark, 2) for mark in pairs],
    }
