"""Send one message to each site, collect replies until all have arrived or the deadline has passed, and name the failures."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import httpx
from flwr.app import Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange import protocol
from fedlingua.exchange.records import bounded_arrays, message_bytes
from fedlingua.exchange.replies import MOST_TEXT, Failure

POLL_S = 0.1
"""Seconds between two polls. The grid's own send_and_receive polls every 3 s, which is most of a short round."""

T = TypeVar("T")
LOST = {ErrorCode.NODE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.MESSAGE_UNAVAILABLE}


@dataclass(frozen=True)
class Pending:
    """A message that a site has not answered yet. ends: when it is late, by the monotonic clock."""

    site: str
    node: int
    ends: float


def replies_to(
    grid: Grid,
    messages: dict[str, Message],
    deadline_s: float,
    most_bytes: Callable[[str], int],
    on_sent: Callable[[], None] = lambda: None,
    is_over: Callable[[int], bool] = lambda waiting: False,
    outstanding: dict[str, Pending] | None = None,
) -> Iterator[tuple[str, Message | Failure]]:
    """Send `messages` (site -> message) at once, call `on_sent`, and yield replies as they arrive: (site, reply or error).

    Each site is yielded once, and once more for every duplicate. A node may write anything into a reply, so a reply belongs to the site
    whose message it was pulled for. `messages` is emptied once they are sent, so that their tensors take no memory while the sites work.

    Args:
        most_bytes: Site -> the upper bound of its reply's size, checked before anything is decoded.
        is_over: Called with the number of missing replies; if it returns true, waiting ends.
        outstanding: Message id -> who was asked earlier and is waited for as well. Messages that are still unanswered when waiting ends
            before their deadline are left in it, instead of being yielded as failures.
    """
    waiting: dict[str, Pending] = {} if outstanding is None else outstanding
    if messages:
        receivers = [(site, message.metadata.dst_node_id) for site, message in messages.items()]
        # Flower needs a list: a generator would end the run. Arrays that several sites get go to the SuperLink once for the list.
        ids = list(grid.push_messages(list(messages.values())))
        messages.clear()
        on_sent()
        ends = time.monotonic() + deadline_s
        for message_id, (site, node) in zip(ids, receivers, strict=True):
            if message_id:
                waiting[str(message_id)] = Pending(site, node, ends)
            else:  # so Flower reports a message that it does not store
                yield site, Failure(site, "its node has signed off", "dead")
    site_by_message = {message_id: each.site for message_id, each in waiting.items()}
    while waiting:
        for message_id in sorted(waiting):
            site = site_by_message[message_id]
            most = most_bytes(site)
            for reply in pull_one(grid, message_id, most):
                if message_id in waiting:
                    del waiting[message_id]
                    yield site, _fault(site, reply, message_id, most) or cast(Message, reply)
                    continue
                about = site_by_message.get(str(cast(Message, reply).metadata.reply_to_message_id))
                why = (
                    "a second reply to the same message; the first one counts"
                    if about
                    else "a reply to a message that was never sent"
                )
                yield about or "", Failure(about or "unknown", why, "duplicate")
        for message_id in [message_id for message_id, each in waiting.items() if time.monotonic() >= each.ends]:
            late = waiting.pop(message_id)
            is_here = late.node in set(grid.get_node_ids())
            where = "though its node is connected" if is_here else "and its node is not connected any more"
            why = f"no reply within {deadline_s:g} s, {where}"
            yield late.site, Failure(late.site, why, "late" if is_here else "dead", message_id)
        if is_over(len(waiting)):
            break
        if waiting:
            time.sleep(max(0.0, min(POLL_S, min(each.ends for each in waiting.values()) - time.monotonic())))
    for message_id, each in waiting.items() if outstanding is None else ():
        yield each.site, Failure(each.site, "not waited for, since the quorum is out of reach", "not waited for", message_id)


def pull_one(grid: Grid, message_id: str, most_bytes: int) -> list[Message] | list[ExchangeError]:
    """Return the replies to one message, or a single error if one does not decode as a message; arrays of more than `most_bytes` in all
    are never allocated.

    Messages are pulled one by one: Flower decodes replies while it pulls, and if one fails, all others of the same pull are lost.
    """
    try:
        with bounded_arrays(most_bytes):
            return list(grid.pull_messages([message_id]))
    except (httpx.HTTPError, OSError):
        raise  # the SuperLink cannot be reached, which is no site's fault
    except ExchangeError as error:
        return [ExchangeError(f"bad reply: {error}")]
    except Exception as error:
        return [ExchangeError(f"bad reply: its records do not decode ({type(error).__name__})")]


def _fault(site: str, reply: Message | ExchangeError, message_id: str, most_bytes: int) -> Failure | None:
    if isinstance(reply, ExchangeError):
        return Failure(site, str(reply), "unreadable")
    if str(reply.metadata.reply_to_message_id) != message_id:
        return Failure(site, "bad reply: answers another message than the one it was sent", "unreadable")
    if not reply.has_error():
        size = message_bytes(reply)
        over = f"bad reply: the reply has {size} bytes; wanted at most {most_bytes}"
        return Failure(site, over, "unreadable") if size > most_bytes else None
    reason = first_line(reply.error.reason)
    if reply.error.code in LOST:
        return Failure(site, f"its node was lost with the task ({reason})", "dead")
    return Failure(site, reason, "not held" if reply.error.code == protocol.NOT_HELD else "failed")


def in_order(failures: Iterable[Failure], sites: Sequence[str]) -> list[Failure]:
    """Return the failures in the order of `sites`, duplicates last."""
    return sorted(failures, key=lambda failure: len(sites) if failure.kind == "duplicate" else sites.index(failure.site))


def bad_reply(site: str, error: Exception) -> Failure:
    """Return the failure of a reply that could not be read, in our own words or by the type of the exception."""
    said = str(error) if isinstance(error, ExchangeError) else f"its records are not those of a reply ({type(error).__name__})"
    return Failure(site, f"bad reply: {said}")


def first_line(reason: str | None) -> str:
    """Return an error's message without its traceback; of a very long one, the beginning and the end."""
    reason = reason or ""
    ends = reason if len(reason) <= 2 * MOST_TEXT else f"{reason[:MOST_TEXT]}\n{reason[-MOST_TEXT:]}"
    lines = [line.strip() for line in ends.split("\n") if line.strip()] or ["no reason given"]
    line = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    # Flower writes an exception as <class 'x.Error'>:<'words'>.
    flowers = re.fullmatch(r"<class '(?:\w+\.)*(\w+)'>:<'(.*)'>", line)
    return f"{flowers[1]}: {flowers[2]}" if flowers else line
