"""Experiment trackers: the known ones, the ones that a run names, and whether these are installed."""

from collections.abc import Sequence
from importlib.util import find_spec

from fedlingua.common.errors import ConfigError
from fedlingua.settings.options import names_of

TRACKERS = ("tensorboard", "mlflow", "trackio")
"""Each name is also that of the tracker's package, of the extra that installs it, and of its module in this project."""


def tracker_names(given: str) -> list[str]:
    """Return the trackers of a comma-separated list, each once, or none; raise ConfigError for an unknown one."""
    return names_of(given, TRACKERS, "track: there is no tracker")


def check_trackers(names: Sequence[str]) -> None:
    """Check that trackers are installed, before a run starts, without importing them: they start threads and send reports.

    Raises:
        ConfigError: a package is missing; says how to install it.
    """
    for name in names:
        if find_spec(name) is None:
            raise ConfigError(
                f"track = {name!r} needs the package {name}, which is not installed here; install it with "
                f"pip install -c constraints.txt -e '.[{name}]', or leave it out of track"
            )
