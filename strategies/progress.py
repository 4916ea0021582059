"""What a run knows after a round besides its tensors. It goes into every checkpoint, and a resumed run begins with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fedlingua.protocol import Stage

Sums = Mapping[str, float]


@dataclass
class Progress:
    """Of a run so far; `round` is the last whole one, -1 before round 0.

    dev_losses: round -> site -> sums. traffic: (uplink, downlink) bytes of every site and round. savings: (tensors, numbers) that every
    site left out of every round, 0-1. stages: site -> rounds that it trained well, with the attempt that counts. bad_replies: site -> how
    many were refused. digests: site -> its last accepted update's. lengths: site -> `outliers.Trained` of its last update taken whole.
    """

    random: Random
    round: int = -1
    best_round: int = 0
    dev_losses: dict[int, dict[str, Sums]] = field(default_factory=dict)
    traffic: list[tuple[int, int]] = field(default_factory=list)
    savings: list[tuple[float, float]] = field(default_factory=list)
    stages: dict[str, dict[int, int]] = field(default_factory=dict)
    bad_replies: dict[str, int] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    lengths: dict[str, dict[str, Any]] = field(default_factory=dict)

    def own(self, site: str, number: int) -> Stage:
        """The site's own tensors as of round `number`: its last good round up to there."""
        trained = self.stages.get(site, {})
        last = max((past for past in trained if past <= number), default=0)
        return (last, trained[last]) if last else (0, 0)

    def own_best(self, site: str, last: int) -> int:
        """The round with the site's own lowest dev loss, up to round `last`; 0 where it trained in none."""
        measured = {n: losses[site] for n, losses in self.dev_losses.items() if 0 < n <= last and site in losses}
        own = {n: sums["nll_sum"] / sums["num_tokens"] for n, sums in measured.items()}
        return min(own, key=lambda n: (own[n], n), default=0)

    def loss(self, number: int, best_by: str) -> float | None:
        """The federation's dev loss after a round; None where too few sites measured it."""
        losses = self.dev_losses.get(number)
        return mean_loss(losses, best_by) if losses else None

    def choose_best(self, best_by: str) -> None:
        """Set `best_round`."""
        self.best_round = self.best_up_to(max(self.dev_losses, default=0), best_by)

    def best_up_to(self, last: int, best_by: str) -> int:
        """The federation's best round up to `last`; 0 where none was measured.

        A loss over fewer sites is no better loss: the round that most sites measured goes first.
        """
        trained = {n: mean_loss(losses, best_by) for n, losses in self.dev_losses.items() if 0 < n <= last}
        return min(trained, key=lambda n: (-len(self.dev_losses[n]), trained[n], n), default=0)

    def is_stale(self, patience: int, min_gain: float, best_by: str) -> bool:
        """Whether `patience` rounds have passed since the dev loss last fell by `min_gain` of what it was."""
        better, lowest = 0, float("inf")
        for past, losses in self.dev_losses.items():
            loss = mean_loss(losses, best_by)
            if past > 0 and loss < lowest * (1 - min_gain):
                better, lowest = past, loss
        return 0 < patience <= self.round - better

    def values(self) -> dict[str, Any]:
        """As JSON holds it; floats come back bit for bit."""
        version, words, gauss = self.random.getstate()
        return {
            "best_round": self.best_round,
            "dev_losses": {str(n): {site: dict(sums) for site, sums in losses.items()} for n, losses in self.dev_losses.items()},
            "traffic": self.traffic,
            "savings": self.savings,
            "stages": {site: {str(n): attempt for n, attempt in trained.items()} for site, trained in self.stages.items()},
            "bad_replies": self.bad_replies,
            "digests": self.digests,
            "lengths": self.lengths,
            "random": [version, list(words), gauss],
        }

    @classmethod
    def of(cls, number: int, values: Mapping[str, Any]) -> "Progress":
        """What `values` gave after round `number`."""
        random = Random()
        version, words, gauss = values["random"]
        random.setstate((version, tuple(words), gauss))
        return cls(
            random=random,
            round=number,
            best_round=values["best_round"],
            dev_losses={int(n): losses for n, losses in values["dev_losses"].items()},
            traffic=[(up, down) for up, down in values["traffic"]],
            savings=[(tensors, numbers) for tensors, numbers in values["savings"]],
            stages={site: {int(n): attempt for n, attempt in trained.items()} for site, trained in values["stages"].items()},
            bad_replies=dict(values["bad_replies"]),
            digests=dict(values["digests"]),
            lengths=dict(values.get("lengths", {})),
        )


def mean_loss(losses: Mapping[str, Sums], best_by: str) -> float:
    """Mean of the sites' dev losses (nats a token), weighted by sentences as in the paper's code, or pooled over tokens."""
    if best_by == "tokens":
        return sum(s["nll_sum"] for s in losses.values()) / sum(s["num_tokens"] for s in losses.values())
    total = sum(s["num_examples"] for s in losses.values())
    return sum(s["nll_sum"] / s["num_tokens"] * s["num_examples"] for s in losses.values()) / total
