"""`fedlingua server`: set up a server, add its sites, run it, and look after its runs."""

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from typer import Argument, BadParameter, Option, prompt

from fedlingua.common.errors import ConfigError, DeploymentError, FedlinguaError, RunError
from fedlingua.common.files import APP_DIR, held, read_toml
from fedlingua.common.languages import nearest
from fedlingua.consent.keys import key_fingerprint, read_public_key
from fedlingua.corpora.sites import read_federation
from fedlingua.desk.cli.attempt import STOPPED, close_run
from fedlingua.desk.cli.engine import Engine
from fedlingua.desk.cli.output import Answer, Commands, console, example, plain_table, say
from fedlingua.desk.cli.profile import Profile
from fedlingua.desk.deployment.certificates import check_dates, subject_alternative_names
from fedlingua.desk.deployment.invitation import write_invitation
from fedlingua.desk.deployment.programs import control_address, superlink_command
from fedlingua.desk.deployment.server_file import ServerFile, add_site, certify, init_server, read_server_file
from fedlingua.desk.deployment.service import Service, answers
from fedlingua.desk.experiment import read_experiment
from fedlingua.desk.processes import check_free, flower_environment
from fedlingua.runs.folder import RunFolder, run_about

commands = Commands(group=True)
ServerFileArgument = Annotated[Path, Argument(help="The server's folder, or its server.toml.")]
RunOfServer = Annotated[str, Argument(metavar="RUN", help="The name of the run's folder, or Flower's id of the run.")]
LOOK_S = 5.0
"""Seconds between two looks at the federation file for added sites."""
INSECURE = "warning: insecure = true: no TLS, and any node may join under any name; only for a trial on one machine"


@commands.command("init", epilog=example("fedlingua server init --host server.example.org --name hospitals --to server"))
def server_init(
    to: Annotated[Path, Option(help="The server's folder.")] = Path("server"),
    name: Annotated[str, Option(help="The federation's name.")] = "federation",
    host: Annotated[list[str] | None, Option(help="A name or address at which sites reach the server; repeatable.")] = None,
    fleet: Annotated[str, Option(help="host:port where sites connect.")] = "0.0.0.0:9092",
    control: Annotated[str, Option(help="host:port to submit runs. Whoever reaches it can start one.")] = "127.0.0.1:9093",
    insecure: Annotated[bool, Option("--insecure", help="No TLS, no authentication; for a trial on one machine.")] = False,
) -> Answer:
    """Make certificates, a federation file, an experiment and server.toml. Asks for the host unless --host is given."""
    if not host and not insecure and sys.stdin.isatty():
        host = prompt("Names or addresses that sites reach this server by, separated by commas").replace(" ", "").split(",")
    if not host and not insecure:
        raise BadParameter("give --host, a name or address that sites reach this server by; its certificate is for it")
    server = init_server(to, name, host or [], fleet, control, insecure)
    say(f"server: {server.path}")
    if insecure:
        say(INSECURE, style="bold red")
    else:
        say(f"certificate for: {', '.join(str(name.value) for name in subject_alternative_names(host or []))}")
        say(f"keep for yourself: ca.key and server.key in {server.certificates}")
    say(f"edit {server.experiment}; then, with the sites' files: fedlingua server start {to} NAME.join.toml ...")
    return {
        "server": server.path,
        "federation": server.federation,
        "experiment": server.experiment,
        "authority": server.authority,
    }


@commands.command("add", epilog=example("fedlingua server add server hospital.join.toml"))
def server_add(
    file: ServerFileArgument,
    join_files: Annotated[list[Path], Argument(help="Files that the sites' `site init` wrote.")],
) -> Answer:
    """Add sites to the federation file, and make the invitation anew. A running server lets them join within seconds."""
    server = read_server_file(file)
    names = _add(server, join_files)
    _invite(server)
    return {"federation": server.federation, "added": names}


