"""Format bytes and durations for people."""

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


def duration(value: float | None) -> str:
    """Format seconds as hours and minutes, or minutes and seconds; under a minute with one decimal, unless they are whole."""
    if value is None:
        return NOTHING
    if value < 60:
        return f"{value} s" if isinstance(value, int) else f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"
