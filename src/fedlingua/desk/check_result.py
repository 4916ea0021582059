"""The result of a check of a site or of a machine."""

from collections.abc import Callable
from dataclasses import dataclass

from fedlingua.common.errors import FedlinguaError


@dataclass(frozen=True)
class CheckResult:
    """The result of one check. text: what was seen, or what is wrong and what to do. remark: passed, but worth a look."""

    what: str
    good: bool
    text: str
    remark: bool = False


class Remark(str):
    """A passed check with a remark."""


def run_check(what: str, check: Callable[[], str]) -> CheckResult:
    """Run a check, which passes with the text that it returns or fails with the error that it raises."""
    try:
        text = check()
    except (FedlinguaError, OSError, UnicodeError) as error:  # also a file that is missing or may not be read
        return CheckResult(what, False, str(error))
    return CheckResult(what, True, str(text), remark=isinstance(text, Remark))
