"""The strategies: one paper, one file."""

from fedlingua.settings.config import Settings


def usual(settings: Settings) -> str:
    """Return the strategy of a run that names none, as `strategy` would name it."""
    if settings.has_two_phases:
        return "strategies.methods.metasend:MetaSend"
    return f"strategies.methods.{'fed_mean:FedMean' if settings.how.travels else 'local_only:LocalOnly'}"
