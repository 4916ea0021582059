"""The plots of the page, each a function of the run folder alone; their colours hold on light and on dark ground."""

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from itertools import accumulate

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from fedlingua.common import units
from fedlingua.desk.report.canvas import BEFORE, DASHES, DOWN, INK, PALETTE, UP, WORSE, frame, round_step, row_axis, title_panels
from fedlingua.desk.report.convergence import perplexity
from fedlingua.desk.report.read import Round, RunFolder, Score, SiteRound
from fedlingua.settings.metrics import PERPLEXITY


@dataclass(frozen=True)
class Shown:
    """What a loss, nats a token, is shown as. value: of a loss; None of none, and of one too high for it."""

    name: str
    unit: str
    value: Callable[[float | None], float | None]

    def of(self, kind: str) -> str:
        """kind: dev or train."""
        return f"{kind} {self.name}"


LOSSES = Shown("loss", ", nats a token", lambda loss: loss)
PERPLEXITIES = Shown("perplexity", "", lambda loss: None if loss is None else perplexity(loss, 1))


def score_plot(folder: RunFolder) -> go.Figure:
    """The first metric of each site before and after, joined by a line that shows the gain."""
    lines = [line for line in folder.scores if line.first.after is not None or line.first.before is not None]
    labels = score_labels(lines)
    figure = go.Figure()
    for worse in (False, True):
        _add_joints(figure, lines, worse)
    before = [line.first.before for line in lines]
    after = [line.first.after for line in lines]
    hover = [f"{escape(label)}<br>gain {units.gain(line.first.gain)}" for label, line in zip(labels, lines, strict=True)]
    rows = list(range(len(lines)))
    shared = {"y": rows, "hovertext": hover, "hovertemplate": "%{hovertext}<br>%{fullData.name}: %{x:.2f}<extra></extra>"}
    open_circle = {"size": 11, "color": "rgba(0,0,0,0)", "symbol": "circle", "line": {"width": 2.5, "color": BEFORE}}
    figure.add_scatter(x=before, name="before", mode="markers", marker=open_circle, **shared)
    figure.add_scatter(x=after, name="after", mode="markers", marker={"size": 12, "color": UP}, **shared)
    frame(figure, height=130 + 34 * len(lines), x_title=folder.metrics[0].name)
    row_axis(figure, labels)
    return figure


def loss_plot(folder: RunFolder) -> go.Figure:
    """Dev loss over train loss, a line for each site, with the mean and the best round marked; of masked text as perplexities."""
    trained = any(each.train_loss is not None for one in folder.rounds for each in one.sites.values())
    shown = PERPLEXITIES if folder.metrics[0] is PERPLEXITY else LOSSES
    titles = [f"{shown.of(kind)}{shown.unit}" for kind in ("dev", "train")][: 1 + trained]
    figure = make_subplots(rows=len(titles), cols=1, shared_xaxes=True, vertical_spacing=0.09, subplot_titles=titles)
    for index, site in enumerate(folder.round_sites):
        _add_site_losses(figure, folder.rounds, site, index, trained, shown)
    _add_mean(figure, folder.rounds, shown)
    _add_best(figure, folder, shown)
    legend_rows = (len(folder.round_sites) + 2) // 2
    frame(figure, height=90 + 260 * len(titles) + 20 * legend_rows)
    title_panels(figure)
    figure.update_xaxes(tickformat="d", dtick=round_step(each.number for each in folder.rounds))
    figure.update_xaxes(title={"text": "round", "standoff": 6}, row=len(titles), col=1)
    return figure


def bytes_plot(folder: RunFolder) -> go.Figure:
    """Bytes that went up and down in each round, summed over the sites."""
    numbers = [each.number for each in folder.rounds]
    uplink = [sum(site.uplink_bytes for site in each.sites.values()) for each in folder.rounds]
    downlink = [sum(site.downlink_bytes for site in each.sites.values()) for each in folder.rounds]
    size, unit = units.byte_unit(max([*uplink, *downlink, 0.0]))
    figure = go.Figure()
    for name, values, colour in (("uplink", uplink, UP), ("downlink", downlink, DOWN)):
        hover = [[units.data(one), units.data(total)] for one, total in zip(values, accumulate(values), strict=True)]
        figure.add_bar(
            x=numbers,
            y=[value / size for value in values],
            name=name,
            marker={"color": colour},
            customdata=hover,
            hovertemplate="round %{x}, " + name + "<br>%{customdata[0]}<br>so far %{customdata[1]}<extra></extra>",
        )
    frame(figure, height=340, x_title="round", y_title=f"{unit}, all sites")
    figure.update_xaxes(tickformat="d", dtick=round_step(each.number for each in folder.rounds))
    figure.update_yaxes(rangemode="tozero")
    return figure


