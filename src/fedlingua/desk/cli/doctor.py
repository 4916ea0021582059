"""`fedlingua doctor`: everything that can be looked at on this machine in a moment, a line each, and what to do."""

from collections.abc import Iterator
from functools import partial

from fedlingua.common.errors import DeploymentError, FedlinguaError
from fedlingua.common.files import APP_DIR
from fedlingua.common.processes import program
from fedlingua.desk.check_result import CheckResult, Remark, run_check
from fedlingua.desk.cli.output import Answer, Commands, example, show_result
from fedlingua.desk.cli.profile import PROFILES_FILE, Profile
from fedlingua.desk.deployment.server_file import CONTROL, FLEET
from fedlingua.desk.doctor import machine, requirements
from fedlingua.evaluation.comet.environment import VERSION, comet_directory, is_ready

commands = Commands()
PROGRAMS = ("flwr", "flower-superlink", "flower-supernode")


@commands.command(epilog=example("fedlingua doctor"))
def doctor() -> Answer:
    """Look whether this machine has what runs need: versions, GPU, memory, disk, Flower, ports, extras; no network, nothing is changed.

    Raises:
        DeploymentError: something is wrong; the lines before say what, and what to do.
    """
    checks = [show_result(result) for result in check_machine()]
    if wrong := sum(not each["good"] for each in checks):
        raise DeploymentError(
            f"{wrong} of {len(checks)} checks failed; the lines above say what to do", answer={"checks": checks}
        )
    return {"checks": checks}


def check_machine() -> Iterator[CheckResult]:
    """One after the other; nothing is changed, and nothing but loopback is opened."""
    try:
        wanted = requirements.Wanted.of_checkout(APP_DIR)
    except FedlinguaError as error:
        yield CheckResult("project", False, str(error))
        return
    yield run_check("python", lambda: requirements.check_python(wanted))
    yield run_check("packages", lambda: requirements.check_packages(wanted))
    yield run_check("versions", lambda: requirements.check_pins(wanted))
    yield run_check("advisories", lambda: requirements.check_held_back(APP_DIR))
    yield run_check("GPU", machine.check_gpu)
    yield run_check("processors", machine.check_cores)
    yield run_check("memory", machine.check_memory)
    yield run_check("Ray", machine.check_shared_memory)
    for what, place in machine.places().items():
        yield run_check(f"disk for {what}", partial(machine.check_disk, place))
    yield run_check("Flower", _flower)
    yield run_check("profiles", _profiles)
    yield run_check("ports", machine.check_loopback)
    yield run_check("port of a server", lambda: machine.check_port(FLEET, "where sites join a server of one's own"))
    yield run_check("port of a server", lambda: machine.check_port(CONTROL, "where runs are submitted to it"))
    for extra in wanted.extras:
        if extra != "dev":
            yield run_check(f"extra {extra}", partial(requirements.check_extra, wanted, extra))
    yield run_check("COMET", _comet)


def _flower() -> str:
    found = [program(name) for name in PROGRAMS]
    return f"{', '.join(found)}; each run has a FLWR_HOME of its own, and ~/.flwr stays as it is"


def _profiles() -> str:
    names = [Profile.read(APP_DIR / PROFILES_FILE, name).name for name in ("simulation", "simulation-gpu", "deployment")]
    return f"{', '.join(names)} of {PROFILES_FILE}"


def _comet() -> str:
    if is_ready():
        return f"unbabel-comet {VERSION} in {comet_directory()}"
    return Remark(f"no environment yet; the first --metric comet makes it in {comet_directory()}, with a network and 1.2 GB")
