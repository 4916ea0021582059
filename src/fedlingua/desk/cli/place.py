"""Where a run is carried out: as its profile says, or on a Ray cluster."""

import socket

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import APP_DIR
from fedlingua.desk.cli.profile import PROFILES_FILE, Profile

_CONNECT_S = 5.0


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
