"""The known trackers, those that a run names, and whether they are installed."""

from collections.abc import Sequence
from importlib.util import find_spec

from fedlingua.common.errors import ConfigError
from fedlingua.settings.options import names_of

TRACKERS = ("tensorboard", "mlflow", "trackio")
"""Each is also the name of its package, of the extra that installs it, and of its module here."""


def tracker_names(given: str) -> list[str]:
    """Of a list with commas, each once; none of an empty one.

    Raises:
        ConfigError: the first name that no tracker has.
    """
    return names_of(given, TRACKERS, "track: there is no tracker")


def check_trackers(names: Sequence[str]) -> None:
    """Make sure that all of them are installed here, before a run starts; none is imported, for they have threads and reports of their own.

    Raises:
        ConfigError: names the package that is missing, and how to install it.
    """
    for name in names:
        if find_spec(name) is None:
            raise ConfigError(
                f"track = {name!r} needs the package {name}, which is not installed here; install it with "
                f"pip install -c constraints.txt -e '.[{name}]', or leave it out of track"
            )
