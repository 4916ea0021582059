"""A site's approval of bundles: a bundle whose hash is not approved is neither run nor imported."""

import hashlib
import re
from pathlib import Path

from fedlingua.common.errors import ConfigError

BUNDLE = "FEDLINGUA_BUNDLE"
"""Environment variable that tells a bundle's code the hash under which the gate admitted it."""
HASH = re.compile(r"[0-9a-f]{64}")


def bundle_hash(content: bytes) -> str:
    """Return the sha256 of a bundle's bytes, which Flower uses as its name too."""
    return hashlib.sha256(content).hexdigest()


def approved(file: Path) -> set[str]:
    """Read the hashes in a site's list; errors as in `approvals`."""
    return set(approvals(file))


def approvals(file: Path) -> dict[str, str]:
    """Read a site's list: hash -> note. It has a hash a line, with its note after a #; raise ConfigError for a line with anything else."""
    if not file.is_file():
        return {}
    notes = dict[str, str]()
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text ({error}); wanted hashes of bundles, one a line") from error
    for number, line in enumerate(text.split("\n"), start=1):
        word, _, note = (each.strip() for each in line.partition("#"))
        if word and not HASH.fullmatch(word):
            raise ConfigError(f"{file}, line {number}: {word!r} is not the hash of a bundle; wanted 64 hexadecimal digits")
        if word:
            notes[word] = note
    return notes
