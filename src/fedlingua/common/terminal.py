"""Make foreign text safe to print: replies, run folders, files and servers must not control the terminal."""

import re

_SEQUENCE = re.compile(
    "(?:\x1b[]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)"  # OSC, DCS, SOS, PM, APC with what they hold
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, the cursor
)
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0 but tab and line feed, DEL, C1, the controls that turn the direction of text about, and halves of characters."""


def printable(text: str) -> str:
    """Text without escape sequences (ECMA-48) and other control characters; line breaks and tabs stay."""
    return _STEERING.sub("", _SEQUENCE.sub("", text))


def printable_json(text: str) -> str:
    """A JSON document with the same characters escaped."""
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def one_line(text: object) -> str:
    """On one line, a space for every control that is part of no sequence."""
    return "".join(letter if letter.isprintable() else " " for letter in _SEQUENCE.sub("", str(text))).strip()
