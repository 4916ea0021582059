"""The process that sends one run to one tracker, `python -m fedlingua_lab.tracking.feed RUN TRACKER SECONDS`, and its start.

It reads the run folder as it grows, until its standard input ends; then it has SECONDS for the rest. Its messages are lines on
standard output; what the tracker prints goes to standard error. `tracking/<tracker>.json` in the run folder records which rounds were
sent, over all attempts of a run and of this process. A round that a resumed run repeats is not sent again.
"""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedlingua.common.files import held, replace_text
from fedlingua.common.terminal import one_line
from fedlingua.desk.json_values import stored_object
from fedlingua_lab.tracking.values import accepted, read_rounds, round_values, score_values

LOOK_S, AGAIN_S, AGAIN_MOST_S = 2.0, 10.0, 300.0
"""Seconds between two looks at the run folder, after a first failure, and at most after repeated failures."""
STORED_S = 1.0
"""Seconds that trackio, which stores in the background, is given before a round counts as sent."""
MOST = 1000
"""Most values that MLflow takes in one call."""
FOLDER = "tracking"
END_S, KILL_S = 30, 5.0
"""Seconds to send the rest once a run has ended, and after which the process is killed."""


class Feed:
    """Sends the run in `folder` to one tracker, and records what it has sent."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self._state = stored_object(state_file(folder, name))
        self._tracker: Any = None  # accelerate's, which loads torch

    def send(self, at_end: bool = False) -> None:
        """Send what was not sent yet; errors of the tracker are not caught. at_end: the status and scores of an ended run, too."""
        run = stored_object(self.folder / "run.json")
        status = run.get("status")
        if not run.get("id"):
            return
        if self._state.get("run") != run["id"]:  # another run was in the folder before
            self.close()
            self._state = {"run": run["id"]}
        completed = status == "completed"
        for number, line in read_rounds(self.folder / "rounds.jsonl", self._state.get("told", -1), at_end and completed).items():
            self._log(run, round_values(line), number)
            self._keep(told=number, ended=None)
        if at_end and status in ("completed", "failed", "interrupted") and self._state.get("ended") != status:
            scores = score_values(stored_object(self.folder / "scores.json")) if completed else {}
            self._log(run, {**scores, "completed": float(completed)}, self._state.get("told", 0))
            self._keep(ended=status)

    def close(self) -> None:
        """Close the tracker; what is sent next opens it anew."""
        tracker, self._tracker = self._tracker, None
        if tracker:
            tracker.finish()

    def _log(self, run: Mapping[str, Any], values: Mapping[str, float], step: int) -> None:
        if self._tracker is None:
            from fedlingua_lab.tracking import trackers

            self._tracker, known = trackers.open_tracker(self.name, self.folder, run, self._state.get("known"))
            self._keep(known=known)
        pairs = [(accepted(name) if self.name == "mlflow" else name, value) for name, value in values.items()]
        for first in range(0, len(pairs), MOST):
            self._tracker.log(dict(pairs[first : first + MOST]), step=step)
        time.sleep(STORED_S if self.name == "trackio" else 0)

    def _keep(self, **changes: Any) -> None:
        self._state |= changes
        replace_text(state_file(self.folder, self.name), json.dumps(self._state) + "\n")


def state_file(folder: Path, name: str) -> Path:
    """Return the file that records what was sent to a tracker of the run in `folder`."""
    return folder / FOLDER / f"{name}.json"


def follow(feed: Feed, waits: Callable[[float], bool], say: Callable[[str], None]) -> bool:
    """Send what comes while `waits(seconds until the next look)` is true, then the rest; return whether all succeeded.

    say: takes one message when the tracker first fails; it is tried again after longer and longer pauses, and once at the end.
    """
    pause, failed = LOOK_S, False
    while waits(pause):
        try:
            feed.send()
            pause = LOOK_S
        except Exception as error:  # a tracker's library may raise anything
            if not failed:
                say(f"{feed.name} cannot be reached ({_told(error)}); the run continues, and this is tried again")
            pause, failed = min(2 * pause, AGAIN_MOST_S) if failed else AGAIN_S, True
            with suppress(Exception):
                feed.close()
    try:
        feed.send(at_end=True)
        feed.close()
    except Exception as error:
        rest = f"`fedlingua track {feed.folder} --to {feed.name}` sends the rest"
        say(f"{feed.name} did not receive all of the run ({_told(error)}); {rest}")
        return False
    return True


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(one_line(error).split())[:300]}"


def main() -> int:
    folder, name, seconds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    # Standard output carries our messages alone; what a tracker prints goes to standard error.
    channel = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    os.nice(5)  # the sites of a simulation train on the same cores, and come first

    def say(text: str) -> None:
        with suppress(OSError):  # the reader may be gone
            channel.write(text + "\n")

    def waits(pause_s: float) -> bool:
        ready, _, _ = select.select([0], [], [], pause_s)
        if not ready or os.read(0, 1024):
            return True
        signal.alarm(seconds)  # a tracker that hangs is not waited for: the signal ends this process
        return False

    try:
        with held(folder / FOLDER / f".{name}.lock", 0, BlockingIOError()):
            done = follow(Feed(folder, name), waits, say)
            os._exit(0 if done else 1)  # trackers leave threads and exit handlers, which may hang
    except BlockingIOError:
        say(f"{name} is already receiving this run from another process")
        return 1


class Tracking:
    """The tracker processes of one run. say: takes each line of their messages; called from other threads."""

    def __init__(self, folder: Path, names: Sequence[str], say: Callable[[str], None], end_s: int = END_S) -> None:
        self._say, self._folder, self._end_s = say, folder, end_s
        self._feeds = {name: self._start(name) for name in names}
        self._listeners = [threading.Thread(target=self._listen, args=(name,), daemon=True) for name in names]
        for listener in self._listeners:
            listener.start()

    def close(self) -> bool:
        """Let each process send the rest within its time, once the run has ended or was abandoned; return whether all succeeded."""
        for feed in self._feeds.values():
            assert feed.stdin
            feed.stdin.close()
        try:
            for listener in self._listeners:
                listener.join(self._end_s + KILL_S)
        finally:
            for feed in self._feeds.values():
                feed.kill()  # does nothing if it has ended
                feed.wait()
        for listener in self._listeners:
            listener.join()
        return not any(feed.returncode for feed in self._feeds.values())

    def _start(self, name: str) -> subprocess.Popen[str]:
        folder = self._folder / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "fedlingua_lab.tracking.feed", str(self._folder), name, str(self._end_s)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},  # to run this command's code
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C ends its parent alone; it then sees its input end
            )

    def _listen(self, name: str) -> None:
        feed, said = self._feeds[name], False
        assert feed.stdout
        for line in feed.stdout:
            said = True
            self._say(f"track: {line.rstrip()}")
        # A process ended by a signal has not told its end, whatever it told before.
        if feed.wait() < 0 or (feed.returncode and not said):
            self._say(
                f"track: the process that feeds {name} ended with {feed.returncode}; {self._folder / FOLDER / f'{name}.log'} has what it "
                f"printed, and `fedlingua track {self._folder} --to {name}` sends the rest"
            )


if __name__ == "__main__":
    sys.exit(main())
