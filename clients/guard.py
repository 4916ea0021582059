"""The guard of a deployed site: approval, limits, one reply per request, a time limit, the audit log.

Replies are stored, so that a server cannot average noise away, ask about many models instead of one, or return to earlier rounds.
"""

import json
import logging
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fedlingua.common import units
from fedlingua.common.errors import ExchangeError
from fedlingua.common.files import held, to_disk, written_once
from fedlingua.consent import audit
from fedlingua.consent.approval import approval_hash, rules_hash, sends
from fedlingua.consent.bundle import BUNDLE, approved
from fedlingua.consent.keys import key_fingerprint
from fedlingua.consent.limits import beyond, num_measured, num_trained
from fedlingua.consent.site_file import SiteFile
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.split import SPLITS
from fedlingua.corpora.texts import SiteText
from fedlingua.evaluation.sums import Scores
from fedlingua.exchange import protocol
from fedlingua.exchange.held import identity
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.records import message_bytes
from fedlingua.privacy.roster import SCORES, dev_loss_sum, training_sum
from fedlingua.settings.checks import for_round
from fedlingua.settings.config import Settings

_log = logging.getLogger("fedlingua.client")
NODE = "-node"
"""Stands for the site's name in messages about no single site; site names begin with a letter or a digit."""
BOUND = "-bound"
"""Folder of the bound values of a Flower run, beside those of its sites."""
MOST_WORDS = 200
"""The most characters of a value from the server that are copied into a log line."""
AGAIN_S = 10.0
"""Seconds between repeated attempts to stop a message that has exceeded its time limit."""


Answer = tuple[RecordDict, dict[str, Any]]
"""The content of a reply, and its fields in the audit log besides its bytes."""
ONCE = {protocol.SIGNATURE, protocol.DIGESTS, protocol.LEAKS, protocol.KEYS, protocol.SHARES}
"""Requests that come once in an attempt, before its first round: the difference of two replies could be about a single sentence."""


@dataclass(frozen=True)
class _Request:
    """What a message asks for. site: NODE for a description, which has no task. kind: The message type; for a sum to be opened, with the
    sum's number. stage: The round; for the run's end, the number after the last round's."""

    site: str
    kind: str
    stage: int
    task: Task | None


