"""What a tracker is told of a run that grows, fails, is killed, resumed, or is another than before; and what of a tracker that fails."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar
from fedlingua_lab.tracking import feed as feeding
from fedlingua_lab.tracking.feed import Feed, follow
from fedlingua_lab.tracking.trackers import About, Status, Tracker
from tests.recorded import record_round, scores


class Store:
    """Where a tracker keeps its runs: known -> (step, number of values) and what came besides."""

    def __init__(self) -> None:
        self.runs: dict[str, list[object]] = {}
        self.ids: dict[str, int] = {}
        self.opened: list[str] = []
        self.fails = 0

    def open_run(self, about: About, told: int) -> "Fake":
        known = f"{about.name} {self.ids.setdefault(about.id, len(self.ids))}"
        self.opened.append(known)
        steps = [one for one in self.runs.setdefault(known, []) if isinstance(one, int)]
        return Fake(self, known, max(steps, default=-1))


class Fake(Tracker):
    """A tracker in memory, which keeps what it was told although its process dies."""

    def __init__(self, store: Store, known: str, last_round: int) -> None:
        self.store, self.known, self.last_round = store, known, last_round

    def tell(self, step: int, values: Mapping[str, float]) -> None:
        if self.store.fails:
            self.store.fails -= 1
            raise ConnectionError("no\nway \x1b[31m")
        self.store.runs[self.known].append(step)
        assert "failures" in values

    def end(self, status: Status, step: int, scores: Mapping[str, float]) -> None:
        self.store.runs[self.known].append((status, step, scores.get("scores/macro_bleu")))

    def close(self) -> None:
        self.store.opened.append("closed")


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


def test_each_round_is_told_once_and_the_end_with_its_scores(folder: RunFolder) -> None:
    store = Store()
    feed = Feed(folder.directory, "fake", store.open_run)
    for _ in range(2):
        feed.look()
    record_round(folder, 2, 1.0)
    feed.look()
    completed(folder)
    feed.finish()
    assert store.runs == {"demo 0": [0, 1, 2, ("completed", 2, 25.0)]}
    assert store.opened == ["demo 0", "closed"]


def test_a_run_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    store = Store()
    feed = Feed(tmp_path, "fake", store.open_run)
    feed.look()
    feed.finish()
    assert not store.opened


def test_a_finished_run_is_told_once_however_often_it_is_asked(folder: RunFolder) -> None:
    completed(folder)
    store = Store()
    for _ in range(3):
        Feed(folder.directory, "fake", store.open_run).finish()
    assert store.runs == {"demo 0": [0, 1, ("completed", 1, 25.0)]}


def test_a_failed_run_has_no_scores_and_a_resumed_one_goes_on_in_the_same_run(folder: RunFolder) -> None:
    store = Store()
    folder.close("failed", "no reply")
    Feed(folder.directory, "fake", store.open_run).finish()
    folder.cut_rounds(0)
    folder.update(status="running", attempt=2)
    again = Feed(folder.directory, "fake", store.open_run)
    for number in (1, 2):  # round 1 is made again, and is the same again
        record_round(folder, number, 1.0)
        again.look()
    completed(folder)
    again.finish()
    assert store.runs == {"demo 0": [0, 1, ("failed", 1, None), 2, ("completed", 2, 25.0)]}


def test_the_dev_loss_of_the_last_round_before_a_stop_is_told_once_it_is_known(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, losses = Store(), list[float | None]()
    monkeypatch.setattr(Fake, "tell", lambda self, step, values: losses.append(values.get("dev_loss")))
    folder.add_round({"round": 2, "seconds": 1.0, "dev_loss": None, "sites": {}, "failures": []})
    folder.close("interrupted")
    Feed(folder.directory, "fake", store.open_run).finish()
    assert losses == [3.0, 2.0]
    folder.cut_rounds(1)
    folder.update(status="running", attempt=2)
    record_round(folder, 2, 1.0)
    folder.add_round({"round": 3, "seconds": 1.0, "dev_loss": None, "sites": {}, "failures": []})
    completed(folder)
    Feed(folder.directory, "fake", store.open_run).finish()
    assert losses[-2:] == [1.0, None]


def test_a_killed_feed_goes_on_where_the_tracker_says(folder: RunFolder) -> None:
    store = Store()
    killed = Feed(folder.directory, "fake", store.open_run)
    killed.look()
    store.runs["demo 0"].append(2)  # told, but killed before it was kept that it was
    for number in (2, 3):
        record_round(folder, number, 1.0)
    Feed(folder.directory, "fake", store.open_run).look()
    assert store.runs == {"demo 0": [0, 1, 2, 3]}


def test_what_a_tracker_has_lost_is_told_again(folder: RunFolder) -> None:
    store = Store()
    Feed(folder.directory, "fake", store.open_run).look()
    store.runs.clear()
    record_round(folder, 2, 1.0)
    Feed(folder.directory, "fake", store.open_run).look()
    assert store.runs == {"demo 0": [0, 1, 2]}


def test_what_a_tracker_has_lost_of_a_finished_run_is_told_again_with_its_end(folder: RunFolder) -> None:
    whole: list[object] = [0, 1, ("completed", 1, 25.0)]
    completed(folder)
    store = Store()
    Feed(folder.directory, "fake", store.open_run).finish()
    assert store.runs == {"demo 0": whole}
    store.runs.clear()
    Feed(folder.directory, "fake", store.open_run).finish()
    assert store.runs == {"demo 0": whole}


def test_rounds_that_a_tracker_has_lost_are_told_before_the_end(folder: RunFolder) -> None:
    store = Store()
    Feed(folder.directory, "fake", store.open_run).look()
    store.runs.clear()
    completed(folder)
    Feed(folder.directory, "fake", store.open_run).finish()
    assert store.runs == {"demo 0": [0, 1, ("completed", 1, 25.0)]}


def test_another_run_in_the_folder_is_another_run_of_the_tracker(folder: RunFolder) -> None:
    store = Store()
    feed = Feed(folder.directory, "fake", store.open_run)
    feed.look()
    folder.update(id="another")
    record_round(folder, 0, 1.0)
    feed.look()
    assert [run[:2] for run in store.runs.values()] == [[0, 1], [0, 1]]


def test_a_run_that_goes_on_without_us_is_left_open(folder: RunFolder) -> None:
    store = Store()
    Feed(folder.directory, "fake", store.open_run).finish()
    assert store.runs == {"demo 0": [0, 1]}


def test_a_tracker_that_fails_is_named_once_and_told_later(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "AGAIN_S", 0.0)
    store, said, looks = Store(), list[str](), iter([True] * 4 + [False])
    store.fails = 3
    completed(folder)
    assert follow(Feed(folder.directory, "fake", store.open_run), lambda pause: next(looks), said.append)
    assert said == ["fake cannot be reached (ConnectionError: no way); the run continues, and this is tried again"]
    assert store.runs == {"demo 0": [0, 1, ("completed", 1, 25.0)]}


def test_a_tracker_that_fails_to_the_end_says_what_tells_the_rest(folder: RunFolder) -> None:
    store, said = Store(), list[str]()
    store.fails = 9
    assert not follow(Feed(folder.directory, "fake", store.open_run), lambda pause: False, said.append)
    assert said == [
        f"fake did not receive all of the run (ConnectionError: no way); `fedlingua track {folder.directory} --to fake` sends the rest"
    ]


def test_after_a_failure_it_is_not_tried_at_every_look(folder: RunFolder) -> None:
    store, looks = Store(), iter([True] * 5 + [False])
    store.fails = 9
    follow(Feed(folder.directory, "fake", store.open_run), lambda pause: next(looks), lambda text: None)
    assert store.fails == 7  # the first look, and the end
