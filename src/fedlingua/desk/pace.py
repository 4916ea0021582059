"""Signs of life of a long training or wait: a line within ten seconds, then one every ten seconds or every hundredth of a training."""

import sys
import threading
import time
from collections.abc import Callable
from typing import Self

from fedlingua.common.units import duration

EVERY_S, EVERY_SHARE, LEAST_S = 10.0, 0.01, 1.0
"""A line is due after so many seconds, or after such a share of the training, but never so soon after the last one."""


Note = Callable[[str], None]


def to_stderr(name: str) -> Note:
    """Write what is said to standard error, after that name."""
    return lambda text: print(f"{name}: {text}", file=sys.stderr, flush=True)


class Pace:
    """Reports a training's progress from its own thread, so that slow steps and dev scoring are not silent.

    say: takes a line. clock: seconds. before: what goes on until the first step; all of it where a machine is waited for.
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
        """So many steps are taken, of how many; done: the share of all, 0 to 1, where it is not that of the steps. To be called before the
        first one too, from which on they are timed.
        """
        done = step / steps if done is None else done
        self._now = (step, steps, done, losses)
        if self._first is None:
            self._first, self._last_done = (self._clock(), step, done), done

    def look(self) -> None:
        """Say a line if one is due."""
        pause, done = self._clock() - self._last, self._now[2]
        if pause >= EVERY_S or (pause >= LEAST_S and round(done - self._last_done, 9) >= EVERY_SHARE):
            self._last, self._last_done = self._clock(), done
            self._say(self.line())

    def line(self) -> str:
        """Steps, share, steps a second, losses, time left."""
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
