"""A site's reply, and what goes wrong with one."""

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from flwr.app import Message

MOST_TEXT = 2000
"""Most characters of a reason that are stored; of a site's name, a tenth as many."""

Kind = Literal[
    "refused",
    "unreadable",
    "failed",
    "not held",
    "late",
    "dead",
    "away",
    "not waited for",
    "aside",
    "foreign",
    "duplicate",
    "scaled",
]
"""refused: a reply that failed a check, or an update that was left out. unreadable: a reply that Flower cannot decode. failed: the site
reported an error. not held: it lost tensors that the request names by hash, and is sent them whole. late: connected, but silent past the
deadline. dead: its node was lost with the task. away: its node is not connected, so it was not asked. not waited for: the quorum was out
of reach without it. aside: refused too often, so no longer asked. foreign: a node that may not answer for the site. duplicate: a second
reply to the same message. scaled: an update that was scaled down."""

T = TypeVar("T")


class RoundSkippedError(Exception):
    """Too few good replies; the run continues without this round. back_to: The round from whose tensors; None: from the newest."""

    def __init__(self, why: str, back_to: int | None = None) -> None:
        super().__init__(why)
        self.back_to = back_to


@dataclass(frozen=True)
class Failure:
    """What went wrong with a site in a phase, and why. Nodes may write both texts, so they are made printable and cut."""

    site: str
    reason: str
    kind: Kind = "refused"
    unanswered: str = ""
    """The message that the site has not answered yet."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "site", _printable(self.site, MOST_TEXT // 10))
        object.__setattr__(self, "reason", _printable(self.reason, MOST_TEXT))


@dataclass(frozen=True)
class Reply(Generic[T]):
    """A good reply. site: the site that was asked, whatever the reply says; parsed: its checked content."""

    site: str
    message: Message
    parsed: T


def _printable(text: str, most: int) -> str:
    """Return text that can be stored and shown: unprintable characters (lone surrogates, escapes) are spelt out, the end is cut."""
    short = text if len(text) <= most else f"{text[:most]}..."
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in short)