class Guard:
    """The checks of one message. asked: The settings that the server sent. settings: The settings as they take effect at this site."""

    def __init__(self, file: SiteFile, asked: Settings, settings: Settings) -> None:
        self.file, self.asked, self.settings = file, asked, settings
        self._sizes: dict[str, list[int]] = {split: [] for split in SPLITS}
        """Split -> the sentences of each text that this message is about."""
        self._leaks_under = ""
        """Hash under which a site has one list of leaks: the approved run's, else that of the text rules."""

    def answer(
        self, message: Message, flower_run: int, handle: Callable[[], RecordDict], num_tensors: Callable[[RecordDict], int]
    ) -> Answer:
        """Check a message before doing any work for it, then return its stored reply or a new one made by `handle`; raise ExchangeError
        if the run is not approved, or the request exceeds the site's limits or is out of order."""
        limits, rules = self.file.limits, rules_of(message.content.config_records)
        approval = approval_hash(os.environ.get(BUNDLE, ""), self.asked, rules)
        is_approved = approval in approved(self.file.approvals)
        if limits.settings == "approved" and not is_approved:
            raise ExchangeError(
                f"bundle, settings and text rules make {approval}, which this site has not approved; at the site: `fedlingua site approve "
                "--experiment FILE --federation FILE`, or [limits] settings = 'within-limits'"
            )
        request = self._request(message)
        task, measure, bound = request.task, None, {"approval": approval}
        if task:
            measure, bound = task.measure, {**bound, "run": task.run, "attempt": str(task.attempt)}
        self.file.check_rules(rules)
        self._leaks_under = approval if is_approved else rules_hash(rules)
        if not is_approved:
            self._refuse_other_rules(stores=False)
        replies = StoredReplies(self.file.state / "answers" / str(flower_run), limits.max_runs)
        busy = ExchangeError("this site is still at work on an earlier message; ask it again later")
        # a SuperNode starts a process for each message as it comes
        with held(self.file.state / "answering" / request.site, 60 * limits.max_minutes, busy):
            before = replies.admit(request.site, bound, request.kind, request.stage, identity(message.content), measure)
            if task:
                self._check_attempt(task, str(flower_run))
            if task and before:
                return before[0], {**before[1], "repeated": True}
            with stopped_after(limits.max_minutes):
                content = handle()
                if not is_approved:  # once it has passed the limits, and before its reply leaves
                    self._refuse_other_rules(stores=True)
                note = self._note(request, num_tensors(content))
            if before and before[0].object_id != content.object_id:  # a node that rejoins must describe itself as before
                raise ExchangeError(
                    "this site's text or backbone has changed since the run began; resume the run, or start a new one"
                )
            replies.store(request.site, request.kind, request.stage, (content, note))
            return content, note

    def _request(self, message: Message) -> "_Request":
        """Return what a message asks for; raise ExchangeError if a run with these settings has no such request."""
        kind, records = message.metadata.message_type, message.content.config_records
        if kind == protocol.DESCRIBE:
            return _Request(NODE, kind, 0, None)
        task = Task.of(records.get(protocol.TASK, ConfigRecord()))
        self._check_task(task, kind)
        if kind in (protocol.TRAIN, protocol.PROBE) or protocol.CONFIG in records:
            asked = task.with_config(records.get(protocol.CONFIG, ConfigRecord()))
            self._check_pull(asked.proximal_mu)
            self._check_round(asked.by_round)
        if kind == protocol.EVALUATE and protocol.THRESHOLD in message.content and not self.asked.learns_threshold:
            raise ExchangeError("asked for the slope of a threshold, but the run learns none")
        if kind == protocol.UNMASK:  # a round may open two sums, and the run's end another
            number = records.get(protocol.SECURE, ConfigRecord()).get("sum")
            known = number in (SCORES, training_sum(task.round), dev_loss_sum(task.round))
            kind = f"{kind}.{number!r}" if known else kind
        at_end = kind in (protocol.FINISH, f"{protocol.UNMASK}.{SCORES}")
        return _Request(task.site, kind, self.asked.rounds + 1 if at_end else task.round, task)

    def _note(self, request: "_Request", tensors: int) -> dict[str, Any]:
        """Return a reply's fields for the audit log."""
        note = {"sentences": self._sentences(request), "tensors": tensors}
        if request.site != NODE and (spent := self.file.ledger(request.site).spent):
            note["epsilon"] = spent
        return note

    def _sentences(self, request: "_Request") -> dict[str, int]:
        """Return the sentences of each split that a reply is based on."""
        whole, settings = {split: sum(sizes) for split, sizes in self._sizes.items()}, self.settings
        if request.kind in (protocol.DESCRIBE, protocol.DIGESTS, protocol.LEAKS):
            return whole
        if request.kind == protocol.FINISH:
            return {settings.score_split: whole[settings.score_split]}
        measured = {"dev": num_measured(whole["dev"], settings)}
        if request.kind == protocol.EVALUATE:
            return measured
        signs, task = request.kind == protocol.SIGNATURE, request.task
        trained = {"train": whole["train"] if signs else num_trained(self._sizes["train"], settings)}
        return trained | (measured if task and task.measure is not None else {})

    def _check_task(self, task: Task, kind: str) -> None:
        """Raise ExchangeError if the site is not hosted here or a run with these settings has no such task."""
        if task.site not in (names := [hosted.name for hosted in self.file.sites]):
            raise ExchangeError(f"got a message for site {task.site[:MOST_WORDS]!r}; this node hosts {', '.join(names)}")
        self.file.run_directory(task.run, task.site)  # raises for a run id that could lead out of the state
        if kind not in (answered := sends(self.asked, None)):
            raise ExchangeError(f"asked for {kind!r}; a run with these settings has {', '.join(answered)}")
        if kind in ONCE and task.round:
            raise ExchangeError(f"asked for {kind!r} in round {task.round}; it is asked for before the first one only")
        if not 0 <= task.round <= self.asked.rounds:
            raise ExchangeError(f"asked about round {task.round}; the run has {self.asked.rounds}")
        most = self.file.limits.max_attempts
        if not 1 <= task.attempt <= most:
            raise beyond(f"attempt {task.attempt}", "max_attempts", f"{most} at most")

    def _refuse_other_rules(self, stores: bool) -> None:
        """Refuse other text rules or dev text than those of the first reply without approval: two splits may differ by one sentence.

        stores: Whether these become the first where there are none: only those of a request that has passed the limits do, so that
        a refused one does not lock the site. `max-runs` bounds how many refused ones there are.
        """
        for name, what, asked in (("rules", "text rules with the hash ", self._leaks_under), ("dev-text", "", self._dev_text)):
            file = self.file.state / name
            first = written_once(file, asked) if stores else file.read_text(encoding="utf-8") if file.is_file() else asked
            if first != asked:
                raise ExchangeError(
                    f"got {what}{asked}; under [limits] settings = 'within-limits' this site keeps its first ones, {first}; at the site: "
                    "`fedlingua site approve --experiment FILE --federation FILE` approves the run, "
                    f"or remove the file `{name}` in the site's state to take others from now on"
                )

    @property
    def _dev_text(self) -> str:
        """The options that choose dev text: under others, two dev losses may differ by one token."""
        leaves_out = f"overlap {'=' if self.asked.overlap == 'remove' else '!='} 'remove'"
        return f"evaluate-share = {self.asked.evaluate_share!r}, max-tokens = {self.asked.max_tokens}, {leaves_out}"

    def _check_attempt(self, task: Task, flower_run: str) -> None:
        """Refuse an attempt that was answered in another Flower run, where each of its requests could get a second reply."""
        first = written_once(self.file.state / "attempts" / task.site / f"{task.run}.{task.attempt}", flower_run)
        if first != flower_run:
            raise ExchangeError(
                f"got run {task.run!r}, attempt {task.attempt}, in Flower run {flower_run}; it began in Flower run {first}, and each "
                "attempt is answered in one; resume the run, which makes a new attempt"
            )

    def _check_pull(self, pull: float) -> None:
        """Refuse a pull towards the received tensors that is not the run's: under a huge one an update is its first step alone."""
        if pull != self.asked.pull and (self.asked.pull or not self.asked.strategy):  # Flower's FedProx brings a pull of its own
            raise ExchangeError(f"asked for {protocol.PROXIMAL_MU} = {pull:g}; the run has pull = {self.asked.pull:g}")
        if pull > (most := self.file.limits.max_pull):
            raise beyond(f"{protocol.PROXIMAL_MU} = {pull:g}", "max_pull", f"{most:g} at most")

    def _check_round(self, by_round: Mapping[str, Any]) -> None:
        """Take a strategy's settings of a round as this message's; refuse those beyond the site's limits, or of a run without a strategy
        of its own."""
        if by_round and not self.asked.strategy:
            said = ", ".join(f"{key} = {value!r}" for key, value in by_round.items())
            raise ExchangeError(
                f"asked for {said[:MOST_WORDS]} in a round; a run without a strategy of its own has the same in all"
            )
        self.file.limits.check_settings(for_round(self.asked, by_round))
        self.settings = for_round(self.settings, by_round)

    def check_leaks(self, site: str, key: str, digest: str) -> None:
        """Raise ExchangeError if another list of leaks came before in any run of this approval, or under these text rules: the difference
        of two dev losses would be about its sentences. key: The check of the key that the list is hashed with."""
        if written_once(self.file.state / "leaks" / site / f"{self._leaks_under}-{key}", digest) != digest:
            raise ExchangeError(
                "asked about other leaks than before under this approval or these text rules, and the difference may be a single sentence; "
                "where a site's text has changed, give the run another seed and have it approved"
            )

    def check_text(self, texts: Mapping[str, SiteText]) -> None:
        """Raise ExchangeError if a text is too small for a reply; record its sizes for the log."""
        self.file.limits.check_text({name: text.splits for name, text in texts.items()}, self.settings)
        for split in SPLITS:
            self._sizes[split] += [len(text.splits[split]) for text in texts.values()]

    def check_update(self, step_sizes: Callable[[], Mapping[int, int]]) -> None:
        """Raise ExchangeError if an update from these steps would reveal too much; under `dp.epsilon` noise prevents that.

        step_sizes: Counts the optimizer steps by the number of their examples.
        """
        if self.settings.how.travels and not self.settings.trains_privately:
            self.file.limits.check_update(step_sizes())

    def without_choice(self, site: str, finished: Mapping[str, Scores]) -> Mapping[str, Scores]:
        """Return a site's scores as they leave it: no noise covers its choice, so under `dp.epsilon` without what tells of it."""
        if self.asked.chooses and not self.settings.chooses:
            _log.info("site %s keeps what it was sent: this site's file forbids choosing ([limits] keep-choose)", site)
        private = self.settings.trains_privately
        return {name: scores.of_federation() for name, scores in finished.items()} if private else finished


