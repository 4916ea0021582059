"""The before/after score table, for a terminal and as Markdown; one set of lines for both and for the page."""

from collections.abc import Callable
from pathlib import Path

from rich import box
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from fedlingua.common import units
from fedlingua.desk.report.read import Change, RunFolder, Score, change, read_run
from fedlingua.settings.metrics import BLEU, METRICS

TEXT_COLUMNS = 2
NO_SCORES = "No scores yet: the run writes scores.json when it has finished."


def headers(folder: RunFolder) -> tuple[str, ...]:
    """Of the table, in the metrics of the run's task."""
    first, second = (metric.short for metric in folder.metrics)
    text = ("direction", "pairs") if folder.metrics == METRICS["translation"] else ("language", "sentences")
    return (
        *("site", *text),
        *(f"{first} before", f"{first} after", "gain"),
        *(f"{second} before", f"{second} after", "gain"),
    )


def averages(folder: RunFolder) -> list[Score]:
    """The averages that the run gives; a line without any number is left out."""
    first, second = folder.metrics
    micro = change(first, folder.summary, "micro_")
    lines = [
        Score("macro", change(first, folder.summary, "macro_"), change(second, folder.summary, "macro_")),
        Score(
            "micro",
            Change(first, _weighted(folder.scores, lambda line: line.first.before), micro.after),
            Change(
                second,
                _weighted(folder.scores, lambda line: line.second.before),
                _weighted(folder.scores, lambda line: line.second.after),
            ),
        )
        if first is BLEU
        else Score("micro", micro, Change(second)),  # weighted by masked pieces, which a line does not tell
        Score("pooled", change(first, folder.summary, "pooled_"), Change(second)),
    ]
    return [line for line in lines if line.first.after is not None or line.second.after is not None]


def cells(line: Score) -> list[str]:
    """A line of the table as text, in the order of `headers`."""
    return [
        line.site,
        line.direction,
        "" if line.sentences is None else units.count(line.sentences),
        *_changed(line.first),
        *_changed(line.second),
    ]


def _changed(found: Change) -> list[str]:
    return [units.score(found.before), units.score(found.after), units.gain(found.gain)]


def score_table(run_dir: Path) -> Table:
    """The score table for the command line; without scores an empty one whose caption says so."""
    folder = read_run(run_dir)
    caption = None if folder.scores else Text(_no_scores(folder))
    # No outer border, so that the nine columns fit a terminal of 80 characters.
    table = Table(title=Text(_title(folder)), caption=caption, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for index, header in enumerate(headers(folder)):
        side: JustifyMethod = "left" if index < TEXT_COLUMNS else "right"
        table.add_column(header, justify=side, overflow="fold", min_width=len(header) if index < TEXT_COLUMNS else None)
    for line in folder.scores:
        table.add_row(*_texts(line))
    table.add_section()
    for line in averages(folder):
        table.add_row(*_texts(line), style="bold")
    return table


def score_markdown(run_dir: Path) -> str:
    """The same table as Markdown; without scores one sentence that says so."""
    folder = read_run(run_dir)
    if not folder.scores:
        return f"{_no_scores(folder)}\n"
    names = list(headers(folder))
    rule = ["---"] * TEXT_COLUMNS + ["---:"] * (len(names) - TEXT_COLUMNS)
    rows = [[_plain(cell) for cell in cells(line)] for line in folder.scores]
    rows += [[f"**{cell}**" if cell.strip(units.NOTHING) else cell for cell in cells(line)] for line in averages(folder)]
    return "".join(f"| {' | '.join(row)} |\n" for row in [names, rule, *rows])


def _weighted(lines: list[Score], value: Callable[[Score], float | None]) -> float | None:
    """The mean weighted by test size; None unless every line has the value and a size, as it would be another mean."""
    pairs = [(value(line), line.sentences) for line in lines]
    known = [(found, size) for found, size in pairs if found is not None and size]
    if not known or len(known) < len(pairs):
        return None
    return sum(found * size for found, size in known) / sum(size for _, size in known)


def _texts(line: Score) -> list[Text]:
    """Cells as rich texts, so that a bracket in a site's name is no markup."""
    return [Text(cell) for cell in cells(line)]


def _plain(cell: str) -> str:
    """A cell that can neither end the column nor start HTML."""
    return " ".join(cell.replace("|", "\\|").replace("<", "&lt;").split())


def _title(folder: RunFolder) -> str:
    return f"{folder.name}: {folder.run.get('method', 'unknown method')}, seed {folder.run.get('seed', units.NOTHING)}"


def _no_scores(folder: RunFolder) -> str:
    note = folder.notes.get("scores.json", "")
    return note if "cannot" in note or "holds" in note else f"{NO_SCORES} Status: {folder.status}."
