"""Render the page and put it in the run folder, whole or not at all."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from fedlingua.errors import RunError
from fedlingua.report import plots, units
from fedlingua.report.read import RunFolder, Score, difference, read_run
from fedlingua.report.tables import averages
from fedlingua.report.template import TEMPLATE
from fedlingua.report.values import mapping, number, text, whole

BADGES = {"completed": "✓", "running": "▶", "failed": "✗", "interrupted": "‖"}
FACTS = ("name", "flower_run_id", "config_hash", "git_revision", "started", "finished")


def write_report(run_dir: Path) -> Path:
    """Write `report.html` into the run folder and return its path."""
    folder = read_run(run_dir)
    target = folder.path / "report.html"
    # Written aside and moved, so that a browser that reloads during a run never sees half a page.
    aside = folder.path / f".report.{os.getpid()}.html"
    try:
        aside.write_text(render(folder), encoding="utf-8")
        os.replace(aside, target)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise RunError(
            f"The report cannot be written: {target}\n"
            f"  got:    {error}\n"
            "  wanted: a run folder that can be written to, with about 5 MB free\n"
            "  to do:  mend the folder's permissions or free space, then write the report again"
        ) from error
    return target


def render(folder: RunFolder) -> str:
    """The page as text."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "score": units.score,
        "gain": units.gain,
        "count": units.count,
        "data": units.data,
        "duration": units.duration,
    }
    figures = {name: json.loads(figure.to_json()) for name, figure in _figures(folder).items()}
    return environment.from_string(TEMPLATE).render(
        folder=folder,
        run=folder.run,
        badge=BADGES.get(folder.status, "?"),
        key_figures=key_figures(folder),
        averages=averages(folder),
        figures=figures,
        # Nothing to draw, nothing to draw it with: a page without plots stays small.
        plotly=Markup(get_plotlyjs()) if figures else "",
        note=partial(_note, folder),
        reasons=_drop_reasons(folder),
        colours=_cluster_colours(folder),
        members=_cluster_members(folder),
        signatures=_signatures(folder.scores),
        facts=_facts(folder),
        config=mapping(folder.run.get("config")),
        versions=mapping(folder.run.get("versions")),
    )


def key_figures(folder: RunFolder) -> list[tuple[str, str, str]]:
    """The row under the title: name, value, and a word on it."""
    before, after = (number(folder.summary.get(key)) for key in ("base_macro_bleu", "macro_bleu"))
    change = difference(after, before)
    bleu = f"{units.score(before)} → {units.score(after)}" if after is not None else "not yet"
    return [
        ("macro BLEU", bleu, "" if change is None else f"{units.gain(change)} over the base"),
        _round_figure(folder),
        ("exchanged parameters", units.parameters(number(_exchanged(folder))), _trained_word(folder)),
        ("uplink a round and site", units.data(_uplink(folder)), ""),
        _time_figure(folder),
    ]


def _figures(folder: RunFolder) -> dict[str, Any]:
    """The plots that there is something to draw for."""
    figures = {"scores": plots.score_plot(folder)} if folder.scores else {}
    if folder.round_sites:
        figures |= {"loss": plots.loss_plot(folder), "bytes": plots.bytes_plot(folder), "time": plots.time_plot(folder)}
    return figures


def _note(folder: RunFolder, name: str) -> str:
    """Why a section has nothing to show."""
    note = folder.notes.get(name, f"{name} holds nothing to show.")
    return f"{note} The run is still going." if folder.status == "running" else note


def _round_figure(folder: RunFolder) -> tuple[str, str, str]:
    planned = whole(folder.run.get("rounds"))
    done = max((each.number for each in folder.rounds), default=None)
    unfinished = folder.status != "completed" and planned is not None and (done or 0) < planned
    value = f"{done or 0} of {planned}" if unfinished else units.count(planned if planned is not None else done)
    return "rounds", value, _best_word(folder)


def _best_word(folder: RunFolder) -> str:
    if folder.best_round is not None:
        return f"best round {folder.best_round}"
    own = folder.best_rounds.values()
    if not own:
        return ""
    return f"best round by site: {min(own)}–{max(own)}" if min(own) < max(own) else f"best round {min(own)} at every site"


def _exchanged(folder: RunFolder) -> Any:
    found = folder.run.get("exchanged_parameters")
    return folder.summary.get("exchanged_parameters") if found is None else found


def _trained_word(folder: RunFolder) -> str:
    trained = number(folder.run.get("trained_parameters"))
    return "" if trained is None else f"of {units.parameters(trained)} trained"


def _uplink(folder: RunFolder) -> float | None:
    """What the scores say; before there are any, the mean over the rounds with training so far."""
    told = number(folder.summary.get("uplink_bytes_per_round"))
    so_far = [site.uplink_bytes for each in folder.rounds if each.number > 0 for site in each.sites.values()]
    return told if told is not None else (sum(so_far) / len(so_far) if so_far else None)


def _time_figure(folder: RunFolder) -> tuple[str, str, str]:
    told = number(folder.run.get("seconds"))
    if told is not None:
        return "wall time", units.duration(told), ""
    known = [each.seconds for each in folder.rounds if each.seconds is not None]
    return "wall time", units.duration(sum(known) if known else None), "finished rounds so far" if known else ""


def _drop_reasons(folder: RunFolder) -> list[str]:
    accounts = [account for site in folder.sites for account in site.accounts]
    return list(dict.fromkeys(reason for account in accounts for reason in account.dropped))


def _cluster_members(folder: RunFolder) -> list[str]:
    """The rows of the cluster picture: the sites in their usual order, then any that only the clusters name."""
    named = [site for clusters in folder.clusters.values() for sites in clusters.values() for site in sites]
    order = [site.name for site in folder.sites] or folder.round_sites
    return [site for site in dict.fromkeys([*order, *named]) if site in set(named)]


def _cluster_colours(folder: RunFolder) -> dict[str, str]:
    """A colour for each cluster name, so that a family looks the same in every part."""
    names = dict.fromkeys(cluster for clusters in folder.clusters.values() for cluster in clusters)
    return {name: plots.PALETTE[index % len(plots.PALETTE)] for index, name in enumerate(names)}


def _signatures(scores: list[Score]) -> list[tuple[str, str, str]]:
    """Each metric's signatures and the sites they hold for; one line where all have the same."""
    found: dict[tuple[str, str], list[str]] = {}
    for label, line in zip(plots.score_labels(scores), scores, strict=True):
        for metric, signature in (("BLEU", line.signature), ("chrF", line.chrf_signature)):
            if signature:
                found.setdefault((metric, signature), []).append(label)
    lines = [(metric, sign, "all" if len(on) == len(scores) else ", ".join(on)) for (metric, sign), on in found.items()]
    return sorted(lines, key=lambda line: line[0])


def _facts(folder: RunFolder) -> dict[str, str]:
    """Where the run came from, for the settings."""
    backbone = mapping(folder.run.get("backbone"))
    facts = {key.replace("_", " "): text(folder.run.get(key), units.NOTHING) for key in FACTS}
    facts["backbone"] = text(backbone.get("name"), units.NOTHING)
    facts["backbone fingerprint"] = text(backbone.get("fingerprint"), units.NOTHING)
    for name, value in (("backbone", backbone.get("parameters")), ("trained", folder.run.get("trained_parameters"))):
        facts[f"{name} parameters"] = units.count(number(value))
    facts["exchanged parameters"] = units.count(number(_exchanged(folder)))
    return facts
