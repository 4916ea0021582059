"""What another package, such as fedlingua_lab, plugs into the desk by the entry points of group `fedlingua.desk`."""

from functools import cache
from importlib import metadata
from importlib.util import find_spec
from typing import Any


@cache
def plugged(name: str) -> Any:
    """Import and return what is plugged in under a name; None if nothing is, or if its package is not here."""
    points = metadata.entry_points(group="fedlingua.desk", name=name)
    return next((point.load() for point in points if find_spec(point.module.partition(".")[0])), None)
