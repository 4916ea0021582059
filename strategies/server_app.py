"""The ServerApp: settings in, one strategy's rounds, scores out.

Modules that import torch and transformers, which takes seconds, are imported once the nodes are asked, so that these load meanwhile.
"""

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedlingua.backbones.knowledge import doubts
from fedlingua.clustering.clusters import Clusters
from fedlingua.common.errors import ConfigError, FedlinguaError, RunError, without_words
from fedlingua.common.loading import uncollected
from fedlingua.corpora.sites import Federation, read_federation
from fedlingua.corpora.texts import list_failures
from fedlingua.evaluation.scores import below_base
from fedlingua.evaluation.tasks import check_task
from fedlingua.evaluation.totals import ALL_SITES, common_direction
from fedlingua.exchange.records import to_record
from fedlingua.exchange.traffic import FILE as TRAFFIC
from fedlingua.exchange.traffic import CountedGrid
from fedlingua.layers.order import layers_of
from fedlingua.runs.folder import RunFolder, code_hash, run_directory
from fedlingua.runs.plan import alone_words, planned_clusters
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings
from fedlingua.settings.own_code import check_arguments, named_class
from strategies.checks.contents import MEASURES
from strategies.methods import usual
from strategies.methods.fed_mean import FedMean, needs_means
from strategies.methods.stock import Stock, maker
from strategies.rounds.registration import Registry, register_sites, sites_json
from strategies.run_log import LoggedFolder, log_report
from strategies.strategy import Federated, SiteStrategy, check_first_round

if TYPE_CHECKING:
    from fedlingua.exchange.trainable import Trainable

STRATEGIES = ", such as those of that module; classes of flwr.server.strategy are none"
DEFINE = "define aggregate(self, state, updates), which returns a State"
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run a federation; however it ends, run.json says how, and where in the code if the error is not the project's own."""
    settings = settings_from(context.run_config)
    folder = LoggedFolder(run_directory(settings, context.run_id))
    with folder.held():
        folder.open(settings, context.run_id)
        try:
            run_federation(grid, settings, folder)
        except FedlinguaError as error:
            folder.close("failed", str(error))
            raise
        except BaseException as error:  # an Exception may come from a strategy of the user's own
            what = without_words(error) if isinstance(error, Exception) else type(error).__name__
            folder.close("failed", f"{what}: {error}")
            raise
        folder.close("completed")
    log_report(folder.directory)


def run_federation(grid: Grid, settings: Settings, folder: RunFolder) -> None:
    """Run from the first request to the last score."""
    make_strategy = find_strategy(settings)
    layers_of(settings)  # refuses what does not fit before anything is loaded
    federation = read_federation(settings.federation_path, Path(settings.data_dir).expanduser())
    planned = planned_clusters(settings, federation)  # refuses what cannot be clustered before anything is loaded
    check_task(settings.task, federation.rules.directions)
    keep_federation(folder, federation, settings.resume)
    registry = Registry(federation, code_hash(), pooled=settings.how.pooled)
    if settings.resume:
        registry.traffic.take(folder.read(TRAFFIC) or {})
    grid = CountedGrid(grid, registry.traffic)
    registry.ask(grid, settings.deadline_of("join"))
    folder.event("note", text="loading the backbone")
    with uncollected():
        from fedlingua.exchange.trainable import build_trainable

        trainable = build_trainable(settings, computes=False)
    folder.event("note", text=f"backbone {trainable.backbone.name}, backbone fingerprint {trainable.backbone.fingerprint[:16]}")
    trainable.backbone.codec.check([site.direction for site in federation.sites])
    directions = dict.fromkeys(federation.rules.directions)
    folder.warn(text for direction in directions for text in doubts(trainable.backbone, direction))
    registry.fingerprint, registry.vocabulary = trainable.fingerprint, trainable.model.config.vocab_size
    register_sites(grid, registry, settings.quorum, settings.deadline_of("join"), folder)
    federated = Federated(settings, registry, planned or {}, trainable.tensor_set, folder)
    federated.layers.join(federated, grid, trainable)
    strategy = make_strategy(federated)
    _describe(folder, settings, trainable, registry, strategy.clusters, strategy)
    folder.warn(alone_words(settings, strategy.clusters, trainable.tensor_set).values())
    rounds = settings.rounds if settings.how.trains else 0
    strategy.start(grid, to_record(trainable.sent_first), rounds)
    scores = scores_json(strategy)
    folder.write("scores.json", scores)
    folder.warn(below_base(scores["sites"]))


