"""Where a run is carried out: as its profile says, or on a Ray cluster; a cluster has to be ready."""

from collections.abc import Sequence
from pathlib import Path

from fedlingua.common.cache import cache_dir
from fedlingua.common.errors import ConfigError
from fedlingua.common.files import APP_DIR
from fedlingua.desk.cli.output import say
from fedlingua.desk.cli.profile import PROFILES_FILE, Profile
from fedlingua.desk.cluster.check import check_cluster


def ready_profile(profile: str, ray_address: str, folders: Sequence[Path | str], jobs: int = 1) -> Profile:
    """Return the profile of that name, once its Ray cluster, if it has one, was found to be ready.

    Args:
        folders: Which every machine of a cluster has to see, besides the app and the working directory; "" is none.
        jobs: Runs at the same time.

    Raises:
        ConfigError: no such profile, or a cluster that cannot carry the run. RunError: the cluster cannot be used from here.
    """
    place = Profile.read(APP_DIR / PROFILES_FILE, profile, ray_address)
    if place.ray_address:
        if jobs > 1:
            raise ConfigError(
                f"--jobs {jobs}: a run takes all of the Ray cluster {place.ray_address}; leave --jobs out, or simulate here"
            )
        needed = {APP_DIR, Path.cwd(), cache_dir(), *(Path(folder) for folder in folders if str(folder))}
        there = sorted(folder for folder in needed if folder.is_dir())
        machines = check_cluster(place.ray_address, place.cpus_per_node, place.gpus_per_node, there)
        clients = sum(machine.clients for machine in machines)
        say(f"Ray cluster {place.ray_address}: {len(machines)} machines, {clients} clients at once")
    return place
