"""Send one message to each site, gather the replies until all are there or the deadline has passed, and name what went wrong."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, cast

import httpx
from flwr.app import Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

POLL_S = 0.1
"""The grid's own send_and_receive looks every 3 s, which is most of a short round."""

Kind = Literal[
    "refused", "unreadable", "failed", "late", "dead", "away", "not waited for", "aside", "foreign", "duplicate", "scaled"
]
"""refused: a reply that is not what it has to be; unreadable: not even Flower's own form. failed: the site says that it could not.
late: connected, and silent past the deadline. dead: its node was lost with the task. away: its node is not connected, so it was not
asked. aside: refused too often, so not asked any more. foreign: a node that may not speak for the site. duplicate: a second reply to the
same message. scaled: an update that counts in part."""

_LOST = {ErrorCode.NODE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.MESSAGE_UNAVAILABLE}


@dataclass(frozen=True)
class Failure:
    """A site that gave nothing usable in a phase, and why."""

    site: str
    reason: str
    kind: Kind = "refused"


@dataclass(frozen=True)
class Unreadable:
    """What came in answer to a message and is no message itself."""

    number: str
    reason: str


@dataclass(frozen=True)
class Gathered:
    """What came of one phase. owed: site -> the message that it has not answered yet."""

    accepted: dict[str, Message]
    failures: list[Failure]
    owed: dict[str, str]


def gather(
    grid: Grid,
    messages: dict[str, Message],
    deadline_s: float,
    on_reply: Callable[[str, Message], Failure | None],
    needed: int = 0,
    on_sent: Callable[[], None] = lambda: None,
) -> Gathered:
    """Push `messages` (site -> message) at once, tell `on_sent`, and pull replies as they come; `on_reply` may refuse one.

    Accepted replies come in the order of `messages`, whatever the order they came in; every other site has a failure (and so has every
    reply too many). Once so many have failed that `needed` replies cannot come any more, nobody is waited for. Flower names
    the node of a lost client wrongly, so replies are told apart by the message they answer. `messages` is empty once they are sent, so
    that the tensors in them need no memory while the sites are at work.
    """
    if not messages:
        return Gathered({}, [], {})
    nodes = {site: message.metadata.dst_node_id for site, message in messages.items()}
    # Flower wants a list: a generator ends the run. In one list, what several sites get alike goes to the SuperLink once.
    ids = list(grid.push_messages(list(messages.values())))
    messages.clear()
    on_sent()
    site_of = {str(number): site for number, site in zip(ids, nodes, strict=True)}
    replies: dict[str, Message] = {}
    failures: dict[str, Failure] = {}
    extra: list[Failure] = []
    ends = time.monotonic() + deadline_s
    waiting = set(site_of)
    while waiting and time.monotonic() < ends:
        for asked in sorted(waiting):
            for reply in pull_one(grid, asked):
                number = reply.number if isinstance(reply, Unreadable) else str(reply.metadata.reply_to_message_id)
                if number not in waiting:
                    extra.append(_unasked(site_of.get(number)))
                    continue
                waiting.discard(number)
                site = site_of[number]
                if failure := _fault(site, reply) or on_reply(site, cast(Message, reply)):
                    failures[site] = failure
                else:
                    replies[site] = cast(Message, reply)
        if len(replies) + len(waiting) < needed:
            break
        if waiting:
            time.sleep(min(POLL_S, max(0.0, ends - time.monotonic())))
    for number in waiting:
        failures[site_of[number]] = _silent(site_of[number], grid, nodes, deadline_s, time.monotonic() >= ends)
    accepted = {site: replies[site] for site in nodes if site in replies}
    owed = {site_of[number]: number for number in waiting}
    return Gathered(accepted, [failures[site] for site in nodes if site in failures] + extra, owed)


def pull_one(grid: Grid, number: str) -> list[Message | Unreadable]:
    """What has come in answer to one message.

    Each is pulled by itself: Flower decodes what a site has sent while it pulls, and where that fails all others of the pull are lost.
    """
    try:
        return list(grid.pull_messages([number]))
    except (httpx.HTTPError, OSError):
        raise  # the SuperLink is not there, which is no site's fault
    except Exception as error:
        return [Unreadable(number, f"bad reply: its records do not decode ({type(error).__name__})")]


def _fault(site: str, reply: Message | Unreadable) -> Failure | None:
    if isinstance(reply, Unreadable):
        return Failure(site, reply.reason, "unreadable")
    if not reply.has_error():
        return None
    reason = first_line(reply.error.reason)
    if reply.error.code in _LOST:
        return Failure(site, f"its node was lost with the task ({reason})", "dead")
    return Failure(site, reason, "failed")


def _unasked(site: str | None) -> Failure:
    if site is None:
        return Failure("unknown", "a reply to a message that was never sent", "duplicate")
    return Failure(site, "a second reply to the same message; the first one counts", "duplicate")


def _silent(site: str, grid: Grid, nodes: Mapping[str, int], deadline_s: float, past_deadline: bool) -> Failure:
    if not past_deadline:
        return Failure(site, "not waited for, since the quorum is out of reach", "not waited for")
    if nodes[site] not in set(grid.get_node_ids()):
        return Failure(site, f"no reply within {deadline_s:g} s, and its node is not connected any more", "dead")
    return Failure(site, f"no reply within {deadline_s:g} s, though its node is connected", "late")


def first_line(reason: str | None) -> str:
    """What an error says, without its traceback."""
    lines = [line.strip() for line in (reason or "").split("\n") if line.strip()] or ["no reason given"]
    line = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    # Flower writes an exception as <class 'x.Error'>:<'words'>.
    flowers = re.fullmatch(r"<class '(?:\w+\.)*(\w+)'>:<'(.*)'>", line)
    return f"{flowers[1]}: {flowers[2]}" if flowers else line
