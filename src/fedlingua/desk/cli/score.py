"""`fedlingua score`: score the translations of a run's sites, or those in files, by any of the metrics."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
from rich.table import Table
from typer import BadParameter, Option

from fedlingua.common.languages import parse_direction
from fedlingua.desk import units
from fedlingua.desk.cli.completion import metrics, run_folders
from fedlingua.desk.cli.options import CometModel, SitesOption
from fedlingua.desk.cli.output import Answer, Commands, console, example, plain_table, progress_bar, say, warn
from fedlingua.desk.translating.site_translations import read_files, read_site_translations
from fedlingua.evaluation.comet.scores import checked_model
from fedlingua.evaluation.measuring import COMET, Measured, measure, score_of
from fedlingua.evaluation.text_metrics import TEXT_METRICS, Translated
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.metrics import OF_TEXT, Metric, metric_names

commands = Commands()
Json = dict[str, Any]
AVERAGES = ("macro", "pooled", "micro", "base_")
SIDES = ("base_", "")
"""Prefixes in scores.json: before and after."""


@commands.command(
    epilog=example(
        "fedlingua score --run runs/demo-adapter-families-2022 --metric bleu --metric ter",
        "fedlingua score --source text.de --hypothesis mt.fr --reference text.fr --direction de-fr",
    )
)
def score(
    run: Annotated[
        Path | None, Option("--run", help="Run folder with the translations, or give three files.", shell_complete=run_folders)
    ] = None,
    site: SitesOption = None,
    source: Annotated[Path | None, Option(help="File of source sentences, one a line.")] = None,
    hypothesis: Annotated[Path | None, Option(help="File of translations, one a line.")] = None,
    reference: Annotated[Path | None, Option(help="File of reference translations, one a line.")] = None,
    direction: Annotated[str, Option(help="Direction of the files, such as de-fr.")] = "",
    metric: Annotated[
        list[str] | None,
        Option(help="bleu, chrf, chrf++, ter, length-ratio, off-target, comet; default: all but comet.", shell_complete=metrics),
    ] = None,
    model: CometModel = "wmt22-comet-da",
) -> Answer:
    files = [file for file in (source, hypothesis, reference) if file]
    if len(files) != (0 if run else 3):
        raise BadParameter("give --run with a run's folder, or all of --source, --hypothesis, --reference and --direction")
    names = metric_names(",".join(metric or TEXT_METRICS))
    if COMET in names:
        checked_model(model)
    if run is not None:
        return _score_run(run, site or [], names, model)
    text = read_files(files, parse_direction(direction, "--direction").target)
    (measured,) = _measure({"files": text}, names, model).values()
    for name, result in measured.items():
        of = OF_TEXT[name]
        say(f"{of.name} {units.score(of.scale * result.corpus)}  {result.signature}")
    scores = {name: {"score": result.corpus, "signature": result.signature} for name, result in measured.items()}
    return {"sentences": len(text.hypotheses), "metrics": scores}


def _score_run(run: Path, sites: Sequence[str], names: Sequence[str], model: str) -> Json:
    """Score every site's translations and the base's; add both to scores.json, whose other scores stay."""
    texts = read_site_translations(run, sites)
    both = {f"base_{name}": text.base for name, text in texts.items()}
    measured = _measure(both | {name: text.hypothesis for name, text in texts.items()}, names, model)
    of_base, of_run = ({name: measured[f"{side}{name}"] for name in texts} for side in SIDES)
    folder = RunFolder(run)
    with folder.held():
        scores = folder.read("scores.json") or {}
        _enter(scores, names, of_run, of_base, whole=not sites)
        folder.write("scores.json", scores)
    console().print(_table(texts, scores, names))
    for signature in dict.fromkeys(f"{name}: {each[name].signature}" for each in of_run.values() for name in each):
        say(signature)
    averages = {key: value for key, value in scores.items() if key.startswith(AVERAGES)} if not sites else {}
    return {"sites": {name: scores["sites"][name] for name in texts}, **averages}


def _measure(texts: Mapping[str, Translated], metrics: Sequence[str], model: str) -> dict[str, dict[str, Measured]]:
    with progress_bar("COMET", total=None, visible=COMET in metrics) as report:
        return measure(texts, metrics, model, partial(warn, style=""), lambda done, of: report("COMET", done, of))


def _enter(
    scores: Json,
    names: Sequence[str],
    of_run: Mapping[str, Mapping[str, Measured]],
    of_base: Mapping[str, Mapping[str, Measured]],
    whole: bool,
) -> None:
    """Add measured scores to the run's scores, and remove those that could not be measured. names: The metrics that were asked for.
    whole: All sites are scored, so averages are added, too."""
    for (name, by_metric), metric in product(of_run.items(), names):
        entry, key = scores["sites"][name], OF_TEXT[metric].key
        signatures = entry.setdefault("signatures", {})
        for of in (key, f"base_{key}"):
            entry.pop(of, None)
        signatures.pop(key, None)
        if metric in by_metric:
            entry[key], entry[f"base_{key}"] = by_metric[metric].corpus, of_base[name][metric].corpus
            signatures[key] = by_metric[metric].signature
    for metric in names if whole else ():
        key = OF_TEXT[metric].key
        if not all(metric in measured for measured in of_run.values()):
            for of in ("macro", "base_macro", "pooled"):
                scores.pop(f"{of}_{key}", None)
            continue
        for prefix, of_sites in zip(SIDES, (of_base, of_run), strict=True):
            scores[f"{prefix}macro_{key}"] = fmean(results[metric].corpus for results in of_sites.values())
        counts = [results[metric].counts.sum(axis=0) for results in of_run.values()]
        scores[f"pooled_{key}"] = score_of(metric, np.sum(counts, axis=0))


def _table(sites: Collection[str], scores: Json, names: Sequence[str]) -> Table:
    """Return a table with a line for each site and a column for each metric; if all sites are scored, also with means before and after."""
    metrics = [OF_TEXT[name] for name in names]
    table = plain_table("site", *(metric.short for metric in metrics))
    for name in sites:
        table.add_row(name, *_cells(scores["sites"][name], metrics, ""))
    if len(sites) == len(scores["sites"]):
        table.add_section()
        table.add_row("macro", *_cells(scores, metrics, "macro_"), style="bold")
        table.add_row("before", *_cells(scores, metrics, "base_macro_"))
    return table


def _cells(entry: Json, metrics: Sequence[Metric], prefix: str) -> list[str]:
    values = [(metric, entry.get(f"{prefix}{metric.key}")) for metric in metrics]
    return [units.score(None if value is None else metric.scale * value) for metric, value in values]
