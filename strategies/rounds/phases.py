"""One phase with the sites that it is for: send one request to each, parse replies as they arrive, and handle too few good ones."""

import math
import time
from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import Any, TypeVar

from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid

from fedlingua.common.errors import RunError
from fedlingua.exchange import protocol
from fedlingua.exchange.checks import WITHOUT_TENSORS
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.records import message_bytes
from fedlingua.exchange.replies import Failure, Reply, RoundSkippedError
from fedlingua.exchange.traffic import FILE as TRAFFIC
from fedlingua.exchange.traffic import FP32, Counts, kind_of
from fedlingua.layers.layer import Layer
from fedlingua.runs.folder import RunFolder
from fedlingua.runs.progress import Progress
from fedlingua.settings.config import Phase, Settings
from strategies.checks.reply import check_task
from strategies.rounds.flower_records import site_of
from strategies.rounds.record import RoundRecord
from strategies.rounds.registration import Registry, sites_json
from strategies.rounds.replies import LOST, Pending, bad_reply, first_line, in_order, pull_one, replies_to

WAIT_PAUSE_S = 5.0
"""Seconds between two attempts to reach missing sites under `below-quorum = "wait"` or "go-on"."""
_MAY_BE_ASKED_AGAIN = ("refused", "unreadable", "not held")
T = TypeVar("T")
Parser = Callable[[str, Message], T]
"""(site, reply) -> the parsed reply; raises ExchangeError for a bad one."""


class Step(Enum):
    """Whom a phase asks, and why."""

    FIRST = "all its sites"
    ANEW = "those that lost tensors which their request named by hash"
    ONCE_MORE = "those whose replies were bad, once more"
    WAITING = "all that have not answered well, as long as there is time"


