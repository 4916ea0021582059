"""`fedlingua server`: its commands and their options."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedlingua.desk.cli.output import Answer, Commands, console, example

commands = Commands(no_args_is_help=True, help="The server of a federation across machines.")
ServerFileArgument = Annotated[Path, typer.Argument(help="The server's folder, or its server.toml.")]


@commands.command("init", epilog=example("fedlingua server init --host server.example.org --name hospitals --to server"))
def server_init(
    to: Annotated[Path, typer.Option(help="The server's folder.")] = Path("server"),
    name: Annotated[str, typer.Option(help="The federation's name.")] = "federation",
    host: Annotated[
        list[str] | None, typer.Option(help="A name or address that sites reach the server by; again for each.")
    ] = None,
    fleet: Annotated[str, typer.Option(help="Where sites connect: host:port to listen on.")] = "0.0.0.0:9092",
    control: Annotated[str, typer.Option(help="Where runs are submitted; whoever reaches it may start one.")] = "127.0.0.1:9093",
    insecure: Annotated[bool, typer.Option("--insecure", help="No TLS, no authentication: for a trial on one machine.")] = False,
) -> Answer:
    """Make certificates, a federation file and server.toml; asks for the host when none is given."""
    from fedlingua.desk.cli import server

    if not host and not insecure and sys.stdin.isatty():
        host = typer.prompt("Names or addresses that sites reach this server by, separated by commas").replace(" ", "").split(",")
    if not host and not insecure:
        raise typer.BadParameter("give --host, a name or address that sites reach this server by; its certificate is for it")
    return server.init(to, name, host or [], fleet, control, insecure, console())


@commands.command("add", epilog=example("fedlingua server add server hospital.join.toml"))
def server_add(
    file: ServerFileArgument,
    join_files: Annotated[list[Path], typer.Argument(help="Files that the sites' `site init` wrote.")],
) -> Answer:
    """Enter sites into the federation file; a running server lets them join within seconds."""
    from fedlingua.desk.cli import server

    return server.add(file, join_files, console())


@commands.command("start", epilog=example("fedlingua server start server"))
def server_start(file: ServerFileArgument) -> Answer:
    """Run the SuperLink, with TLS and authentication of nodes, until Ctrl-C or SIGTERM."""
    from fedlingua.desk.cli import server

    return server.start(file, console())
