"""Checksums of files."""

import hashlib
from pathlib import Path


def sha256(file: Path) -> str:
    """Return the hexadecimal sha256 of a file's bytes."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
