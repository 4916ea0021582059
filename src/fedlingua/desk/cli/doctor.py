"""`fedlingua doctor`: check this machine's requirements in a moment; a line for each check, and what to do if it fails."""

from collections.abc import Callable, Iterator
from functools import partial

from fedlingua.common.errors import DeploymentError, FedlinguaError
from fedlingua.common.files import APP_DIR
from fedlingua.desk.check_result import CheckResult, Remark, run_check
from fedlingua.desk.cli.output import Answer, Commands, example, show_result
from fedlingua.desk.cli.profile import PROFILES_FILE, Profile
from fedlingua.desk.deployment.server_file import CONTROL, FLEET
from fedlingua.desk.doctor import machine, requirements
from fedlingua.desk.processes import program
from fedlingua.evaluation.comet.environment import VERSION, comet_directory, is_ready

commands = Commands()


@commands.command(epilog=example("fedlingua doctor"))
def doctor() -> Answer:
    answer = {"checks": [show_result(result) for result in check_machine()]}
    good = [each["good"] for each in answer["checks"]]
    if not all(good):
        raise DeploymentError(f"{good.count(False)} of {len(good)} checks failed; the lines above say what to do", answer=answer)
    return answer


def check_machine() -> Iterator[CheckResult]:
    """Yield the results of all checks in turn; nothing is changed, and nothing but loopback is opened."""
    try:
        wanted = requirements.Wanted.of_checkout(APP_DIR)
    except FedlinguaError as error:
        yield CheckResult("project", False, str(error))
        return
    checks: list[tuple[str, Callable[[], str]]] = [
        ("python", partial(requirements.check_python, wanted)),
        ("packages", partial(requirements.check_packages, wanted)),
        ("versions", partial(requirements.check_pins, wanted)),
        ("advisories", partial(requirements.check_held_back, APP_DIR)),
        ("GPU", machine.check_gpu),
        ("processors", machine.check_cores),
        ("memory", machine.check_memory),
        ("bytecode", machine.check_bytecode),
        ("Ray", machine.check_shared_memory),
        *((f"disk for {what}", partial(machine.check_disk, place)) for what, place in machine.places().items()),
        ("Flower", _flower),
        ("profiles", _profiles),
        ("ports", machine.check_loopback),
        ("port of a server", partial(machine.check_port, FLEET, "where sites join your own server")),
        ("port of a server", partial(machine.check_port, CONTROL, "where runs are submitted")),
        *((f"extra {extra}", partial(requirements.check_extra, wanted, extra)) for extra in wanted.extras if extra != "dev"),
        ("COMET", _comet),
    ]
    yield from (run_check(what, check) for what, check in checks)


def _flower() -> str:
    programs = [program(name) for name in ("flwr", "flower-superlink", "flower-supernode")]
    return f"{', '.join(programs)}; each run has a FLWR_HOME of its own, and ~/.flwr stays as it is"


def _profiles() -> str:
    names = [Profile.read(APP_DIR / PROFILES_FILE, name).name for name in ("simulation", "simulation-gpu", "deployment")]
    return f"{', '.join(names)} of {PROFILES_FILE}"


def _comet() -> str:
    if is_ready():
        return f"unbabel-comet {VERSION} in {comet_directory()}"
    return Remark(f"no environment yet; the first --metric comet makes it in {comet_directory()}, with a network and 1.2 GB")
