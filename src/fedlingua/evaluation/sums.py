"""What a site tells of a scored text: sums that add up over texts and sites, and no word of it."""

from typing import Protocol


class TextSums(Protocol):
    """Sums of one text, of whatever task."""

    @property
    def sentences(self) -> int:
        """Of the text."""

    def record(self) -> dict[str, int | float | list[int] | list[float]]:
        """As a MetricRecord holds them."""
