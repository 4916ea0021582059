"""A site's privacy ledger: what the signatures and training rounds of all runs have cost, up to the `max-epsilon` in its file.

Each site has one file. An entry is on disk before the reply that it pays for leaves the site. Sending the same reply again adds none.
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fedlingua.common.errors import ExchangeError
from fedlingua.common.files import held, json_text, replace_text
from fedlingua.privacy.accounting import Release, epsilon_of, noise_for
from fedlingua.settings.config import Settings


@dataclass(frozen=True, kw_only=True)
class Entry(Release):
    """One reply that a site has paid for. key: identifies it, its noise included. what: the reply in words. run: the run's id, or empty.
    unit: What its noise hides."""

    key: str
    what: str
    run: str
    unit: str = "sentence"


@dataclass(frozen=True)
class Ledger:
    """The ledger in `file`, whose entries together cost at most `max_epsilon` at `delta`."""

    file: Path
    max_epsilon: float = math.inf
    delta: float = 1e-5

    def entries(self) -> list[Entry]:
        """Read all entries."""
        return [Entry(**each) for each in json.loads(self.file.read_bytes())["entries"]] if self.file.is_file() else []

    @property
    def spent(self) -> float:
        """The epsilon that all entries in the file cost together."""
        return float(json.loads(self.file.read_bytes())["epsilon"]) if self.file.is_file() else 0.0

    def of_round(self, settings: Settings, run: str, number: int) -> Entry:
        """Return the entry of a training round, without key. Its noise is that of the run's earlier rounds, or else the least that
        `dp.epsilon` allows."""
        share, steps = settings.private_share, settings.local_epochs
        shared = settings.shares_noise
        entry = Entry(0.0, share, steps, shared, key="", what=f"training, round {number}", run=run, unit=settings.dp_unit)
        # All sites of a sum make their shares of the noise that follows from the settings.
        noises = [] if shared else [each.noise for each in self._of_run(entry)]
        asked = settings.dp_epsilon, settings.dp_delta, share, settings.rounds * steps, shared
        return replace(entry, noise=noises[0] if noises else noise_for(*asked))

    def check_round(self, entry: Entry, settings: Settings) -> None:
        """Raise ExchangeError if a round would cost more than the run's `dp.epsilon`, or this site's max-epsilon, allows."""
        cost = epsilon_of([*self._of_run(entry), entry], settings.dp_delta)
        if cost > settings.dp_epsilon:
            raise ExchangeError(
                f"{entry.what}, would bring this run's training to epsilon = {cost:.3g} at delta = {settings.dp_delta:g}; it has "
                f"dp.epsilon = {settings.dp_epsilon:g}, and a round that is trained again from other tensors costs again; start a new run"
            )
        self.check(entry)

    def check(self, entry: Entry) -> None:
        """Raise ExchangeError if an entry would bring the site above its max-epsilon, or hides other units than the entries before."""
        entries = self.entries()
        self.check_unit(entry.unit)
        before, after = epsilon_of(entries, self.delta), epsilon_of([*entries, entry], self.delta)
        if after > self.max_epsilon:
            raise ExchangeError(
                f"{entry.what}: brings what this site has given away from epsilon = {before:.3g} to {after:.3g} at delta = "
                f"{self.delta:g}; it gives away {self.max_epsilon:g} in all: ask for more noise, or give a larger [node] max-epsilon in "
                "the site's file"
            )

    def check_unit(self, unit: str) -> None:
        """Raise ExchangeError if the entries hide another unit, since costs of two units do not add up to that of either."""
        if others := {each.unit for each in self.entries()} - {unit}:
            raise ExchangeError(
                f"dp.unit: the run hides a {unit}, and this site's ledger counts what was told of a {others.pop()}, which does not add up "
                "with it: ask for that dp.unit"
            )

    def enter(self, entry: Entry, check: Callable[[Entry], None] | None = None) -> None:
        """Add an entry unless it exists, and write it to disk before returning. `check` may refuse it; default: this class's `check`."""
        with held(self.file.with_suffix(".lock")):
            entries = self.entries()
            if entry.key in {each.key for each in entries}:
                return
            (check or self.check)(entry)
            entries.append(entry)
            cost = epsilon_of(entries, self.delta)
            about = {"epsilon": cost, "delta": self.delta, "entries": [asdict(each) for each in entries]}
            replace_text(self.file, json_text(about))

    def _of_run(self, entry: Entry) -> list[Entry]:
        """Return the training rounds of an entry's run, without this entry."""
        alike = (each for each in self.entries() if each.run == entry.run and each.key != entry.key)
        return [each for each in alike if (each.share, each.steps) == (entry.share, entry.steps)]
