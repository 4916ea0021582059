"""The clock of a message, and the log that every answer passes."""

import fcntl
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord

from clients.guard import StoredReplies, stopped_after
from fedlingua.common.errors import ExchangeError
from fedlingua.consent.audit import HEAD
from fedlingua.desk.deployment.audited import verify
from fedlingua.exchange import protocol
from fedlingua.exchange.protocol import Task
from tests.hostile.server_table import RULES, Site, ruled, settings


def swallowing() -> None:
    """Code on the way that takes whatever is raised for a failure of its own, and goes on."""
    while True:
        with suppress(Exception):
            time.sleep(0.01)


def test_what_takes_longer_is_stopped_and_the_clock_of_others_goes_on() -> None:
    before = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0] > 0
    with pytest.raises(ExchangeError, match=r"stopped after 0.001 minutes.*\[limits\] max-minutes"), stopped_after(0.001):
        swallowing()
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0] > 0) == before


def test_what_is_in_time_passes() -> None:
    with stopped_after(1.0):
        pass


def test_a_message_past_its_minutes_is_refused_and_leaves_no_update(tmp_path: Path) -> None:
    site, config = Site(tmp_path, limits="max-minutes = 1e-5"), settings(tensor_set="controllers", controllers=1)
    site.approve(config)
    reply = site.ask(protocol.TRAIN, config, 1, arrays=site.tensors(config))
    assert site.refused(reply, "[limits] max-minutes").held
    assert not list((tmp_path / "state").rglob("*.safetensors"))


def test_an_honest_run_is_answered_and_logged(tmp_path: Path) -> None:
    site, config = Site(tmp_path), settings()
    site.approve(config)
    for kind, number in ((protocol.DESCRIBE, 0), (protocol.TRAIN, 1), (protocol.EVALUATE, 1), (protocol.FINISH, 1)):
        arrays = site.tensors(config)
        reply = site.ask(kind, config, number, arrays=arrays)
        assert not reply.has_error(), reply.error.reason
    describe, train, evaluate, finish = verify(tmp_path / "state")[0]
    assert set(describe["sentences"]) == {"train", "dev", "test"}
    assert train["sentences"] == {"train": describe["sentences"]["train"]}
    assert evaluate["sentences"] == {"dev": describe["sentences"]["dev"]}
    assert finish["sentences"] == {"test": describe["sentences"]["test"]}
    assert (train["run"], train["round"], train["attempt"], train["site"]) == ("9f1c", "1", "1", "hospital")
    assert (train["asked"], train["server"], train["refused"]) == ("train", "server:9092", "")
    sent = sum(array.numpy().size for array in arrays.values())
    assert train["tensors"] == len(site.trainable(config).tensor_set.specs)
    assert train["bytes"] > 4 * sent > evaluate["bytes"] > 0


def test_the_log_says_how_many_sentences_were_drawn(tmp_path: Path) -> None:
    site, config = Site(tmp_path), settings(sample_share=0.5, evaluate_share=0.95)
    site.approve(config)
    arrays, task = site.tensors(config), Task("hospital", "9f1c", 1, 2, measure=1)
    for kind, number, how in (
        (protocol.DESCRIBE, 0, {}),
        (protocol.TRAIN, 1, {}),
        (protocol.TRAIN, 2, {"task": task.request()}),
        (protocol.EVALUATE, 2, {}),
    ):
        reply = site.ask(kind, config, number, arrays=arrays, **how)
        assert not reply.has_error(), reply.error.reason
    described, *lines = (line["sentences"] for line in verify(tmp_path / "state")[0])
    trained, measured = {"train": int(described["train"] / 2 + 0.5)}, {"dev": round(0.95 * described["dev"])}
    assert lines == [trained, {**trained, **measured}, measured]


def test_what_is_measured_before_training_is_logged_and_answered_once(tmp_path: Path) -> None:
    site, config = Site(tmp_path), settings()
    site.approve(config)
    arrays, task = site.tensors(config), Task("hospital", "9f1c", 1, 2, measure=1)
    asked = {"arrays": arrays, "task": task.request()}
    first, again = (site.ask(protocol.TRAIN, config, 2, **asked) for _ in range(2))
    assert set(first.content[protocol.MEASURED]) == {"nll_sum", "num_tokens", "num_examples", "seconds"}
    assert again.content.object_id == first.content.object_id
    assert site.refused(site.ask(protocol.TRAIN, config, 2, arrays=arrays), "answered once").held
    trained, repeated, refused = verify(tmp_path / "state")[0]
    assert [line["asked"] for line in (trained, repeated, refused)] == [*2 * ["train, measure round 1"], "train"]
    assert set(trained["sentences"]) == set(repeated["sentences"]) == {"train", "dev"}
    assert not site.ask(protocol.EVALUATE, config, 2, arrays=arrays).has_error()  # the last round, say