def time_plot(folder: RunFolder) -> go.Figure:
    """Seconds each site spent in each phase, all rounds together."""
    sites = folder.round_sites
    done = [(site, each) for one in folder.rounds for site, each in one.sites.items()]
    phases = list(dict.fromkeys(phase for _, each in done for phase in each.seconds))
    figure = go.Figure()
    for index, phase in enumerate(phases):
        totals = [sum(each.seconds.get(phase, 0.0) for name, each in done if name == site) for site in sites]
        hover = [f"{escape(site)}<br>{units.duration(total)}" for site, total in zip(sites, totals, strict=True)]
        figure.add_bar(
            y=list(range(len(sites))),
            x=totals,
            name=escape(phase),
            orientation="h",
            marker={"color": PALETTE[index % len(PALETTE)]},
            hovertext=hover,
            hovertemplate="%{hovertext} in %{fullData.name}<extra></extra>",
        )
    frame(figure, height=130 + 30 * len(sites), x_title="seconds")
    figure.update_layout(barmode="stack", bargap=0.35)
    row_axis(figure, sites)
    return figure


def score_labels(lines: list[Score]) -> list[str]:
    """The name of each line: the site, with its direction where the site has more than one."""
    names = [line.site for line in lines]
    return [f"{line.site} {line.direction}" if names.count(line.site) > 1 else line.site for line in lines]


def _add_joints(figure: go.Figure, lines: list[Score], worse: bool) -> None:
    """The lines between before and after; those that lost have a colour of their own."""
    x: list[float | None] = []
    y: list[int | None] = []
    for row, line in enumerate(lines):
        if line.first.gain is not None and (line.first.gain < 0) == worse:
            x += [line.first.before, line.first.after, None]
            y += [row, row, None]
    if x:
        style = {"width": 4, "color": WORSE if worse else "#56B4E9"}
        name = "lower after" if worse == lines[0].first.metric.more_is_better else "higher after"
        figure.add_scatter(x=x, y=y, name=name, mode="lines", line=style, hoverinfo="skip", legendrank=2000)


def _add_site_losses(figure: go.Figure, rounds: list[Round], site: str, index: int, trained: bool, shown: Shown) -> None:
    """A site's dev loss and, in the panel below and under the same legend entry, its train loss."""
    name = escape(site)
    style = {
        "name": name,
        "legendgroup": name,
        "mode": "lines+markers",
        "connectgaps": True,  # rounds in which nothing was measured
        # The dash changes where the colours start again, so that two sites never look the same.
        "line": {"width": 1.6, "color": PALETTE[index % len(PALETTE)], "dash": DASHES[index // len(PALETTE) % len(DASHES)]},
        "marker": {"size": 5},
    }
    there = [(one.number, one.sites[site]) for one in rounds if site in one.sites]
    numbers = [index for index, _ in there]
    dev = [shown.value(each.dev_loss) for _, each in there]
    figure.add_scatter(x=numbers, y=dev, hovertemplate=_loss_hover(name, shown.of("dev")), row=1, col=1, **style)
    if trained:
        train = [shown.value(each.train_loss) for _, each in there]
        hover = _loss_hover(name, shown.of("train"))
        figure.add_scatter(x=numbers, y=train, hovertemplate=hover, showlegend=False, row=2, col=1, **style)


def _add_mean(figure: go.Figure, rounds: list[Round], shown: Shown) -> None:
    """The dev loss over all sites, thick and in the colour of the text."""
    figure.add_scatter(
        x=[each.number for each in rounds],
        y=[shown.value(each.dev_loss) for each in rounds],
        name="dev mean",
        mode="lines+markers",
        connectgaps=True,
        line={"width": 4, "color": INK},
        marker={"size": 7},
        hovertemplate=_loss_hover("all sites", shown.of("dev")),
        row=1,
        col=1,
    )


def _add_best(figure: go.Figure, folder: RunFolder, shown: Shown) -> None:
    """A star on the best round: on the mean, or on each site's own line where each chose its own."""
    points = [(each.number, each.dev_loss) for each in folder.rounds if each.number == folder.best_round]
    for site, best in folder.best_rounds.items():
        own: list[SiteRound] = [each.sites[site] for each in folder.rounds if each.number == best and site in each.sites]
        points += [(best, each.dev_loss) for each in own]
    if not points:
        return
    figure.add_scatter(
        x=[point[0] for point in points],
        y=[shown.value(point[1]) for point in points],
        name="best round",
        mode="markers",
        marker={"size": 17, "symbol": "star", "color": "#E69F00", "line": {"width": 1.5, "color": INK}},
        hovertemplate=f"best round %{{x}}<br>{shown.of('dev')} %{{y:.4f}}<extra></extra>",
        row=1,
        col=1,
    )


def _loss_hover(name: str, kind: str) -> str:
    # A brace in a site's name would be read as a placeholder.
    return name.replace("%{", "% {") + "<br>round %{x}<br>" + kind + " %{y:.4f}<extra></extra>"
