"""JSON that a run may be writing, or was writing when it was broken off."""

import json
from typing import Any


def json_object(text: bytes) -> dict[str, Any] | None:
    """The object that a text is; None where it is none, or not whole."""
    try:
        content = json.loads(text)
    except ValueError:  # one that was broken off, maybe inside a letter
        return None
    return content if isinstance(content, dict) else None