class Phases:
    """The phases of a run, round after round. `record` is that of the current round.

    Attributes:
        training: Message id -> the site that trains on it while rounds go on.
        training_sites: The sites that train in this round.
        last_request: Site -> the task of its last request, and when it was sent, by the monotonic clock.
        good: Site -> its good reply, of the phase that is going on.
    """

    def __init__(self, settings: Settings, registry: Registry, folder: RunFolder, progress: Progress, layers: Layer) -> None:
        self.settings, self.registry, self.folder = settings, registry, folder
        self.progress, self.layers = progress, layers
        self.left_out: set[str] = set()
        """Sites without which the run goes on."""
        self.begin_round(0, 0)
        self._refused: set[str] = set()
        """Sites whose last reply in this phase was bad."""
        self._unanswered: dict[str, tuple[str, int, float]] = {}
        """Site -> the message that it has not answered, the upper bound of its reply's size, and when to ask the site again."""
        self._pauses: dict[str, float] = {}
        """Site -> seconds until it is asked again, which double each time."""
        self.training: dict[str, Pending] = {}
        self.last_request: dict[str, tuple[Task, float]] = {}
        self.good: dict[str, Reply[Any]] = {}
        self._last_reply: float | None = None
        self._said = ""

    def begin_round(self, number: int, num_rounds: int, trains: bool = False) -> None:
        """Begin a round's record. trains: Whether sites train in it."""
        self.record, self.num_rounds = RoundRecord(number, self.folder), num_rounds
        here = [site for site in self.registry.expected if site not in self.left_out]
        self.training_sites = self.layers.sites(number, here) if trains else here
        self._before: Counts = self.registry.traffic.counts.copy()
        self._round_began = time.monotonic()

    def most_seconds(self, site: str) -> float:
        """Return the most seconds that a site can have worked for this round so far, with a margin for clocks that differ."""
        _, asked = self.last_request.get(site, (None, self._round_began))
        return 1.1 * (time.monotonic() - min(asked, self._round_began)) + 5.0

    @property
    def busy(self) -> set[str]:
        """The sites that train while rounds go on."""
        return {each.site for each in self.training.values()}

    def note(self, text: str) -> None:
        self.folder.event("note", text=text)

    def _say_once(self, text: str) -> None:
        """Note a text unless it was the last such one."""
        if text != self._said:
            self.note(text)
        self._said = text

    # --- Sites to ask ----------------------------------------------------------------------------------------------------------

    def wanted(self, phase: Phase) -> list[str]:
        """Return the sites that a phase is for, in federation order: those that train in the round, or all."""
        sites = self.training_sites if phase in ("train", "send") else self.registry.expected
        return [site for site in sites if site not in self.left_out]

    def available(self, grid: Grid, phase: Phase) -> list[str]:
        """Return the sites to ask now, in federation order; absent, busy and excluded sites are recorded as failures."""
        known = set(self.registry.sites)
        connected, refused = self.registry.refresh(grid, self.settings.deadline_of("join"))
        for failure in refused:
            self.record.fail(failure, phase)
        for site in (site for site in self.registry.sites if site not in known):
            self.note(f"site {site} has joined")
            self.folder.write("sites.json", sites_json(self.registry))
        self._pull_late_replies(grid)
        self.training = {message_id: each for message_id, each in self.training.items() if each.site in connected}
        available, busy = [], self.busy if phase != "finish" else set[str]()  # the last message may wait behind a training
        for site in self.wanted(phase):
            reason: Failure | None = None
            if self._is_aside(site):
                count = self.progress.bad_replies[site]
                reason = Failure(site, f"set aside after {count} refused replies in a row (robust.max-bad-replies)", "aside")
            elif site not in connected:
                self._unanswered.pop(site, None)  # its message was lost with its node
                reason = Failure(site, "its node is not connected", "away")
            elif site in self._unanswered:  # it would begin the next message only after its current one
                reason = Failure(site, "still owes the reply to an earlier message, so it is not asked", "late")
            elif site not in busy:
                available.append(site)
            if reason:
                self.record.fail(reason, phase)
        return available

    def _pull_late_replies(self, grid: Grid) -> None:
        """Drop late replies and let their sites be asked again; also sites whose pause is over, since a restarted node may have
        lost the request."""
        for site, (message_id, most_bytes, retry_at) in list(self._unanswered.items()):
            for reply in pull_one(grid, message_id, most_bytes)[:1]:
                error = reply.error if isinstance(reply, Message) and reply.has_error() else None
                if error and error.code in LOST:  # Flower's own, of a message that is gone; the site may still be at work on it
                    continue
                self._pauses.pop(site, None)
                said = f": {first_line(error.reason)}" if error else ""
                self.note(f"site {site} is back; its late reply does not count{said}")
                retry_at = 0.0
            if time.monotonic() > retry_at:
                del self._unanswered[site]

    def _may_come(self, quorum: int, phase: Phase, gives_up: float) -> bool:
        """Whether there is time, and a quorum of sites that are not set aside. gives_up: By the monotonic clock."""
        return time.monotonic() <= gives_up and sum(not self._is_aside(site) for site in self.wanted(phase)) >= quorum

    def _is_aside(self, site: str) -> bool:
        return 0 < self.settings.max_bad_replies <= self.progress.bad_replies.get(site, 0)

    # --- Asking ----------------------------------------------------------------------------------------------------------------

    def exchange(
        self,
        grid: Grid,
        requests: Callable[[], Iterable[Message]],
        phase: Phase,
        parse: Parser[T],
        most_bytes: int = WITHOUT_TENSORS,
        least: int = 0,
    ) -> list[Reply[T]]:
        """Send the messages of `requests`, one to each site, and return the good replies in federation order, at least a quorum.

        If bad replies leave too few, their sites are asked once more. most_bytes: The upper bound of a reply's size. least: The good
        replies that are needed; 0: as many as `quorum` says.

        Raises:
            RunError: Too few are good. RoundSkippedError: the same under `below-quorum = "go-on"`; there the last phase needs only one.
        """
        good: dict[str, Reply[T]] = {}
        self.good = good
        self._refused.clear()
        wanted, quorum, below_quorum = self.wanted(phase), least or self.quorum(phase), self.settings.below_quorum
        sites, step = set(wanted), Step.FIRST
        waits_s = self.settings.wait_s if below_quorum == "wait" else self.settings.deadline_of(phase)
        gives_up = time.monotonic() + waits_s
        while True:
            asked = {site: each for each in requests() if (site := site_of(each)) in sites and site not in good}
            if step is Step.FIRST and len(asked) + len(good) < quorum and self._waits_for_absent(phase, quorum, gives_up):
                self._say_once(f"round {self.record.number}, {phase}: waiting for sites that are away")
                time.sleep(min(WAIT_PAUSE_S, waits_s))
                continue
            # A run that continues without a quorum, or waits for one, gives up on no site before the deadline.
            gives_up_early = below_quorum == "fail" or self.layers.goes_on(phase)
            needed = quorum - len(good) if gives_up_early else 0
            answered, lost = self._ask_once(grid, asked, phase, parse, needed, most_bytes, step in (Step.FIRST, Step.ANEW))
            good |= answered
            if lost:
                sites, step = lost, Step.ANEW if step is Step.FIRST else step
            elif step in (Step.FIRST, Step.ANEW) and len(good) < quorum <= len(good) + len(self._refused):
                sites, step = set(self._refused), Step.ONCE_MORE
                self.note(f"round {self.record.number}, {phase}: asked once more after bad replies: {', '.join(sorted(sites))}")
            elif len(good) < quorum and below_quorum == "wait" and self._may_come(quorum, phase, gives_up):
                sites, step = set(wanted), Step.WAITING
                self._say_once(f"round {self.record.number}, {phase}: waiting for sites, {len(good)} of {quorum} are good")
                time.sleep(min(WAIT_PAUSE_S, waits_s))
            else:
                break
        if not least or len(good) < least:
            self.need_quorum(list(good), phase)
        return [good[site] for site in wanted if site in good]

    def _waits_for_absent(self, phase: Phase, quorum: int, gives_up: float) -> bool:
        """Whether a run that continues without a quorum waits for sites that are not here. gives_up: By the monotonic clock."""
        waits = self.settings.below_quorum == "go-on" and phase != "finish" and not self.layers.goes_on("train")
        return waits and self._may_come(quorum, phase, gives_up)

    def _ask_once(
        self,
        grid: Grid,
        messages: dict[str, Message],
        phase: Phase,
        parse: Parser[T],
        needed: int,
        most_bytes: int,
        asks_again: bool,
    ) -> tuple[dict[str, Reply[T]], set[str]]:
        """Return the good replies, and the sites to ask again because they lost tensors that their request named by hash."""
        good: dict[str, Reply[T]] = {}
        failures: list[Failure] = []
        self._refused -= set(messages)
        refused_before = len(self._refused)
        outstanding = self.training if self.layers.goes_on(phase) else None
        self._count_requests(messages, phase, len(outstanding or ()))
        measures = any(self.last_request[site][0].measure is not None for site in messages)
        started, deadline_s = time.monotonic(), self.settings.deadline_of(phase, measures)

        def on_sent() -> None:
            if self._last_reply is not None:
                self.record.pause_s[phase] = round(time.monotonic() - self._last_reply, 3)

        def is_over(waiting: int) -> bool:
            if self.layers.goes_on(phase):
                return len(good) >= needed
            # Sites whose replies were bad may be asked again, so they still count as possible good replies. One that reports an
            # error may be, too, but is not hoped for: what broke there mostly stays broken, and the others would work for nothing.
            hopeful = refused_before + sum(failure.kind in _MAY_BE_ASKED_AGAIN for failure in failures) if asks_again else 0
            return len(good) + waiting + hopeful < needed

        for site, reply in replies_to(grid, messages, deadline_s, lambda _: most_bytes, on_sent, is_over, outstanding):
            if isinstance(reply, Failure):
                failures.append(reply)
                continue
            self._last_reply = time.monotonic()
            size = message_bytes(reply)
            self.record.of(site)["uplink_bytes"] += size
            parsed = read_reply(site, reply, self.last_request[site][0], parse)
            # The parsed reply has the tensors that are needed; the message itself stays in memory until the phase is over.
            reply.content.pop(protocol.ARRAYS, None)
            if isinstance(parsed, Failure):
                failures.append(parsed)
                self._refuse(parsed, phase)
                continue
            good[site] = parsed
            self.layers.answered(site)
            about = {"phase": phase, "round": self.record.number, "site": site, "seconds": round(time.monotonic() - started, 3)}
            self.folder.event("reply", **about, loss=_loss(getattr(parsed.parsed, "sums", parsed.parsed)), uplink_bytes=size)
        self.record.bytes = self.registry.traffic.as_json(self._before)
        self.folder.write(TRAFFIC, self.registry.traffic.as_json())
        self.record.phase_s[phase] = round(self.record.phase_s.get(phase, 0.0) + time.monotonic() - started, 3)
        for site in good:
            self._pauses.pop(site, None)
            self.progress.bad_replies.pop(site, None)
        return good, self._sort(failures, phase, most_bytes, deadline_s)

    def _count_requests(self, messages: dict[str, Message], phase: Phase, outstanding: int) -> None:
        """Have the layers finish the requests, and record what is sent. outstanding: Number of earlier requests."""
        awaited = len(messages) + outstanding
        self.folder.event("phase", phase=phase, round=self.record.number, rounds=self.num_rounds, sites=awaited)
        for site, message in messages.items():
            self.last_request[site] = Task.of(message.content.config_records[protocol.TASK]), time.monotonic()
        for site, message in messages.items():
            arrays = message.content.array_records.get(protocol.ARRAYS, ArrayRecord())
            whole = 4 * sum(math.prod(array.shape) for array in arrays.values())
            self.registry.traffic.counts[site, kind_of(message), FP32] += whole
        self.layers.requests(messages)
        for site, message in messages.items():
            self.record.of(site)["downlink_bytes"] += message_bytes(message)

    def _sort(self, failures: list[Failure], phase: Phase, most_bytes: int, deadline_s: float) -> set[str]:
        """Record a phase's failures by kind. Return the sites that lost tensors which their request named by hash, to be asked again."""
        lost: set[str] = set()
        for failure in in_order(failures, self.registry.expected):
            if failure.kind == "not held" and self.layers.not_held(failure.site):
                lost.add(failure.site)
                self.note(f"site {failure.site} is sent everything: {failure.reason}")
                continue
            if failure.unanswered:
                self._pauses[failure.site] = 2 * self._pauses.get(failure.site, deadline_s / 2)
                self._unanswered[failure.site] = failure.unanswered, most_bytes, time.monotonic() + self._pauses[failure.site]
            if failure.kind in ("unreadable", "failed", "not held"):
                self._refuse(failure, phase)
            elif failure.kind != "refused":  # refused replies were recorded above, as they arrived
                self.record.fail(failure, phase)
        return lost

    # --- Failures --------------------------------------------------------------------------------------------------------------

    def _refuse(self, failure: Failure, phase: Phase) -> None:
        """Record a refused reply, which counts towards setting the site aside; a run that waits for sites forgives errors."""
        self.record.fail(failure, phase)
        self._refused.add(failure.site)
        if failure.kind == "failed" and self.settings.below_quorum == "wait":
            return
        count = self.progress.bad_replies[failure.site] = self.progress.bad_replies.get(failure.site, 0) + 1
        if self._is_aside(failure.site):
            self.note(f"site {failure.site} is set aside: {count} of its replies in a row were refused")

    def quorum(self, phase: Phase) -> int:
        """Return the number of good replies that a phase needs."""
        return self._quorum(phase)[0]

    def _quorum(self, phase: Phase) -> tuple[int, str]:
        sites = len(self.wanted(phase))
        usual = max(1, math.ceil(self.settings.quorum * sites - 1e-9)), f"quorum = {self.settings.quorum:g}"
        return self.layers.quorum(phase, sites, usual)

    def need_quorum(self, good: Collection[str], phase: Phase) -> None:
        """Apply `below-quorum` if there are too few good replies; under "go-on" the last phase needs only one.

        Raises:
            RunError, RoundSkippedError: Too few; names the missing sites and the reasons.
        """
        quorum, key = self._quorum(phase)
        if len(good) >= quorum:
            return
        last = {failure["site"]: failure["reason"] for failure in self.record.failures if failure["site"] not in good}
        if self.settings.strategy and not self.layers.goes_on("train"):
            last |= dict.fromkeys(set(self.wanted(phase)) - set(good) - set(last), "the strategy did not ask it")
        reasons = "; ".join(f"{site}: {reason}" for site, reason in sorted(last.items()))
        short = (
            f"round {self.record.number}, {phase}: {len(good)} of {len(self.wanted(phase))} sites answered well, "
            f"{key} needs {quorum}; missing: {reasons}"
        )
        way_on = "bring them back and continue with --resume, or start with a lower quorum"
        if self.settings.below_quorum == "go-on" and phase != "finish":
            raise RoundSkippedError(short)
        if self.settings.below_quorum != "go-on" or not good:
            raise RunError(f"{short}; {way_on}")


def read_reply(site: str, reply: Message, task: Task, parse: Parser[T]) -> Reply[T] | Failure:
    """Return a reply with its parsed content or why it does not count; errors of the server itself are raised."""
    try:
        check_task(reply, task)
        return Reply(site, reply, parse(site, reply))
    except (RunError, OSError):
        raise
    except Exception as error:  # a reply with arbitrary content may fail anywhere
        return bad_reply(site, error)


def _loss(sums: Any) -> float | None:
    """Return the loss of a training or an evaluation, in nats a token; None for scores."""
    return float(sums["nll_sum"] / sums["num_tokens"]) if "nll_sum" in sums else None
