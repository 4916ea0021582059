"""`fedlingua report`: write the page of a run, from its folder, and print its scores."""

from pathlib import Path
from typing import Annotated

from typer import Option

from fedlingua.desk.cli import options
from fedlingua.desk.cli.output import Answer, Commands, console, example, say
from fedlingua.desk.paths import check_folder_to_write

commands = Commands()


@commands.command(epilog=example("fedlingua report runs/demo-adapter-families-2022 --bandwidth 100"))
def report(
    run: options.RunArgument,
    keep: Annotated[
        Path | None, Option(help="Also add the run to runs.jsonl in this folder, without paths, and write its table.")
    ] = None,
    bandwidth: Annotated[
        float, Option(metavar="MBPS", help="Bandwidth of the server in Mbit/s, which all sites share; for the cost of a round.")
    ] = 1000.0,
) -> Answer:
    from fedlingua.desk.report.keep import keep_run
    from fedlingua.desk.report.run_page import write_report
    from fedlingua.desk.report.tables import score_table

    if keep:
        check_folder_to_write(keep, "--keep")
    page = write_report(run, bandwidth)
    console().print(score_table(run, console().width), crop=False)
    say(f"report: {page}")
    if keep:
        keep_run(run, keep)
    return {"report": page, "kept": keep}
