"""The site file of a deployed site (docs/files.md): text, keys, state and limits. It never leaves the site."""

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w

from fedlingua.backbones.directories import BUILT_IN
from fedlingua.backbones.published import PINNED_REVISIONS, STUDENTS
from fedlingua.common.errors import ConfigError, ExchangeError, all_at_once
from fedlingua.common.files import read_toml
from fedlingua.common.tables import fill, flag, refuse_unknown, table
from fedlingua.consent.ledger import Ledger
from fedlingua.consent.limits import SiteLimits
from fedlingua.corpora.formats import formats_of, listed
from fedlingua.corpora.rules import IntakeRules, TextRules
from fedlingua.corpora.sites import FOLDER_NAME, Site, check_deidentified, read_site
from fedlingua.settings.config import Settings
from fedlingua.settings.kinds import SITE, refuse_other_kind
from fedlingua.settings.removed import LIMITS, refuse_removed

_TABLES = {"site", "text", "server", "node", "limits", "backbones"}
_PLACES = {"key": "keys/site.key", "state": "state", "home": "flower"}
"""Paths in [node], with their defaults."""
_NODE = {*_PLACES, "device", "raw-gradients", "max-epsilon", "max-delta", "overlap-key", "idle-minutes"}

SITE_FILE = "site-file"
"""Key of a SuperNode's --node-config: the path of its site's file."""


@dataclass(frozen=True)
class SiteFile:
    """The content of a site file, with absolute paths."""

    path: Path
    sites: tuple[Site, ...]
    address: str
    authority: Path
    insecure: bool
    key: Path
    state: Path
    home: Path
    device: str
    limits: SiteLimits
    raw_gradients: bool
    max_epsilon: float
    max_delta: float
    overlap_key: Path | None
    idle_minutes: float
    backbones: Mapping[str, Path]

    @property
    def approvals(self) -> Path:
        """Path of the list of approved bundles and of the run settings approved with them."""
        return self.path.parent / "approved.txt"

    def check_rules(self, rules: TextRules) -> None:
        """Refuse rules that need all sites' text in one place, with an ExchangeError."""
        if why := why_not_deployed(rules, self.sites):
            raise ExchangeError(f"the run's {why}")

    def here(self, settings: Settings) -> Settings:
        """Return a run's settings as they take effect here: with the site's backbone and device, and without the server's paths.

        Raises:
            ExchangeError: The backbone is neither built in, pinned nor in [backbones], settings exceed the site's limits, or weights are
                to be quantized without a GPU.
        """
        name = settings.backbone
        self.limits.check_settings(settings)
        # A folder of the same name would be loaded in a pinned one's place.
        pinned = name in {*PINNED_REVISIONS, *STUDENTS} and not Path(name).is_dir()
        reviewed = not settings.backbone_revision and (name in BUILT_IN or pinned)
        if not reviewed and name not in self.backbones:
            raise ExchangeError(
                f"the run's backbone = {name!r} is neither built in nor pinned here; the site's file has to say where it lies, in "
                f'[backbones]: {json.dumps(name)} = "/path/of/its/folder"'
            )
        device = self.device or settings.device
        if settings.frozen_bits and device == "cpu":
            raise ExchangeError(
                f"the run's frozen-bits = {settings.frozen_bits} needs a GPU, and the site's file gives device = 'cpu'; give 'cuda' there, "
                "or the run frozen-bits = 0"
            )
        return dataclasses.replace(
            self.limits.bounded(settings),
            backbone=str(self.backbones.get(name, name)),
            device=device,
            data_dir="",
            run_dir="",
            federation="",
            resume=False,
        )

    def ledger(self, site: str) -> Ledger:
        """Return the ledger of what a site's noised replies have cost, over all runs."""
        return Ledger(self.state / "ledger" / f"{site}.json", self.max_epsilon, self.max_delta)

    def run_directory(self, run: str, site: str) -> Path:
        """Return a site's folder of a run: its own tensors by round and attempt, and at the end the model that it keeps.

        Raises:
            ConfigError: The run's id, which the server gives, is no plain name and could lead out of the site's state.
        """
        if not FOLDER_NAME.fullmatch(run):
            raise ConfigError(
                f"the server calls the run {run!r}; wanted letters, digits, '.', '_' or '-': it is used as a folder's name"
            )
        return self.state / "runs" / run / site


