"""`fedlingua personalize`: each site goes on from a round's model by itself; its files and page, and a table over sites."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from fedlingua.desk.cli.progress import duration
from fedlingua.desk.report.personal_page import personal_csv, personal_markdown, personal_table
from fedlingua.personalization.settings import Personalizing
from fedlingua.personalization.start import Start
from fedlingua.runs.folder import replace_text

TABLE = "personalization"


def personalize_run(
    run: Path, data: Path | None, sites: Sequence[str], number: int | None, how: Personalizing, console: Console
) -> list[dict[str, Any]]:
    """Personalize some of a run's sites, or all, and then write the run's table too; returns what each personalization.json says.

    Raises:
        RunError, ConfigError, CorpusError: what cannot be gone on from, before a model is loaded.
    """
    how.check()
    start = Start.of(run, sites, number, str(data.expanduser().resolve()) if data else "")
    # What loads torch comes after all that can be refused without it.
    from fedlingua.desk.report.personal_page import write_personal_page
    from fedlingua.personalization.personalize import personalize
    from fedlingua.personalization.result_files import FOLDER, store

    trainable = start.run.trainable()
    results = []
    for site in start.sites:
        result = personalize(site, start.texts[site], start.federated(site, trainable), trainable, start.settings, how)
        results.append(store(start, site, trainable, how, result))
        page = write_personal_page(results[-1], start.run.folder.directory / "sites" / site / FOLDER)
        alphas = f"alpha {result.alphas['apfl']:.2f} learned, {result.alphas['chosen']:.2f} chosen on dev"
        console.print(f"{site}: {result.training.steps} steps, {alphas}, {duration(result.seconds)}; {page}", soft_wrap=True)
    console.print(personal_table(results))
    if not sites:
        table = start.run.folder.directory / TABLE
        replace_text(table.with_suffix(".md"), personal_markdown(results))
        replace_text(table.with_suffix(".csv"), personal_csv(results))
        console.print(f"table: {table.with_suffix('.md')}", soft_wrap=True, markup=False)
    return results