def _add(server: ServerFile, join_files: Iterable[Path]) -> list[str]:
    names = []
    for join_file in join_files:
        names.append(add_site(server, join_file))
        say(f"{names[-1]} stands in {server.federation}")
    return names


def _invite(server: ServerFile) -> None:
    """Write the invitation of a server that has sites and an experiment."""
    if server.experiment.is_file() and read_toml(server.federation).get("site"):
        from fedlingua.desk.students.fetch import have_student

        file, changed = write_invitation(server)
        have_student(read_experiment(server.experiment, {}, deployed=True).backbone, say)
        say(f"give every site: {file}{' (it has changed)' if changed else ''}; nothing in it is secret")


@commands.command("start", epilog=example("fedlingua server start server hospital.join.toml court.join.toml"))
def server_start(
    file: ServerFileArgument,
    join_files: Annotated[list[Path] | None, Argument(help="Files of sites to add first, as `server add` does.")] = None,
) -> Answer:
    """Write the sites' invitation, and run the SuperLink, with TLS and authentication of nodes, until Ctrl-C or SIGTERM."""
    server = read_server_file(file)
    _add(server, join_files or ())
    _keys(server)
    _invite(server)
    if server.authority and server.authority.exists() and not (server.certificates / "server.crt").exists():
        certify(server.certificates, server.hosts, server.control)
        say(f"new certificate: {server.certificates / 'server.crt'}")
    if not server.insecure:  # with such a certificate the wait for Flower's API has no end
        check_dates(server.certificates / "server.crt")
    os.umask(0o077)
    if server.insecure:
        say(INSECURE, style="bold red")
    environment = flower_environment(server.home)
    running = f"{server.path}: this server is already running here; end the other `fedlingua server start` first"
    with held(server.home / ".lock", 0, DeploymentError(running)):
        log = server.path.with_name("server.log")
        superlink = Service(
            "the SuperLink", superlink_command(server), environment, server.home, log, listen=True, locked=server.home
        )
        superlink.end_earlier()
        for what, address in (("fleet", server.fleet), ("control", server.control)):
            check_free(address, f"{server.path} {what} =")
        with superlink:
            superlink.wait_until(lambda: answers(control_address(server), server.authority), "its control API")
            with Engine(APP_DIR, None, profile_of(server)) as engine:
                joined = set[str]()
                seen = _let_join(server, engine, joined)
                say(f"serving {server.fleet}; submit runs with: fedlingua run {server.experiment} --server {server.path.parent}")
                while not superlink.stopped.wait(LOOK_S):
                    superlink.check()
                    seen = _let_join(server, engine, joined, seen)
    say("server stopped")
    return {"server": server.path, "status": "stopped"}


@commands.command("runs", epilog=example("fedlingua server runs server"))
def server_runs(file: ServerFileArgument) -> Answer:
    """List the runs of a server that is running: waiting, under way and finished, newest first."""
    server = read_server_file(file)
    folders = _run_folders(server)
    with _reached(server) as engine:
        runs = [(row["run-id"], row["status"].split(":")[-1], row["pending-at"]) for row in engine.runs()]
    rows = [(folders.get(number, ""), status, since, number) for number, status, since in runs]
    titles = ("folder", "status", "since (UTC)", "id")
    table = plain_table(*titles, rows=[(*row[:2], row[2][:16], row[3]) for row in rows], left=titles)
    # The id stays whole, since `server logs` and `server stop` may need it; the rest takes 47 columns at least.
    table.columns[0].max_width, table.columns[-1].no_wrap = max(10, console().width - 47), True
    console().print(table if rows else "no runs yet")
    return {"server": server.path, "runs": [dict(zip(("folder", "status", "since", "id"), row, strict=True)) for row in rows]}


