"""Progress lines of a long training or wait: every ten seconds, or after every hundredth of a training if that comes sooner."""

import sys
import threading
import time
from collections.abc import Callable
from typing import Self

from fedlingua.desk.units import duration

EVERY_S, EVERY_SHARE, LEAST_S = 10.0, 0.01, 1.0
"""A line is due after EVERY_S seconds or EVERY_SHARE of the training, but not within LEAST_S seconds of the last one."""


Note = Callable[[str], None]


def to_stderr(name: str) -> Note:
    """Return a function that writes a line to standard error, with `name` in front."""
    return lambda text: print(f"{name}: {text}", file=sys.stderr, flush=True)


class Pace:
    """Reports a training's progress from its own thread, so that slow steps and dev scoring are not silent.

    say: receives each line. clock: time in seconds. before: describes the time before the first step; a wait has no steps at all.
    """

    def __init__(self, say: Note, clock: Callable[[], float] = time.monotonic, before: str = "preparing") -> None:
        self._say, self._clock, self._before = say, clock, before
        self._began = self._last = clock()
        self._last_done = 0.0
        self._first: tuple[float, int, float] | None = None
        self._now: tuple[int, int, float, dict[str, float]] = (0, 0, 0.0, {})
        self._end, self._thread = threading.Event(), threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def at(self, step: int, steps: int, done: float | None = None, **losses: float) -> None:
        """Report progress; call it before the first step too, when timing begins. done: share of the whole, 0-1; None: step / steps."""
        done = step / steps if done is None else done
        self._now = (step, steps, done, losses)
        if self._first is None:
            self._first, self._last_done = (self._clock(), step, done), done

    def look(self) -> None:
        """Write a line if one is due."""
        pause, done = self._clock() - self._last, self._now[2]
        if pause >= EVERY_S or (pause >= LEAST_S and round(done - self._last_done, 9) >= EVERY_SHARE):
            self._last, self._last_done = self._clock(), done
            self._say(self.line())

    def line(self) -> str:
        """Return the progress line: steps, share, steps per second, losses, time left."""
        if self._first is None:
            return f"{self._before}, for {duration(self._clock() - self._began)}"
        (started, first, before), (step, steps, done, losses) = self._first, self._now
        seconds = self._clock() - started
        parts = [f"step {step} of {steps}", f"{done:.0%}"]
        if step > first and seconds > 0:
            parts.append(f"{(step - first) / seconds:.3g} steps/s")
        parts += [f"{name.replace('_', ' ')} {value:.3f}" for name, value in losses.items()]
        left = f"{duration(seconds / (done - before) * (1 - done))} left" if done > before else f"for {duration(seconds)}"
        return ", ".join([*parts, left])

    def _watch(self) -> None:
        while not self._end.wait(LEAST_S):
            self.look()
