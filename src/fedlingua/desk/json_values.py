"""Read JSON that a run may still be writing, or that an interruption cut off: values may be missing or of another type."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

LARGEST = 1e18
"""Greatest magnitude accepted as a measurement; beyond it sums and plots overflow."""


def number(value: Any) -> float | None:
    """Return the value as a number; None for anything else, NaN, infinity and magnitudes above `LARGEST`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= LARGEST else None  # false for NaN and for an integer that no float can hold


def whole(value: Any) -> int | None:
    known = number(value)
    return None if known is None else int(known)


def share(value: Any) -> float | None:
    """Return the value as a share of a whole, 0 to 1, or None."""
    known = number(value)
    return known if known is not None and 0 <= known <= 1 else None


def text(value: Any, otherwise: str = "") -> str:
    """Return the value as text; `otherwise` if missing."""
    return otherwise if value is None else str(value)


def mapping(value: Any) -> dict[str, Any]:
    """Return the value as an object with text keys, lone surrogates in them replaced; empty for anything else."""
    return {str(key).encode(errors="replace").decode(): item for key, item in value.items()} if isinstance(value, dict) else {}


def objects(value: Any) -> dict[str, dict[str, Any]]:
    """Return those items of an object that are objects themselves."""
    return {key: mapping(item) for key, item in mapping(value).items() if isinstance(item, dict)}


def sequence(value: Any) -> list[Any]:
    """Return the value as a list; empty for anything else."""
    return list(value) if isinstance(value, list) else []


def numbers(value: Any) -> dict[str, float]:
    """Return those items of an object that are numbers."""
    known = {key: number(item) for key, item in mapping(value).items()}
    return {key: item for key, item in known.items() if item is not None}


def integers(value: Any) -> dict[str, int]:
    """Return those items of an object that are numbers, truncated to integers."""
    return {key: int(item) for key, item in numbers(value).items()}


def json_object(text: bytes) -> dict[str, Any] | None:
    """Parse a JSON object; None if the text is not one, or is cut off."""
    try:
        content = json.loads(text)
    except ValueError:  # cut off, maybe inside a character
        return None
    return content if isinstance(content, dict) else None


def stored_object(file: Path) -> dict[str, Any]:
    """Read a JSON object from a file; return an empty one if the file is missing or incomplete."""
    try:
        return json_object(file.read_bytes()) or {}
    except OSError:
        return {}


def by_round(lines: Iterable[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Map each round, in order, to its line of rounds.jsonl; after a restart a round has two lines, and the later one counts.

    A line's "measured" is merged into the round that it names: most rounds are measured while the next one trains.
    """
    rounds: dict[int, dict[str, Any]] = {}
    for line in lines:
        number = whole(line.get("round"))
        if number is None:
            continue
        rounds[number] = dict(line)
        measured = mapping(line.get("measured"))
        of = whole(measured.get("round"))
        if of is not None and (earlier := rounds.get(of)):
            sites = dict(mapping(earlier.get("sites")))
            for site, figures in mapping(measured.get("sites")).items():
                before, now = mapping(sites.get(site)), mapping(figures)
                sites[site] = {**before, **now, "seconds": mapping(before.get("seconds")) | mapping(now.get("seconds"))}
            earlier |= {"dev_loss": measured.get("dev_loss"), "sites": sites}
    return dict(sorted(rounds.items()))
