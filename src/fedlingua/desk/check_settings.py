"""Refuse settings whose errors show without loading a model, before a run or a suite starts."""

import ctypes
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module, invalidate_caches
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from fedlingua.backbones.directories import BUILT_IN, check_kind, made_here
from fedlingua.backbones.families import FAMILIES
from fedlingua.backbones.pruning import thirds
from fedlingua.backbones.published import local_or_pinned
from fedlingua.common.cache import cache_dir
from fedlingua.common.devices import check_bits
from fedlingua.common.errors import BackboneError, ConfigError, CorpusError, RunError
from fedlingua.common.files import APP_DIR
from fedlingua.common.languages import nearest
from fedlingua.corpora.formats import SplitFiles, formats_of, listed
from fedlingua.corpora.identify import check_columns
from fedlingua.corpora.scripts import in_order
from fedlingua.corpora.sites import Federation, Site
from fedlingua.desk.completed import stored_settings
from fedlingua.desk.plugged import plugged
from fedlingua.desk.pretraining.recipe import check_trained_by, read_recipe
from fedlingua.evaluation.comet.scores import check_comet
from fedlingua.evaluation.measuring import COMET
from fedlingua.evaluation.tasks import check_task
from fedlingua.runs.folder import RunFolder, run_about
from fedlingua.runs.plan import planned_clusters
from fedlingua.settings.config import Settings
from fedlingua.settings.conflicts import typed
from fedlingua.settings.table import OPTIONS, AddedLayers
from fedlingua.settings.trackers import tracker_names

BEGINNING = 50
"""Pairs of a site's text that are looked at before a run starts."""


def check_settings(
    settings: Settings, federation: Federation, deployed: bool = False, say: Callable[[str], None] = lambda text: None
) -> None:
    """Refuse settings whose errors show without loading a model. deployed: Whether each site checks its own device and metrics."""
    planned_clusters(settings, federation)  # refuses sites that cannot be clustered
    check_task(settings.task, federation.rules.directions)
    check_backbone(settings)
    check_start(settings)
    if federation.base and not deployed:  # deployed sites leave base aside
        folder = made_here(settings.backbone) or Path(settings.backbone).expanduser()
        check_trained_by(read_recipe(federation.base, Path(settings.data_dir)), folder)
    check_trackers(tracker_names(settings.track))
    check_own_code(settings)
    if not deployed:
        check_beginnings(federation.sites)
        check_device(settings.device)
        check_bits(settings.frozen_bits)
        check_measuring(settings.more_metrics, settings.comet_model, say)


def check_own_code(settings: Settings) -> None:
    """Raise ConfigError for a class of one's own that is not there or does not fit, as the app does."""
    for key, named, door in (
        ("strategy", settings.strategy, "strategies.server_app:find_strategy"),
        ("client", settings.client, "clients.client_app:client_class"),
        *(("layers", name, "fedlingua.layers.order:layers_of") for name in settings.own_layers),
    ):
        module = named.partition(":")[0]
        file = APP_DIR / f"{module.replace('.', '/')}.py"
        if module and not file.is_file() and find_spec(module.partition(".")[0]) is None:
            near = nearest(module, [path.stem for path in APP_DIR.glob("*.py")])
            raise ConfigError(f"{key} = {named!r}: there is no {module}.py{near}; put it beside {APP_DIR / 'pyproject.toml'}")
        if module:
            with _as_in_the_app(module if file.parent == APP_DIR else ""):
                where, _, name = door.partition(":")
                getattr(import_module(where), name)(settings)


@contextmanager
def _as_in_the_app(module: str) -> Iterator[None]:
    """Import from the app's folder, and a module of the user's own anew, since its file may have changed."""
    before, path = sys.modules.pop(module, None), list(sys.path)
    sys.path.insert(0, str(APP_DIR))
    invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = path
        if before:
            sys.modules[module] = before


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
                f"pip install 'fedlingua[{name}]', or leave it out of track"
            )


def check_device(device: str) -> None:
    """Raise ConfigError for `cuda` without a GPU driver; whether torch can use the driver shows only when a model loads."""
    if device == "cuda" and sys.platform == "linux" and not _driver():
        raise ConfigError(
            "device = 'cuda', but this machine has no GPU driver (libcuda.so.1, /dev/kfd); give device = 'cpu', or install the driver"
        )


