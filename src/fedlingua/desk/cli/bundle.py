"""`fedlingua bundle`: show the hash of the bundle that a run sends to its nodes."""

from pathlib import Path
from typing import Annotated

from typer import Option

from fedlingua.common.files import APP_DIR
from fedlingua.consent.bundle import bundle_hash
from fedlingua.desk.cli.output import Answer, Commands, console, example
from fedlingua.desk.deployment.build import build_bundle
from fedlingua.desk.paths import check_file_to_write

commands = Commands()


@commands.command(epilog=example("fedlingua bundle --to fedlingua.fab"))
def bundle(to: Annotated[Path | None, Option(help="Also write the bundle to this file.")] = None) -> Answer:
    if to:
        check_file_to_write(to, "--to")
    content = build_bundle(APP_DIR)
    if to:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(content)
    bundle_sha = bundle_hash(content)
    console().print(bundle_sha, soft_wrap=True)
    return {"bundle": bundle_sha, "file": to}
