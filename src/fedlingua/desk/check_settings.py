"""Refuse settings whose errors show without loading a model, before a run or a suite starts."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from fedlingua.backbones.directories import check_backbone, made_here
from fedlingua.common.devices import check_bits, check_device
from fedlingua.common.errors import ConfigError
from fedlingua.common.files import APP_DIR
from fedlingua.common.languages import nearest
from fedlingua.corpora.sites import Federation
from fedlingua.desk.plugged import plugged
from fedlingua.desk.pretraining.recipe import check_trained_by, read_recipe
from fedlingua.evaluation.measuring import check_measuring
from fedlingua.evaluation.tasks import check_task
from fedlingua.runs.plan import planned_clusters
from fedlingua.settings.config import Settings
from fedlingua.settings.trackers import tracker_names


def check_settings(
    settings: Settings, federation: Federation, deployed: bool = False, say: Callable[[str], None] = lambda text: None
) -> None:
    """Refuse settings whose errors show without loading a model. deployed: Whether each site checks its own device and metrics."""
    planned_clusters(settings, federation)  # refuses sites that cannot be clustered
    check_task(settings.task, federation.rules.directions)
    check_backbone(settings)
    if federation.base and not deployed:  # deployed sites leave base aside
        folder = made_here(settings.backbone) or Path(settings.backbone).expanduser()
        check_trained_by(read_recipe(federation.base, Path(settings.data_dir)), folder)
    check_trackers(tracker_names(settings.track))
    # The server and the sites import the user's own modules; here they only have to exist.
    for key, named in {"strategy": settings.strategy, "client": settings.client}.items():
        module = named.partition(":")[0]
        if module and not (APP_DIR / f"{module.replace('.', '/')}.py").is_file() and find_spec(module.partition(".")[0]) is None:
            near = nearest(module, [path.stem for path in APP_DIR.glob("*.py")])
            raise ConfigError(f"{key} = {named!r}: there is no {module}.py{near}; put it beside {APP_DIR / 'pyproject.toml'}")
    if not deployed:
        check_device(settings.device)
        check_bits(settings.frozen_bits)
        check_measuring(settings.more_metrics, settings.comet_model, say)


def check_trackers(names: Sequence[str]) -> None:
    """Check that trackers are installed, before a run starts, without importing them: they start threads and send reports.

    Raises:
        ConfigError: a package is missing; says how to install it.
    """
    if names and plugged("tracking") is None:
        raise ConfigError(
            "track needs fedlingua_lab, which is not installed here: `make .venv/ready` installs it; or leave track out"
        )
    for name in names:
        if find_spec(name) is None:
            raise ConfigError(
                f"track = {name!r} needs the package {name}, which is not installed here; install it with "
                f"pip install -c constraints.txt -e '.[{name}]', or leave it out of track"
            )
