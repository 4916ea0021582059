"""`fedlingua run`: check all that can be checked, submit the run to Flower, watch it to its end, and write its report."""

import dataclasses
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, BadParameter, Option

from fedlingua.common.devices import computed_in
from fedlingua.common.errors import ConfigError, DeploymentError, RunError
from fedlingua.common.files import APP_DIR, read_toml
from fedlingua.consent.bundle import bundle_hash
from fedlingua.consent.site_file import why_not_deployed
from fedlingua.corpora.sites import Federation, read_federation
from fedlingua.desk.cli import options
from fedlingua.desk.cli.attempt import STOPPED, Attempt, close_run
from fedlingua.desk.cli.completion import run_folders, settings, toml_files
from fedlingua.desk.cli.engine import Engine
from fedlingua.desk.cli.output import Answer, Commands, console, example, say, warn
from fedlingua.desk.cli.profile import Profile, ready_profile
from fedlingua.desk.cli.progress import follow, view_on
from fedlingua.desk.cli.server import profile_of
from fedlingua.desk.completed import stored_settings
from fedlingua.desk.deployment.build import build_bundle
from fedlingua.desk.deployment.invitation import write_invitation
from fedlingua.desk.deployment.server_file import ServerFile, read_server_file
from fedlingua.desk.experiment import experiment_file, given_settings, read_experiment, read_run_federation
from fedlingua.desk.paths import check_folder_to_write
from fedlingua.runs.folder import RunFolder, check_begun, check_resumable
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import MAY_CHANGE, Scalar, Settings
from fedlingua.settings.kinds import EXPERIMENT, flat_keys
from fedlingua.settings.trackers import tracker_names

commands = Commands()
KEYS = """Ten keys that matter, for --set and for experiment files:
method: how sites are averaged, such as adapter-families, adapter-fed, adapter-local or pmfl
federation, backbone: the file that lists the sites and their text; the model to start from
rounds, local-epochs: how many rounds; how often a site passes over its text in each
learning-rate, batch-size: of each site's training
tensor-set: what trains and travels, such as adapters, lora or full
send.code: how updates are compressed, such as 4bit, lossless or none
device: cpu or cuda
Further keys, by group: sample, memory, adapter, lora, cluster, signature, robust, server, privacy, dp,
send, apf, meta, keep, async, deadline. All keys: docs/options.md
""".replace("\n", "\n\n")
Overrides = list[str] | None


@commands.command(
    epilog=KEYS
    + example(
        "fedlingua run demo --set rounds=3 --seed 2023",
        "fedlingua run --resume runs/demo-adapter-families-2022 --set rounds=6",
    )
)
def run(
    experiment: Annotated[
        Path | None,
        Argument(
            help="Experiment file (TOML) with the keys that differ from the defaults, or demo.",
            shell_complete=toml_files(EXPERIMENT),
        ),
    ] = None,
    data: options.Data = None,
    set_: Annotated[Overrides, Option("--set", help="Override a key: KEY=VALUE; repeatable.", shell_complete=settings)] = None,
    seed: Annotated[int | None, Option(help="Random seed.")] = None,
    to: Annotated[
        Path | None, Option(help="Run folder; default: <experiment>-<method>-<seed> in ./runs, or in the server's runs.")
    ] = None,
    profile: options.Profile = "simulation",
    nodes: options.Nodes = None,
    ray_address: options.RayAddress = "",
    server: Annotated[Path | None, Option(help="A server's folder, or its server.toml: run across its sites.")] = None,
    resume: Annotated[
        Path | None,
        Option(
            help="Run folder to resume after its last complete round; with --set rounds=N, to another number of rounds.",
            shell_complete=run_folders,
        ),
    ] = None,
) -> Answer:
    if (experiment is None) == (resume is None):
        both = "got an experiment file and --resume, which keeps the run's own settings; leave one out"
        raise BadParameter(both if resume else "give an experiment file, or --resume with a run folder")
    if resume is not None and (seed is not None or to is not None):
        raise BadParameter("--resume keeps the run's seed and folder; leave --seed and --to out")
    simulated = {"--ray-address": ray_address, "--nodes": nodes, "--profile": profile != "simulation"}
    if server and (given := [option for option, value in simulated.items() if value]):
        raise BadParameter(f"--server runs across sites, and {' and '.join(given)} is for simulations; leave one out")
    at = read_server_file(server) if server else None
    if resume is not None:
        folder = RunFolder(resume.resolve())
        chosen = _resumed_settings(folder, _given(data, set_, None), at is not None)
        chosen, federation = _federation(chosen, at)
        from fedlingua.desk.check_settings import check_trackers

        check_trackers(tracker_names(chosen.track))
        with folder.held():  # if another server holds it, fail here and not after everything has been started
            pass
    else:
        assert experiment is not None
        experiment = experiment_file(experiment)
        chosen, federation = check_experiment(experiment, data, set_, seed, at)
        if at and experiment.resolve() == at.experiment and not (set_ or seed is not None):
            invitation, changed = write_invitation(at)
            if changed:
                raise DeploymentError(
                    f"{invitation} is new, since experiment, federation or code have changed: give it to every site, and run this again "
                    "once they have started with it"
                )
        folder = RunFolder(_new_folder(experiment, chosen, to, at))
    place = profile_of(at) if at else ready_profile(profile, ray_address)
    carry_out(chosen, federation, folder, place, nodes, at)
    about, scores = (folder.read(name) or {} for name in ("run.json", "scores.json"))
    answer = {key: about.get(key) for key in ("status", "method", "seed", "rounds", "best_round", "seconds")}
    return {"run": folder.directory, "report": folder.directory / "report.html", **answer, "scores": scores}


