"""The plots of a run's page, made only from the run folder."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from html import escape
from itertools import accumulate
from typing import TypeVar

import plotly.graph_objects as go

from fedlingua.desk import units
from fedlingua.desk.report import canvas
from fedlingua.desk.report.read import RunContent, Score
from fedlingua.evaluation.totals import ALL_SITES
from fedlingua.settings.metrics import PERPLEXITY

T = TypeVar("T")
LARGEST_LOSS = 709.0
"""Above it, perplexity is too large for a float."""
MOST_SITES = 40
"""Most sites in a plot that has a line or a row for each."""


def at_the_ends(items: Sequence[T], key: Callable[[T], float | None], what: str) -> tuple[list[T], str]:
    """Return the items of a plot, and words for its axis: of too many those with the lowest and highest key, in its order; None: no key."""
    if len(items) <= MOST_SITES:
        return list(items), ""
    half, keys = MOST_SITES // 2, [(key(item), place) for place, item in enumerate(items)]
    ordered = [items[place] for _, place in sorted((value, place) for value, place in keys if value is not None)]
    shown = ordered if len(ordered) <= MOST_SITES else [*ordered[:half], *ordered[-half:]]
    return shown, f"; of {len(items)} the {half} with the lowest and highest {what}"


def score_labels(scores: list[Score]) -> list[str]:
    """Return the label of each line: the site, with its direction if the site has several."""
    names = [score.site for score in scores]
    return [f"{score.site} {score.direction}" if names.count(score.site) > 1 else score.site for score in scores]


def loss_plot(folder: RunContent) -> go.Figure:
    """Plot dev loss above train loss, a line per site, with the mean and the best round; for masked text, plot perplexity.

    The lines skip rounds without a measurement. If the server learned sums alone, one line stands for all sites.
    """
    sites = {
        site: [(each.number, each.sites[site]) for each in folder.rounds if site in each.sites] for site in folder.round_sites
    }
    if folder.settings and folder.settings.sums_scores:  # each site's losses are the mean of all
        sites = {ALL_SITES: next(iter(sites.values()), [])}
    known = {site: [each.dev_loss for _, each in rounds if each.dev_loss is not None] for site, rounds in sites.items()}
    chosen_sites, which = at_the_ends(list(sites), lambda site: known[site][-1] if known[site] else None, "last dev loss")
    trained = any(each.train_loss is not None for rounds in sites.values() for _, each in rounds)
    of_masked = folder.metrics[0] is PERPLEXITY
    what, unit = ("perplexity", "") if of_masked else ("loss", ", nats a token")

    def shown(loss: float | None) -> float | None:
        return loss if loss is None or not of_masked else math.exp(loss) if loss < LARGEST_LOSS else None

    def hover(of: str, kind: str) -> str:
        # "%{" in a site's name would be read as a placeholder.
        return f"{of.replace('%{', '% {')}<br>round %{{x}}<br>{kind} {what} %{{y:.4f}}"

    figure = canvas.stacked([f"{kind} {what}{unit}" for kind in ("dev", "train")][: 1 + trained], 0.09)
    for index, (site, rounds) in enumerate((site, sites[site]) for site in chosen_sites):
        name = escape(site)
        look: canvas.Look = {"line_width": 1.6, **canvas.look_of_line(index), "marker_size": 5}
        look |= {"connectgaps": True, "legendgroup": name}
        dev = {number: shown(each.dev_loss) for number, each in rounds}
        canvas.line(figure, dev, canvas.short(site), hover(name, "dev"), 1, **look)
        if trained:
            train = {number: shown(each.train_loss) for number, each in rounds}
            canvas.line(figure, train, canvas.short(site), hover(name, "train"), 2, showlegend=False, **look)
    means = {each.number: shown(each.dev_loss) for each in folder.rounds}
    thick = {"width": 4, "color": canvas.INK}
    canvas.line(figure, means, "dev mean", hover("all sites", "dev"), 1, connectgaps=True, line=thick, marker_size=7)
    # A star marks the best round: on the mean or, if each site chose its own, on each site's line.
    best = [(number, loss) for number, loss in means.items() if number == folder.best_round]
    for site, chosen in folder.best_rounds.items():
        best += [(number, shown(each.dev_loss)) for number, each in sites.get(site, []) if number == chosen]
    if best:
        x, y = zip(*best, strict=True)
        star = {"size": 17, "symbol": "star", "color": "#E69F00", "line": {"width": 1.5, "color": canvas.INK}}
        canvas.marks(figure, x, y, "best round", f"best round %{{x}}<br>dev {what} %{{y:.4f}}", 1, marker=star)
    canvas.frame_stacked(figure, 90 + 260 * (1 + trained) + 20 * ((len(chosen_sites) + 2) // 2), f"round{which}")
    canvas.round_axis(figure, means)
    return figure


def bytes_plot(folder: RunContent) -> go.Figure | None:
    """Plot the uplink and downlink bytes of each round, summed over sites; None if there were none."""
    numbers = [each.number for each in folder.rounds]
    uplink = [sum(site.uplink_bytes for site in each.sites.values()) for each in folder.rounds]
    downlink = [sum(site.downlink_bytes for site in each.sites.values()) for each in folder.rounds]
    if not any(uplink + downlink):
        return None
    size, unit = units.byte_unit(max(uplink + downlink))
    figure = go.Figure()
    for name, values, color in (("uplink", uplink, canvas.UP), ("downlink", downlink, canvas.DOWN)):
        said = [[units.data(value), units.data(total)] for value, total in zip(values, accumulate(values), strict=True)]
        hover = f"round %{{x}}, {name}<br>%{{customdata[0]}}<br>so far %{{customdata[1]}}"
        canvas.bars(figure, numbers, [value / size for value in values], name, hover, marker_color=color, customdata=said)
    canvas.frame(figure, height=340, x_title="round", y_title=f"{unit}, all sites")
    canvas.round_axis(figure, numbers)
    figure.update_yaxes(rangemode="tozero")
    return figure


def time_plot(folder: RunContent) -> go.Figure:
    """Plot the seconds that each site spent in each phase, summed over rounds."""
    done = [(site, each) for of_round in folder.rounds for site, each in of_round.sites.items()]
    spent = defaultdict[str, float](float)
    for site, each in done:
        spent[site] += sum(each.seconds.values())
    sites, which = at_the_ends(folder.round_sites, lambda site: spent[site], "seconds")
    figure = go.Figure()
    for index, phase in enumerate(dict.fromkeys(phase for _, each in done for phase in each.seconds)):
        totals = [sum(each.seconds.get(phase, 0.0) for name, each in done if name == site) for site in sites]
        said = [f"{escape(site)}<br>{units.duration(total)}" for site, total in zip(sites, totals, strict=True)]
        look = {"orientation": "h", "hovertext": said, "marker_color": canvas.colour(index)}
        canvas.bars(figure, totals, list(range(len(sites))), escape(phase), "%{hovertext} in %{fullData.name}", **look)
    canvas.frame(figure, height=130 + 30 * len(sites), x_title=f"seconds{which}")
    figure.update_layout(barmode="stack", bargap=0.35)
    canvas.row_axis(figure, sites)
    return figure
