"""One phase with all sites: who is here, one message to each, every reply read as it comes, and what happens when too few are good."""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from fedlingua.common.errors import RunError
from fedlingua.exchange import protocol
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.records import message_bytes
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.config import Phase, Settings
from strategies.checks import WITHOUT_TENSORS, check_task
from strategies.progress import Progress
from strategies.replies import Failure, Unreadable, bad_reply, gather, pull_one
from strategies.roll_call import Roll, sites_json
from strategies.round_record import RoundRecord
from strategies.traffic import FILE as TRAFFIC
from strategies.traffic import Counts

WAIT_PAUSE_S = 5.0
"""Between two questions to sites that `below-quorum = "wait"` waits for."""
COUNTED: tuple[Phase, ...] = ("train", "send")
"""Phases whose messages are a round's uplink and downlink."""
Reader = Callable[[str, Message, int], Any]
"""(site, reply, its bytes) -> what the reply says; refuses with ExchangeError."""


class RoundSkippedError(Exception):
    """Too few good replies, and the run goes on without this round."""


@dataclass(frozen=True)
class _Debt:
    """A message that a site has not answered. let_off_until: when it is asked again all the same; twice as long each time it is late."""

    number: str
    let_off_until: float


class Conversation:
    """What the server says to the sites and hears from them, round after round; `record` is of the round at work."""

    def __init__(self, settings: Settings, roll: Roll, folder: RunFolder) -> None:
        self.settings, self.roll, self.folder = settings, roll, folder
        self.record = RoundRecord(0, folder)
        self._before: Counts = Counter()
        self._heard: dict[str, tuple[str, Any]] = {}
        self._refused: set[str] = set()
        """sites whose last reply was bad"""
        self._owed: dict[str, _Debt] = {}
        self._pauses: dict[str, float] = {}
        self._last_reply: float | None = None
        self._round_began = time.monotonic()

    def begin_round(self, number: int) -> None:
        self.record, self._before = RoundRecord(number, self.folder), self.roll.traffic.counts.copy()
        self._round_began = time.monotonic()
        self._heard.clear()  # of a round that was skipped, updates would stay in memory

    @property
    def most_seconds(self) -> float:
        """That a site can have been at work in the round so far, with something for clocks that do not run alike."""
        return 1.1 * (time.monotonic() - self._round_began) + 5.0

    # --- Who is asked ----------------------------------------------------------------------------------------------------------

    def sites_here(self, grid: Grid, phase: Phase, progress: Progress) -> list[str]:
        """The sites to ask now, in federation order; those that are away, at work or set aside are named as failures."""
        known = set(self.roll.sites)
        connected, refused = self.roll.refresh(grid, self.settings.deadline_of("join"))
        for failure in refused:
            self.record.fail(failure, phase)
        for site in (site for site in self.roll.sites if site not in known):
            self.folder.event("note", text=f"site {site} has joined")
            self.folder.write("sites.json", sites_json(self.roll))
        self._hear_late_ones(grid)
        here = []
        for site in self.roll.expected:
            if self._is_aside(site, progress):
                count = progress.bad_replies[site]
                self.record.fail(Failure(site, f"set aside after {count} refused replies", "aside"), phase)
            elif site not in connected:
                self._owed.pop(site, None)  # with its node the message is gone, too
                self.record.fail(Failure(site, "its node is not connected", "away"), phase)
            elif site in self._owed:  # it would take up the next message only after the one that it is at
                self.record.fail(Failure(site, "still owes the reply to an earlier message, so it is not asked", "late"), phase)
            else:
                here.append(site)
        return here

    def _hear_late_ones(self, grid: Grid) -> None:
        """Whoever has answered an earlier phase's message by now may be asked again, and so may, for a try, who has been let off long
        enough: its node may have been started anew, and the message be lost. The late answer itself is dropped."""
        for site, debt in list(self._owed.items()):
            late = pull_one(grid, debt.number, WITHOUT_TENSORS)  # it is dropped, so its tensors are not wanted
            answers = [reply for reply in late if isinstance(reply, Unreadable) or not reply.has_error()]
            if answers:
                self._pauses.pop(site, None)
                self.folder.event("note", text=f"site {site} is back; its late reply does not count")
            if answers or time.monotonic() > debt.let_off_until:
                del self._owed[site]

    def _is_aside(self, site: str, progress: Progress) -> bool:
        return 0 < self.settings.max_bad_replies <= progress.bad_replies.get(site, 0)

    # --- Asking ----------------------------------------------------------------------------------------------------------------

    def exchange(
        self,
        grid: Grid,
        ask: Callable[[], Iterable[Message]],
        phase: Phase,
        read: Reader,
        progress: Progress,
        num_rounds: int,
        most_bytes: int = WITHOUT_TENSORS,
    ) -> list[Message]:
        """Send what `ask` makes, one message to each site; the good replies come back in federation order, a quorum at least.

        Where bad replies leave too few, their sites are asked once more. most_bytes: of one reply.

        Raises:
            RunError, or RoundSkippedError under `below-quorum = "go-on"`: too few are good.
        """
        good: dict[str, Message] = {}
        again: set[str] | None = None
        """the sites that are asked once more, when they are"""
        gives_up = time.monotonic() + self.settings.wait_s
        while True:
            asked = {site: message for message in ask() if (site := str(_task(message)["site"])) not in good}
            if again:
                asked = {site: message for site, message in asked.items() if site in again}
            # Those who wait for a quorum, or take what there is at the end, hear everybody out.
            hears_all = self.settings.below_quorum == "wait" or (self.settings.below_quorum == "go-on" and phase == "finish")
            needed = 0 if hears_all else self.quorum - len(good)
            good |= self._ask_once(grid, asked, phase, read, progress, num_rounds, needed, most_bytes, again is None)
            if again is None and len(good) < self.quorum <= len(good) + len(self._refused):
                again = set(self._refused)
                text = f"round {self.record.number}, {phase}: asked once more after bad replies: {', '.join(sorted(again))}"
                self.folder.event("note", text=text)
                continue
            again = set()
            if len(good) >= self.quorum or self.settings.below_quorum != "wait" or time.monotonic() > gives_up:
                break
            waiting = f"waiting for sites, {len(good)} of {self.quorum} are good"
            self.folder.event("note", text=f"round {self.record.number}, {phase}: {waiting}")
            time.sleep(min(WAIT_PAUSE_S, self.settings.wait_s))
        self.need_quorum(good, phase)
        return [good[site] for site in self.roll.expected if site in good]

    def heard(self, replies: Iterable[Message]) -> dict[str, Any]:
        """site -> what its reply said, for replies that `exchange` gave; the site is the one that was asked, whoever the reply names."""
        return dict(self._heard.pop(str(reply.metadata.reply_to_message_id)) for reply in replies)

    def _ask_once(
        self,
        grid: Grid,
        messages: dict[str, Message],
        phase: Phase,
        read: Reader,
        progress: Progress,
        num_rounds: int,
        needed: int,
        most_bytes: int,
        asks_again: bool,
    ) -> dict[str, Message]:
        number = self.record.number
        self._refused.clear()
        self.folder.event("phase", phase=phase, round=number, rounds=num_rounds, sites=len(messages))
        tasks = {site: Task.of(_task(message)) for site, message in messages.items()}
        for site in tasks:
            if phase in COUNTED:
                self.record.of(site)["downlink_bytes"] += message_bytes(messages[site])
            else:
                self.record.of(site)
        started = time.monotonic()

        def on_sent() -> None:
            if self._last_reply is not None:
                self.record.pause_s[phase] = round(time.monotonic() - self._last_reply, 3)

        def on_reply(site: str, reply: Message) -> Failure | None:
            self._last_reply = time.monotonic()
            size = message_bytes(reply)
            uplink = size if phase in COUNTED else 0
            self.record.of(site)["uplink_bytes"] += uplink
            try:
                check_task(reply, tasks[site])
                said = read(site, reply, size)
            except (RunError, OSError):
                raise  # the server's own
            except Exception as error:  # what a node makes up may fail anywhere
                failure = bad_reply(site, error)
                self.refuse(failure, phase, progress)
                return failure
            finally:
                # What is needed of the tensors is with whoever read them; the reply itself stays until the phase is over.
                reply.content.pop(protocol.ARRAYS, None)
            self._heard[str(reply.metadata.reply_to_message_id)] = (site, said)
            told = {"phase": phase, "round": number, "site": site, "seconds": round(time.monotonic() - started, 3)}
            self.folder.event("reply", **told, loss=self._loss(site, phase), uplink_bytes=uplink)
            return None

        deadline_s = self.settings.deadline_of(phase)
        gathered = gather(grid, messages, deadline_s, on_reply, lambda _: most_bytes, needed, on_sent, asks_again)
        self.record.bytes = self.roll.traffic.told(self._before)
        self.folder.write(TRAFFIC, self.roll.traffic.told())
        self.record.phase_s[phase] = round(self.record.phase_s.get(phase, 0.0) + time.monotonic() - started, 3)
        for site in gathered.accepted:
            self._pauses.pop(site, None)
        for site, message_id in gathered.owed.items():
            self._pauses[site] = 2 * self._pauses.get(site, self.settings.deadline_of(phase) / 2)
            self._owed[site] = _Debt(message_id, time.monotonic() + self._pauses[site])
        for failure in gathered.failures:
            if failure.kind in ("unreadable", "failed"):
                self.refuse(failure, phase, progress)
            elif failure.kind != "refused":  # those are entered as they come
                self.record.fail(failure, phase)
        return gathered.accepted

    def _loss(self, site: str, phase: Phase) -> float | None:
        record = self.record.of(site)
        loss: float | None = record.get("train_loss" if phase in COUNTED else "dev_loss") if phase != "finish" else None
        return loss

    # --- What went wrong -------------------------------------------------------------------------------------------------------

    def refuse(self, failure: Failure, phase: Phase, progress: Progress) -> None:
        """Enter a refused reply, and set the site aside when it was one too many."""
        self.record.fail(failure, phase)
        self._refused.add(failure.site)
        progress.bad_replies[failure.site] = progress.bad_replies.get(failure.site, 0) + 1
        if self._is_aside(failure.site, progress):
            text = f"site {failure.site} is set aside: {progress.bad_replies[failure.site]} of its replies were refused"
            self.folder.event("note", text=text)

    @property
    def quorum(self) -> int:
        """How many sites have to answer well in a phase."""
        return max(1, math.ceil(self.settings.quorum * len(self.roll.expected) - 1e-9))

    def need_quorum(self, good: Collection[str], phase: Phase) -> None:
        """Go by `below-quorum` where fewer sites than the quorum are good; at the end a run that goes on takes what there is.

        Raises:
            RunError, RoundSkippedError: names the sites that are missing, and why.
        """
        if len(good) >= self.quorum:
            return
        last = {failure["site"]: failure["reason"] for failure in self.record.failures if failure["site"] not in good}
        reasons = "; ".join(f"{site}: {reason}" for site, reason in last.items())
        told = (
            f"round {self.record.number}, {phase}: {len(good)} of {len(self.roll.expected)} sites answered well, "
            f"quorum = {self.settings.quorum:g} needs {self.quorum}; missing: {reasons}"
        )
        way_on = "bring them back and go on with --resume, or start with a lower quorum"
        if self.settings.below_quorum == "go-on" and phase != "finish":
            raise RoundSkippedError(told)
        if self.settings.below_quorum != "go-on" or not good:
            raise RunError(f"{told}; {way_on}")


def _task(message: Message) -> Mapping[str, Any]:
    return message.content.config_records[protocol.TASK]
