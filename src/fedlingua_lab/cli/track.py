"""`fedlingua track`: send a tracker what it has not received of a run, from its folder alone."""

from typing import Annotated

from typer import Option

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.desk.check_settings import check_trackers
from fedlingua.desk.cli import options
from fedlingua.desk.cli.output import Answer, Commands, example, say
from fedlingua.desk.json_values import stored_object
from fedlingua.runs.folder import run_about
from fedlingua.settings.trackers import TRACKERS, tracker_names
from fedlingua_lab.tracking.feed import Tracking, state_file

commands = Commands()
END_S = 600
"""Seconds allowed for sending a whole run."""


@commands.command(epilog=example("fedlingua track runs/demo-adapter-families-2022 --to tensorboard"))
def track(
    run: options.RunArgument,
    to: Annotated[str, Option(help="tensorboard, mlflow, trackio, separated by commas; default: the run's.")] = "",
) -> Answer:
    folder, about = run.resolve(), run_about(run)
    if not about.get("id"):
        raise RunError(
            f"{run}: its run.json has no id, so the run ended before it began; there is nothing to send, start it again"
        )
    names = tracker_names(to or str((about.get("config") or {}).get("track", "")))
    if not names:
        raise ConfigError(f"{run}: the run names no tracker; give --to with one or more of {', '.join(TRACKERS)}")
    check_trackers(names)
    lines: list[str] = []
    done = Tracking(folder, names, lines.append, END_S).close()
    states = {name: stored_object(state_file(folder, name)) for name in names}
    answer = {name: {"run": of.get("known"), "told": of.get("told"), "ended": of.get("ended")} for name, of in states.items()}
    if not done:
        raise RunError("; ".join(lines) or f"{run}: not all trackers could be told", answer=answer)
    for name, of in answer.items():
        last = "no round" if of["told"] is None else f"round {of['told']}"
        say(f"{name}: {about.get('name')} up to {last}, {of['ended'] or 'still going'}")
    return answer
