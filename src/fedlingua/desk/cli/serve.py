"""`fedlingua serve`: serve a run's models over HTTP until a signal ends it."""

import os
import signal
import sys
from contextlib import suppress
from typing import Annotated

import uvicorn
from typer import Option

from fedlingua.desk.cli.options import RunOption
from fedlingua.desk.cli.output import INTERRUPTED, Commands, asks_json, example, print_json, warn
from fedlingua.desk.serving.api import application
from fedlingua.desk.serving.batching import is_translating
from fedlingua.desk.serving.guard import Connection, Guard, Limits, checked_names
from fedlingua.desk.serving.listening import is_loopback, listen, url_of
from fedlingua.desk.serving.models import Models
from fedlingua.desk.translating.decoding import Decoding
from fedlingua.desk.translating.models import RunModels

commands = Commands()
GRACE_S = 20
"""Seconds to finish open requests in when a signal comes."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@commands.command(epilog=example("fedlingua serve --run runs/demo-adapter-families-2022 --port 8000"))
def serve(
    run: RunOption,
    how: Decoding,
    limits: Limits,
    host: Annotated[
        str, Option(help="Address to listen on. Beyond loopback, everybody on the network can translate.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0: any free one.")] = 8000,
    host_name: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="Name under which it is requested, such as that of a proxy in front of it. Repeatable."),
    ] = None,
) -> None:
    """End with SIGTERM (exit code 0) or Ctrl-C (130). --format json prints the document, with the address, once requests are accepted."""
    how.check()
    names = checked_names(host_name or [])
    run_models = RunModels(run)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    with listen(host, port) as listening:
        if not is_loopback(listening):
            warn(
                f"warning: {host} can be reached from other machines. Anybody who reaches it can translate, without a login, and text "
                "crosses the network unencrypted; put a proxy with TLS and accounts in front"
            )
        models = Models(run_models, how)  # imports torch, so it comes after all checks
        here = (host.lower(), listening.getsockname()[0], *LOOPBACK)
        hosts = (*names, *here) if names or is_loopback(listening) else None
        app = Guard(application(models, limits), limits.body_bytes, hosts)
        for text in (run_models.run.folder.read("run.json") or {}).get("warnings") or ():
            warn(f"warning: {text}")
        for remark in models.remarks:
            warn(remark, style="yellow")
        warn(f"{url_of(listening)}: {len(models.sites)} sites of {run}; Ctrl-C ends it", style="")
        if asks_json():
            print_json({"url": url_of(listening), "sites": list(models.sites)})
        try:
            _server(app).run(sockets=[listening])
        except (SystemExit, KeyboardInterrupt) as ended:
            _leave_if_translating(INTERRUPTED if isinstance(ended, KeyboardInterrupt) else 0)
            raise


def _server(app: Guard) -> uvicorn.Server:
    """Return the HTTP server. It logs no requests, which could show who asked for what; the guard logs errors without text."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=Connection,
            loop="asyncio",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_S,
            timeout_keep_alive=30,
        )
    )


def _leave_if_translating(code: int) -> None:
    """Exit at once if a thread is translating: the interpreter's normal exit would abort while a thread is inside torch."""
    if not is_translating():
        return
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
