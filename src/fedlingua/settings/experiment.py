"""Build a run's config: defaults, overridden by an experiment file, overridden by --set."""

from collections.abc import Mapping

from fedlingua.settings.config import Scalar
from fedlingua.settings.removed import without_removed
from fedlingua.settings.table import OPTIONS


def default_run_config() -> dict[str, Scalar]:
    """Return every key with its default, as in pyproject.toml."""
    return {key: option.default for key, option in OPTIONS.items()}


def config_of_run(config: Mapping[str, Scalar], completed: bool = False) -> dict[str, Scalar]:
    """Return a stored run's config as this version reads it.

    Keys added since have the values with which a run behaves as before; for keys taken out, and `completed`, see `without_removed`.
    """
    as_before = {key: option.off[0] if option.off else option.default for key, option in OPTIONS.items()}
    return as_before | without_removed(config, completed)
