"""What a check of a site or of a machine found: one line for each thing that it looked at."""

from collections.abc import Callable
from dataclasses import dataclass

from fedlingua.common.errors import FedlinguaError


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. told: what was seen, or what is wrong and what to do. note: it is good as it is, but worth a look."""

    what: str
    good: bool
    told: str
    note: bool = False


class Note(str):
    """What a look tells where nothing is wrong, but something is worth knowing."""


def finding_of(what: str, look: Callable[[], str]) -> Finding:
    """What a look tells is good, what it raises is not."""
    try:
        told = look()
    except (FedlinguaError, OSError, UnicodeError) as error:  # also a file that is not there, or that may not be read
        return Finding(what, False, str(error))
    return Finding(what, True, str(told), note=isinstance(told, Note))
