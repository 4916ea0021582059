"""The process that reports one run to one tracker, `python -m fedlingua_lab.tracking.feed RUN TRACKER SECONDS`, and its start.

It reads the run folder as it grows, until its standard input ends; then it has SECONDS for the rest. Its messages are lines on
standard output; what the tracker prints goes to standard error. Each round is reported once, over all attempts of a run and of
this process: `tracking/<tracker>.json` in the run folder records it. A round that a resumed run repeats is not reported again.
"""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from fedlingua.common.files import held, replace_text
from fedlingua.common.terminal import one_line
from fedlingua.desk.json_values import stored_object
from fedlingua_lab.tracking.trackers import TRACKERS, About, Open, Status, Tracker
from fedlingua_lab.tracking.values import parameters, read_rounds, round_values, score_values

LOOK_S, AGAIN_S, AGAIN_MOST_S = 1.0, 10.0, 300.0
"""Seconds between two looks at the run folder, after a first failure, and at most after repeated failures."""
NICE = 5
"""Lowers this process's priority: the sites of a simulation train on the same cores, and come first."""
FOLDER = "tracking"
END_S = 30
"""Time to report the rest to a tracker once a run has ended."""
KILL_S = 5.0


class Feed:
    """Reports the run in `folder` to one tracker, and records what it has reported."""

    def __init__(self, folder: Path, name: str, open_run: Open) -> None:
        self.folder, self.name = folder, name
        self._open = open_run
        self._file = state_file(folder, name)
        self._state = stored_object(self._file)
        self._tracker: Tracker | None = None
        self._seen: object = None

    def look(self, at_end: bool = False) -> None:
        """Report the rounds not reported yet; errors of the tracker are not caught. at_end: as in `read_rounds`."""
        run = stored_object(self.folder / "run.json")
        rounds = self.folder / "rounds.jsonl"
        if not run.get("id") or not rounds.is_file():
            return
        if (seen := (rounds.stat().st_mtime_ns, rounds.stat().st_size)) == self._seen:
            return
        self._same_run(run)
        if read_rounds(rounds, self.last_round, at_end):
            tracker = self._opened(run)  # it may have more or fewer rounds than were recorded
            for number, line in read_rounds(rounds, self.last_round, at_end).items():
                tracker.tell(number, round_values(line))
                self._keep(told=number, ended=None)
        self._seen = seen

    def finish(self) -> None:
        """Report the remaining rounds and, of an ended run, status and scores; all of it again if the tracker lost it."""
        run = stored_object(self.folder / "run.json")
        if run.get("id"):
            self._same_run(run)
            tracker = self._opened(run)  # even if all was reported: it may have fewer rounds than were recorded
            self._seen = None
            self.look(at_end=run.get("status") == "completed")  # a resumed run gives the last round its dev loss
            status = next((known for known in get_args(Status) if known == run.get("status")), None)
            if status and self._state.get("ended") != status:
                scores = stored_object(self.folder / "scores.json") if status == "completed" else {}
                tracker.end(status, max(self.last_round, 0), score_values(scores))
                self._keep(ended=status)
        self.drop()

    @property
    def last_round(self) -> int:
        """The last round that was reported; -1 before the first."""
        return int(self._state.get("told", -1))

    def drop(self) -> None:
        """Close the tracker; the next report opens it anew."""
        tracker, self._tracker, self._seen = self._tracker, None, None
        if tracker:
            tracker.close()

    def _same_run(self, run: dict[str, Any]) -> None:
        """Forget what was reported of another run that was in the folder before."""
        if self._state.get("run") != run["id"]:
            self.drop()
            self._state = {"run": run["id"]}

    def _opened(self, run: dict[str, Any]) -> Tracker:
        if self._tracker is None:
            about = About(str(run.get("name") or self.folder.name), str(run["id"]), self.folder, parameters(run))
            self._tracker = self._open(about, self.last_round)
            now = {"known": self._tracker.known, "told": self._tracker.last_round}
            lost = any(self._state.get(key) != value for key, value in now.items())
            self._keep(**now, ended=None if lost else self._state.get("ended"))
        return self._tracker

    def _keep(self, **changes: Any) -> None:
        self._state |= changes
        replace_text(self._file, json.dumps(self._state) + "\n")


def state_file(folder: Path, name: str) -> Path:
    """Return the file that records what was reported to a tracker of the run in `folder`."""
    return folder / FOLDER / f"{name}.json"


def follow(feed: Feed, waits: Callable[[float], bool], say: Callable[[str], None]) -> bool:
    """Report what comes while `waits(seconds between two looks)` is true, then the rest; return whether all succeeded.

    say: takes one message when the tracker first fails; it is tried again after longer and longer pauses, and once at the end.
    """
    pause, due, failed = AGAIN_S, 0.0, False
    while waits(LOOK_S):
        if time.monotonic() < due:
            continue
        try:
            feed.look()
        except Exception as error:  # a tracker's library may raise anything
            if not failed:
                say(f"{feed.name} cannot be reached ({_told(error)}); the run continues, and this is tried again")
            failed, due, pause = True, time.monotonic() + pause, min(2 * pause, AGAIN_MOST_S)
            with suppress(Exception):
                feed.drop()
    try:
        feed.finish()
    except Exception as error:
        say(
            f"{feed.name} did not receive all of the run ({_told(error)}); `fedlingua track {feed.folder} --to {feed.name}` sends the rest"
        )
        return False
    return True


def _told(error: Exception) -> str:
    words = " ".join(one_line(error).split())
    return f"{type(error).__name__}: {words[:300]}" if words else type(error).__name__


def main() -> int:
    folder, name, seconds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    # Standard output carries our messages alone; what a tracker prints goes to standard error.
    channel = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    os.nice(NICE)

    def say(text: str) -> None:
        with suppress(OSError):  # the reader may be gone
            channel.write(text + "\n")

    def waits(pause_s: float) -> bool:
        ready, _, _ = select.select([0], [], [], pause_s)
        if not ready or os.read(0, 1024):
            return True
        signal.alarm(seconds)  # a tracker that hangs is not waited for: the signal ends this process
        return False

    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    try:
        with held(folder / FOLDER / f".{name}.lock", 0, BlockingIOError()):
            done = follow(Feed(folder, name, TRACKERS[name]), waits, say)
            channel.flush()
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
        """Let each process report the rest within its time, once the run has ended or was abandoned; return whether all succeeded."""
        for feed in self._feeds.values():
            if feed.stdin and not feed.stdin.closed:
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
        # A process ended by a signal has not reported its end, whatever it reported before.
        if feed.wait() < 0 or (feed.returncode and not said):
            how = f"ended with {feed.returncode}" if feed.returncode > 0 else f"was ended by signal {-feed.returncode}"
            self._say(
                f"track: the process that feeds {name} {how}; {self._folder / FOLDER / f'{name}.log'} has what it printed, and "
                f"`fedlingua track {self._folder} --to {name}` sends the rest"
            )


if __name__ == "__main__":
    sys.exit(main())