def keep_federation(folder: RunFolder, federation: Federation, resumed: bool) -> None:
    """Record in run.json the sites and the treatment of their text; raise RunError if a resumed run has others."""
    now: dict[str, Any] = {
        "sites": {site.name: str(site.direction) for site in federation.sites},
        "families": dict(federation.families),
        "clusters": _as_json(federation.clusters) if federation.clusters else None,
        "rules": federation.rules.flat(),
    }
    before = (folder.read("run.json") or {}).get("federation")
    if resumed and before:
        changed = "; ".join(f"{what} = {now[what]} (was {before.get(what)})" for what in now if now[what] != before.get(what))
        if changed:
            raise RunError(f"the federation file has changed since the run began: {changed}; a resumed run keeps its own")
    folder.update(federation={"name": federation.name, **now})


def find_strategy(settings: Settings) -> Callable[[Federated], SiteStrategy]:
    """Return the constructor of a run's strategy: the method's, the user's own (`strategy = "my_file:MyStrategy"`), or a class of Flower's;
    raise ConfigError if it does not fit the other settings."""
    value, said = settings.strategy or usual(settings), f"strategy = {settings.strategy!r}"
    named, arguments = named_class("strategy", value, "flwr.serverapp.strategy.Strategy", STRATEGIES)
    class_name, ours = named.__name__, issubclass(named, SiteStrategy)
    if ours:
        _check_own(settings, named, arguments)
    one = named if ours else Stock
    if settings.has_two_phases and one.update_phase == "train":
        raise ConfigError(
            f"{said}: selection {settings.selected_by} has rounds of two phases, which {class_name} has not; "
            f"derive it from {usual(settings).replace(':', '.')}, or choose another selection"
        )
    if not (issubclass(named, FedMean) and named.rule is None) and (needed := needs_means(settings)):
        said, leave = needed
        raise ConfigError(f"{said}, and {class_name} has a rule of its own; leave it {leave!r}, or take the rule out")
    if one.travels != settings.how.travels:
        have, wanted = ("tensors travel", "stay") if one.travels else ("tensors stay", "travel")
        raise ConfigError(f"{said}: its {have}, but those of method {settings.method} {wanted}; change one of them")
    return partial(named, **arguments) if ours else partial(Stock, make=maker(settings, named, arguments))


def _check_own(settings: Settings, named: type[SiteStrategy], arguments: dict[str, Any]) -> None:
    """Raise ConfigError for arguments that a SiteStrategy does not take, or if a round would end without a rule that can be called."""
    check_arguments("strategy", settings.strategy, named, SiteStrategy, arguments)
    check_first_round(settings, lambda: named.__new__(named))  # without the run that its constructor takes
    rule = inspect.getattr_static(named, "rule", None)
    said = f"strategy = {settings.strategy!r}: {named.__name__}"
    if rule and not issubclass(named, FedMean):
        raise ConfigError(
            f"{said} has a rule, which only a FedMean calls; derive it from strategies.methods.fed_mean.FedMean, or {DEFINE}"
        )
    if isinstance(rule, FunctionType):
        needed = [each for each in inspect.signature(rule).parameters.values() if each.default is each.empty]
        if len(needed) < 2:  # self and the updates
            raise ConfigError(f"{said}.rule is a plain function; give rule = staticmethod({rule.__name__})")
    if isinstance(rule, staticmethod):
        _check_call(f"{said}.rule", rule.__func__, "updates", "a dict, name -> float32 array, made of one cluster's updates")
    _check_call(
        f"{said}.aggregate", named.aggregate, "self, state, updates", "a State; a rule of updates alone is FedMean's `rule`"
    )
    if named.aggregate is SiteStrategy.aggregate and named.aggregate_train is SiteStrategy.aggregate_train:
        raise ConfigError(f"{said} defines neither aggregate nor aggregate_train; {DEFINE}")


