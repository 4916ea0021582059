"""The ServerApp: settings in, one strategy's rounds, scores out."""

import importlib
import logging
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedlingua.clustering.clusters import Clusters
from fedlingua.common.errors import ConfigError, FedlinguaError, RunError
from fedlingua.common.languages import nearest
from fedlingua.corpora.intake import failures_told
from fedlingua.corpora.sites import Federation, read_federation
from fedlingua.evaluation.tasks import check_task
from fedlingua.exchange.records import to_record
from fedlingua.exchange.trainable import Trainable, build_trainable
from fedlingua.runs.folder import RunFolder, code_hash, run_directory
from fedlingua.runs.plan import check_enough, planned_clusters
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings
from strategies.clusters import clusters_by_gradients
from strategies.fed_mean import FedMean
from strategies.local_only import LocalOnly
from strategies.meta_send import MetaSend
from strategies.overlap import compare_sites
from strategies.roll_call import Roll, call_roll, failed_documents, sites_json
from strategies.scores import scores_json
from strategies.site_strategy import SiteStrategy
from strategies.traffic import FILE as TRAFFIC
from strategies.traffic import CountedGrid

app = ServerApp()
_log = logging.getLogger("fedlingua.server")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run a federation; whatever ends it, run.json says how."""
    settings = settings_from(context.run_config)
    folder = RunFolder(run_directory(settings, context.run_id))
    with folder.held():
        folder.open(settings, context.run_id)
        _log.warning("run folder: %s", folder.directory)
        try:
            run_federation(grid, settings, folder)
        except FedlinguaError as error:
            folder.close("failed", str(error))
            raise
        except BaseException as error:
            folder.close("failed", f"{type(error).__name__}: {error}")
            raise
        folder.close("completed")


def run_federation(grid: Grid, settings: Settings, folder: RunFolder) -> None:
    """From the first question to the last score."""
    strategy_class = find_strategy(settings)
    federation = read_federation(settings.federation_path, Path(settings.data_dir).expanduser())
    planned = planned_clusters(settings, federation)  # refuses what cannot be clustered before anything is loaded
    check_task(settings.task, federation.directions)
    keep_federation(folder, federation, settings.resume)
    folder.event("note", text="loading the backbone")
    trainable = build_trainable(settings)
    trainable.backbone.codec.check([site.direction for site in federation.sites])
    check_start(settings, trainable)
    roll = Roll(federation, trainable.fingerprint, code_hash(), settings.how.pooled, trainable.model.config.vocab_size)
    if settings.resume:
        roll.traffic.take(folder.read(TRAFFIC) or {})
    grid = CountedGrid(grid, roll.traffic)
    call_roll(grid, roll, settings.quorum, settings.deadline_of("join"), folder)
    compare_sites(grid, settings, roll, folder)
    clusters = planned or clusters_by_gradients(grid, settings, roll, trainable, folder)
    check_enough(settings, clusters)
    strategy = strategy_class(settings, roll, clusters, trainable.tensor_set, folder)
    _describe(folder, settings, trainable, roll, clusters, strategy)
    rounds = settings.rounds if settings.how.trains else 0
    strategy.start(grid, to_record(trainable.sent_first), rounds)
    folder.write("scores.json", scores_json(strategy))


def check_start(settings: Settings, trainable: Trainable) -> None:
    """Refuse tensors that have no deviation in the first round, where no rule is given for them.

    Raises:
        ConfigError: names the first, and says how many there are.
    """
    if settings.by_deviation and settings.zero_norm == "refuse":
        zeros = [name for name, tensor in trainable.sent_first.items() if not tensor.any()]
        if zeros:
            raise ConfigError(
                f"zero-norm = 'refuse', and {len(zeros)} of {len(trainable.sent_first)} tensors are 0 everywhere at the start, "
                f"{zeros[0]} the first; a deviation divides by their norm: give zero-norm = 'send' or 'stay', or another adapter-init"
            )


def keep_federation(folder: RunFolder, federation: Federation, resumed: bool) -> None:
    """Enter into run.json who the sites are and how their text is treated; a resumed run has to have the same.

    Raises:
        RunError: names what has changed in the federation file since the run began.
    """
    now: dict[str, Any] = {
        "sites": {site.name: str(site.direction) for site in federation.sites},
        "families": dict(federation.families),
        "clusters": _as_json(federation.clusters) if federation.clusters else None,
        "rules": federation.rules.flat(),
    }
    before = (folder.read("run.json") or {}).get("federation")
    if resumed and before:
        changed = [f"{what} = {now[what]} (was {before.get(what)})" for what in now if now[what] != before.get(what)]
        if changed:
            raise RunError(
                f"the federation file has changed since the run began: {'; '.join(changed)}; a resumed run keeps its own"
            )
    folder.update(federation=now)


def find_strategy(settings: Settings) -> type[SiteStrategy]:
    """The strategy class of a run: one's own (`strategy = "my_file:MyStrategy"`), or the method's.

    Raises:
        ConfigError: no such module or class, or a class that is no SiteStrategy.
    """
    if not settings.strategy:
        if settings.learns_threshold:
            return MetaSend
        return FedMean if settings.how.travels else LocalOnly
    module_name, class_name = settings.strategy.split(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(
            f"strategy = {settings.strategy!r}: cannot import {module_name!r} ({error}); it has to lie beside pyproject.toml"
        ) from error
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, SiteStrategy)):
        near = nearest(class_name, vars(module))
        raise ConfigError(f"strategy = {settings.strategy!r}: {module_name} has no SiteStrategy subclass {class_name!r}{near}")
    if settings.learns_threshold and not issubclass(found, MetaSend):
        raise ConfigError(
            f"strategy = {settings.strategy!r}: selection {settings.selected_by} has rounds of two phases, which {class_name} has not; "
            "derive it from strategies.meta_send.MetaSend, or choose another selection"
        )
    if not (issubclass(found, FedMean) and found.rule is None):
        if settings.missing == "renormalise" and settings.selected_by != "all":
            raise ConfigError(
                f"missing = 'renormalise' takes means over the sites that sent, and {class_name} has a rule of its own; "
                "leave it 'previous'"
            )
        if settings.aggregation != "fed-mean":
            raise ConfigError(
                f"aggregation = {settings.aggregation!r} says what a site counts in a mean, and {class_name} has a rule of its own; "
                "leave it 'fed-mean', or take the rule out"
            )
        if settings.optimized_by != "none":
            raise ConfigError(
                f"server-optimizer = {settings.optimized_by!r} steps against the mean of the sites' pseudo-gradients, and {class_name} "
                "has a rule of its own; give 'none', or take the rule out"
            )
    if found.travels != settings.how.travels:
        have, wanted = ("tensors travel", "stay") if found.travels else ("tensors stay", "travel")
        raise ConfigError(
            f"strategy = {settings.strategy!r}: its {have}, but those of method {settings.method} {wanted}; change one of them"
        )
    return found


def _describe(
    folder: RunFolder, settings: Settings, trainable: Trainable, roll: Roll, clusters: Clusters, strategy: SiteStrategy
) -> None:
    sites = sites_json(roll)
    folder.write("sites.json", sites)
    for site, failures in failed_documents(sites):
        failed = f"{sum(failures.values())} documents ({failures_told(failures)})"
        text = f"site {site}: deidentify-with failed on {failed}; nothing of them is used"
        folder.event("note", text=text)
    folder.write("clusters.json", _as_json({p: named for p, named in clusters.items() if trainable.tensor_set.of_part(p)}))
    backbone = trainable.backbone
    folder.update(
        backbone={"name": backbone.name, "fingerprint": backbone.fingerprint, "parameters": backbone.num_parameters},
        trained_parameters=trainable.trained.num_parameters if settings.how.trains else 0,
        exchanged_parameters=trainable.tensor_set.num_parameters if strategy.travels else 0,
    )


def _as_json(clusters: Clusters) -> dict[str, dict[str, list[str]]]:
    return {part: {name: list(sites) for name, sites in named.items()} for part, named in clusters.items()}
