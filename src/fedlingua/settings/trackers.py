"""Experiment trackers: the known ones, the ones that a run names, and whether these are installed."""

from fedlingua.settings.options import names_of

TRACKERS = ("tensorboard", "mlflow", "trackio")
"""Each name is also that of the tracker's package, of the extra that installs it, and of its module in this project."""


def tracker_names(given: str) -> list[str]:
    """Return the trackers of a comma-separated list, each once, or none; raise ConfigError for an unknown one."""
    return names_of(given, TRACKERS, "track: there is no tracker")
