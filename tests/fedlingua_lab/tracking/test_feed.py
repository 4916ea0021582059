"""What a tracker is told of a run that grows, fails, is killed, resumed, or is another than before; and what of a tracker that fails."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar
from fedlingua_lab.tracking import trackers
from fedlingua_lab.tracking.feed import Feed, follow
from tests.recorded import record_round, scores


class Store:
    """Where a tracker keeps its runs: known -> each step, or (step, whether it completed, score) of an end."""

    def __init__(self) -> None:
        self.runs: dict[str, list[object]] = {}
        self.losses: list[float | None] = []
        self.opened: list[str] = []
        self.fails = 0

    def open(self, name: str, folder: Path, run: Mapping[str, Any], known: str | None) -> "tuple[Fake, str]":
        known = known or f"{run['name']} {len(self.runs)}"
        self.opened.append(known)
        return Fake(self, self.runs.setdefault(known, [])), known


class Fake:
    """A tracker in memory, as accelerate's are."""

    def __init__(self, store: Store, run: list[object]) -> None:
        self.store, self.run = store, run

    def log(self, values: Mapping[str, float], step: int) -> None:
        if self.store.fails:
            self.store.fails -= 1
            raise ConnectionError("no\nway \x1b[31m")
        if "failures" in values:
            self.store.losses.append(values.get("dev_loss"))
        self.run.append(step if "failures" in values else (step, values["completed"], values.get("scores/macro_bleu")))

    def finish(self) -> None:
        self.store.opened.append("closed")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store()
    monkeypatch.setattr(trackers, "open_tracker", store.open)
    return store


@pytest.fixture
def folder(run_config: dict[str, Scalar], tmp_path: Path) -> RunFolder:
    """A run that has begun and told its first two rounds."""
    made = RunFolder(tmp_path / "demo")
    made.open(settings_from({**run_config, "run-dir": str(made.directory)}), 1)
    for number in (0, 1):
        record_round(made, number, 1.0)
    return made


def completed(folder: RunFolder) -> None:
    folder.write("scores.json", scores({"hospital": 20.0, "court": 30.0}, {"hospital": 1, "court": 1}))
    folder.close("completed")


def finish(folder: RunFolder) -> None:
    assert follow(Feed(folder.directory, "fake"), lambda pause: False, print)


def test_each_round_is_told_once_and_the_end_with_its_scores(folder: RunFolder, store: Store) -> None:
    feed = Feed(folder.directory, "fake")
    for _ in range(2):
        feed.send()
    record_round(folder, 2, 1.0)
    feed.send()
    completed(folder)
    feed.send(at_end=True)
    feed.close()
    assert store.runs == {"demo 0": [0, 1, 2, (2, 1.0, 25.0)]}
    assert store.opened == ["demo 0", "closed"]


def test_a_run_that_is_not_there_yet_is_waited_for(tmp_path: Path, store: Store) -> None:
    feed = Feed(tmp_path, "fake")
    feed.send()
    feed.send(at_end=True)
    assert not store.opened


def test_a_finished_run_is_told_once_however_often_it_is_asked(folder: RunFolder, store: Store) -> None:
    completed(folder)
    for _ in range(3):
        finish(folder)
    assert store.runs == {"demo 0": [0, 1, (1, 1.0, 25.0)]}
    assert store.opened == ["demo 0", "closed"]


def test_a_failed_run_has_no_scores_and_a_resumed_one_goes_on_in_the_same_run(folder: RunFolder, store: Store) -> None:
    folder.close("failed", "no reply")
    finish(folder)
    folder.cut_rounds(0)
    folder.update(status="running", attempt=2)
    again = Feed(folder.directory, "fake")
    for number in (1, 2):  # round 1 is made again, and is the same again
        record_round(folder, number, 1.0)
        again.send()
    completed(folder)
    again.send(at_end=True)
    assert store.runs == {"demo 0": [0, 1, (1, 0.0, None), 2, (2, 1.0, 25.0)]}


def test_the_dev_loss_of_the_last_round_before_a_stop_is_told_once_it_is_known(folder: RunFolder, store: Store) -> None:
    folder.add_round({"round": 2, "seconds": 1.0, "dev_loss": None, "sites": {}, "failures": []})
    folder.close("interrupted")
    finish(folder)
    assert store.losses == [3.0, 2.0]
    folder.cut_rounds(1)
    folder.update(status="running", attempt=2)
    record_round(folder, 2, 1.0)
    folder.add_round({"round": 3, "seconds": 1.0, "dev_loss": None, "sites": {}, "failures": []})
    completed(folder)
    finish(folder)
    assert store.losses[-2:] == [1.0, None]


def test_another_run_in_the_folder_is_another_run_of_the_tracker(folder: RunFolder, store: Store) -> None:
    feed = Feed(folder.directory, "fake")
    feed.send()
    folder.update(id="another")
    record_round(folder, 0, 1.0)
    feed.send()
    assert [run[:2] for run in store.runs.values()] == [[0, 1], [0, 1]]


def test_a_run_that_goes_on_without_us_is_left_open(folder: RunFolder, store: Store) -> None:
    finish(folder)
    assert store.runs == {"demo 0": [0, 1]}


def test_a_tracker_that_fails_is_named_once_told_later_and_not_tried_at_every_look(folder: RunFolder, store: Store) -> None:
    said, pauses = list[str](), list[float]()
    store.fails = 3
    completed(folder)

    def waits(pause: float) -> bool:
        pauses.append(pause)
        return len(pauses) < 6

    assert follow(Feed(folder.directory, "fake"), waits, said.append)
    assert pauses == [2, 10, 20, 40, 2, 2]
    assert said == ["fake cannot be reached (ConnectionError: no way); the run continues, and this is tried again"]
    assert store.runs == {"demo 0": [0, 1, (1, 1.0, 25.0)]}


def test_a_tracker_that_fails_to_the_end_says_what_tells_the_rest(folder: RunFolder, store: Store) -> None:
    said = list[str]()
    store.fails = 9
    assert not follow(Feed(folder.directory, "fake"), lambda pause: False, said.append)
    assert said == [
        f"fake did not receive all of the run (ConnectionError: no way); `fedlingua track {folder.directory} --to fake` sends the rest"
    ]