def _driver() -> bool:
    """Return whether NVIDIA's or AMD's driver is there."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Path("/dev/kfd").exists()
    return True


def known_backbone(name: str, revision: str = "") -> None:
    """Raise BackboneError unless the name is that of a backbone; train and download nothing."""
    if name in BUILT_IN or made_here(name):
        return
    place = local_or_pinned(name, revision)
    if isinstance(place, Path) and not (place / "config.json").is_file():
        raise BackboneError(
            f"backbone = {name!r}: {place} has no config.json, so it holds no model; give a folder as save_pretrained writes it"
        )


def check_backbone(settings: Settings) -> None:
    """Check before training that the backbone exists, is of the run's task, and keeps layers after pruning.

    Raises:
        BackboneError: one of these does not hold. If the backbone must be downloaded, task and layers are checked later.
    """
    name = settings.backbone
    known_backbone(name, settings.backbone_revision)
    files = [place / "config.json" for place in (cache_dir() / "backbones" / name, Path(name).expanduser())]
    config: dict[str, Any] = next((json.loads(file.read_text()) for file in files if file.is_file()), {})
    layers = BUILT_IN[name].layers if name in BUILT_IN else {}
    family = FAMILIES.get(config.get("model_type", ""))
    if family:
        layers = {part: int(config[key]) for part, key in family.layers.items() if key in config}
    task = BUILT_IN[name].task if name in BUILT_IN else family.task if family else None
    if task is not None:
        check_kind(task, settings)
    thirds(layers, settings.adapter_layers)


def check_start(settings: Settings) -> None:
    """Raise ConfigError if the folder of `start-from` holds no run, one that stored no tensors, or one whose settings make others than this
    run trains. Shapes and a local backbone's bytes are checked by the server."""
    if not settings.start_from:
        return
    folder, here = RunFolder(Path(settings.start_from)), f"start-from = {settings.start_from!r}"
    try:
        earlier = stored_settings(folder.directory, run_about(folder.directory))
    except (ConfigError, RunError) as error:
        raise ConfigError(f"start-from: {error}") from error
    if not earlier.how.travels or not folder.checkpoints.rounds():
        why = "it has no complete round" if earlier.how.travels else f"under its method {earlier.method} nothing leaves a site"
        raise ConfigError(f"{here}: {why}, so the server stored no tensors; give another run")
    layers = {key: said.attribute for key, said in OPTIONS.items() if said.section is AddedLayers and said.when.holds(settings)}
    elsewhere = "backbone" if Path(settings.backbone).is_dir() else ""  # it may lie in another folder now
    same = {"tensor-set": "trained_set", "task": "task", "backbone": "backbone", **layers}
    for key, attribute in same.items():
        wanted, given = getattr(earlier, attribute), getattr(settings, attribute)
        if key != elsewhere and wanted != given:
            raise ConfigError(
                f"{here}: it was trained with {key} = {typed(wanted)}, and this run has {typed(given)}; give the same"
            )


def check_measuring(metrics: Sequence[str], model: str, say: Callable[[str], None]) -> None:
    """Raise ConfigError, before anything that takes long, if COMET is among the metrics and it or its model is not available."""
    if COMET in metrics:
        check_comet(model, say)


def check_beginnings(sites: Iterable[Site]) -> None:
    """Raise CorpusError for a corpus whose beginning cannot be read, or whose columns are swapped: there, and then in the whole file."""
    for site in sites:
        corpus = site.corpus.files["train"] if isinstance(site.corpus, SplitFiles) else site.corpus
        if corpus is None or site.direction.is_one_language or not corpus.paths():
            continue
        where = f"site {site.name}"
        first = list(islice(in_order(corpus.read(), site.direction, where), BEGINNING))
        try:
            check_columns(first, site.direction, where)
        except CorpusError:
            check_columns(list(corpus.read()), site.direction, where)


def check_corpora(sites: Iterable[Site], remedy: str = "check the path, or give the folder with --data") -> None:
    """Refuse sites whose corpus is not given or has a missing file. remedy: what to do about the file.

    Raises:
        ConfigError: a site has no corpus, as in a deployment's federation file.
        CorpusError: a file is missing or unusable; names the site and the file.
    """
    for site in sites:
        if site.corpus is None:
            formats = listed(formats_of(site.direction))
            raise ConfigError(f"site {site.name} has no corpus here; give it {formats}, or run it where the sites are (--server)")
        try:
            missing = site.corpus.missing()
        except CorpusError as error:
            raise CorpusError(f"site {site.name}: {error}") from error
        if missing:
            raise CorpusError(f"site {site.name}: {missing}; {remedy}")
