"""`fedlingua audit`: what a server could read from the messages of a run."""

from dataclasses import asdict
from typing import Annotated

from typer import Option

from fedlingua.desk.cli.completion import sites_of_run
from fedlingua.desk.cli.options import Data, RunArgument
from fedlingua.desk.cli.output import Answer, Commands, console, example, plain_table, say
from fedlingua.desk.completed import CompletedRun
from fedlingua.runs.folder import RunFolder
from fedlingua_lab.audit.subject import Subject

commands = Commands(group=True)


@commands.command("leak", epilog=example("fedlingua audit leak runs/demo-adapter-families-2022 --site hospital-de"))
def leak(
    run: RunArgument,
    site: Annotated[str | None, Option(help="Site to audit; default: the first.", shell_complete=sites_of_run)] = None,
    round_: Annotated[int, Option("--round", help="Round to audit.")] = 1,
    data: Data = None,
) -> Answer:
    """Measure what a curious server could read from a site's update, plain and under each protection; writes leak.json.

    It repeats the training of a round of a simulation from the same tensors and text, which gives the same bytes.
    """
    subject = Subject.of(run, site, round_, str(data.expanduser().resolve()) if data else "")
    say(f"site {subject.site}, round {round_}: loads the model, trains the round again, and attacks it; this takes minutes")
    # These import torch, so they come after all that can be refused without it.
    from fedlingua_lab.audit.leak import Effort, cell, leak_suite
    from fedlingua_lab.audit.retrained import Retrained

    figures = leak_suite(Retrained(subject, CompletedRun.of(run).trainable()), subject.protections(), Effort(), say)
    ordered = sorted(figures, key=lambda each: (each.attack, each.update))
    rows = [(each.attack, each.update, each.protection, each.measure, cell(each), f"{each.chance:.2f}") for each in ordered]
    headers = "attack", "update", "protection", "figure", "value", "chance"
    console().print(plain_table(*headers, rows=rows, left=headers[:4]))
    about: Answer = {"site": subject.site, "round": round_, "config_hash": subject.settings.hash()}
    about["figures"] = [asdict(figure) for figure in figures]
    RunFolder(run).write("leak.json", about)
    say(f"figures: {run / 'leak.json'}")
    return about