def carry_out(
    settings: Settings, federation: Federation, folder: RunFolder, place: Profile, nodes: int | None, server: ServerFile | None
) -> None:
    """Start an engine, follow the run to its end, and write its report; raise RunError if the run or its engine failed."""
    from fedlingua.desk.pretraining.demo import make_built_in
    from fedlingua.desk.report.run_page import write_report
    from fedlingua.desk.report.tables import score_table

    say(f"run folder: {folder.directory}")
    if server:
        from fedlingua.consent.approval import approval_hash

        bundle = bundle_hash(build_bundle(APP_DIR))
        say(f"bundle: {bundle}")
        say(f"run: {approval_hash(bundle, settings, federation.rules)}, which the sites approve")
    else:
        computed_in(settings.precision, settings.device, console().print)
    make_built_in(settings.backbone)
    attempt = None
    try:
        with Engine(APP_DIR, None, place) as engine:
            attempt = Attempt(engine, settings, federation, folder, nodes, view_on(console()))
            reason = attempt.end(follow(attempt.watch))
    except RunError as error:
        if server and folder.checkpoints.rounds():  # the server may be gone, and the run with it
            again = f"fedlingua run --resume {folder.directory} --server {server.path}"
            raise RunError(f"{error}\nOnce the server is back: {again}") from error
        raise
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, or a signal that the engine turned into an exit
        close_run(folder, "interrupted", STOPPED)
        write_report(folder.directory)
        warn(f"interrupted; everything has been stopped, as {folder.directory} records", style="")
        raise
    finally:
        if attempt:
            attempt.close()
    page = write_report(folder.directory)
    if reason:
        if attempt.log:
            console().print(attempt.log)
        where = f" --server {server.path}" if server else ""
        resumable = bool(folder.checkpoints.rounds())
        again = f"resume it with: fedlingua run --resume {folder.directory}{where}" if resumable else f"see {folder.directory}"
        raise RunError(f"the run failed: {reason}; {again}")
    console().print(score_table(folder.directory, console().width), crop=False)
    say(f"report: {page}")


def check_experiment(
    experiment: Path, data: Path | None, overrides: Overrides, seed: int | None, server: ServerFile | None = None
) -> tuple[Settings, Federation]:
    """Return settings and federation of an experiment file; refuse every mistake that can be seen without loading anything.

    Raises:
        ConfigError: a key, value or name is wrong. CorpusError: a corpus file is missing.
    """
    from fedlingua.desk.check_settings import check_settings

    given = _given(data, overrides, seed)
    if server:
        given["federation"] = str(server.federation)
        if "below-quorum" not in {**given, **flat_keys(read_toml(experiment))}:
            given["below-quorum"] = "wait"  # a site that is away for a while does not end the run
    settings = _at_home_anywhere(read_experiment(experiment, given, server is not None), server is not None)
    if server and settings.how.pooled:
        raise ConfigError(f"method = {settings.method!r} pools all sites' text, in simulation only; leave --server out")
    settings, federation = _federation(settings, server, None if "federation" in given else experiment)
    check_settings(settings, federation, server is not None, lambda text: warn(text, style=""))
    return settings, federation


