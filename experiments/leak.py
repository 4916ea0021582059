"""Measure what a server could read from the demo's updates, and write experiments/results/privacy/leak.md and leak.json.

    python -m experiments.leak

Round 1 of hospital-de, as `fedlingua audit leak` takes it, under three seeds with adapters and one with the whole model: the demo's
settings, but all of a site's text in each round, as DP wants it. An interrupted measurement continues.
"""

import json
import sys
from collections.abc import Sequence, Set
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from fedlingua.clustering.clusters import by_families
from fedlingua.common.files import json_text, replace_text
from fedlingua.corpora.simulated import texts_by_site
from fedlingua.corpora.sites import read_federation
from fedlingua.desk.experiment import read_experiment
from fedlingua.desk.templates import markdown_table
from fedlingua.exchange.trainable import build_trainable
from fedlingua_lab.audit.leak import Effort, Figure, cell, leak_suite
from fedlingua_lab.audit.retrained import Retrained
from fedlingua_lab.audit.subject import Subject

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "experiments" / "results" / "privacy" / "leak.md"
SITE = "hospital-de"
ADAPTERS, MODEL = "adapters", "the whole model"
CHANGES = {ADAPTERS: {"sample.share": 0.0}, MODEL: {"sample.share": 0.0, "method": "model-fed", "learning-rate": 0.001}}
"""What is sent -> changes of experiments/demo.toml."""
EFFORTS = {
    ADAPTERS: Effort(trials=24, single=12, among=24, rounds=1),
    MODEL: Effort(trials=4, single=4, among=12, rounds=1, pool=30),
}
WHAT = {
    "membership": "tell a sentence of the update from an unseen one",
    "words": "name the words of the text",
    "tokens by subspace": "name the source tokens of the batch",
    "sentences by subspace": "tell a sentence of the batch from an unseen one, by subspace",
    "canaries": "rank a planted sentence among others",
}
"""Attack -> what a server that succeeds can do, in words for people."""
JOBS = ((ADAPTERS, 2022), (ADAPTERS, 2023), (ADAPTERS, 2024), (MODEL, 2022))
"""In this order; protections that leak.json has are not measured again."""


def measured(case: str, seed: int, known: Set[str]) -> list[Figure]:
    """Audit the first round of a run with these settings, which is not needed itself, under the protections that are not `known`."""
    settings = read_experiment(ROOT / "experiments" / "demo.toml", {**CHANGES[case], "seed": seed})
    texts = texts_by_site(settings.federation_path, settings.data_dir)
    directions = {site: [text.direction for text in held.values()] for site, held in texts.items()}
    relatives = read_federation(settings.federation_path, Path()).relatives(settings.cluster_by)
    clusters = by_families(directions, relatives, least=3)
    groups = {part: next(sites for sites in named.values() if SITE in sites) for part, named in clusters.items()}
    groups = groups if settings.how.clustering == "families" else {part: tuple(texts)[:3] for part in groups}
    subject = Subject(settings, SITE, 1, texts, {**groups, "shared": groups["encoder"]})
    plain, secure, *private = subject.protections()
    wanted = [each for each in (plain, secure, replace(secure, epsilon=8.0), *private) if each.name not in known]
    if not wanted:
        return []
    again = Retrained(subject, build_trainable(settings))
    return leak_suite(again, wanted, EFFORTS[case], partial(print, case, seed, file=sys.stderr, flush=True))


def over_seeds(runs: list[list[Figure]]) -> list[Figure]:
    """Return the mean of each figure; of several seeds, with the least and the greatest instead of the interval."""
    if len(runs) == 1:
        return runs[0]
    means = []
    for each in zip(*runs, strict=True):
        values = [row.value for row in each]
        detail = {name: sum(row.detail[name] for row in each) for name in ("first", "trials") if name in each[0].detail}
        means.append(replace(each[0], value=fmean(values), low=min(values), high=max(values), detail=detail))
    return means


def table_of(figures: Sequence[Figure]) -> tuple[list[str], list[list[str]]]:
    """Return the headers and rows; a cell is a value with its interval, and what theory allows at most."""
    protections = list(dict.fromkeys(each.protection for each in figures))
    by_row: dict[tuple[str, str, str], dict[str, Figure]] = {}
    for each in figures:
        by_row.setdefault((each.attack, each.update, each.measure), {})[each.protection] = each
    rows = [
        [
            *(WHAT[attack], update, measure),
            *(cell(by_protection[each]) if each in by_protection else "–" for each in protections),
            f"{next(iter(by_protection.values())).chance:.2f}",
        ]
        for (attack, update, measure), by_protection in by_row.items()
    ]
    return ["what a server can do", "update", "figure", *protections, "chance"], rows


def page(figures: dict[str, dict[str, list[dict[str, Any]]]]) -> str:
    """Return both tables as Markdown. figures: what is sent -> seed -> rows, as leak.json has them."""
    lines = ["# What a server could read", "", "Made by `python -m experiments.leak`, which says how; what the rows mean is in"]
    lines += ["[the guide](../../../docs/guides/privacy.md#what-an-update-tells).", ""]
    for case, by_seed in figures.items():
        brackets = f"the least and the greatest of {len(by_seed)} seeds" if len(by_seed) > 1 else "a 95 % bootstrap interval"
        rows = over_seeds([[Figure(**each) for each in rows] for rows in by_seed.values()])
        lines += [f"## {case.capitalize()}", "", f"Seeds: {', '.join(by_seed)}. In brackets: {brackets}.", ""]
        headers, cells = table_of(rows)
        lines += [markdown_table([headers, *cells], text_columns=3), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def main() -> None:
    """Measure what is missing, and write the figures after each job, the page at the end."""
    file = RESULT.with_suffix(".json")
    figures = json.loads(file.read_bytes()) if file.is_file() else {}
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    for case, seed in JOBS:
        rows = figures.setdefault(case, {}).setdefault(str(seed), [])
        if new := measured(case, seed, {row["protection"] for row in rows}):
            rows += [asdict(figure) for figure in new]
            replace_text(file, json_text(figures))
    replace_text(RESULT, page(figures))


if __name__ == "__main__":
    main()
