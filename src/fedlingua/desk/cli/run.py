"""`fedlingua run`: check everything that can be checked, hand the run to Flower, watch it, and see it to its end."""

import dataclasses
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console

from fedlingua.backbones.directories import check_backbone
from fedlingua.common.devices import check_device, computed_in
from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.files import APP_DIR, check_folder_to_write, read_toml
from fedlingua.common.languages import nearest
from fedlingua.consent.approval import approval_hash
from fedlingua.consent.bundle import bundle_hash
from fedlingua.corpora.sites import Federation, check_files, read_federation
from fedlingua.desk.cli.attempt import STOPPED, Attempt, close_run, num_nodes
from fedlingua.desk.cli.engine import Engine
from fedlingua.desk.cli.output import AnsweringConsole
from fedlingua.desk.cli.profile import PROFILES_FILE, Profile
from fedlingua.desk.cli.progress import follow, view_on
from fedlingua.desk.cli.server import profile_of
from fedlingua.desk.deployment.build import build_bundle
from fedlingua.desk.deployment.server_file import ServerFile, read_server_file
from fedlingua.desk.pretraining.demo import make_built_in
from fedlingua.desk.report import score_table, write_report
from fedlingua.desk.suites.read import is_suite
from fedlingua.evaluation.comet.scores import is_checkpoint
from fedlingua.evaluation.measuring import check_measuring
from fedlingua.evaluation.tasks import check_task
from fedlingua.runs.completed import settings_of
from fedlingua.runs.folder import RunFolder, check_resumable
from fedlingua.runs.plan import planned_clusters
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import MAY_CHANGE, Scalar, Settings
from fedlingua.settings.experiment import given_settings, read_experiment
from fedlingua.settings.trackers import check_trackers, tracker_names


def run_experiment(
    experiment: Path,
    data: Path | None,
    overrides: list[str],
    seed: int | None,
    to: Path | None,
    profile: str,
    nodes: int | None,
    server: Path | None,
    console: Console,
) -> Path:
    """Run one experiment file; returns the run folder. server: a server's file, whose federation and addresses the run takes.

    Raises:
        ConfigError, CorpusError: before anything is started. RunError: the run failed; its folder says why.
    """
    at = read_server_file(server) if server else None
    settings, federation = check_experiment(experiment, data, overrides, seed, at)
    if at is None:
        Profile.read(APP_DIR / PROFILES_FILE, profile)
    folder = RunFolder(_new_folder(experiment, settings, to, at.runs if at else Path("runs")))
    return _carry_out(settings, federation, folder, profile, nodes, at, console)


def resume_run(
    run: Path, data: Path | None, overrides: list[str], profile: str, nodes: int | None, server: Path | None, console: Console
) -> Path:
    """Go on with a run that was broken off, after its last whole round; returns the run folder.

    Raises:
        ConfigError: a setting that a resumed run has to keep. RunError: nothing to resume, or it failed again.
    """
    folder = RunFolder(run.resolve())
    content = folder.read("run.json")
    check_resumable(folder.directory, content)
    assert content is not None
    given = _given(data, overrides, None)
    if fixed := sorted(set(given) - set(MAY_CHANGE) | set(given) & {"run-dir", "resume"}):
        raise ConfigError(f"--resume: {', '.join(fixed)} cannot be changed; a resumed run keeps all but {', '.join(MAY_CHANGE)}")
    try:
        before = settings_of(content["config"])
    except ConfigError as error:
        raise ConfigError(f"{run}: its run.json is of another version of fedlingua, or was changed: {error}") from error
    settings = settings_from({**before.flat(), **given, "resume": True, "run-dir": str(folder.directory)})
    settings = _at_home_anywhere(settings)
    at = read_server_file(server) if server else None
    federation = _federation(settings, at)
    check_trackers(tracker_names(settings.track))
    if at is None:
        Profile.read(APP_DIR / PROFILES_FILE, profile)
    with folder.held():  # refused here rather than after everything has been started
        pass
    return _carry_out(settings, federation, folder, profile, nodes, at, console)


def _carry_out(
    settings: Settings,
    federation: Federation,
    folder: RunFolder,
    profile: str,
    nodes: int | None,
    server: ServerFile | None,
    console: Console,
) -> Path:
    console.print(f"run folder: {folder.directory}", soft_wrap=True)
    if not server:
        computed_in(settings.precision, settings.device, console.print)
    if server:
        bundle = bundle_hash(build_bundle(APP_DIR))
        console.print(f"bundle: {bundle}", soft_wrap=True, highlight=False)
        run = approval_hash(bundle, settings, federation.rules)
        console.print(f"run: {run}, which the sites approve", soft_wrap=True, highlight=False)
    make_built_in(settings.backbone)
    home = Path(tempfile.mkdtemp(prefix="fedlingua-"))
    attempt = None
    try:
        with Engine(APP_DIR, home, profile_of(server) if server else profile) as engine:
            attempt = Attempt(engine, settings, folder, num_nodes(settings, federation, nodes), view_on(console))
            reason = attempt.end(follow(attempt.watch))
    except RunError as error:
        if server and folder.checkpoints.rounds():  # the server may be gone, and the run with it
            raise RunError(
                f"{error}\nOnce the server is back: fedlingua run --resume {folder.directory} --server {server.path}"
            ) from error
        raise
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, or a signal that the engine turned into an exit
        close_run(folder, "interrupted", STOPPED)
        write_report(folder.directory)
        AnsweringConsole(stderr=True).print(f"interrupted; all has ended, and {folder.directory} says so", soft_wrap=True)
        raise
    finally:
        shutil.rmtree(home, ignore_errors=True)
        if attempt:
            attempt.keep_revision()
            attempt.close()
    page = write_report(folder.directory)
    if reason:
        if attempt.log:
            console.print(attempt.log, markup=False, highlight=False)
        where = f" --server {server.path}" if server else ""
        resumable = bool(folder.checkpoints.rounds())
        again = f"go on with: fedlingua run --resume {folder.directory}{where}" if resumable else f"see {folder.directory}"
        raise RunError(f"the run failed: {reason}; {again}")
    console.print(score_table(folder.directory))
    console.print(f"report: {page}", soft_wrap=True)
    return folder.directory


