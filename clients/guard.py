"""What stands between a server's message and a deployed site: approval, limits, one answer to a question, a clock, and the audit log."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from flwr.app import ConfigRecord, Message, RecordDict

from clients.answers import Answer, Answers
from clients.site_client import SiteClient
from fedlingua.config import Settings
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.split import SPLITS
from fedlingua.corpora.texts import SiteText
from fedlingua.deployment import audit
from fedlingua.deployment.approval import approval_hash
from fedlingua.deployment.bundle import BUNDLE, approved
from fedlingua.deployment.keys import key_fingerprint
from fedlingua.deployment.sent import sends
from fedlingua.deployment.site_file import SiteFile
from fedlingua.errors import ExchangeError
from fedlingua.exchange.records import message_bytes
from fedlingua.protocol import DESCRIBE, DIGESTS, EVALUATE, FINISH, LEAKS, RULES, TASK, Task

NODE = "-node"
"""In the place of a site's name, which begins with a letter or a digit, where a message is about none."""
MOST_WORDS = 200
"""Characters of what the server says that a line of the log repeats."""
AGAIN_S = 10.0
"""Seconds after which a message that goes on past its time is stopped once more."""


class Guard:
    """Of one message. asked: the settings as the server gave them; settings: as they hold here."""

    def __init__(self, file: SiteFile, asked: Settings, settings: Settings) -> None:
        self.file, self.asked, self.settings = file, asked, settings
        self._used: dict[str, int] = {}

    def answer(
        self, message: Message, flower_run: int, handle: Callable[[], RecordDict], num_tensors: Callable[[RecordDict], int]
    ) -> Answer:
        """Check a message before anything is done for it; then the reply that it had before, or a new one by `handle`.

        Raises:
            ExchangeError: not approved, beyond the site's limits, or not to be asked now; names the key, what was asked and is allowed.
        """
        limits, kind = self.file.limits, message.metadata.message_type
        run = approval_hash(os.environ.get(BUNDLE, ""), self.asked, rules_of(message))
        if limits.settings == "approved" and run not in approved(self.file.approvals):
            raise ExchangeError(
                f"bundle, settings and text rules make {run}, which this site has not approved; there: `fedlingua site approve "
                "--experiment FILE --federation FILE`, or [limits] settings = 'within-limits'"
            )
        site, stage, bound = NODE, 0, {"approval": run}
        if kind != DESCRIBE:
            task = Task.of(message.content.config_records.get(TASK, ConfigRecord()))
            if task.site not in (names := [one.name for one in self.file.sites]):
                raise ExchangeError(f"got a message for site {task.site[:MOST_WORDS]!r}; this node hosts {', '.join(names)}")
            self.file.run_directory(task.run, task.site)  # refuses a name that leads elsewhere
            limits.check_asked(self.asked, kind, sends(self.asked, None), task.round, task.attempt)
            site, stage = task.site, self.asked.rounds + 1 if kind == FINISH else task.round
            bound |= {"run": task.run, "attempt": str(task.attempt)}
        answers = Answers(self.file.state / "answers" / str(flower_run), limits.max_runs)
        before = answers.admit(site, bound, kind, stage, message.content.object_id)
        if before and kind != DESCRIBE:
            return before[0], {**before[1], "repeated": True}
        with stopped_after(limits.max_minutes):
            content = handle()
            note = {"sentences": self._stood_on(kind), "tensors": num_tensors(content)}
        if before and before[0].object_id != content.object_id:  # a node that was away has to be who it was
            raise ExchangeError("this site's text or backbone has changed since the run began; resume the run, or begin it anew")
        answers.keep(site, kind, (content, note))
        return content, note

    def check_text(self, texts: Mapping[str, SiteText]) -> None:
        """Refuse to answer on text that is too small. texts: as they are used."""
        self.file.limits.check_text({name: text.splits for name, text in texts.items()}, self.settings)
        for split in SPLITS:
            self._used[split] = self._used.get(split, 0) + sum(len(text.splits[split]) for text in texts.values())

    def check_update(self, client: SiteClient) -> None:
        """Refuse to train where the update would tell too much."""
        if self.settings.how.travels:
            self.file.limits.check_update(client.step_sizes())

    def _stood_on(self, kind: str) -> dict[str, int]:
        """Sentences by split that the reply of a kind stands on."""
        if kind in (DESCRIBE, DIGESTS, LEAKS):
            return self._used
        split = {EVALUATE: "dev", FINISH: self.settings.score_split}.get(kind, "train")
        return {split: self._used[split]}


def rules_of(message: Message) -> TextRules:
    """The text rules that come with a message."""
    return TextRules.from_flat(message.content.config_records.get(RULES, ConfigRecord()))


def log(file: SiteFile, message: Message, flower_run: int, reply: Message, note: Mapping[str, object]) -> None:
    """Enter a message and its reply into the site's audit log.

    Raises:
        OSError: the log cannot be written.
    """
    task, public = message.content.config_records.get(TASK, ConfigRecord()), file.key.with_suffix(".pub")
    key = key_fingerprint(public.read_text(encoding="ascii")) if public.is_file() else ""
    told = {key: str(task.get(key, ""))[:MOST_WORDS] for key in ("run", "attempt", "round", "site")}
    told |= {"asked": message.metadata.message_type[:MOST_WORDS]}
    outcome: dict[str, object] = {"sentences": {}, "tensors": 0, "bytes": 0, "refused": ""}
    if reply.has_error():
        outcome["refused"] = str(reply.error.reason)[: 10 * MOST_WORDS]
    else:
        outcome |= {**note, "bytes": message_bytes(reply)}
    audit.append(file.state, {"server": file.address, "key": key, "flower_run": str(flower_run), **told, **outcome})


class _TimeIsUpError(BaseException):
    """Beside Exception, so that nothing on the way takes it for a failure of its own."""


@contextmanager
def stopped_after(minutes: float) -> Iterator[None]:
    """Stop what runs inside once its time is up, between two of Python's steps; every file of a site's state is written aside and renamed.

    Raises:
        ExchangeError: it took longer.
    """

    def stop(*_: object) -> None:
        raise _TimeIsUpError

    handler = signal.signal(signal.SIGALRM, stop)
    outer = signal.setitimer(signal.ITIMER_REAL, max(1e-6, 60 * minutes), AGAIN_S)
    try:
        yield
    except _TimeIsUpError:
        told = f"stopped after {minutes:g} minutes, the most that this site's file allows a message ([limits] max-minutes)"
        raise ExchangeError(told) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, *outer)
        signal.signal(signal.SIGALRM, handler)
