"""Read and check the profiles in pyproject-flwr.toml, the places where runs are carried out."""

import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import APP_DIR, read_toml
from fedlingua.common.tables import check_choice

PROFILES_FILE = "pyproject-flwr.toml"
_CONNECT_S = 5.0


@dataclass(frozen=True)
class Profile:
    """A place to run: [superlink.NAME] and [fedlingua.NAME] of pyproject-flwr.toml."""

    name: str
    address: str
    insecure: bool = False
    root_certificates: str = ""
    cpus_per_node: int = 1
    gpus_per_node: float = 0.0
    ray_address: str = ""
    """HOST:PORT of a Ray cluster that simulates; "": Ray is started on this machine for the run."""

    @property
    def local(self) -> bool:
        """Whether the engine starts and ends the SuperLink itself; Flower writes such an address as ":local:"."""
        return self.address.startswith(":local")

    @classmethod
    def read(cls, file: Path, name: str, ray_address: str = "") -> Self:
        """Return the profile of that name; raise ConfigError if it is missing or invalid. ray_address: instead of the profile's."""
        tables = read_toml(file)
        links = {key: table for key, table in tables.get("superlink", {}).items() if isinstance(table, dict)}
        check_choice(name, links, f"{file.name}: --profile")
        link, share = links[name], tables.get("fedlingua", {}).get(name, {})
        address, insecure = link.get("address"), link.get("insecure", False)
        if not isinstance(address, str) or not isinstance(insecure, bool):
            raise ConfigError(f"{file}: [superlink.{name}] needs address as a string, and insecure as true or false.")
        certificates = str(link.get("root-certificates", ""))
        if certificates:  # Flower wants it absolute
            certificates = str((file.resolve().parent / certificates).resolve())
        cpus, gpus = share.get("cpus-per-node", 1), share.get("gpus-per-node", 0.0)
        # Flower's field is an integer, and for 1.0 it fails with a message that does not name the field.
        if type(cpus) not in (int, float) or cpus != int(cpus) or cpus < 0:
            raise ConfigError(f"cpus-per-node has to be a whole number from 0 on, got {cpus!r}.")
        if type(gpus) not in (int, float) or not 0 <= gpus < 1000:
            raise ConfigError(f"gpus-per-node has to be a number from 0 on, got {gpus!r}.")
        ray_address = ray_address or str(share.get("ray-address", ""))
        place = cls(name, address, insecure, certificates, int(cpus), float(gpus), ray_address)
        if ray_address and not place.local:
            raise ConfigError(
                f"ray-address = {ray_address!r}: profile {name!r} runs across sites; a Ray cluster is for simulations, so leave it out"
            )
        return place

    def side_by_side(self, runs: int, cores: int) -> Self:
        """Return the profile for `runs` simulations at once, each with its part of the cores.

        Thus no more clients work than there are cores: a client that waited for another would only load one more model.
        """
        return replace(self, cpus_per_node=max(self.cpus_per_node, min(runs * self.cpus_per_node, cores)))


def ready_profile(profile: str, ray_address: str, jobs: int = 1) -> Profile:
    """Return the profile of that name. jobs: runs at the same time.

    Raises:
        ConfigError: no such profile, or nothing listens at its Ray cluster's address, where Ray itself would wait for minutes.
    """
    place = Profile.read(APP_DIR / PROFILES_FILE, profile, ray_address)
    if place.ray_address and jobs > 1:
        raise ConfigError(
            f"--jobs {jobs}: a run takes all of the Ray cluster {place.ray_address}; leave --jobs out, or simulate here"
        )
    if place.ray_address:
        host, _, port = place.ray_address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
        except (OSError, OverflowError, ValueError) as error:
            raise ConfigError(
                f"ray-address = {place.ray_address!r}: nothing answers there ({error}); give HOST:PORT, as `ray start --head --port=6379` "
                "prints it, or leave it out to simulate on this machine alone"
            ) from error
    return place
