"""What stands between a server's message and a deployed site: approval, limits, one answer to a question, a clock, and the audit log."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from flwr.app import ConfigRecord, Message, RecordDict

from clients.answers import Answer, Answers
from clients.site_client import SiteClient
from fedlingua.common.errors import ExchangeError
from fedlingua.consent import audit
from fedlingua.consent.approval import approval_hash, sends
from fedlingua.consent.bundle import BUNDLE, approved
from fedlingua.consent.keys import key_fingerprint
from fedlingua.consent.limits import beyond
from fedlingua.consent.site_file import SiteFile
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.split import SPLITS
from fedlingua.corpora.texts import SiteText
from fedlingua.exchange.protocol import DESCRIBE, DIGESTS, EVALUATE, FINISH, LEAKS, RULES, TASK, Task
from fedlingua.exchange.records import message_bytes
from fedlingua.settings.config import Settings

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
        self._used: dict[str, int] = dict.fromkeys(SPLITS, 0)

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
            self._check_task(task, kind)
            site, stage = task.site, self.asked.rounds + 1 if kind == FINISH else task.round
            bound |= {"run": task.run, "attempt": str(task.attempt)}
        answers = Answers(self.file.state / "answers" / str(flower_run), limits.max_runs)
        before = answers.admit(site, bound, kind, stage, message.content.object_id)
        if before and kind != DESCRIBE:
            return before[0], {**before[1], "repeated": True}
        with stopped_after(limits.max_minutes):
            content = handle()
            split = {EVALUATE: "dev", FINISH: self.settings.score_split}.get(kind, "train")
            on = self._used if kind in (DESCRIBE, DIGESTS, LEAKS) else {split: self._used[split]}
            note = {"sentences": on, "tensors": num_tensors(content)}
        if before and before[0].object_id != content.object_id:  # a node that was away has to be who it was
            raise ExchangeError("this site's text or backbone has changed since the run began; resume the run, or begin it anew")
        answers.keep(site, kind, stage, (content, note))
        return content, note

    def _check_task(self, task: Task, kind: str) -> None:
        """Refuse what is not of this site, or of no run with such settings."""
        if task.site not in (names := [one.name for one in self.file.sites]):
            raise ExchangeError(f"got a message for site {task.site[:MOST_WORDS]!r}; this node hosts {', '.join(names)}")
        self.file.run_directory(task.run, task.site)  # refuses a name that leads elsewhere
        if kind not in (answered := sends(self.asked, None)):
            raise ExchangeError(f"asked for {kind!r}; a run with these settings has {', '.join(answered)}")
        if not 0 <= task.round <= self.asked.rounds:
            raise ExchangeError(f"asked about round {task.round}; the run has {self.asked.rounds}")
        most = self.file.limits.max_attempts
        if not 1 <= task.attempt <= most:
            raise beyond(f"attempt {task.attempt}", "max_attempts", f"{most} at most")

    def check_text(self, texts: Mapping[str, SiteText]) -> None:
        """Refuse to answer on text that is too small. texts: as they are used."""
        self.file.limits.check_text({name: text.splits for name, text in texts.items()}, self.settings)
        for split in SPLITS:
            self._used[split] += sum(len(text.splits[split]) for text in texts.values())

    def check_update(self, client: SiteClient) -> None:
        """Refuse to train where the update would tell too much."""
        if self.settings.how.travels:
            self.file.limits.check_update(client.step_sizes())


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
    asked = {name: str(task.get(name, ""))[:MOST_WORDS] for name in ("run", "attempt", "round", "site")}
    refused = str(reply.error.reason)[: 10 * MOST_WORDS] if reply.has_error() else ""
    outcome = {"sentences": {}, "tensors": 0, **note, "bytes": 0 if refused else message_bytes(reply), "refused": refused}
    who = {"server": file.address, "key": key, "flower_run": str(flower_run)}
    audit.append(file.state, {**who, **asked, "asked": message.metadata.message_type[:MOST_WORDS], **outcome})


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