@commands.command("stop", epilog=example("fedlingua server stop server demo-adapter-families-2022"))
def server_stop(file: ServerFileArgument, run: RunOfServer) -> Answer:
    """Stop a run. Its folder keeps what it has: `fedlingua run --resume` continues after its last complete round."""
    server = read_server_file(file)
    number, folder = _run_of(server, run)
    with _reached(server) as engine:
        engine.stop(number)
    if folder:
        close_run(folder, "interrupted", STOPPED)
    again = f"; resume it with: fedlingua run --resume {folder.directory} --server {server.path}" if folder else ""
    say(f"stopped {run}{again}")
    return {"id": number, "status": "stopped"}


@commands.command("logs", epilog=example("fedlingua server logs server demo-adapter-families-2022"))
def server_logs(file: ServerFileArgument, run: RunOfServer) -> Answer:
    """Print what a run's server has logged so far."""
    server = read_server_file(file)
    number, _ = _run_of(server, run)
    with _reached(server) as engine:
        log = engine.log(number)
    print(log)
    return {"id": number, "log": log}


def _run_folders(server: ServerFile) -> dict[str, str]:
    """Return Flower's id of a run -> the name of its folder, for the latest attempt of each run of this server."""
    abouts = {file.parent.name: run_about(file.parent) for file in sorted(server.runs.glob("*/run.json"))}
    return {str(about["flower_run_id"]): name for name, about in abouts.items() if "flower_run_id" in about}


def _run_of(server: ServerFile, run: str) -> tuple[str, RunFolder | None]:
    """Return Flower's id of a run that is named by this id or by its folder, and the folder if it is this server's."""
    folders = _run_folders(server)
    ids = {folder: number for number, folder in folders.items()}
    if not run.isdigit() and run not in ids:
        raise RunError(
            f"{server.path.parent} has no run {run!r}{nearest(run, ids)}; see them with: fedlingua server runs {server.path}"
        )
    number = ids.get(run, run)
    return number, RunFolder(server.runs / folders[number]) if number in folders else None


@contextmanager
def _reached(server: ServerFile) -> Iterator[Engine]:
    """Yield the engine of a server that is running; raise DeploymentError if none answers."""
    if not answers(control_address(server), server.authority):
        raise DeploymentError(f"no server answers at {control_address(server)}; start it: fedlingua server start {server.path}")
    with Engine(APP_DIR, None, profile_of(server)) as engine:
        yield engine


def profile_of(server: ServerFile) -> Profile:
    """Return the profile with which the `flwr` command reaches a server of one's own."""
    return Profile("deployment", control_address(server), server.insecure, str(server.authority or ""))


def _keys(server: ServerFile) -> dict[str, str]:
    """Return site -> public key, empty if insecure; raise DeploymentError for a site without a key, since it could not join."""
    if server.insecure or "[[site]]" not in server.federation.read_text(encoding="utf-8"):
        return {}
    keys = {site.name: site.public_key for site in read_federation(server.federation, Path()).sites}
    for site, key in keys.items():
        if not key:
            raise DeploymentError(f"{server.federation}: site {site!r} has no public-key; add it from the site's join file")
        read_public_key(key, f"{server.federation.name}, site {site}")
    return keys


def _let_join(server: ServerFile, engine: Engine, joined: set[str], seen: int = 0) -> int:
    """Register sites that were added to the federation file since its modification time `seen`, in ns; return its time now.

    A mistake in an edited file does not end a server that sites are connected to.
    """
    try:
        # The time is read before the content: a site that is added between the two is found at the next look.
        now = server.federation.stat().st_mtime_ns
        for site, key in _keys(server).items() if now != seen else ():
            if key in joined:
                continue
            with tempfile.NamedTemporaryFile("w", suffix=".pub") as file:
                file.write(key + "\n")
                file.flush()
                new = engine.register(Path(file.name), site)
            joined.add(key)
            say(f"site {site} may join, {key_fingerprint(key)}{'' if new else ' (registered before)'}")
        return now
    except (FedlinguaError, OSError) as error:
        say(f"{error}", style="bold red")
        return now if isinstance(error, ConfigError | DeploymentError) else 0  # else Flower did not answer: try again
