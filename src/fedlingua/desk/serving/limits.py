"""What one request may ask for, and how many may wait."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """sentences: of a request; characters: of a sentence; waiting: requests; timeout_s: until one that waits is given up."""

    sentences: int = 100
    characters: int = 2000
    waiting: int = 64
    timeout_s: float = 60.0

    @property
    def body_bytes(self) -> int:
        """Of a request, as JSON: a character takes up to 6 bytes, when it is escaped; at least 1 MiB."""
        return max(1 << 20, 6 * self.sentences * self.characters)
