"""A site's audit log: a line for every message, answered or refused, each with the hash of the line before.

`audit.jsonl` in the site's state is only ever appended to, on the disk before an answer leaves, and `audit.head` says how many lines there
are and the hash of the last. So a line that was changed, taken out or cut off at the end shows, unless whoever did it made all later lines
and the head anew: that shows against a hash noted elsewhere, as `fedlingua site log` prints it.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

LOG, HEAD = "audit.jsonl", "audit.head"
FIRST = "0" * 64
"""What stands in the place of a hash before the first line."""


def append(state: Path, entry: Mapping[str, Any]) -> None:
    """Add a line to the log in a site's state; it is on the disk when this returns.

    Raises:
        OSError: it cannot be written; then nothing may be answered.
    """
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = os.open(state / LOG, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        fcntl.flock(log, fcntl.LOCK_EX)
        head = _read_head(state)
        # A process that died between its line and the head: what it left, whole or not, is in the chain.
        left = os.pread(log, max(0, os.fstat(log).st_size - head["size"]), head["size"])
        if left and not left.endswith(b"\n"):
            os.write(log, b"\n")
        for line in filter(None, left.split(b"\n")):
            head = _after(head, line)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"line": head["lines"] + 1, "time": now, **entry, "before": head["hash"]}).encode()
        os.write(log, line + b"\n")
        os.fsync(log)
        _write_head(state, _after(head, line))
    finally:
        os.close(log)


def verify(state: Path) -> tuple[list[dict[str, Any]], str]:
    """Follow the chain from the first line to the head: the lines before the first broken one, and what is wrong with that or ""."""
    file, head = state / LOG, _read_head(state)
    written = file.read_bytes() if file.is_file() else b""
    lines, hashes = list[dict[str, Any]](), [FIRST]
    for number, raw in enumerate(written.removesuffix(b"\n").split(b"\n") if written else (), start=1):
        try:
            line = dict(json.loads(raw))
        except (ValueError, TypeError):
            line = {}
        if line.get("line") != number:
            return lines, f"line {number} is missing, or is not whole"
        if line.get("before") != hashes[-1]:
            return lines[:-1], f"line {max(1, number - 1)} is not as it was written, or what line {number} says of it"
        lines.append(line)
        hashes.append(hashlib.sha256(raw).hexdigest())
    if len(lines) < head["lines"]:
        return lines, f"line {len(lines) + 1} and all after it are missing: {HEAD} knows of {head['lines']}"
    if hashes[head["lines"]] != head["hash"] or (lines and not head["lines"]):
        return lines[
            : head["lines"]
        ], f"line {max(1, head['lines'])} is not as it was written: {HEAD} has another hash, or is gone"
    return lines, ""


def last_hash(state: Path) -> str:
    """Of the log's last line, to be noted where nobody at the site can change it."""
    return str(_read_head(state)["hash"])


def _read_head(state: Path) -> dict[str, Any]:
    """How many lines there are, their bytes, and the last one's hash, its line feed aside."""
    file = state / HEAD
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {"lines": 0, "size": 0, "hash": FIRST}


def _after(head: Mapping[str, Any], line: bytes) -> dict[str, Any]:
    return {"lines": head["lines"] + 1, "size": head["size"] + len(line) + 1, "hash": hashlib.sha256(line).hexdigest()}


def _write_head(state: Path, head: Mapping[str, Any]) -> None:
    aside = state / f".{HEAD}.{os.getpid()}"
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        json.dump(head, stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(aside, state / HEAD)
