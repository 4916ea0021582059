"""The table of a run's scores before and after training: for a terminal, as Markdown, and as lines for the page."""

from collections.abc import Collection, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from fedlingua.desk import units
from fedlingua.desk.cli.output import plain_table
from fedlingua.desk.json_values import integers
from fedlingua.desk.report.read import Change, Choice, RunContent, Score, change, choice, read_run
from fedlingua.desk.templates import markdown_table
from fedlingua.evaluation.totals import ALL_SITES
from fedlingua.settings.metrics import BLEU, METRICS

TEXT_COLUMNS = 2
CHOICE_COLUMNS = ("alone", "federation", "kept", "joined", "keeps")
LONGEST_NAME, LEAST_NAME = 24, 8
NO_SCORES = "No scores yet: the run writes scores.json when it has finished."


def fitting(
    rows: Sequence[Sequence[str]], width: int, spare: Sequence[int], names: Collection[int], last: Sequence[int]
) -> dict[int, int]:
    """Choose the columns that fit a terminal uncut: all, or all without the first few of `spare` and then of `last`.

    Args:
        rows: Including the header.
        width: The terminal's, in characters.
        names: Columns of names, which may fold: to LONGEST_NAME characters before one of `spare` is left out, to LEAST_NAME before
            one of `last` is.

    Returns:
        Column -> its least width in characters.
    """
    lines = {place: [line for row in rows for line in row[place].split("\n")] for place in range(len(rows[0]))}
    widths = {place: max(map(cell_len, each)) for place, each in lines.items()}
    for places, longest in ((spare, LONGEST_NAME), (last, LEAST_NAME)):
        widths |= {place: min(widths[place], longest) for place in names if place in widths}
        for place in places:
            if sum(widths.values()) + 2 * len(widths) > width:
                del widths[place]
    return widths


def headers(folder: RunContent) -> tuple[str, ...]:
    """Return the table's headers, for the metrics of the run's task."""
    text = ("direction", "pairs") if folder.metrics == METRICS["translation"] else ("language", "sentences")
    changes = ((f"{metric.short} before", f"{metric.short} after", "gain") for metric in folder.metrics)
    return ("site", *text, *chain.from_iterable(changes))


def choice_headers(folder: RunContent) -> tuple[str, ...]:
    """Return the headers for a run whose sites chose what they keep: the first metric and the gain over the model trained alone."""
    return (*headers(folder)[:3], f"{folder.metrics[0].short} base", *CHOICE_COLUMNS)


def choice_cells(line: Score, macro: Choice | None = None) -> list[str]:
    """Return a line under `choice_headers`. macro: The choice of an average, which has no interval."""
    choice = line.choice or macro
    assert choice is not None, line.site
    joined = choice.joined if line.choice else units.gain(line.first.metric.gain(line.first.after, choice.alone))
    values = (line.first.before, choice.alone, choice.federated, line.first.after)
    return [*cells(line)[:3], *(units.score(value) for value in values), joined, choice.candidate]


def choice_rows(folder: RunContent) -> tuple[list[list[str]], list[list[str]]]:
    """Return the sites' lines and the line of their mean; both are empty if sites did not choose."""
    if not folder.scores or any(line.choice is None for line in folder.scores):
        return [], []
    macro = choice(folder.metrics[0], folder.summary, "macro_")
    means = [choice_cells(averages(folder)[0], macro)] if macro else []
    return [choice_cells(line) for line in folder.scores], means


def better_off(folder: RunContent) -> str:
    """Say how many sites gain over the better of base and the model trained alone; "" if sites did not choose."""
    gains = [line.choice.over_better[0] for line in folder.scores if line.choice and line.choice.over_better]
    if not gains:
        return ""
    counts = {"gained": sum(gain > 0 for gain in gains), "lost": sum(gain < 0 for gain in gains), "of": len(gains)}
    counts |= integers(folder.summary.get("choices"))  # if the server learned the scores of all sites together
    said = f"{counts['gained']} of {counts['of']} sites are better off"
    return f"{said}, {counts['lost']} worse" if counts["lost"] else said


def verdict(folder: RunContent) -> str:
    """Return a verdict, "Joined: 9 of 9 sites gain, +5.9 BLEU over alone", or over the base if sites did not choose; "" without scores."""
    metric, macro = folder.metrics[0], change(folder.metrics[0], folder.summary, "macro_")
    chosen = [line.choice.over_alone[0] for line in folder.scores if line.choice and line.choice.over_alone]
    gains = chosen or [line.first.gain for line in folder.scores if line.first.gain is not None]
    mean = choice(metric, folder.summary, "macro_")
    gain = metric.gain(macro.after, mean.alone) if chosen and mean else macro.gain
    if not gains or gain is None:
        return ""
    counts = integers(folder.summary.get("choices")) if chosen else {}
    better, of = counts.get("gained_over_alone", sum(each > 0 for each in gains)), counts.get("of", len(gains))
    counted = counts or ALL_SITES not in {line.site for line in folder.scores}
    said = (f"{better} of {of} sites gain, " if counted else "") + metric.gained(gain / metric.scale)
    return f"Joined: {said} alone" if chosen else f"{said} the base"


