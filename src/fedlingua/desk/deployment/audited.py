"""Check the chain of a site's audit log (fedlingua.consent.audit)."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedlingua.consent.audit import FIRST, HEAD, LOG, read_head


def verify(state: Path) -> tuple[list[dict[str, Any]], str]:
    """Check the chain of hashes up to the head; return the lines before the first changed one, and the fault or "".

    A line that was broken off, as by a power cut, belongs to the chain; it is returned as {"line": its number, "broken_off": true}.
    """
    try:  # before the log itself, which may grow meanwhile
        head = read_head(state)
    except (ValueError, KeyError, TypeError) as error:
        return [], f"{HEAD} cannot be read ({error})"
    written = (state / LOG).read_bytes() if (state / LOG).is_file() else b""
    lines, hashes = list[dict[str, Any]](), [FIRST]
    for number, raw in enumerate(written.removesuffix(b"\n").split(b"\n") if written else (), start=1):
        try:
            line = dict(json.loads(raw))
        except (ValueError, TypeError):
            line = {"line": number, "broken_off": True, "before": hashes[-1]}
        if line.get("line") != number:
            return lines, f"line {number} is missing or incomplete"
        if line.get("before") != hashes[-1]:
            return lines[:-1], f"line {max(1, number - 1)} has been changed, or what line {number} says of it"
        lines.append(line)
        hashes.append(sha256(raw).hexdigest())
    if len(lines) < head["lines"]:
        return lines, f"line {len(lines) + 1} and all after it are missing: {HEAD} counts {head['lines']}"
    if hashes[head["lines"]] != head["hash"] or (lines and not head["lines"]):
        return lines[: head["lines"]], f"line {max(1, head['lines'])} has been changed: {HEAD} has another hash, or is missing"
    return lines, ""