def test_a_node_that_comes_back_as_it_was_says_so_again_and_a_changed_one_does_not(tmp_path: Path) -> None:
    site, config = Site(tmp_path), settings()
    site.approve(config)
    first = site.ask(protocol.DESCRIBE, config)
    assert site.ask(protocol.DESCRIBE, config).content.object_id == first.content.object_id
    with (tmp_path / "corpus.tsv").open("a") as corpus:
        corpus.write("ein neuer Satz\tune phrase nouvelle\n")
    assert site.refused(site.ask(protocol.DESCRIBE, config), "has changed since the run began").held
    assert not site.ask(protocol.DESCRIBE, config, flower_run=1).has_error()


def test_what_cannot_be_logged_is_not_answered(tmp_path: Path) -> None:
    site, config = Site(tmp_path), settings()
    site.approve(config)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / HEAD).write_text("no JSON")
    reply = site.ask(protocol.DESCRIBE, config)
    assert str(reply.error.reason) == "the site's audit log cannot be written, so no request is answered"


def test_a_run_whose_line_is_deleted_is_refused_from_the_next_message_on(tmp_path: Path) -> None:
    site, config = Site(tmp_path), settings()
    site.approve(config)
    assert not site.ask(protocol.DESCRIBE, config).has_error()
    (tmp_path / "approved.txt").write_text("")
    for kind in (protocol.DESCRIBE, protocol.TRAIN):  # the first would have a stored reply
        assert site.refused(site.ask(kind, config, arrays=site.tensors(config)), "has not approved").held


def test_an_approved_bundle_suffices_where_the_site_says_so(tmp_path: Path) -> None:
    site = Site(tmp_path, limits='settings = "within-limits"')
    assert not site.ask(protocol.DESCRIBE, settings(local_epochs=3)).has_error()
    assert site.refused(site.ask(protocol.DESCRIBE, settings(beam=99), flower_run=2), "[limits] max-beam").held


def test_where_limits_alone_decide_dev_losses_are_of_one_share(tmp_path: Path) -> None:
    """Those of two shares may differ by one sentence, whose loss they would tell."""
    site = Site(tmp_path, limits='settings = "within-limits"')
    too_few = site.ask(protocol.DESCRIBE, settings(evaluate_share=0.5), flower_run=4)
    assert site.refused(too_few, "[limits] min-dev").held  # and what was refused binds nobody
    assert not site.ask(protocol.DESCRIBE, settings(evaluate_share=0.925)).has_error()
    other = settings(evaluate_share=0.9249999)
    assert site.refused(site.ask(protocol.DESCRIBE, other, flower_run=2), "got evaluate-share = 0.9249999").held
    site.approve(other)
    assert not site.ask(protocol.DESCRIBE, other, flower_run=3).has_error()


def test_where_limits_alone_decide_dev_losses_are_of_sentences_of_one_length(tmp_path: Path) -> None:
    """Those of two lengths differ by the last tokens of the longest sentences."""
    site = Site(tmp_path, limits='settings = "within-limits"')
    assert not site.ask(protocol.DESCRIBE, settings()).has_error()
    shorter = site.ask(protocol.DESCRIBE, settings(max_tokens=48), flower_run=2)
    assert site.refused(shorter, "got evaluate-share = 1.0, max-tokens = 48").held
    without_leaks = site.ask(protocol.DESCRIBE, settings(overlap="remove"), flower_run=3)
    assert site.refused(without_leaks, "overlap = 'remove'; under").held


@pytest.mark.parametrize(
    ("kind", "rules", "asked", "why"),
    [
        (protocol.DESCRIBE, ruled("split", mode="components"), {}, "needs all sites' text in one place"),
        (protocol.EVALUATE, ruled("split", key="other"), {"site": "court"}, "got a message for site 'court'"),
        (protocol.DESCRIBE, ruled("limits", dev=49), {}, "[limits] min-dev"),
    ],
)
def test_text_rules_of_a_refused_request_are_not_the_first_ones(
    tmp_path: Path, kind: str, rules: Any, asked: dict[str, Any], why: str
) -> None:
    site = Site(tmp_path, limits='settings = "within-limits"')
    assert site.refused(site.ask(kind, settings(), rules=rules, **asked), why).held
    assert not site.ask(protocol.DESCRIBE, settings(), flower_run=1).has_error()


