"""The invitation: one file from a server to all its sites, with everything that each needs to read, approve and join a run."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import APP_DIR, read_toml, replace_text
from fedlingua.common.tables import refuse_unknown
from fedlingua.consent.bundle import bundle_hash
from fedlingua.consent.site_file import SiteFile, host_and_port
from fedlingua.corpora.sites import read_federation
from fedlingua.desk.deployment.build import build_bundle
from fedlingua.desk.deployment.server_file import ServerFile
from fedlingua.desk.experiment import read_experiment
from fedlingua.desk.processes import HOST

FILE = "invitation.toml"
HEAD = """\
# For every site: save it as invitation.toml in the site's folder, then give `fedlingua site start`, which shows all of it before anything
# runs. Nothing in it is secret, but it has to come from the server's operator: it says whom the site trusts.
"""
_KEYS = {"address", "authority", "bundle", "run", "experiment", "federation"}


@dataclass(frozen=True)
class Invitation:
    """What a site was invited to. run: the hash of its approval, as the server has it."""

    experiment: Path
    federation: Path
    run: str


def approval_of(experiment: Path, federation: Path) -> dict[str, str]:
    """Return the hashes that sites approve: of this machine's code, and of the run of an experiment file with it."""
    from fedlingua.consent.approval import approval_hash

    settings, bundle = read_experiment(experiment, {}, deployed=True), bundle_hash(build_bundle(APP_DIR))
    return {"bundle": bundle, "run": approval_hash(bundle, settings, read_federation(federation, Path()).rules)}


def write_invitation(server: ServerFile) -> tuple[Path, bool]:
    """Write the invitation to the run in a server's experiment file; return its path and whether sites have to get it anew: deadlines, and
    other keys that need no approval, may change."""
    host, port = next(iter(server.hosts), HOST), host_and_port(server.fleet, "fleet =")[1]
    content = {
        "address": f"{f'[{host}]' if ':' in host else host}:{port}",
        "authority": server.authority.read_text(encoding="ascii") if server.authority else "",
        **approval_of(server.experiment, server.federation),
        "experiment": read_toml(server.experiment),
        "federation": read_toml(server.federation),
    }
    file = server.path.with_name(FILE)
    before = read_toml(file) if file.is_file() else {}
    replace_text(file, HEAD + tomli_w.dumps(content, multiline_strings=True), 0o644)
    return file, any(before.get(key) != value for key, value in content.items() if key != "experiment")


def take_up(site: SiteFile) -> tuple[SiteFile, Invitation | None]:
    """Unpack the invitation in a site's folder: experiment.toml, federation.toml and ca.crt; return the site with the server's address, and
    the invitation, None without one.

    Raises:
        ConfigError: The site has neither an address nor an invitation, or this machine's code makes another run of it than the server's.
    """
    folder = site.path.parent
    file = folder / FILE
    if not file.is_file():
        if not site.address:
            raise ConfigError(
                f"{file}: there is no such file; save the one that the server's operator gives every site, {FILE}, in this folder"
            )
        return site, None
    raw = read_toml(file)
    refuse_unknown(raw, _KEYS, file.name)
    if missing := sorted(_KEYS - set(raw)):
        raise ConfigError(f"{file}: got no {', '.join(missing)}; wanted the whole file that `fedlingua server start` writes")
    if bool(raw["authority"]) == site.insecure:
        fault, how = (
            ("insecure = true, and the server has TLS", "without")
            if site.insecure
            else ("a key, and the server has no TLS", "with")
        )
        raise ConfigError(
            f"{site.path} has {fault}; set up a new site {how} --insecure, in another folder (`fedlingua site init --to`)"
        )
    invitation = Invitation(folder / "experiment.toml", folder / "federation.toml", str(raw["run"]))
    tables: dict[Path, Any] = {invitation.experiment: raw["experiment"], invitation.federation: raw["federation"]}
    for path, table in tables.items():
        replace_text(path, f"# From {FILE}, which is read anew at each start.\n{tomli_w.dumps(table)}", 0o644)
    if not site.insecure:
        replace_text(site.authority, str(raw["authority"]), 0o644)
    here = approval_of(invitation.experiment, invitation.federation)
    if here["bundle"] != raw["bundle"]:
        raise ConfigError(
            f"{file}: the server has other code (bundle {str(raw['bundle'])[:12]}) than this machine ({here['bundle'][:12]}); install the "
            "version that the server has"
        )
    if here["run"] != raw["run"]:
        raise ConfigError(
            f"{file}: it is for the run {str(raw['run'])[:12]}, and what it holds makes {here['run'][:12]}: it was changed on its way; ask "
            "the server's operator for it again"
        )
    address = site.address or str(raw["address"])
    host_and_port(address, f"{FILE}: address =")
    return replace(site, address=address), invitation
