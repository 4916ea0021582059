"""A site's ledger: each round of a run is opened for one list of survivors, in whatever attempt and however often it is asked."""

import json
from collections.abc import Sequence
from pathlib import Path

from fedlingua.common.errors import ExchangeError
from fedlingua.common.files import written_once


def enter(folder: Path, round_number: int, survivors: Sequence[str]) -> None:
    """Enter the survivors of a round, on disk before this returns.

    A round that is trained again has the same update, so the sums over S and over S without one site would give that one away.

    Raises:
        ExchangeError: The round was opened for others before; names both lists.
    """
    before = json.loads(written_once(folder / f"{round_number:04d}.json", json.dumps(list(survivors))))
    if before != list(survivors):
        raise ExchangeError(
            f"asked to open round {round_number} for {', '.join(survivors)}, but it was opened for {', '.join(before)}; two sums of one "
            "round give away single sites"
        )
