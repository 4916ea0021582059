"""What happens to files on a disk."""

from pathlib import Path


def flip(file: Path) -> None:
    """One bit in the middle."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def truncate(file: Path) -> None:
    """The last three bytes are lost."""
    file.write_bytes(file.read_bytes()[:-3])
