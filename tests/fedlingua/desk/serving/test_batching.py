"""The queue before the one thread that translates: who goes together, in which order, how many may wait, and how it ends."""

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from fedlingua.common.languages import Direction
from fedlingua.desk.serving.batching import SENTENCES_AT_ONCE, Batcher, FullError
from fedlingua.desk.translating.models import TrainedModel
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import default_run_config


def model_of(site: str) -> TrainedModel:
    return TrainedModel(settings_from(default_run_config()), "", Direction("de", "fr"), site, key=("site", site))


A, B = model_of("a"), model_of("b")


class Gate:
    """Translates by turning letters round, once it is let; keeps what was translated together."""

    def __init__(self) -> None:
        self.open, self.begun = threading.Event(), threading.Event()
        self.batches: list[tuple[str | None, list[str]]] = []

    def __call__(self, who: TrainedModel, sentences: list[str]) -> list[str]:
        self.begun.set()
        assert self.open.wait(10)
        self.batches.append((who.site, sentences))
        if any("bad" in sentence for sentence in sentences):
            raise ValueError("bad")
        return [sentence[::-1] for sentence in sentences]


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def batcher(gate: Gate) -> Iterator[Batcher]:
    made = Batcher(gate, 6)
    yield made
    gate.open.set()
    made.close(10)
    assert not made.works


def busy(batcher: Batcher, gate: Gate) -> None:
    """One request is being translated, so that the next ones wait."""
    batcher.ask(A, ["first"])
    assert gate.begun.wait(10)


def test_those_that_wait_for_the_same_go_together_with_the_oldest_first(batcher: Batcher, gate: Gate) -> None:
    busy(batcher, gate)
    waiting = [batcher.ask(who, [word]) for who, word in ((B, "b1"), (A, "a1"), (B, "b2"), (A, "a2"))]
    gate.open.set()
    assert [future.result(10) for future in waiting] == [["1b"], ["1a"], ["2b"], ["2a"]]
    assert gate.batches == [("a", ["first"]), ("b", ["b1", "b2"]), ("a", ["a1", "a2"])]
    batcher.close(10)
    assert (batcher.requests, batcher.sentences, batcher.batches) == (5, 5, 3)


def test_a_batch_has_an_end_and_a_long_request_goes_by_itself(batcher: Batcher, gate: Gate) -> None:
    busy(batcher, gate)
    long = batcher.ask(A, ["x"] * (SENTENCES_AT_ONCE + 1))
    short = [batcher.ask(A, ["y"] * (SENTENCES_AT_ONCE - 1)), batcher.ask(A, ["z", "z"])]
    gate.open.set()
    assert [len(future.result(10)) for future in (long, *short)] == [SENTENCES_AT_ONCE + 1, SENTENCES_AT_ONCE - 1, 2]
    assert [len(sentences) for _, sentences in gate.batches] == [1, SENTENCES_AT_ONCE + 1, SENTENCES_AT_ONCE - 1, 2]


def test_more_than_may_wait_are_sent_away_and_who_gave_up_takes_no_place(batcher: Batcher, gate: Gate) -> None:
    busy(batcher, gate)
    waiting = [batcher.ask(A, ["x"]) for _ in range(6)]
    with pytest.raises(FullError) as full:
        batcher.ask(A, ["y"])
    assert full.value.retry_s >= 1
    assert waiting[2].cancel()
    last = batcher.ask(A, ["y"])
    gate.open.set()
    assert last.result(10) == ["y"]
    assert gate.batches[1] == ("a", ["x"] * 5 + ["y"])


def test_what_one_brings_about_harms_no_other(batcher: Batcher, gate: Gate) -> None:
    busy(batcher, gate)
    good, bad, other = (batcher.ask(A, [word]) for word in ("good", "bad", "other"))
    gate.open.set()
    assert (good.result(10), other.result(10)) == (["doog"], ["rehto"])
    with pytest.raises(ValueError, match="bad"):
        bad.result(10)
    assert batcher.ask(A, ["on"]).result(10) == ["no"]


def test_closing_answers_what_waits_and_takes_nothing_more(batcher: Batcher, gate: Gate) -> None:
    busy(batcher, gate)
    waiting = batcher.ask(B, ["b"])
    gate.open.set()
    batcher.close(10)
    assert waiting.result(0) == ["b"]
    assert batcher.ask(A, ["late"]).cancelled()


def test_closing_in_a_hurry_gives_up_what_waits(batcher: Batcher, gate: Gate) -> None:
    busy(batcher, gate)
    waiting = batcher.ask(B, ["b"])
    batcher.close(0.05)
    with pytest.raises(CancelledError):
        waiting.result(0)
