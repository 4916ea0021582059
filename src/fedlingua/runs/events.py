"""A run's events, which its server writes to progress.jsonl: what they add up to, and the line for each, in logs and on terminals."""

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fedlingua.common import units
from fedlingua.common.terminal import one_line

PROGRESS_FILE = "progress.jsonl"

Event = dict[str, Any]


@dataclass
class SiteStatus:
    """What one site has sent so far. seen: last message, in seconds since the epoch, 0 for never; uplink_bytes: in all rounds so far.

    step: what it does in the last phase, in words; done: the share of that phase behind it, 0-1.
    """

    round: int = 0
    phase: str = ""
    seen: float = 0.0
    uplink_bytes: int = 0
    failures: int = 0
    trouble: str = ""
    step: str = ""
    done: float = 0.0

    @property
    def doing(self) -> str:
        """The phase of its last message, or its step of the last phase."""
        return self.step or self.phase


@dataclass
class Tally:
    """Totals of the events so far.

    waiting: which sites the start waits for, in words. asked, answered: sites in this phase. sent: bytes of all replies. dev_loss: the
    latest, after round `measured`. working: a site's latest report of its work after the rounds. last_phase_s: about how long that work
    takes. began: when the phase began, seconds since the epoch.
    """

    rounds: int = 0
    round: int = 0
    phase: str = ""
    waiting: str = ""
    asked: int = 0
    answered: int = 0
    sent: int = 0
    loss: float | None = None
    dev_loss: float | None = None
    measured: int = 0
    seconds: list[float] = field(default_factory=list)
    sites: dict[str, SiteStatus] = field(default_factory=dict)
    working: str = ""
    last_phase_s: float = 0.0
    began: float = 0.0

    def add(self, event: Event) -> bool:
        """Add an event; return False if its kind is unknown or it is malformed, as from another version's server."""
        with suppress(KeyError, TypeError, ValueError):
            match event.get("event"):
                case "phase":
                    self.phase, self.asked, self.answered = str(event["phase"]), int(event["sites"]), 0
                    self.rounds, self.waiting = int(event.get("rounds") or self.rounds), ""
                    self.began = float(event["time"])
                    for site in self.sites.values():
                        if self.phase == "finish" != site.phase:
                            site.step, site.done = "finish: asked", 0.0
                case "waiting":
                    here = f"({int(event['here'])} of {int(event['sites'])} here)"
                    self.waiting = one_line(f"waiting for {event['missing']} {here}") if event["missing"] else ""
                case "reply":
                    number, phase, sent = int(event["round"]), str(event["phase"]), int(event.get("uplink_bytes") or 0)
                    site = self.sites.setdefault(str(event["site"]), SiteStatus())
                    site.round, site.phase, site.seen, site.trouble = number, phase, float(event["time"]), ""
                    site.step, site.done = "", float(phase == "finish")
                    site.uplink_bytes += sent
                    self.answered, self.sent = self.answered + 1, self.sent + sent
                    if event.get("loss") is not None:
                        self.loss = float(event["loss"])
                case "failure":
                    number, phase, kind = int(event["round"]), str(event["phase"]), event.get("kind", "")
                    trouble, site = f"{kind}: {event['reason']}", self.sites.setdefault(str(event["site"]), SiteStatus())
                    site.round, site.phase, site.trouble, site.step = number, phase, trouble, ""
                    site.failures, self.answered = site.failures + 1, self.answered + 1
                case "round":
                    dev_loss, seconds, _ = event.get("dev_loss"), float(event["seconds"]), int(event["uplink_bytes"])
                    self.round, self.rounds = int(event["round"]), int(event["rounds"])
                    if dev_loss is not None:
                        self.dev_loss, self.measured = float(dev_loss), self.round
                    self.seconds.append(seconds)
                    self.last_phase_s = float(event.get("last_phase_s") or 0.0)
                case "measured":  # of an earlier round, measured during the current one
                    self.dev_loss, self.measured = float(event["dev_loss"]), int(event["round"])
                case "site":
                    self.working = f"{event['site']}: {event['text']}"
                    site = self.sites.setdefault(str(event["site"]), SiteStatus())
                    site.step, site.seen = str(event["text"]), float(event["time"])
                    site.done = float(event.get("done") or site.done)
                case "note":
                    return isinstance(event.get("text"), str)
                case other:
                    return other == "end"
            return True
        return False

    @property
    def left_s(self) -> float | None:
        """Estimated seconds for the remaining rounds, from the latest ones without the first, which includes all start-up, and for the
        last phase; within that by what the sites have behind them, the more so the more it is."""
        latest = self.seconds[-5:] if len(self.seconds) == 1 else self.seconds[1:][-5:]
        if self.phase != "finish":
            return sum(latest) / len(latest) * (self.rounds - self.round) + self.last_phase_s if latest else None
        passed, done = time.time() - self.began, sum(site.done for site in self.sites.values()) / max(1, len(self.sites))
        if not self.working or not done:  # deployed sites report nothing before they reply
            return max(0.0, self.last_phase_s - passed)
        trust = min(1.0, 4 * done)
        return max(0.0, (1 - trust) * self.last_phase_s + trust * passed / done - passed)


def event_line(event: Event, total: Tally) -> str:
    """Return the line for an event, or "" if it gets none."""
    match event["event"]:
        case "round":
            dev_loss = loss_words("dev loss", total.dev_loss)
            if dev_loss and total.measured != total.round:  # most are measured during the next round
                dev_loss += f" after round {total.measured}"
            sent = [f"{units.data(event[f'{way}link_bytes'])} {way}" for way in ("up", "down") if f"{way}link_bytes" in event]
            words = [
                f"round {total.round}/{total.rounds}",
                dev_loss,
                *sent,
                f"{float(event['seconds']):.1f} s",
                left_words(total),
            ]
            return ", ".join(filter(None, words))
        case "failure":
            return one_line(f"{event['phase']} of round {event['round']}: site {event['site']} failed: {event['reason']}")
        case "note":
            return one_line(event["text"])
        case "waiting":
            return total.waiting or f"all {event['sites']} sites are here"
        case "phase" if event["phase"] == "finish":
            return ", ".join(filter(None, [f"last phase, at {total.asked} sites", left_words(total)]))
        case "site" if event.get("step"):
            return ", ".join(filter(None, [one_line(total.working), left_words(total)]))
        case "end" if event.get("status") != "completed":
            return one_line(f"run {event.get('status')}: {event.get('reason') or 'no reason given'}")
    return ""


def loss_words(name: str, value: float | None) -> str:
    """Return a loss with its name, or "" if there is none."""
    return "" if value is None else f"{name} {value:.4f}"


def left_words(total: Tally) -> str:
    """Return how long the run will still take, or "" if that is not known."""
    seconds = round(total.left_s or 0)
    return f"{units.duration(seconds)} left" if seconds else ""
