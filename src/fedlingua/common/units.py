"""Format bytes for people."""

NOTHING = "–"
BYTE_UNITS = ("B", "kB", "MB", "GB", "TB")


def byte_unit(largest: float) -> tuple[float, str]:
    """Return the size in bytes of the best decimal unit for `largest` bytes, and its name."""
    size = 1.0
    for unit in BYTE_UNITS[:-1]:
        if largest < size * 1000:
            return size, unit
        size *= 1000
    return size, BYTE_UNITS[-1]


def data(value: float | None) -> str:
    """Format a number of bytes in decimal units."""
    if value is None:
        return NOTHING
    size, unit = byte_unit(value)
    return f"{value:.0f} B" if unit == "B" else f"{value / size:.2f} {unit}"