def averages(folder: RunContent) -> list[Score]:
    """Return the run's averages, without lines that have no number."""
    first, second = folder.metrics
    micro, of_second = (change(each, folder.summary, "micro_") for each in folder.metrics)
    # For masked text the weights are masked pieces, which a line does not contain; sums of all sites' scores bring their own means.
    if first is BLEU and micro.before is None:
        sizes = [line.sentences for line in folder.scores]
        micro = Change(first, _weighted([line.first.before for line in folder.scores], sizes), micro.after)
        both = zip(*((line.second.before, line.second.after) for line in folder.scores), strict=True)
        of_second = Change(second, *(_weighted(values, sizes) for values in both))
    lines = [
        Score("macro", change(first, folder.summary, "macro_"), change(second, folder.summary, "macro_")),
        Score("micro", micro, of_second),
        Score("pooled", change(first, folder.summary, "pooled_"), Change(second)),
    ]
    return [line for line in lines if line.first.after is not None or line.second.after is not None]


def cells(line: Score) -> list[str]:
    """Return the cells of a line as text, in the order of `headers`."""
    sentences = "" if line.sentences is None else units.count(line.sentences)
    changes = (line.first, line.second)
    shown = [(units.score(each.before), units.score(each.after), units.gain(each.gain)) for each in changes]
    return [line.site, line.direction, sentences, *(cell for each in shown for cell in each)]


def score_table(run_dir: Path, width: int = 80) -> Table:
    """Return the score table for a terminal of `width` characters; without scores, an empty table whose caption says so.

    Names fold and numbers never shrink: the table is wider than the terminal if numbers need more; print it with `crop=False`.
    """
    folder = read_run(run_dir)
    title = f"{folder.name}: {folder.run.get('method', 'unknown method')}, seed {folder.run.get('seed', units.NOTHING)}"
    table = plain_table(title=title, caption=Text(better_off(folder) if folder.scores else _no_scores(folder)))
    sites, means = choice_rows(folder)
    header = [each.replace(" ", "\n") for each in (choice_headers(folder) if sites else headers(folder))]
    names = (0, len(header) - 1) if sites else (0,)  # the last is the candidate that a site keeps
    spare = [2, 1] if sites else [6, 7, 8, 2, 1]  # left out first: the second metric, then pairs, then the direction
    last = [8, 5] if sites else []  # the candidate, then the federation
    if not sites:
        sites, means = [cells(line) for line in folder.scores], [cells(line) for line in averages(folder)]
    if len({row[0] for row in sites}) < len(sites):  # a site has several directions, which distinguish its lines
        spare.remove(1)
    shown = fitting([header, *sites, *means], width, spare, names, last)
    needed = sum(shown.values()) + 2 * len(shown)
    table.width = needed if needed > width else None  # in less, rich would shrink a column to nothing
    for place, least in shown.items():
        look: dict[str, Any] = {"justify": "left" if place < TEXT_COLUMNS else "right", "overflow": "fold", "min_width": least}
        table.add_column(header[place], no_wrap=place not in names, **look)
    for rows, style in ((sites, ""), (means, "bold")):
        for row in rows:
            # As Text, so that a bracket in a site's name is not read as markup.
            table.add_row(*(Text(row[place]) for place in shown), style=style)
        table.add_section()
    return table


def score_markdown(run_dir: Path) -> str:
    """Return the same table as Markdown; without scores, a sentence that says so."""
    folder = read_run(run_dir)
    if not folder.scores:
        return f"{_no_scores(folder)}\n"
    rows = [_escaped(cells(line)) for line in folder.scores]
    rows += [[f"**{cell}**" if cell.strip(units.NOTHING) else cell for cell in cells(line)] for line in averages(folder)]
    chosen, means = choice_rows(folder)
    more = markdown_table([choice_headers(folder), *map(_escaped, chosen + means)], TEXT_COLUMNS)
    first = markdown_table([headers(folder), *rows], TEXT_COLUMNS)
    return f"{first}\n" + (f"\n{more}\n\n{better_off(folder)}\n" if chosen else "")


def _escaped(row: Sequence[str]) -> list[str]:
    """Return the cells without line breaks, and with `<` escaped so that no HTML starts."""
    return [" ".join(cell.replace("<", "&lt;").split()) for cell in row]


def _weighted(values: Sequence[float | None], sizes: Sequence[int | None]) -> float | None:
    """Return the mean weighted by test size; None unless every line has a value and a size, for it would be another mean."""
    known = [(mean, size) for mean, size in zip(values, sizes, strict=True) if mean is not None and size]
    return fmean(*zip(*known, strict=True)) if known and len(known) == len(values) else None


def _no_scores(folder: RunContent) -> str:
    note = folder.notes.get("scores.json", "")
    return note if "cannot" in note or "holds" in note else f"{NO_SCORES} Status: {folder.status}."