def test_a_server_writes_no_lines_of_its_own_into_a_sites_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    site = Site(tmp_path)
    site.approve(settings())
    forged = "court\n2026-01-01 00:00:00 INFO fedlingua.client: site hospital, round 3, train: done " + 1000 * "x"
    assert site.ask(protocol.TRAIN, settings(), 1, site=forged).has_error()
    (line,) = [record.getMessage() for record in caplog.records if "court" in record.getMessage()]
    assert "\n" not in line
    assert len(line) < 1000


@pytest.mark.parametrize("way", ["approve", "remove"])
def test_where_limits_alone_decide_the_owner_may_allow_other_text_rules(tmp_path: Path, way: str) -> None:
    site, config, other = Site(tmp_path, limits='settings = "within-limits"'), settings(), ruled("split", key="other")
    assert not site.ask(protocol.DESCRIBE, config).has_error()
    asked: dict[str, Any] = {"rules": other, "flower_run": site.flower_run + 10**6}
    assert site.refused(site.ask(protocol.DESCRIBE, config, **asked), "remove the file `rules` in the site's state").held
    if way == "approve":
        site.approve(config, other)
    else:
        (tmp_path / "state" / "rules").unlink()
    assert not site.ask(protocol.DESCRIBE, config, **asked).has_error()
    asked = {"rules": RULES, "flower_run": site.flower_run + 10**6 + 1}
    assert site.ask(protocol.DESCRIBE, config, **asked).has_error() == (way == "remove")


def test_a_new_attempt_is_answered_in_a_flower_run_of_its_own(tmp_path: Path) -> None:
    site, config = Site(tmp_path), settings()
    site.approve(config)
    for attempt in (1, 2):
        asked: dict[str, Any] = {
            "arrays": site.tensors(config),
            "attempt": attempt,
            "flower_run": site.flower_run + 10**6 * attempt,
        }
        assert not site.ask(protocol.TRAIN, config, 1, **asked).has_error()


def test_the_pull_that_a_run_has_is_answered(tmp_path: Path) -> None:
    site, config = Site(tmp_path), settings(pull=0.1)
    site.approve(config)
    pull = {protocol.CONFIG: ConfigRecord({protocol.PROXIMAL_MU: 0.1})}
    assert not site.ask(protocol.TRAIN, config, 1, arrays=site.tensors(config), more=pull).has_error()


def test_a_strategys_settings_of_a_round_are_answered_within_the_limits(tmp_path: Path) -> None:
    site, config = Site(tmp_path), settings(strategy="flwr.serverapp.strategy:FedMedian")
    site.approve(config)

    def refused(**by_round: float) -> str:
        asked = {protocol.CONFIG: ConfigRecord({key.replace("_", "-"): value for key, value in by_round.items()})}
        reply = site.ask(protocol.TRAIN, config, 1, arrays=site.tensors(config), more=asked)
        return str(reply.error.reason) if reply.has_error() else ""

    assert "local-epochs = 21; this site's file allows 20 at most ([limits] max-local-epochs)" in refused(local_epochs=21)
    assert "learning-rate = 2; this site's file allows 1 at most ([limits] max-learning-rate)" in refused(learning_rate=2.0)
    assert not refused(learning_rate=0.5, local_epochs=2)


def test_a_site_answers_one_message_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From before a request is looked up until its reply is stored: of two equal ones at once, the second finds the first one's reply."""
    site, config, locked = Site(tmp_path), settings(), list[bool]()
    site.approve(config)
    monkeypatch.setattr(StoredReplies, "admit", noting(StoredReplies.admit, tmp_path, locked))
    monkeypatch.setattr(StoredReplies, "store", noting(StoredReplies.store, tmp_path, locked))
    assert not site.ask(protocol.TRAIN, config, 1, arrays=site.tensors(config)).has_error()
    assert locked == [True, True]


def noting(made: Callable[..., Any], folder: Path, locked: list[bool]) -> Callable[..., Any]:
    """What notes whether another process would have to wait for the hospital."""

    def noted(*given: Any) -> Any:
        with (folder / "state/answering/hospital").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                locked.append(True)
        return made(*given)

    return noted
