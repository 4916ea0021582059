"""`fedlingua doctor`: everything that can be looked at on this machine in a moment, a line each, and what to do."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from rich.console import Console

from fedlingua.common.errors import DeploymentError, FedlinguaError
from fedlingua.common.files import APP_DIR
from fedlingua.common.processes import program
from fedlingua.desk.cli.findings import show_finding
from fedlingua.desk.cli.profile import PROFILES_FILE, Profile
from fedlingua.desk.deployment.server_file import CONTROL, FLEET
from fedlingua.desk.doctor import machine, requirements
from fedlingua.desk.findings import Finding, Note, finding_of
from fedlingua.evaluation.comet.environment import VERSION, comet_directory, is_ready

PROGRAMS = ("flwr", "flower-superlink", "flower-supernode")


def examine(console: Console) -> dict[str, Any]:
    """Print a line for each thing that was looked at; all of them.

    Raises:
        DeploymentError: something is wrong; the lines before say what, and what to do.
    """
    told = [show_finding(finding, console) for finding in findings()]
    answer = {"checks": told}
    if wrong := sum(not each["good"] for each in told):
        raise DeploymentError(f"{wrong} of {len(told)} checks failed; the lines above say what to do", answer=answer)
    return answer


def findings() -> Iterator[Finding]:
    """One after the other; nothing is changed, and nothing but loopback is opened."""
    try:
        wanted = requirements.Wanted.of_checkout(APP_DIR)
    except FedlinguaError as error:
        yield Finding("project", False, str(error))
        return
    yield finding_of("python", lambda: requirements.check_python(wanted))
    yield finding_of("packages", lambda: requirements.check_packages(wanted))
    yield finding_of("versions", lambda: requirements.check_pins(wanted))
    yield finding_of("advisories", lambda: requirements.check_held_back(APP_DIR))
    yield finding_of("GPU", machine.check_gpu)
    yield finding_of("processors", machine.check_cores)
    yield finding_of("memory", machine.check_memory)
    yield finding_of("Ray", machine.check_shared_memory)
    for what, place in machine.places().items():
        yield finding_of(f"disk for {what}", partial(machine.check_disk, place))
    yield finding_of("Flower", _flower)
    yield finding_of("profiles", _profiles)
    yield finding_of("ports", machine.check_loopback)
    yield finding_of("port of a server", lambda: machine.check_port(FLEET, "where sites join a server of one's own"))
    yield finding_of("port of a server", lambda: machine.check_port(CONTROL, "where runs are submitted to it"))
    for extra in wanted.extras:
        if extra != "dev":
            yield finding_of(f"extra {extra}", partial(requirements.check_extra, wanted, extra))
    yield finding_of("COMET", _comet)


def _flower() -> str:
    found = [program(name) for name in PROGRAMS]
    return f"{', '.join(found)}; each run has a FLWR_HOME of its own, and ~/.flwr stays as it is"


def _profiles() -> str:
    names = [Profile.read(APP_DIR / PROFILES_FILE, name).name for name in ("simulation", "simulation-gpu", "deployment")]
    return f"{', '.join(names)} of {PROFILES_FILE}"


def _comet() -> str:
    if is_ready():
        return f"unbabel-comet {VERSION} in {comet_directory()}"
    return Note(f"no environment yet; the first --metric comet makes it in {comet_directory()}, with a network and 1.2 GB")
