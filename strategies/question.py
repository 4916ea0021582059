"""One question to every site before the first round, which all of them have to answer."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid

from fedlingua.common.errors import RunError
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.records import message_bytes
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.config import Settings
from strategies.checks import check_task
from strategies.replies import Failure, bad_reply, gather
from strategies.roll_call import Roll

T = TypeVar("T")


def ask_everybody(
    grid: Grid,
    settings: Settings,
    roll: Roll,
    folder: RunFolder,
    message_type: str,
    read: Callable[[str, Message, int], T],
    need: str,
    most_bytes: Callable[[str], int],
    arrays: Mapping[str, ArrayRecord] | None = None,
) -> dict[str, T]:
    """site -> what `read` takes of its reply, of all sites, in federation order.

    read: (site, reply, its bytes); refuses with ExchangeError. need: what every site is needed for, in words. most_bytes: of a
    site's reply, before it is looked at. arrays: for each site. A site that sends a bad reply is asked once more.

    Raises:
        RunError: a site that is not here, or gave nothing usable; with `need`, the names and what each said.
    """
    run = folder.read("run.json") or {}
    tasks = {site: Task(site, str(run.get("id", "")), int(run.get("attempt", 1)), 0) for site in roll.sites}
    deadline = settings.deadline_of("train")
    found: dict[str, T] = {}

    def on_reply(site: str, reply: Message) -> Failure | None:
        try:
            check_task(reply, tasks[site])
            found[site] = read(site, reply, message_bytes(reply))
        except Exception as error:  # what a node makes up may fail anywhere
            return bad_reply(site, error)
        return None

    ask = list(tasks)
    for _ in range(2):
        messages = {site: roll.request(message_type, tasks[site], deadline, (arrays or {}).get(site)) for site in ask}
        folder.event("phase", phase=message_type.rpartition(".")[2], round=0, rounds=0, sites=len(messages))
        failures = gather(grid, messages, deadline, on_reply, most_bytes).failures
        ask = [failure.site for failure in failures if failure.is_bad_reply]
        if len(ask) < len(failures) or not ask:
            break
    absent = [Failure(site, "is not here") for site in roll.expected if site not in tasks]
    if missing := [*failures, *absent]:
        reasons = "; ".join(f"{failure.site}: {failure.reason}" for failure in missing)
        raise RunError(f"{need}, and {len(missing)} gave none ({reasons})")
    return {site: found[site] for site in roll.expected}
