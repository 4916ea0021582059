"""`fedlingua personalize`: train each site's model on from a round's; writes files, a page, and a table over sites."""

from typing import Annotated

from typer import Option

from fedlingua.common.units import duration
from fedlingua.desk.cli import options
from fedlingua.desk.cli.output import Answer, Commands, console, example, say
from fedlingua.desk.personalization.start import Personalizing, Start
from fedlingua.desk.report.personal_page import personal_csv, personal_markdown, personal_table, write_personal_page
from fedlingua.runs.folder import replace_text

commands = Commands()
TABLE = "personalization"


@commands.command(epilog=example("fedlingua personalize --run runs/demo-adapter-families-2022 --site hospital-de --epochs 2"))
def personalize(
    run: options.RunOption,
    how: Personalizing,
    data: options.Data = None,
    site: options.SitesOption = None,
    round_: Annotated[int | None, Option("--round", help="Round to start from; default: the best round.")] = None,
) -> Answer:
    """Repeat the last phase of a run: each site trains on from a round's model and chooses how much of its own model to use."""
    how.check()
    start = Start.of(run, site or [], round_, str(data.expanduser().resolve()) if data else "")
    # These import torch, so they come after all that can be refused without it.
    from fedlingua.desk.personalization.personalize import FOLDER, personalize, store

    trainable = start.run.trainable()
    results = []
    for name in start.sites:
        folder = start.run.folder.directory / "sites" / name / FOLDER
        tensors, about = personalize(start, name, trainable, how)
        store(folder, tensors, about)
        results.append(about)
        page = write_personal_page(about, folder)
        alphas = f"alpha {about['apfl']['alpha']:.2f} learned, {about['chosen_alpha']:.2f} chosen on dev"
        say(f"{name}: keeps {about['choice']['kept']}; {alphas}, {duration(round(about['seconds']))}; {page}")
    console().print(personal_table(results))
    if not site:
        table = start.run.folder.directory / TABLE
        replace_text(table.with_suffix(".md"), personal_markdown(results))
        replace_text(table.with_suffix(".csv"), personal_csv(results))
        say(f"table: {table.with_suffix('.md')}")
    return results
