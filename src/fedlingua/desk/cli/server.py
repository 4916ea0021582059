"""`fedlingua server`: set up a server, add its sites, run it."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from fedlingua.common.errors import ConfigError, DeploymentError, FedlinguaError
from fedlingua.common.files import APP_DIR
from fedlingua.common.processes import check_free, flower_environment
from fedlingua.consent.keys import key_fingerprint, read_public_key
from fedlingua.corpora.sites import read_federation
from fedlingua.desk.cli.engine import Engine, beside_proxies
from fedlingua.desk.cli.output import Answer, Commands, example, say
from fedlingua.desk.cli.profile import Profile
from fedlingua.desk.deployment.certificates import subject_alternative_names
from fedlingua.desk.deployment.programs import control_address, superlink_command
from fedlingua.desk.deployment.server_file import ServerFile, add_site, init_server, read_server_file
from fedlingua.desk.deployment.service import Service, answers

commands = Commands(help="The server of a federation across machines.")
ServerFileArgument = Annotated[Path, typer.Argument(help="The server's folder, or its server.toml.")]
LOOK_S = 5.0
"""Seconds between two looks at the federation file for added sites."""
INSECURE = "warning: insecure = true: no TLS, and any node may join under any name; only for a trial on one machine"


@commands.command("init", epilog=example("fedlingua server init --host server.example.org --name hospitals --to server"))
def server_init(
    to: Annotated[Path, typer.Option(help="The server's folder.")] = Path("server"),
    name: Annotated[str, typer.Option(help="The federation's name.")] = "federation",
    host: Annotated[list[str] | None, typer.Option(help="A name or address at which sites reach the server; repeatable.")] = None,
    fleet: Annotated[str, typer.Option(help="host:port where sites connect.")] = "0.0.0.0:9092",
    control: Annotated[str, typer.Option(help="host:port to submit runs. Whoever reaches it can start one.")] = "127.0.0.1:9093",
    insecure: Annotated[bool, typer.Option("--insecure", help="No TLS, no authentication; for a trial on one machine.")] = False,
) -> Answer:
    """Make certificates, a federation file and server.toml. Asks for the host unless --host is given."""
    if not host and not insecure and sys.stdin.isatty():
        host = typer.prompt("Names or addresses that sites reach this server by, separated by commas").replace(" ", "").split(",")
    if not host and not insecure:
        raise typer.BadParameter("give --host, a name or address that sites reach this server by; its certificate is for it")
    server = init_server(to, name, host or [], fleet, control, insecure)
    say(f"server: {server.path}")
    if insecure:
        say(INSECURE, style="bold red")
    else:
        say(f"certificate for: {', '.join(str(name.value) for name in subject_alternative_names(host or []))}")
        say(f"give every site: {server.authority} (nothing in it is secret)")
        say("keep for yourself: ca.key and server.key beside it")
    return {"server": server.path, "federation": server.federation, "authority": None if insecure else server.authority}


@commands.command("add", epilog=example("fedlingua server add server hospital.join.toml"))
def server_add(
    file: ServerFileArgument,
    join_files: Annotated[list[Path], typer.Argument(help="Files that the sites' `site init` wrote.")],
) -> Answer:
    """Add sites to the federation file. A running server lets them join within seconds."""
    server, names = read_server_file(file), []
    for join_file in join_files:
        names.append(add_site(server, join_file))
        say(f"{names[-1]} stands in {server.federation}")
    return {"federation": server.federation, "added": names}


@commands.command("start", epilog=example("fedlingua server start server"))
def server_start(file: ServerFileArgument) -> Answer:
    """Run the SuperLink, with TLS and authentication of nodes, until Ctrl-C or SIGTERM."""
    server = read_server_file(file)
    _keys(server)
    for what, address in (("fleet", server.fleet), ("control", server.control)):
        check_free(address, f"{server.path} {what} =")
    os.umask(0o077)
    if server.insecure:
        say(INSECURE, style="bold red")
    environment = flower_environment(server.home)
    environment |= beside_proxies(environment)  # it connects to itself on loopback
    with Service("the SuperLink", superlink_command(server), environment, server.home) as superlink:
        authority = None if server.insecure else server.authority
        superlink.wait_until(lambda: answers(control_address(server), authority), "its control API")
        with Engine(APP_DIR, None, profile_of(server)) as engine:
            joined = set[str]()
            seen = _let_join(server, engine, joined)
            say(f"serving {server.fleet}; submit runs with: fedlingua run EXPERIMENT --server {server.path}")
            while not superlink.stopped.wait(LOOK_S):
                superlink.check()
                seen = _let_join(server, engine, joined, seen)
    say("server stopped")
    return {"server": server.path, "status": "stopped"}


def profile_of(server: ServerFile) -> Profile:
    """Return the profile with which the `flwr` command reaches a server of one's own."""
    certificates = "" if server.insecure else str(server.authority)
    return Profile("deployment", control_address(server), server.insecure, certificates)


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
