"""Read JSON that a run may still be writing, or that an interruption cut off."""

import json
from collections.abc import Iterable
from typing import Any


def json_object(text: bytes) -> dict[str, Any] | None:
    """Parse a JSON object; None if the text is not one, or is cut off."""
    try:
        content = json.loads(text)
    except ValueError:  # cut off, maybe inside a character
        return None
    return content if isinstance(content, dict) else None


def by_round(lines: Iterable[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Map each round, in order, to its line of rounds.jsonl; after a restart a round has two lines, and the later one counts.

    A line's "measured" is merged into the round that it names: most rounds are measured while the next one trains.
    """
    rounds: dict[int, dict[str, Any]] = {}
    for line in lines:
        number = _whole(line.get("round"))
        if number is None:
            continue
        rounds[number] = dict(line)
        measured = object_of(line.get("measured"))
        of = _whole(measured.get("round"))
        if of is not None and (earlier := rounds.get(of)):
            sites = dict(object_of(earlier.get("sites")))
            for site, figures in object_of(measured.get("sites")).items():
                before, now = object_of(sites.get(site)), object_of(figures)
                sites[site] = {**before, **now, "seconds": object_of(before.get("seconds")) | object_of(now.get("seconds"))}
            earlier |= {"dev_loss": measured.get("dev_loss"), "sites": sites}
    return dict(sorted(rounds.items()))


def object_of(value: Any) -> dict[str, Any]:
    """Return the value if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18 else None
