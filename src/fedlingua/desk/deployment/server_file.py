"""The server's own file (docs/files.md): its certificates, its addresses, and the federation it serves."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import read_toml, replace_text
from fedlingua.common.tables import flag, refuse_unknown
from fedlingua.consent.keys import read_public_key
from fedlingua.consent.site_file import host_and_port, site_table
from fedlingua.corpora.sites import read_site
from fedlingua.desk.deployment.build import make_private_folder
from fedlingua.desk.deployment.certificates import make_certificates, subject_alternative_names
from fedlingua.desk.paths import check_absent
from fedlingua.settings.kinds import SERVER, refuse_other_kind

FILE = "server.toml"
FLEET, CONTROL = "0.0.0.0:9092", "127.0.0.1:9093"
"""Default addresses at which a server listens for sites and for runs."""
FEDERATION_HEAD = """\
# The sites of this federation. `fedlingua server start` and `server add` enter a site from the file that its `fedlingua site init` wrote.
name = {name}

[split]
# The hash of the sentence on the shared side decides, so that sites agree without talking. Change the key and the splits change.
mode = "shared-side"
key = {name}
train = 0.8
dev = 0.1
test = 0.1
"""
EXPERIMENT = """\
# What the sites are invited to train: edit it before they are. Further keys: docs/options.md.
method = "adapter-families"
backbone = "demo"              # built in, for a trial; for real text such as "student-en-pt" or "facebook/m2m100_418M"
rounds = 3
deadline.phase-s = 7200.0      # how long a round's slowest site may take
"""


@dataclass(frozen=True)
class ServerFile:
    """The content of a server's file, with absolute paths."""

    path: Path
    federation: Path
    experiment: Path
    hosts: tuple[str, ...]
    fleet: str
    control: str
    insecure: bool
    certificates: Path
    home: Path
    runs: Path

    @property
    def authority(self) -> Path | None:
        """Path of the authority's certificate, of which every site gets a copy; None without TLS."""
        return None if self.insecure else self.certificates / "ca.crt"


def init_server(directory: Path, name: str, hosts: Sequence[str], fleet: str, control: str, insecure: bool) -> ServerFile:
    """Make a server's folder: its file, a federation file without sites, an experiment, an authority and the server's certificate.

    Raises:
        ConfigError: a host or an address is invalid, or the folder already belongs to a server.
    """
    file = directory / FILE
    for existing in (file, directory / "federation.toml"):
        check_absent(existing)
    host_and_port(fleet, "the command line: fleet =")
    host_and_port(control, "the command line: control =")
    subject_alternative_names(hosts)
    make_private_folder(directory, "--to")
    if not insecure:
        certify(directory / "certificates", hosts, control)
    quoted = tomli_w.dumps({"name": name}).removeprefix("name = ").rstrip("\n")
    (directory / "federation.toml").write_text(FEDERATION_HEAD.format(name=quoted), encoding="utf-8")
    (directory / "experiment.toml").write_text(EXPERIMENT, encoding="utf-8")
    content = {"federation": "federation.toml", "hosts": list(hosts), "fleet": fleet, "control": control, "insecure": insecure}
    replace_text(file, f"# Written by `fedlingua server init`; paths are relative to this file.\n{tomli_w.dumps(content)}")
    return read_server_file(file)


def certify(directory: Path, hosts: Sequence[str], control: str) -> None:
    """Make a server's certificate, and an authority unless `directory` has one; see `make_certificates`."""
    listens_on, _ = host_and_port(control, "control =")
    # The server calls its own control API at the address on which it listens.
    make_certificates(directory, [*hosts, *([] if listens_on in ("0.0.0.0", "::") else [listens_on])])


def read_server_file(path: Path) -> ServerFile:
    """Parse and check a server's file; raise ConfigError for an unknown key, a wrong type or an invalid address."""
    if not path.exists():
        raise ConfigError(f"{path}: there is no such server; give its folder or server.toml, which `fedlingua server init` makes")
    path = path / FILE if path.is_dir() else path
    raw = read_toml(path)
    refuse_other_kind(path, raw, SERVER)
    folder = path.resolve().parent
    names = {
        "federation": "federation.toml",
        "experiment": "experiment.toml",
        "certificates": "certificates",
        "home": "flower",
        "runs": "runs",
    }
    refuse_unknown(raw, {*names, "hosts", "fleet", "control", "insecure"}, path.name)
    insecure, hosts = flag(raw, "insecure", path.name), raw.get("hosts", [])
    if not isinstance(hosts, list):
        raise ConfigError(f"{path.name}: hosts = {hosts!r}; wanted a list of names and addresses")
    addresses: dict[str, Any] = {what: str(raw.get(what, default)) for what, default in (("fleet", FLEET), ("control", CONTROL))}
    for what, address in addresses.items():
        host_and_port(address, f"{path.name}: {what} =")
    places: dict[str, Any] = {key: folder / str(raw.get(key, name)) for key, name in names.items()}
    return ServerFile(path=path.resolve(), hosts=tuple(map(str, hosts)), insecure=insecure, **addresses, **places)


def add_site(server: ServerFile, join_file: Path) -> str:
    """Add a site to the federation file, from the file that `site init` wrote for it; return its name. One that stands there stays.

    Raises:
        ConfigError: the file is not such a file, its name, direction or key is invalid, or another site has the name.
    """
    raw = read_toml(join_file)
    refuse_unknown(raw, {"site"}, join_file.name)
    known = {entry.get("name"): entry for entry in read_toml(server.federation).get("site", [])}
    entries, added = raw.get("site", []), ""
    if not isinstance(entries, list) or not entries:
        raise ConfigError(
            f"{join_file}: wanted [[site]] with name, direction or language, and public-key, as `fedlingua site init` writes it"
        )
    for number, entry in enumerate(entries, start=1):
        site = read_site(entry, number, join_file.name, Path())
        refuse_unknown(entry, {"name", "direction", "language", "public-key"}, join_file.name)
        if site.public_key:
            read_public_key(site.public_key, f"{join_file.name}, site {site.name}")
        elif not server.insecure:
            raise ConfigError(f"{join_file}: site {site.name!r} has no public-key; only an insecure server needs none")
        before = known.setdefault(site.name, entry)
        if any(before.get(key) != value for key, value in entry.items()):
            other = ", ".join(key for key, value in entry.items() if before.get(key) != value)
            raise ConfigError(
                f"{server.federation}: it already has a site {site.name!r} with another {other}; give the new one another name with "
                "`fedlingua site init --name`, or, if it takes the old one's place, first delete the old [[site]] from that file"
            )
        added += "" if before is not entry else f"\n{site_table(entry)}"
    if added:
        text = server.federation.read_text(encoding="utf-8").rstrip("\n")
        replace_text(server.federation, f"{text}\n{added}")
    return ", ".join(str(entry["name"]) for entry in entries)