def _check_call(said: str, function: Callable[..., Any], given: str, returns: str) -> None:
    """Raise ConfigError for a function that does not take what a round passes."""
    try:
        inspect.signature(function).bind(*given.split(", "))
    except TypeError as error:
        raise ConfigError(f"{said}{inspect.signature(function)}; wanted ({given}), which returns {returns}") from error


def _describe(
    folder: RunFolder, settings: Settings, trainable: "Trainable", registry: Registry, clusters: Clusters, strategy: SiteStrategy
) -> None:
    sites = sites_json(registry)
    folder.write("sites.json", sites)
    for site, about in sites.items():
        for failures in (account["failed_documents"] for account in about["accounts"].values() if "failed_documents" in account):
            failed = f"{sum(failures.values())} documents ({list_failures(failures)})"
            folder.event("note", text=f"site {site}: deidentify-with failed on {failed}; nothing of them is used")
    folder.write("clusters.json", _as_json({p: named for p, named in clusters.items() if trainable.tensor_set.of_part(p)}))
    backbone = trainable.backbone
    folder.update(
        backbone={"name": backbone.name, "fingerprint": backbone.fingerprint, "parameters": backbone.num_parameters},
        trained_parameters=trainable.trained.num_parameters if settings.how.trains else 0,
        exchanged_parameters=trainable.tensor_set.num_parameters if strategy.travels else 0,
    )


def _as_json(clusters: Clusters) -> dict[str, dict[str, list[str]]]:
    return {part: {name: list(sites) for name, sites in named.items()} for part, named in clusters.items()}


def scores_json(strategy: SiteStrategy) -> dict[str, Any]:
    """Return the content of scores.json: every site's scores before and after, averages by name, and the bytes exchanged.

    total_bytes: all messages of the whole run, up and down, mean over sites; its fp32: the same tensors, each sent as float32.
    """
    measure = MEASURES[strategy.settings.task]
    directions = {site.name: site.direction for site in strategy.registry.federation.sites}
    sums = {site: (scores.result, scores.base) for site, scores in strategy.run.scores.items()}
    sites = {
        site: measure.site_scores(strategy.settings, directions[site], scores) for site, scores in strategy.run.scores.items()
    }
    averages: dict[str, Any] = {}
    if totals := strategy.run.totals:
        sums = {ALL_SITES: (totals.scores.result, totals.scores.base)}
        sites = {ALL_SITES: measure.site_scores(strategy.settings, common_direction(directions), totals.scores)}
        averages = {**totals.averages, **({"choices": totals.choices} if totals.choices else {})}
    ups, downs = zip(*strategy.run.progress.traffic, strict=True) if strategy.run.progress.traffic else ((0,), (0,))
    travels = strategy.travels and strategy.settings.how.trains
    return {
        "method": strategy.settings.method,
        "seed": strategy.settings.seed,
        "split": strategy.settings.score_split,
        "sites": sites,
        **measure.all_scores(strategy.settings, sites, sums),
        **averages,
        "uplink_bytes_per_round": round(sum(ups) / len(ups)),
        "downlink_bytes_per_round": round(sum(downs) / len(downs)),
        "total_bytes": strategy.registry.traffic.total,
        "exchanged_parameters": strategy.tensor_set.num_parameters if travels else 0,
        **strategy.run.progress.mean_savings(),
    }
