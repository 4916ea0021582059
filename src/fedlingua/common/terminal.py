"""Make text from replies, run folders, files and servers safe to print, so that it cannot control the terminal."""

import re

_SEQUENCE = re.compile(
    "(?:\x1b[]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)"  # OSC, DCS, SOS, PM, APC with their content
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, the cursor
)
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0 except tab and line feed, DEL, C1, controls of the text's direction, and surrogates."""


def printable(text: str) -> str:
    """Return text without escape sequences (ECMA-48) and other control characters; line breaks and tabs stay."""
    return _STEERING.sub("", _SEQUENCE.sub("", text))


def printable_json(text: str) -> str:
    """Return a JSON document with its control characters escaped."""
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def one_line(text: object) -> str:
    """Return text on one line: without escape sequences, and with a space for every other unprintable character."""
    return "".join(letter if letter.isprintable() else " " for letter in _SEQUENCE.sub("", str(text))).strip()


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def last_lines(text: str, lines: int) -> str:
    nonblank = [line.rstrip() for line in COLOUR.sub("", text).split("\n") if line.strip()]
    return "\n".join(nonblank[-lines:])
