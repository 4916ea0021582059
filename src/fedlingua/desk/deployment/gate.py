"""The program that a site's SuperNode starts for each message in place of `flwr-clientapp`; it checks the bundle first.

Flower installs and imports whatever bundle the SuperLink names. Here the one function that unpacks a bundle first consults the site's
list of approved bundles. If that function is not found, as in another build of Flower, nothing runs.
"""

import importlib
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZipFile

import psutil

from fedlingua.common.errors import ConfigError, DeploymentError, ExchangeError
from fedlingua.common.files import held, replace_text
from fedlingua.consent import audit
from fedlingua.consent.bundle import BUNDLE, approved, bundle_hash

CLIENT_APP = "flwr-clientapp"
APPROVALS, REFUSED = "FEDLINGUA_APPROVALS", "FEDLINGUA_REFUSED"
"""Environment variables: the site's list of approved bundles, and the folder for refused ones."""
PULLED = {"message": "message_pb2", "context": "message_pb2", "run": "run_pb2", "fab": "fab_pb2"}
"""What Flower's function returns, in order -> the module with its protobuf."""
SHARE_OF_MEMORY = 0.5
"""The most that a request's arrays may take of this machine's memory: a megabyte on the wire can stand for any size."""
KEPT = 5
"""Number of refused bundles that a site stores, the newest ones."""
MOST_WORDS = 100
"""Most characters of a message's type in the log."""


class AnsweredError(SystemExit):
    """Flower's program is done with a message, and leaves nothing behind that stands in the way of another."""


def main() -> None:
    """Run one message as Flower does, once its bundle has been approved."""
    prepared()()


def prepared(take: Callable[[Callable[[Any], Any], Any], Any] | None = None) -> Callable[[], Any]:
    """Return Flower's program with the gate in it, which runs no bundle that is not approved.

    take: Pulls a message by Flower's function and client. With it, the program can be run again for messages of the same run and bundle: it
    raises AnsweredError after each, but ends the process after an error.
    """
    # Our log lines go where Flower's go. Flower configures its own; those of other libraries are not requested.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    own = logging.getLogger("fedlingua")
    own.addHandler(handler)
    own.setLevel(logging.INFO)
    own.propagate = False
    from flwr.supernode.cli.flwr_clientapp import flwr_clientapp

    from fedlingua.exchange.records import bounded_arrays

    flower: Any = importlib.import_module("flwr.supernode.runtime.run_clientapp")
    codes = importlib.import_module("flwr.common.constant").ErrorCode
    its_own = (codes.CLIENT_APP_RAISED_EXCEPTION, codes.LOAD_CLIENT_APP_EXCEPTION)
    # An AttributeError ends the process here, before anything is pulled.
    unpack: Callable[..., Path] = flower.install_from_fab
    loaded_from: Callable[..., Path] = flower.get_project_dir
    pull: Callable[..., Any] = flower.pull_task_input
    approvals, refused = Path(os.environ[APPROVALS]), Path(os.environ[REFUSED])
    push: Callable[..., Any] = flower.push_message
    pulled: list[Any] = []

    def pull_and_remember(*arguments: Any) -> Any:
        try:
            with bounded_arrays(int(SHARE_OF_MEMORY * psutil.virtual_memory().total)):
                pulled[:] = taken = take(pull, *arguments) if take else pull(*arguments)
        except ExchangeError as error:
            audit.append(refused.parent, {"asked": "a request", "refused": str(error)})
            raise
        return taken

    @cache
    def install(content: bytes, *arguments: Any, **options: Any) -> Path:
        with held(refused.parent / "installing"):
            path = unpack(content, *arguments, **options)
            if not _is_whole(path, content):  # Flower leaves a folder as it is once it exists, also if a kill has left half of it
                shutil.rmtree(path)
                path = unpack(content, *arguments, **options)
        return path

    def install_approved(content: bytes, *arguments: Any, **options: Any) -> Path:
        name, announced = bundle_hash(content), pulled[3].hash_str
        check_approved(content, approvals, refused)
        if announced != name:  # Flower would load a bundle by the announced name, not the one that it unpacks
            raise DeploymentError(f"the bundle {name} came under the hash {announced}; it is not run")
        path, run = install(content, *arguments, **options), pulled[2]
        if loaded_from(run.fab_id, run.fab_version, announced) != path:  # of these two, only the SuperLink's word is known
            raise DeploymentError(f"the bundle {name} came as {run.fab_id} {run.fab_version}, which it is not; it is not run")
        os.environ[BUNDLE] = name
        return path

    def push_logged(client: Any, reply: Any, context: Any) -> Any:
        """Push a reply; write errors that are Flower's own to the log first, since the app has not seen their messages."""
        if reply.has_error() and reply.error.code in its_own:
            reason = str(reply.error.reason)
            if not reason.startswith(f"<class '{DeploymentError.__module__}.{DeploymentError.__name__}'>"):
                # What follows could quote text or name a file.
                reason = f"{reason.partition(':<')[0]}; the site's log has the rest"
            reply.error = type(reply.error)(reply.error.code, reason)
            asked = {"asked": str(pulled[0].metadata.message_type)[:MOST_WORDS], "bundle": bundle_hash(pulled[3].content)}
            audit.append(refused.parent, {**asked, "refused": reason[: 10 * MOST_WORDS]})
        return push(client, reply, context)

    flower.pull_task_input, flower.install_from_fab, flower.push_message = pull_and_remember, install_approved, push_logged
    if take:
        _make_repeatable(flower)
    # Let the bundle import its own fedlingua: this process has so far loaded the site's installation, which may be another version.
    for name in [name for name in sys.modules if name.partition(".")[0] == "fedlingua"]:
        del sys.modules[name]
    return flwr_clientapp


