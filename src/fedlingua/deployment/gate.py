"""The program that a site's SuperNode starts for each message in the place of `flwr-clientapp`: it looks at the bundle first.

Flower installs and imports whatever bundle the SuperLink names. This stands between: the one function that unpacks a bundle asks the
site's list before it does. Where that function is not found, as in a Flower of another build, nothing runs.
"""

import importlib
import logging
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedlingua.deployment.bundle import check_approved

APPROVALS, REFUSED = "FEDLINGUA_APPROVALS", "FEDLINGUA_REFUSED"
"""Environment variables: the site's list of approved bundles, and the folder for those that are refused."""


def main() -> None:
    """Run one message as Flower does, once its bundle has been approved."""
    _show_own_lines()
    from flwr.supernode.cli.flwr_clientapp import flwr_clientapp

    flower: Any = importlib.import_module("flwr.supernode.runtime.run_clientapp")
    install: Callable[..., Any] = flower.install_from_fab  # AttributeError ends the process before anything is pulled
    approvals, refused = Path(os.environ[APPROVALS]), Path(os.environ[REFUSED])

    def install_approved(content: bytes, *arguments: Any, **options: Any) -> Any:
        check_approved(content, approvals, refused)
        return install(content, *arguments, **options)

    flower.install_from_fab = install_approved
    _forget_this_install()
    flwr_clientapp()


def _show_own_lines() -> None:
    """Our own log lines go where Flower's go; Flower sees to its own, and the rest of the libraries are not asked for theirs."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    own = logging.getLogger("fedlingua")
    own.addHandler(handler)
    own.setLevel(logging.INFO)
    own.propagate = False


def _forget_this_install() -> None:
    """Let the bundle import its own fedlingua: what this process has loaded so far is the site's install, maybe another version."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "fedlingua"]:
        del sys.modules[name]


def write_program(folder: Path) -> None:
    """Put the gate into `folder` under the name that Flower starts; the folder goes first on the SuperNode's PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "flwr-clientapp"
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    aside.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m fedlingua.deployment.gate "$@"\n', encoding="utf-8")
    aside.chmod(0o755)
    os.replace(aside, file)


if __name__ == "__main__":
    main()
