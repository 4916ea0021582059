"""When a training says where it stands, by a clock of the test's own, and what it says."""

import threading

from fedlingua.desk import pace
from fedlingua.desk.pace import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def lines_of(seconds_a_step: float, steps: int) -> list[tuple[float, str]]:
    """(second, line) of a training whose thread looks once a second."""
    clock, lines = Clock(), list[tuple[float, str]]()
    said = Pace(lambda line: lines.append((clock.now - 100.0, line)), clock)
    said.at(0, steps)
    for second in range(1, int(seconds_a_step * steps) + 1):
        clock.now = 100.0 + second
        if (step := int(second / seconds_a_step)) > 0:
            said.at(step, steps, train_loss=4.5, dev_loss=5.25)
        said.look()
    return lines


def test_the_first_line_comes_within_ten_seconds_and_then_one_every_ten() -> None:
    """Steps of a minute, of which a thousand are to come: no hundredth is done for ten minutes."""
    lines = lines_of(60.0, 1000)[:12]
    assert [second for second, _ in lines] == [10.0 * number for number in range(1, 13)]
    assert lines[0][1] == "step 0 of 1000, 0%, for 10.0 s"
    assert lines[11][1] == "step 2 of 1000, 0%, 0.0167 steps/s, train loss 4.500, dev loss 5.250, 16 h 38 min left"


def test_of_a_faster_training_one_every_hundredth_and_never_two_in_a_second() -> None:
    assert [second for second, _ in lines_of(0.5, 1000)] == [5.0 * number for number in range(1, 101)]
    assert len(lines_of(0.01, 1000)) == 10


def test_what_comes_before_the_first_step_is_said_too_and_not_timed() -> None:
    clock, lines = Clock(), list[str]()
    said = Pace(lines.append, clock)
    clock.now += 30
    said.look()
    said.at(400, 1000)  # gone on with
    clock.now += 20
    said.at(500, 1000, train_loss=1.0)
    said.look()
    assert lines == ["preparing, for 30.0 s", "step 500 of 1000, 50%, 5 steps/s, train loss 1.000, 1 min 40 s left"]


def test_a_wait_says_for_what_and_how_long() -> None:
    clock, lines = Clock(), list[str]()
    said = Pace(lines.append, clock, "waiting for its answer")
    for seconds in (9, 1, 9, 1, 70):
        clock.now += seconds
        said.look()
    assert lines == [f"waiting for its answer, for {time}" for time in ("10.0 s", "20.0 s", "1 min 30 s")]


def test_a_training_that_ends_by_the_clock_counts_its_share_of_time() -> None:
    clock, lines = Clock(), list[str]()
    said = Pace(lines.append, clock)
    said.at(0, 10**6, 0.0)
    clock.now += 15
    said.at(30, 10**6, 0.25)
    said.look()
    assert lines == ["step 30 of 1000000, 25%, 2 steps/s, 45.0 s left"]


def test_a_slow_step_is_no_silence_and_nothing_is_said_after_the_end(monkeypatch) -> None:
    """The thread speaks by itself while the training is in one step."""
    monkeypatch.setattr(pace, "LEAST_S", 0.001)
    clock, lines, heard = Clock(), list[str](), threading.Event()

    def say(line: str) -> None:
        lines.append(line)
        heard.set()

    with Pace(say, clock) as said:
        said.at(1, 10)
        clock.now += 10
        assert heard.wait(30)
    clock.now += 100
    assert lines == ["step 1 of 10, 10%, for 10.0 s"]
