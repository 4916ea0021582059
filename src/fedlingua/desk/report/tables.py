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
CHOICE_COLUMNS = ("alone", "two alone", "federation", "kept", "joined", "one model", "keeps")
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


def choice_table(folder: RunContent) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """Return headers, the sites' lines and the line of their mean, in the first metric; all empty if sites did not choose.

    A column without any value is left out.
    """
    if not folder.scores or any(line.choice is None for line in folder.scores):
        return [], [], []
    macro = choice(folder.metrics[0], folder.summary, "macro_")
    means = [_choice_cells(averages(folder)[0], macro)] if macro else []
    rows = [
        [*headers(folder)[:3], f"{folder.metrics[0].short} base", *CHOICE_COLUMNS],
        *map(_choice_cells, folder.scores),
        *means,
    ]
    empty = {place for place in range(TEXT_COLUMNS, len(rows[0])) if {row[place] for row in rows[1:]} <= {units.NOTHING, ""}}
    header, *lines = ([cell for place, cell in enumerate(row) if place not in empty] for row in rows)
    return header, lines[: len(folder.scores)], lines[len(folder.scores) :]


def _choice_cells(line: Score, macro: Choice | None = None) -> list[str]:
    """Return a line of `choice_table`. macro: The choice of an average, which has no interval."""
    choice = line.choice or macro
    assert choice is not None, line.site
    values = (line.first.before, choice.alone, choice.two_alone, choice.federated, line.first.after)
    return [*cells(line)[:3], *map(units.score, values), choice.joined, units.gain(choice.one_model), choice.candidate]


def better_off(folder: RunContent) -> str:
    """Say how many sites are better off than without the federation, beyond chance; "" if sites did not choose."""
    chosen = [line.choice.is_better for line in folder.scores if line.choice and line.choice.gain]
    if not chosen:
        return ""
    counts = {"gained": chosen.count(True), "lost": chosen.count(False), "of": len(chosen)}
    counts |= integers(folder.summary.get("choices"))  # if the server learned the scores of all sites together
    within = counts["of"] - counts["gained"] - counts["lost"]
    said = f"{counts['gained']} of {counts['of']} sites are better off beyond chance"
    said += f", {within} within it" if within else ""
    return said + (f", {counts['lost'] or 'none'} worse" if within or counts["lost"] else "")


def below_base(folder: RunContent) -> str:
    """Say what ends below the base, and what to try; "" if nothing does."""
    metric, macro = folder.metrics[0], change(folder.metrics[0], folder.summary, "macro_")
    sites = [line.site for line in folder.scores if (line.first.gain or 0.0) < 0]
    if (macro.gain or 0.0) < 0:
        values = f"{metric.short} {units.score(macro.after)}, base {units.score(macro.before)}"
        what = f"This run ends below its base ({values})"
    elif sites:
        what = (
            f"{len(sites)} of {len(folder.scores)} sites end{'s' if len(sites) == 1 else ''} below the base: {', '.join(sites)}"
        )
    else:
        return ""
    return f"{what}. Try a lower learning-rate, fewer rounds or local-epochs, or a backbone that knows the language better."


def verdict(folder: RunContent) -> str:
    """Return a verdict, "Joined: 6 of 9 sites gain beyond chance, +4.1 BLEU over what they have without"; without a choice, over the base.

    It is "" without scores.
    """
    metric, macro = folder.metrics[0], change(folder.metrics[0], folder.summary, "macro_")
    chosen = [line.choice for line in folder.scores if line.choice and line.choice.gain]
    gains = [line.first.gain for line in folder.scores if line.first.gain is not None]
    if not chosen:
        if not gains or macro.gain is None:
            return ""
        counted = ALL_SITES not in {line.site for line in folder.scores}
        said = f"{sum(gain > 0 for gain in gains)} of {len(gains)} sites gain, " if counted else ""
        return f"{said}{metric.gained(macro.gain / metric.scale)} the base"
    mean, counts = choice(metric, folder.summary, "macro_"), integers(folder.summary.get("choices"))
    gain = mean.gain[0] if mean and mean.gain else fmean(each.gain[0] for each in chosen if each.gain)
    better, of = counts.get("gained", sum(each.is_better is True for each in chosen)), counts.get("of", len(chosen))
    return f"Joined: {better} of {of} sites gain beyond chance, {metric.gained(gain / metric.scale)} what they have without"


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
    table = plain_table(title=title, caption=Text(_said(folder)))
    header, sites, means = choice_table(folder)
    last = [header.index(name) for name in ("keeps", "two alone", "federation", "one model") if name in header]
    header = [each.replace(" ", "\n") for each in header or headers(folder)]
    names = (0, len(header) - 1) if sites else (0,)  # the last is the candidate that a site keeps
    spare = [2, 1] if sites else [6, 7, 8, 2, 1]  # left out first: the second metric, then pairs, then the direction
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
    header, chosen, means = choice_table(folder)
    more = markdown_table([header, *map(_escaped, chosen + means)], TEXT_COLUMNS) if header else ""
    first = markdown_table([headers(folder), *rows], TEXT_COLUMNS)
    return f"{first}\n" + (f"\n{more}\n" if chosen else "") + (f"\n{said}\n" if (said := _said(folder)) else "")


def _escaped(row: Sequence[str]) -> list[str]:
    """Return the cells without line breaks, and with `<` escaped so that no HTML starts."""
    return [" ".join(cell.replace("<", "&lt;").split()) for cell in row]


def _weighted(values: Sequence[float | None], sizes: Sequence[int | None]) -> float | None:
    """Return the mean weighted by test size; None unless every line has a value and a size, for it would be another mean."""
    known = [(mean, size) for mean, size in zip(values, sizes, strict=True) if mean is not None and size]
    return fmean(*zip(*known, strict=True)) if known and len(known) == len(values) else None


def _said(folder: RunContent) -> str:
    """Return what is said below a table: first whether anything ends below its base, then how many sites are better off."""
    return " · ".join(filter(None, (below_base(folder), better_off(folder)))) if folder.scores else _no_scores(folder)


def _no_scores(folder: RunContent) -> str:
    note = folder.notes.get("scores.json", "")
    return note if "cannot" in note or "holds" in note else f"{NO_SCORES} Status: {folder.status}."