def told_run(folder: Path) -> dict[str, Any]:
    """Of a finished run, for programs."""
    run, scores = (RunFolder(folder).read(name) or {} for name in ("run.json", "scores.json"))
    keys = ("status", "method", "seed", "rounds", "best_round", "seconds")
    return {"run": folder, "report": folder / "report.html", **{key: run.get(key) for key in keys}, "scores": scores}


def check_experiment(
    experiment: Path, data: Path | None, overrides: list[str], seed: int | None, server: ServerFile | None = None
) -> tuple[Settings, Federation]:
    """Settings and federation of an experiment file, with everything refused that can be seen without loading anything.

    Raises:
        ConfigError: a key, value or name. CorpusError: a corpus file that is not there.
    """
    if is_suite(read_toml(experiment)):
        raise ConfigError(f"{experiment} has [[row]], so it is a suite; run it with `fedlingua suite {experiment}`")
    given = _given(data, overrides, seed)
    if server:
        given["federation"] = str(server.federation)
    settings = _at_home_anywhere(read_experiment(experiment, given))
    if server and settings.how.pooled:
        raise ConfigError(f"method = {settings.method!r} pools all sites' text, in simulation only; leave --server out")
    federation = _federation(settings, server)
    planned_clusters(settings, federation)  # refuses what cannot be clustered
    check_task(settings.task, federation.directions)
    check_backbone(settings)
    check_trackers(tracker_names(settings.track))
    _check_strategy(settings.strategy)
    if server is None:
        check_device(settings.device)  # each deployed site sees to its own, see `fedlingua site check`
        check_measuring(settings.more_metrics, settings.comet_model, AnsweringConsole(stderr=True).print)
    return settings, federation


def _check_strategy(strategy: str) -> None:
    """Refuse a strategy of one's own whose file is not there; what stands in it is read by the server."""
    module = strategy.partition(":")[0]
    if strategy and not (APP_DIR / f"{module.replace('.', '/')}.py").is_file() and find_spec(module.partition(".")[0]) is None:
        near = nearest(module, [path.stem for path in APP_DIR.glob("*.py")])
        raise ConfigError(
            f"strategy = {strategy!r}: there is no {module}.py{near}; it has to lie beside {APP_DIR / 'pyproject.toml'}"
        )


def _at_home_anywhere(settings: Settings) -> Settings:
    """The settings with an absolute data-dir: server and sites work in other directories than this command; COMET's model too."""
    data, model = (path and str(Path(path).expanduser().resolve()) for path in (settings.data_dir, settings.comet_model))
    return dataclasses.replace(
        settings, data_dir=data, comet_model=model if is_checkpoint(settings.comet_model) else settings.comet_model
    )


def _given(data: Path | None, overrides: list[str], seed: int | None) -> dict[str, Scalar]:
    given = given_settings(overrides)
    if seed is not None:
        given["seed"] = seed
    if data is not None:
        given["data-dir"] = str(data)
    return given


def _federation(settings: Settings, server: ServerFile | None) -> Federation:
    """The run's federation; of a simulation with all corpora there, of a deployment with a split that sites can agree on."""
    federation = read_federation(settings.federation_path, Path(settings.data_dir))
    if server is None:
        check_files(federation)
    elif federation.rules.split.mixed:
        raise ConfigError(
            f"{server.federation}: [split] mixed = true deals out all sites' text in one place, in simulation only; leave it out"
        )
    elif federation.rules.split.mode == "components" and not all(site.direction.is_one_language for site in federation.sites):
        raise ConfigError(
            f"{server.federation}: [split] mode = 'components' needs all sites' text in one place; deployed sites take 'shared-side'"
        )
    return federation


def _new_folder(experiment: Path, settings: Settings, to: Path | None, runs: Path) -> Path:
    if to is not None:
        if (to / "run.json").exists():
            raise ConfigError(f"--to {to}: holds a run already; give another folder, or remove it")
        check_folder_to_write(to, "--to")
        return to.resolve()
    stem = f"{experiment.stem}-{settings.method}-{settings.seed}"
    number = 1
    while (folder := runs / (stem if number == 1 else f"{stem}-{number}")).exists():
        number += 1
    return folder.resolve()