def _is_whole(path: Path, content: bytes) -> bool:
    """Whether every file of a bundle lies in the folder as the bundle has it."""
    with ZipFile(BytesIO(content)) as bundle:
        files = [name for name in bundle.namelist() if not name.endswith("/") and not name.startswith(".info/")]
        return all((path / name).is_file() and (path / name).read_bytes() == bundle.read(name) for name in files)


def store(pulled: tuple[Any, ...], file: BinaryIO) -> None:
    """Write the message, context, run and bundle that Flower's function pulled to a file: each as protobuf, after its length."""
    serde = importlib.import_module("flwr.common.serde")
    for kind, part in zip(PULLED, pulled, strict=True):
        content = getattr(serde, f"{kind}_to_proto")(part).SerializeToString()
        file.write(len(content).to_bytes(8, "big"))
        file.write(content)
    file.write(pulled[0].metadata.message_id.encode())


def stored(file: BinaryIO) -> tuple[Any, ...]:
    """Read what `store` has written."""
    serde, pulled = importlib.import_module("flwr.common.serde"), []
    for kind, module in PULLED.items():
        proto = getattr(importlib.import_module(f"flwr.proto.{module}"), kind.capitalize())
        content = file.read(int.from_bytes(file.read(8), "big"))
        pulled.append(getattr(serde, f"{kind}_from_proto")(proto.FromString(content)))
    pulled[0].metadata.__dict__["_message_id"] = file.read().decode()  # as Flower's own function does
    return tuple(pulled)


def _make_repeatable(flower: Any) -> None:
    """Let Flower's module run message after message: one thread watches its parent, and its exit ends the process only after an error."""
    from flwr.supercore.exit.exit_handler import trigger_exit_handlers

    leave = flower.flwr_exit

    def leave_or_stay(code: int, **options: Any) -> None:
        if code:
            leave(code, **options)
        trigger_exit_handlers(run_before_force_exit=True)
        trigger_exit_handlers(run_before_force_exit=False)
        raise AnsweredError(0)

    flower.flwr_exit = leave_or_stay
    flower.start_parent_process_monitor = cache(flower.start_parent_process_monitor)


def write_programs(folder: Path, worker: Path | None = None, path: str = "") -> None:
    """Put the gate into `folder` under the name that Flower starts; the folder goes first on the SuperNode's PATH.

        worker: The socket of the worker process that carries out messages; None: every message starts a program of its own.
        path: The SuperNode's PATH; "": the folder alone.

    A SuperLink may name other kinds of task, whose programs would unpack a bundle without a check; each is replaced by one that refuses.

    Raises:
        DeploymentError: A program would not be found in the folder.
    """
    path = path or str(folder)
    from flwr.supercore.constant import TASK_TYPE_TO_COMMAND

    refuse = '#!/bin/sh\necho "$0: this site runs ClientApps only" >&2\nexit 1\n'
    program = shlex.join([sys.executable, "-m", "fedlingua.desk.deployment.gate"])
    if worker:
        call = shlex.join([sys.executable, "-I", "-S", str(Path(__file__).with_name("worker_call.py")), str(worker)])
        program = f"{call} {program} --"
    gate = f'#!/bin/sh\nexec {program} "$@"\n'
    for name in {*TASK_TYPE_TO_COMMAND.values(), CLIENT_APP}:
        replace_text(folder / name, gate if name == CLIENT_APP else refuse, 0o755)
        if shutil.which(name, path=path) != str(folder / name):
            raise DeploymentError(
                f"{folder}: a SuperNode would not start {name} from there, so bundles would run unchecked; the folder must allow programs "
                "to be executed, and its path have no colon: give another [node] home"
            )


def check_approved(content: bytes, approvals: Path, refused: Path) -> None:
    """Refuse a bundle that is not in the site's list, and store it unopened in the folder `refused`, to be read first.

    Raises:
        DeploymentError: The bundle is not approved, or the list cannot be read.
    """
    bundle = bundle_hash(content)
    try:
        if bundle in approved(approvals):
            return
    except (ConfigError, OSError) as error:  # its message names a path; the one raised here leaves the site
        raise DeploymentError("this site's list of approved bundles cannot be read, so nothing runs there") from error
    try:
        refused.mkdir(parents=True, exist_ok=True)
        (refused / f"{bundle}.fab").write_bytes(content)
    except OSError as error:
        raise DeploymentError(f"this site has not approved the bundle {bundle}, and cannot store it to be read") from error
    # A server may offer any number of bundles; they must not fill the site's disk.
    for old in sorted(refused.glob("*.fab"), key=lambda file: file.stat().st_mtime_ns)[:-KEPT]:
        old.unlink(missing_ok=True)
    raise DeploymentError(
        f"this site has not approved the bundle {bundle}; it is stored unopened in the site's state ({refused.name}/, a zip file): "
        "read it, then give its hash to `fedlingua site approve`"
    )


if __name__ == "__main__":
    main()