class StoredReplies:
    """The replies of one Flower run: a repeated request gets the same bytes, so no request has two replies.

    Every attempt is its own Flower run, bound to the approval, run and attempt that its first message names. At most `max_runs` folders
    exist, and only the newest three still hold their replies. A folder has one write-once file for each bound value (`-bound/run`) and for
    each request (`hospital/0003.train`), with the request's reply beside it.
    """

    def __init__(self, folder: Path, max_runs: int) -> None:
        self.folder, self.max_runs = folder, max_runs

    def admit(
        self, site: str, bound: Mapping[str, str], kind: str, stage: int, asked: str, measure: int | None = None
    ) -> Answer | None:
        """Record a request; return its stored reply, or None if it has none. A failed request may be repeated, not replaced by another.

        Args:
            site, kind, stage: As in `_Request`.
            bound: Name -> value that must be the same in all requests of the run.
            asked: The request's hash.
            measure: The earlier round whose dev loss the request also asks for.

        Raises:
            ExchangeError: There are too many runs, or the request does not fit the earlier ones of this run.
        """
        if not self.folder.is_dir():
            self._begin()
        for key, value in bound.items():
            if written_once(self.folder / BOUND / key, value) != value:
                raise ExchangeError(f"a run keeps its settings, but now it has another {key} {value[:99]!r}")
        stages = {file: int(file.name.partition(".")[0]) for file in (self.folder / site).glob("*")}
        if stage < (newest := max(stages.values(), default=0)):
            raise ExchangeError(f"asked about round {stage}, but the server is already at {newest} here")
        evaluated = [stages[file] for file in stages if file.suffix == f".{protocol.EVALUATE}"]
        if measure is not None and any(measure <= number < stage for number in evaluated):
            raise ExchangeError(f"asked for the dev loss of round {measure} with training, but a later one was asked for already")
        if written_once(self._file(site, stage, kind), asked) != asked:
            raise ExchangeError(f"asked another {kind} of round {stage} than before; each request is answered once")
        for old in (file for file, number in stages.items() if number < stage):
            old.unlink(missing_ok=True)
        reply = self._file(site, stage, f"{kind}.reply")
        if not reply.is_file():
            return None
        with safe_open(reply, "numpy") as stored:
            objects, about = {name: stored.get_tensor(name).tobytes() for name in stored.keys()}, stored.metadata()  # noqa: SIM118
        return cast(RecordDict, inflate_object_from_contents(about["root"], objects)), json.loads(about["note"])

    def store(self, site: str, kind: str, stage: int, answer: Answer) -> None:
        """Store a reply on disk before it is sent, as its Flower objects by id. The file is written completely or not at all."""
        objects = {name: np.frombuffer(each.deflate(), np.uint8) for name, each in get_all_nested_objects(answer[0]).items()}
        aside = self._file(site, stage, f"{kind}.aside")
        try:
            save_file(objects, aside, {"root": answer[0].object_id, "note": json.dumps(answer[1])})
        except SafetensorError as error:
            free = units.data(shutil.disk_usage(self.folder).free)
            raise ExchangeError(f"the reply cannot be written to the site's state ({free} free); make room there") from error
        to_disk(aside)
        aside.replace(self._file(site, stage, f"{kind}.reply"))
        to_disk(aside.parent)

    def _begin(self) -> None:
        runs = sorted(self.folder.parent.glob("*/"), key=lambda run: run.stat().st_mtime_ns)
        if len(runs) >= self.max_runs:
            raise ExchangeError(
                f"the run would be number {len(runs) + 1} here; this site's file allows {self.max_runs} ([limits] max-runs)"
            )
        for old in runs[:-2]:
            for reply in old.glob("*/*.reply"):
                reply.unlink(missing_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def _file(self, site: str, stage: int, name: str) -> Path:
        return self.folder / site / f"{stage:04d}.{name}"


def rules_of(records: Mapping[str, ConfigRecord]) -> TextRules:
    """Read the text rules that come with a message."""
    return TextRules.from_flat(records.get(protocol.RULES, ConfigRecord()))


def log(file: SiteFile, message: Message, flower_run: int, reply: Message, note: Mapping[str, object]) -> None:
    """Append a message and its reply to the site's audit log; raise OSError if it cannot be written."""
    records, public = message.content.config_records, file.key.with_suffix(".pub")
    task = records.get(protocol.TASK, ConfigRecord())
    key = key_fingerprint(public.read_text(encoding="ascii")) if public.is_file() else ""
    asked = {name: str(task.get(name, ""))[:MOST_WORDS] for name in ("run", "attempt", "round", "site")}
    refused = str(reply.error.reason)[: 10 * MOST_WORDS] if reply.has_error() else ""
    outcome = {"sentences": {}, "tensors": 0, **note, "bytes": 0 if refused else message_bytes(reply), "refused": refused}
    who = {"server": file.address, "key": key, "flower_run": str(flower_run)}
    what = message.metadata.message_type + (f", measure round {task['measure']!s}" if "measure" in task else "")
    what += "".join(f", {key} {value!s}" for key, value in records.get(protocol.CONFIG, ConfigRecord()).items())
    audit.append(file.state, {**who, **asked, "asked": what[:MOST_WORDS], **outcome})


class _TimeIsUpError(BaseException):
    """The time limit is exceeded. It is a BaseException, so that no `except Exception` in between catches it."""


@contextmanager
def stopped_after(minutes: float) -> Iterator[None]:
    """Stop the code in the context with an ExchangeError after this many minutes, between two instructions of the interpreter.

    Every file of a site's state is written under another name and then renamed, so none is left half-written.
    """

    def stop(*_: object) -> None:
        raise _TimeIsUpError

    handler = signal.signal(signal.SIGALRM, stop)
    outer = signal.setitimer(signal.ITIMER_REAL, max(1e-6, 60 * minutes), AGAIN_S)
    try:
        yield
    except _TimeIsUpError:
        reason = f"stopped after {minutes:g} minutes, the most that this site's file allows a message ([limits] max-minutes)"
        raise ExchangeError(reason) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, *outer)
        signal.signal(signal.SIGALRM, handler)
