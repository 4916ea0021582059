"""Start a process for each tracker of a run, pass on its messages, and wait for its end."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from fedlingua.desk.tracking.feed import FOLDER

END_S = 30
"""Time to report the rest to a tracker once a run has ended."""
KILL_S = 5.0


class Tracking:
    """The tracker processes of one run. say: takes each line of their messages; called from other threads."""

    def __init__(self, folder: Path, names: Sequence[str], say: Callable[[str], None], end_s: int = END_S) -> None:
        self._say, self._folder, self._end_s = say, folder, end_s
        self._feeds = {name: self._start(name) for name in names}
        self._listeners = [threading.Thread(target=self._listen, args=(name,), daemon=True) for name in names]
        for listener in self._listeners:
            listener.start()

    def close(self) -> bool:
        """Let each process report the rest within its time, once the run has ended or is left; return whether all succeeded."""
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
                [sys.executable, "-P", "-m", "fedlingua.desk.tracking.feed", str(self._folder), name, str(self._end_s)],
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
