"""The page of a comparison: runs beside each other in their scores, in what they cost, and for whom."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from fedlingua.common import units
from fedlingua.common.errors import ConfigError, RunError
from fedlingua.desk.comparison.compare import Beside, Comparison
from fedlingua.desk.comparison.runs import ComparedRun, differing_settings, variants
from fedlingua.desk.report.comparison_plots import (
    LONGEST_RUN,
    SIGNIFICANT,
    bytes_of,
    bytes_plot,
    difference_plot,
    gain_plot,
    macro_of,
    score_plot,
    seconds_of,
    seconds_plot,
)
from fedlingua.desk.report.keep import without_place
from fedlingua.desk.report.publish import put_page, render_page
from fedlingua.desk.report.values import mapping, text
from fedlingua.settings.methods import CENTRALIZED, SILO

MOST_FIGURES = 4
"""Runs that are told in the row under the title."""
FEWEST_POINTS = 2
"""That are worth a plot of quality against a price."""


def check_page(target: Path) -> None:
    """Whether a page can be meant to stand there, before anything is worked out.

    Raises:
        ConfigError: it is a folder, or its name is no page's.
    """
    if target.is_dir() or target.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(
            f"--to {target}: a page is one file; give its name, such as {target.with_suffix('') / 'comparison.html'}"
        )


def write_comparison(found: Comparison, target: Path) -> Path:
    """Write the page and return its path; folders above it are made.

    Raises:
        ConfigError: no page's name. RunError: it cannot be written there.
    """
    check_page(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"The folder for the page cannot be made: {target.parent}: {error}; name another one") from error
    return put_page(render_comparison(found), target)


def render_comparison(found: Comparison) -> str:
    """The page as text."""
    folders = [run.name for run in found.runs]
    found = labelled(found)
    metric, first = found.metric, found.runs[0]
    in_all = bytes_of(found.runs)
    return render_page(
        "comparison.html",
        _title(found),
        _figures(found),
        heading=_title(found),
        found=found,
        metric=metric,
        scale=metric.scale,
        first=first,
        split=first.scores.get("split", "test"),
        key_figures=[_key_figure(found, one) for one in found.beside[:MOST_FIGURES]],
        sampled=any(one.macro.p is not None for one in found.beside),
        significant=SIGNIFICANT,
        with_pooled=all(one.pooled for one in found.beside),
        macros={run.name: macro_of(found, run) for run in found.runs},
        in_all=in_all,
        pooled_text=any(run.method.startswith((CENTRALIZED, SILO)) for run in found.runs),
        any_gains=any(fair.gains for fair in found.fairness),
        sentences_by_site=[(site, [*of_site]) for site, of_site in groupby(found.sentences, key=lambda each: each.site)],
        differing=_differing(found.runs),
        folders=folders,
        signatures=_signatures(found),
        note=lambda name: f"{name} holds nothing to show.",
    )


def labelled(found: Comparison) -> Comparison:
    """With runs that are named by what they did, as far as that is short and tells them apart; otherwise by their folders."""
    told = variants(found.runs)
    if len(set(told)) < len(told):
        told = [f"{variant}, seed {run.seed}" for variant, run in zip(told, found.runs, strict=True)]
    if len(set(told)) < len(told) or max(map(len, told)) > LONGEST_RUN:
        return found
    names = {run.name: label for run, label in zip(found.runs, told, strict=True)}
    return replace(
        found,
        runs=[replace(run, name=names[run.name]) for run in found.runs],
        beside=[replace(one, run=names[one.run]) for one in found.beside],
    )


def _differing(runs: Sequence[ComparedRun]) -> dict[str, list[str]]:
    """As text, and of paths the last name."""
    return {
        key: [text(without_place(value), units.NOTHING) for value in values] for key, values in differing_settings(runs).items()
    }


def _title(found: Comparison) -> str:
    """The methods, as far as they are few."""
    methods = list(dict.fromkeys(run.method for run in found.runs))
    return " and ".join([", ".join(methods[:-1]), methods[-1]] if len(methods) > 1 else methods) + ", compared"


def _key_figure(found: Comparison, one: Beside) -> tuple[str, str, str]:
    macro, scale = one.macro, found.metric.scale
    word = f"{units.gain(scale * macro.value)} beside {found.runs[0].name}"
    if macro.low is not None and macro.high is not None:
        word += f", 95 % from {units.gain(scale * macro.low)} to {units.gain(scale * macro.high)}"
    return f"macro {found.metric.name}, {one.run}", units.score(scale * macro.second), word


def _figures(found: Comparison) -> dict[str, Any]:
    figures = {"scores": score_plot(found), "differences": difference_plot(found)}
    if len(bytes_of(found.runs)) >= FEWEST_POINTS:
        figures["bytes"] = bytes_plot(found)
    if len(seconds_of(found.runs)) >= FEWEST_POINTS:
        figures["seconds"] = seconds_plot(found)
    if any(fair.gains for fair in found.fairness):
        figures["gains"] = gain_plot(found)
    return figures


def _signatures(found: Comparison) -> list[tuple[str, str]]:
    """The metric's signatures, and the sites they hold for; one line where all have the same."""
    of_signature: dict[str, list[str]] = {}
    for site in found.scores:
        entry = mapping(found.runs[0].scores["sites"][site])
        own = "signature" if found.metric.key == "bleu" else f"{found.metric.key}_signature"
        signature = mapping(entry.get("signatures")).get(found.metric.key) or entry.get(own)
        if signature:
            of_signature.setdefault(str(signature), []).append(site)
    return [(signature, "all" if len(on) == len(found.scores) else ", ".join(on)) for signature, on in of_signature.items()]