def _resumed_settings(folder: RunFolder, given: dict[str, Scalar], deployed: bool) -> Settings:
    """Return the settings of an interrupted run with the changes that it may have; refuse others, and runs that cannot go on."""
    content = folder.read("run.json")
    check_begun(folder.directory, content)
    assert content is not None
    if fixed := sorted(set(given) - {*MAY_CHANGE, "rounds"} | set(given) & {"run-dir", "resume"}):
        raise ConfigError(
            f"--resume: {', '.join(fixed)} cannot be changed; a resumed run keeps all but rounds, {', '.join(MAY_CHANGE)}"
        )
    before = stored_settings(folder.directory, {**content, "status": "running"}).flat()  # with all that rounds need
    settings = settings_from({**before, **given, "resume": True, "run-dir": str(folder.directory)})
    check_resumable(folder.directory, content, settings)
    return _at_home_anywhere(settings, deployed)


def _at_home_anywhere(settings: Settings, deployed: bool) -> Settings:
    """Return the settings with absolute paths to data, the run to start from and COMET's checkpoint: server and sites work in other
    directories. A deployed run's checkpoint stays as it is written, since sites approve that.

    Raises:
        ConfigError: A deployed run's checkpoint has a relative path, which each machine would make another one of.
    """
    from fedlingua.evaluation.comet.scores import is_checkpoint

    if deployed and is_checkpoint(settings.comet_model) and not Path(settings.comet_model).is_absolute():
        raise ConfigError(
            f"comet-model = {settings.comet_model!r} is a relative path, which sites approve as it stands; give the absolute path "
            "that the checkpoint has at every site"
        )
    paths = settings.data_dir, settings.comet_model, settings.start_from
    data, model, start = (path and str(Path(path).expanduser().resolve()) for path in paths)
    of_comet = model if is_checkpoint(settings.comet_model) and not deployed else settings.comet_model
    return dataclasses.replace(settings, data_dir=data, comet_model=of_comet, start_from=start)


def _given(data: Path | None, overrides: Overrides, seed: int | None) -> dict[str, Scalar]:
    named: dict[str, Any] = {"seed": seed, "data-dir": data and str(data)}
    return {**given_settings(overrides or ()), **{key: value for key, value in named.items() if value is not None}}


def _federation(settings: Settings, server: ServerFile | None, experiment: Path | None = None) -> tuple[Settings, Federation]:
    """Return the run's federation, and its settings with the folder of its text; refuse missing corpora (simulation), or a split that needs
    all sites' text (deployment)."""
    if server is None:
        return read_run_federation(settings, experiment)
    federation = read_federation(settings.federation_path, Path(settings.data_dir))
    if why := why_not_deployed(federation.rules, federation.sites):
        raise ConfigError(f"{server.federation}: {why}")
    return settings, federation


def _new_folder(experiment: Path, settings: Settings, to: Path | None, server: ServerFile | None) -> Path:
    """Return the folder of a new run; say how to go on with an earlier one of the same settings that has not ended."""
    named = "run-dir" if to is None else "--to"
    if to is None and settings.run_dir:
        to = Path(settings.run_dir).expanduser()
    if to is not None:
        if (to / "run.json").exists():
            instead = _unfinished(to, settings, server) or "give another folder, or remove it"
            raise ConfigError(f"{named} {to}: holds a run already; {instead}")
        check_folder_to_write(to, named)
        return to.resolve()
    runs = server.runs if server else Path("runs")
    check_folder_to_write(runs, "--to is not given, and the default")
    stem = f"{experiment.stem}-{settings.method}-{settings.seed}"
    for folder in (runs / name for name in chain([stem], (f"{stem}-{number}" for number in count(2)))):
        if not folder.exists():
            return folder.resolve()
        if known := _unfinished(folder, settings, server):
            warn(f"{folder}: {known}; this one begins anew", style="")
    raise AssertionError


def _unfinished(folder: Path, settings: Settings, server: ServerFile | None) -> str:
    """Return how to go on with a folder's run if it has these settings, stored a round and ended before its end; otherwise ""."""
    with suppress(RunError):  # damaged
        run = RunFolder(folder.resolve())
        about, rounds = run.read("run.json") or {}, run.checkpoints.rounds()
        is_same = about.get("status") != "completed" and about.get("config_hash") == settings.hash()
        if rounds and is_same and not run.is_held():
            where = f" --server {server.path}" if server else ""
            went = f"a run of the same settings stopped here after round {rounds[-1]} of {settings.rounds}"
            return f"{went}; go on with it: fedlingua run --resume {run.directory}{where}"
    return ""