def read_site_file(path: Path) -> SiteFile:
    """Read and check a site file, without opening corpora or keys.

    Raises:
        ConfigError: The file has an unknown key, a wrong type, no site, a site without a corpus, two sites of one name, no
            address, or no hook although it requires de-identification.
    """
    raw = read_toml(path)
    folder = path.resolve().parent
    if not set(raw) <= _TABLES:
        refuse_other_kind(path, raw, SITE)
    server, node, backbones = (table(raw, name, path.name) for name in ("server", "node", "backbones"))
    entries = raw.get("site", [])
    if not isinstance(entries, list) or not entries:
        raise ConfigError(
            f"{path.name}: wanted [[site]] with name, direction or language, and a corpus; `fedlingua site init` writes one"
        )
    for name in ("node", "limits"):
        _refuse_removed(table(raw, name, path.name), f"{path.name} [{name}]")
    checks: list[Callable[[], Any]] = [
        lambda: refuse_unknown(raw, _TABLES, path.name),
        lambda: refuse_unknown(server, {"address", "authority", "insecure"}, f"{path.name} [server]"),
        lambda: refuse_unknown(node, _NODE, f"{path.name} [node]"),
        lambda: fill(IntakeRules, table(raw, "text", path.name), f"{path.name} [text]"),
        lambda: fill(SiteLimits, table(raw, "limits", path.name), f"{path.name} [limits]"),
        *(partial(read_site, entry, number, path.name, folder) for number, entry in enumerate(entries, start=1)),
    ]
    _, _, _, text, limits, *read = all_at_once(checks)
    sites: tuple[Site, ...] = tuple(read)
    names = [site.name for site in sites]
    for site in sites:
        # A site's hook is used whatever the run's rules say, so this file's requirement is met once every site has a hook.
        check_deidentified(site, TextRules(text=text))
        if site.corpus is None:
            raise ConfigError(f"{path.name}, site {site.name}: got no corpus; wanted one of {listed(formats_of(site.direction))}")
        if names.count(site.name) > 1:
            raise ConfigError(f"{path.name}: {names.count(site.name)} sites have the name {site.name!r}; give each its own")
    address, insecure = server.get("address", ""), flag(server, "insecure", f"{path.name} [server]")
    if "address" in server:  # else the server's invitation brings it
        host_and_port(address, f"{path.name} [server]: address =")
    if node.get("device", "") not in ("", "cpu", "cuda"):
        raise ConfigError(f"{path.name} [node]: device = {node['device']!r}; choose cpu or cuda, or leave it to the run")
    places: dict[str, Any] = {key: folder / str(node.get(key, default)) for key, default in _PLACES.items()}
    return SiteFile(
        path=path.resolve(),
        sites=sites,
        address=address,
        authority=folder / str(server.get("authority", "ca.crt")),
        insecure=insecure,
        device=str(node.get("device", "")),
        limits=limits,
        raw_gradients=flag(node, "raw-gradients", f"{path.name} [node]"),
        max_epsilon=_number(node, "max-epsilon", 10.0, (0.0, math.inf), path.name),
        max_delta=_number(node, "max-delta", 1e-5, (1e-12, 0.01), path.name),
        overlap_key=folder / str(node["overlap-key"]) if node.get("overlap-key") else None,
        idle_minutes=_number(node, "idle-minutes", 10.0, (0.0, math.inf), path.name),
        backbones={name: folder / str(place) for name, place in backbones.items()},
        **places,
    )


def _refuse_removed(keys: Mapping[str, Any], where: str) -> None:
    """Raise ConfigError for a key, or a value in a list, that a site could set before it was taken out."""
    try:
        for key, value in keys.items():
            refuse_removed(LIMITS.get(key, key), value)
            for each in value if key == "tensor-sets" and isinstance(value, list) else ():
                refuse_removed("tensor-set", each)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def why_not_deployed(rules: TextRules, sites: Iterable[Site]) -> str:
    """Return why deployed sites cannot split their text by these rules; "" if they can."""
    if rules.split.mixed:
        return "[split] mixed = true mixes all sites' text, which only a simulation can; a deployed site's text stays with it"
    if rules.split.mode == "components" and not all(site.direction.is_one_language for site in sites):
        return "[split] mode = 'components' needs all sites' text in one place; deployed sites take 'shared-side'"
    return ""


def host_and_port(address: Any, where: str) -> tuple[str, int]:
    """Split "host:port", an IPv6 address in brackets; raise ConfigError for anything else. where: the place of the address."""
    named, _, port = str(address).rpartition(":")
    host = named[1:-1] if named.startswith("[") and named.endswith("]") else named
    # An IPv6 address without brackets cannot be distinguished from one with a port.
    is_host = (":" in named) == (host != named) and all(0 < len(label) < 64 for label in host.removesuffix(".").split("."))
    if not isinstance(address, str) or not is_host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise ConfigError(f"{where} {address!r}; wanted host:port, such as server.example.org:9092 or [2001:db8::7]:9092")
    return host, int(port)


def site_table(entry: Mapping[str, Any]) -> str:
    """Format one [[site]] table as TOML text."""
    return f"[[site]]\n{tomli_w.dumps(entry)}"


def _number(node: Mapping[str, Any], key: str, default: float, bounds: tuple[float, float], where: str) -> float:
    raw, (least, most) = node.get(key, default), bounds
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not least <= raw <= most:
        wanted = f"{least:g} or more" if math.isinf(most) else f"{least:g} to {most:g}"
        raise ConfigError(f"{where} [node]: {key} = {raw!r}; wanted a number, {wanted}")
    return float(raw)
