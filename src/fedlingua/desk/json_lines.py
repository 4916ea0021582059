"""JSON that a run may be writing, or was writing when it was broken off."""

import json
from collections.abc import Iterable
from typing import Any


def json_object(text: bytes) -> dict[str, Any] | None:
    """The object that a text is; None where it is none, or not whole."""
    try:
        content = json.loads(text)
    except ValueError:  # one that was broken off, maybe inside a letter
        return None
    return content if isinstance(content, dict) else None


def by_round(lines: Iterable[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Round -> its line of rounds.jsonl, in order; of two lines of a round, as after a restart, the later one.

    What a line has under "measured" goes to the round that it is of: most rounds are measured while the next one trains.
    """
    rounds: dict[int, dict[str, Any]] = {}
    for line in lines:
        number = _whole(line.get("round"))
        if number is None:
            continue
        rounds[number] = dict(line)
        measured = _object(line.get("measured"))
        of = _whole(measured.get("round"))
        if of is not None and (earlier := rounds.get(of)):
            earlier["dev_loss"] = measured.get("dev_loss")
            sites = earlier["sites"] = dict(_object(earlier.get("sites")))
            for site, figures in _object(measured.get("sites")).items():
                before, now = _object(sites.get(site)), _object(figures)
                seconds = {**_object(before.get("seconds")), **_object(now.get("seconds"))}
                sites[site] = {**before, **now, "seconds": seconds}
    return dict(sorted(rounds.items()))


def _whole(value: Any) -> int | None:
    """A round's number, however the file has it."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18
    return int(value) if known else None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
