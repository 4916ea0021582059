"""Read deviations.jsonl: how far each tensor of a site's update moved in a round, where a selection goes by that."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from fedlingua.desk.report.values import mapping, number, sequence, whole

FILE = "deviations.jsonl"


@dataclass(frozen=True)
class SiteDeviations:
    """Of one site's update in one round: the deviations of the tensors that moved, and how many did not or have none.

    `without`: they were zero before, so there is nothing to compare with.
    """

    moved: list[float]
    still: int
    without: int


@dataclass(frozen=True)
class Deviations:
    """round -> site -> its deviations; `note`: why that is not all, or empty."""

    rounds: dict[int, dict[str, SiteDeviations]] = field(default_factory=dict)
    note: str = ""


def read_deviations(path: Path) -> Deviations:
    """What there is, by round; where a site told a round twice, as after a restart, the later line counts."""
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    except FileNotFoundError:
        return Deviations()
    except OSError as error:
        return Deviations(note=f"{path.name} cannot be read: {error}")
    read = [_line(line) for line in lines]
    # The last line may be half-written while the run goes on; only a broken line before it is worth a word.
    broken = sum(each is None for each in read[:-1])
    rounds: dict[int, dict[str, SiteDeviations]] = {}
    for index, site, told in filter(None, read):
        rounds.setdefault(index, {})[site] = told
    note = f"{broken} line(s) of {path.name} cannot be read and are left out." if broken else ""
    return Deviations(dict(sorted(rounds.items())), note)


def _line(line: bytes) -> tuple[int, str, SiteDeviations] | None:
    """(round, site, its deviations); None where the line is not a whole one."""
    try:
        content = mapping(json.loads(line))
    except ValueError:
        return None
    index, site = whole(content.get("round")), content.get("site")
    if index is None or not isinstance(site, str):
        return None
    found = [number(value) for value in sequence(content.get("deviations"))]
    moved = [value for value in found if value is not None and value > 0]
    still = found.count(0.0)
    return index, site, SiteDeviations(moved, still, len(found) - len(moved) - still)
