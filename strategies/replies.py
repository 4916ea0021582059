"""Send one message to each site, gather the replies until all are there or the deadline has passed, and name what went wrong."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flwr.app import Message
from flwr.serverapp import Grid

POLL_S = 0.1
"""The grid's own send_and_receive looks every 3 s, which is most of a short round."""


@dataclass(frozen=True)
class Failure:
    """A site that gave nothing usable in a phase, and why."""

    site: str
    reason: str


def gather(
    grid: Grid,
    messages: Mapping[str, Message],
    deadline_s: float,
    on_reply: Callable[[str, Message], None],
    needed: int = 0,
) -> tuple[dict[str, Message], list[Failure]]:
    """Push `messages` (site -> message) at once and pull replies as they come.

    Returns the replies with content, in the order of `messages` whatever the order they came in, and a failure for every other site.
    Once so many have failed that `needed` replies cannot come any more, nobody is waited for. Flower names the node of a lost client
    wrongly, so replies are told apart by the message they answer.
    """
    # Flower wants a list: a generator ends the run.
    ids = list(grid.push_messages(list(messages.values())))
    site_of = {str(number): site for number, site in zip(ids, messages, strict=True)}
    replies: dict[str, Message] = {}
    failures: dict[str, Failure] = {}
    ends = time.monotonic() + deadline_s
    waiting = set(site_of)
    while waiting and time.monotonic() < ends:
        for reply in grid.pull_messages(sorted(waiting)):
            number = str(reply.metadata.reply_to_message_id)
            if number not in waiting:
                continue
            waiting.discard(number)
            site = site_of[number]
            if reply.has_error():
                failures[site] = Failure(site, first_line(reply.error.reason))
            else:
                replies[site] = reply
                on_reply(site, reply)
        if len(replies) + len(waiting) < needed:
            break
        if waiting:
            time.sleep(POLL_S)
    late = f"no reply within {deadline_s:g} s" if time.monotonic() >= ends else "not waited for, since the quorum is out of reach"
    for number in waiting:
        failures[site_of[number]] = Failure(site_of[number], late)
    return {site: replies[site] for site in messages if site in replies}, [
        failures[site] for site in messages if site in failures
    ]


def first_line(reason: str | None) -> str:
    """What an error says, without its traceback."""
    lines = [line.strip() for line in (reason or "").split("\n") if line.strip()] or ["no reason given"]
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]
