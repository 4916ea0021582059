"""The record of a round, one line of rounds.jsonl: each site's figures, failures with reasons, and the server's times."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedlingua.exchange.expected import Sums
from fedlingua.exchange.replies import Failure
from fedlingua.exchange.traffic import Bytes
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.config import Phase


@dataclass
class RoundRecord:
    """The figures of the current round. phase_s: seconds from a phase's first request to its last reply; pause_s: from the last
    reply of the phase before until all requests are sent; server_s: of the server's own work, by kind."""

    number: int
    folder: RunFolder
    sites: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: list[dict[str, str]] = field(default_factory=list)
    phase_s: dict[str, float] = field(default_factory=dict)
    pause_s: dict[str, float] = field(default_factory=dict)
    server_s: dict[str, float] = field(default_factory=dict)
    bytes: Bytes = field(default_factory=dict)
    """All bytes exchanged in the round, whatever their purpose."""
    about: dict[str, Any] = field(default_factory=dict)
    """The strategy's own figures; under "measured", the dev losses of an earlier round that came with this one's replies."""

    def of(self, site: str) -> dict[str, Any]:
        """Return the dict of a site's figures, to which the caller adds."""
        return self.sites.setdefault(site, {"seconds": {}, "uplink_bytes": 0, "downlink_bytes": 0})

    def fail(self, failure: Failure, phase: Phase) -> None:
        """Record a failure, if it is not recorded yet, and log an event."""
        entry = {"site": failure.site, "phase": phase, "kind": failure.kind, "reason": failure.reason}
        if entry not in self.failures:
            self.failures.append(entry)
            self.folder.event("failure", round=self.number, **entry)

    def measure(self, number: int, dev_loss: float | None, losses: Mapping[str, Sums]) -> None:
        """Enter the dev losses after this round, or after an earlier one, for which also log an event. losses: site -> sums."""
        sites = self.sites if number == self.number else dict[str, dict[str, Any]]()
        for site, sums in losses.items():
            record = self.of(site) if number == self.number else sites.setdefault(site, {"seconds": {}})
            record["seconds"]["evaluate"] = round(sums["seconds"], 3)
            record["dev_loss"], record["dev_tokens"] = sums["nll_sum"] / sums["num_tokens"], int(sums["num_tokens"])
        if number != self.number:
            self.about["measured"] = {"round": number, "dev_loss": dev_loss, "sites": sites}
            self.folder.event("measured", round=number, dev_loss=dev_loss)

    @property
    def traffic(self) -> list[tuple[int, int]]:
        """Return the (uplink, downlink) bytes of every site that was asked, or was not drawn."""
        return [(int(record["uplink_bytes"]), int(record["downlink_bytes"])) for record in self.sites.values()]

    @property
    def savings(self) -> list[tuple[float, float]]:
        """Return the shares (of tensors, of numbers) left out by each site that sent a selection, 0-1."""
        chosen = [record for record in self.sites.values() if "numbers_share" in record]
        return [(1 - record["tensors_share"], 1 - record["numbers_share"]) for record in chosen]

    def line(self) -> dict[str, Any]:
        """Return the round's line, without its number, attempt, seconds and dev loss."""
        answered = {site: record for site, record in self.sites.items() if record["seconds"]}
        server_s = {what: round(seconds, 6) for what, seconds in self.server_s.items()}
        seconds = {"phase_s": self.phase_s, "pause_s": self.pause_s, "server_s": server_s}
        return {"sites": answered, "failures": self.failures, **seconds, "bytes": self.bytes, **self.about}
