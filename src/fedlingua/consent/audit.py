"""A site's audit log: a line for every message that the app knows, answered or refused, each with the hash of the line before.

Lines are only ever appended to `audit.jsonl` in the site's state, and reach the disk before a reply is sent. `audit.head` has the
number of lines and the hash of the last. Changed, removed or cut-off lines are therefore detected, unless all later lines and the
head are rewritten too; comparison with a hash noted elsewhere, as `fedlingua site log` prints it, detects that as well.
"""

import errno
import fcntl
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedlingua.common.files import replace_text

LOG, HEAD = "audit.jsonl", "audit.head"
FIRST = "0" * 64
"""The first line's `before`, as there is no line before it to hash."""


def append(state: Path, entry: Mapping[str, Any]) -> None:
    """Append a line to a site's log and write it to disk; raise OSError if that fails, in which case no message is answered."""
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(state / LOG, "a+b", buffering=0, opener=partial(os.open, mode=0o600)) as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        head = read_head(state)
        log.seek(head["size"])
        left = log.read()  # left by a process that died before it wrote the head; even incomplete lines belong to the chain
        if left and not left.endswith(b"\n"):
            log.write(b"\n")
        for line in filter(None, left.split(b"\n")):
            head = _after(head, line)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"line": head["lines"] + 1, "time": now, **entry, "before": head["hash"]}).encode()
        if log.write(line + b"\n") != len(line) + 1:
            log.truncate(head["size"])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(state / LOG))
        os.fsync(log)
        replace_text(state / HEAD, json.dumps(_after(head, line)))


def read_head(state: Path) -> dict[str, Any]:
    """Return the log's head. lines: number of lines; size: their bytes; hash: that of the last line without its line feed."""
    file = state / HEAD
    if not file.is_file():
        return {"lines": 0, "size": 0, "hash": FIRST}
    head = json.loads(file.read_text(encoding="utf-8"))
    return {"lines": int(head["lines"]), "size": int(head["size"]), "hash": str(head["hash"])}


def _after(head: Mapping[str, Any], line: bytes) -> dict[str, Any]:
    return {"lines": head["lines"] + 1, "size": head["size"] + len(line) + 1, "hash": sha256(line).hexdigest()}
