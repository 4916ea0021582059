"""`fedlingua server`: set one up, enter its sites, run it."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from fedlingua.common.errors import DeploymentError, FedlinguaError
from fedlingua.common.files import APP_DIR
from fedlingua.common.processes import check_free, flower_environment
from fedlingua.consent.keys import key_fingerprint, read_public_key
from fedlingua.corpora.sites import read_federation
from fedlingua.desk.cli.engine import Engine
from fedlingua.desk.cli.profile import Profile
from fedlingua.desk.deployment.certificates import subject_alternative_names
from fedlingua.desk.deployment.programs import control_address, superlink_command
from fedlingua.desk.deployment.server_file import ServerFile, add_site, init_server, read_server_file
from fedlingua.desk.deployment.service import Service, answers

START_S = 90.0
LOOK_S = 5.0
"""Between two looks at the federation file for sites that have been added."""


def init(
    directory: Path, name: str, hosts: Sequence[str], fleet: str, control: str, insecure: bool, console: Console
) -> dict[str, Any]:
    """Make a server's folder and say what comes next."""
    server = init_server(directory, name, hosts, fleet, control, insecure)
    console.print(f"server: {server.path}", soft_wrap=True, highlight=False)
    if insecure:
        _warn(console)
    else:
        names = ", ".join(str(name.value) for name in subject_alternative_names(hosts))
        console.print(f"certificate for: {names}", highlight=False, soft_wrap=True)
        console.print(f"give every site: {server.authority} (nothing in it is secret)", soft_wrap=True, highlight=False)
        console.print("keep for yourself: ca.key and server.key beside it", highlight=False)
    return {"server": server.path, "federation": server.federation, "authority": None if insecure else server.authority}


def add(file: Path, join_files: Sequence[Path], console: Console) -> dict[str, Any]:
    """Enter sites into the federation file."""
    server, names = read_server_file(file), []
    for join_file in join_files:
        names.append(add_site(server, join_file))
        console.print(f"{names[-1]} stands in {server.federation}", soft_wrap=True, highlight=False)
    return {"federation": server.federation, "added": names}


def start(file: Path, console: Console) -> dict[str, Any]:
    """Run the SuperLink until a signal ends it, and let each site of the federation file join.

    Raises:
        DeploymentError: it cannot start, or ends by itself.
    """
    server = read_server_file(file)
    keys = _keys(server)
    for what, address in (("fleet", server.fleet), ("control", server.control)):
        check_free(address, f"{server.path} {what} =")
    os.umask(0o077)
    if server.insecure:
        _warn(console)
    environment = flower_environment(server.home)
    # It asks itself, on loopback, which no proxy may come between.
    environment |= {
        name: ",".join(filter(None, [environment.get(name), "127.0.0.1,localhost"])) for name in ("NO_PROXY", "no_proxy")
    }
    with Service("the SuperLink", superlink_command(server), environment, server.home) as superlink:
        authority = None if server.insecure else server.authority
        superlink.wait_until(lambda: answers(control_address(server), authority), "its control API", START_S)
        with tempfile.TemporaryDirectory(prefix="fedlingua-") as home, Engine(APP_DIR, Path(home), profile_of(server)) as engine:
            joined: set[str] = set()
            _let_join(engine, keys, joined, console)
            console.print(
                f"serving {server.fleet}; submit runs with: fedlingua run EXPERIMENT --server {server.path}",
                highlight=False,
                soft_wrap=True,
            )
            changed = _changed(server)
            while not superlink.stopped.wait(LOOK_S):
                superlink.check()
                if (now := _changed(server)) != changed:
                    changed = now
                    try:
                        _let_join(engine, _keys(server), joined, console)
                    except FedlinguaError as error:  # a slip in an edited file does not end a server that sites are connected to
                        console.print(f"{error}", style="bold red", markup=False, soft_wrap=True)
    console.print("server stopped", highlight=False)
    return {"server": server.path, "status": "stopped"}


def profile_of(server: ServerFile) -> Profile:
    """How the `flwr` command reaches a server of one's own."""
    certificates = "" if server.insecure else str(server.authority)
    return Profile("deployment", control_address(server), server.insecure, certificates)


def _keys(server: ServerFile) -> dict[str, str]:
    """site -> public key; a site without one cannot join a server that tells nodes apart by their keys."""
    if server.insecure:
        return {}
    federation = (
        read_federation(server.federation, Path()) if "[[site]]" in server.federation.read_text(encoding="utf-8") else None
    )
    keys = {site.name: site.public_key for site in federation.sites} if federation else {}
    for site, key in keys.items():
        if not key:
            raise DeploymentError(f"{server.federation}: site {site!r} has no public-key; add it from the site's join file")
        read_public_key(key, f"{server.federation.name}, site {site}")
    return keys


def _let_join(engine: Engine, keys: dict[str, str], joined: set[str], console: Console) -> None:
    for site, key in keys.items():
        if key in joined:
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".pub") as file:
            file.write(key + "\n")
            file.flush()
            new = engine.register(Path(file.name), site)
        joined.add(key)
        console.print(f"site {site} may join, {key_fingerprint(key)}{'' if new else ' (registered before)'}", highlight=False)


def _changed(server: ServerFile) -> int:
    return server.federation.stat().st_mtime_ns


def _warn(console: Console) -> None:
    console.print(
        "warning: insecure = true: no TLS, and any node may join under any name; only for a trial on one machine",
        style="bold red",
    )
