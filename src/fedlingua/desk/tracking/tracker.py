"""What a tracker is asked for. One module a tracker: it opens a run of its own for a run of ours, and goes on with it when asked again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

Status = Literal["completed", "failed", "interrupted"]
PROJECT = "fedlingua"
"""Where a tracker keeps runs of this project together, unless its own environment variables say another name."""


@dataclass(frozen=True)
class About:
    """A run as a tracker is to know it. name: of people's choice; id: its own for good; folder: where its files lie."""

    name: str
    id: str
    folder: Path
    parameters: Mapping[str, str | int | float | bool]


class Tracker(Protocol):
    """An open run of a tracker. known: how the tracker names it; told: the last round that it has, -1 for none.

    Until it is told something, a run that it already has stays as it is, ended or not.
    """

    known: str
    told: int

    def tell(self, step: int, values: Mapping[str, float]) -> None:
        """The numbers of a round; they are kept when this returns."""

    def end(self, status: Status, step: int, scores: Mapping[str, float]) -> None:
        """How the run ended, and what it scored, which is told at the round `step`."""

    def close(self) -> None:
        """Let go of it, ended or not."""


Open = Callable[[About, int], Tracker]
"""(the run, the last round that was told or -1) -> the tracker's run for it, the same however often it is opened"""
