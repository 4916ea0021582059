"""Compare runs by site, over all sites, for the worst site, over seeds, and by sentence."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
from sacrebleu.metrics.chrf import CHRF

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.languages import nearest
from fedlingua.evaluation.bootstrap import SEED, draws, resampled
from fedlingua.evaluation.text_metrics import TEXT_METRICS
from fedlingua.settings.metrics import METRICS, OF_TEXT, Metric
from fedlingua_lab.comparison.differences import Difference, difference, paired
from fedlingua_lab.comparison.runs import ComparedRun, Fairness, common_sites, fairness, variants

MeanAndSd = tuple[float, float] | None
LOCAL_METHODS = ("adapter-local",)
"""Methods under which each site trains alone: the baseline for the gain from joining."""


@dataclass(frozen=True)
class Beside:
    """One run compared with the first.

    sites: Site -> difference, without p if its translations are not here. macro: Difference of the mean over sites. pooled: Difference on
    all sentences as one corpus."""

    run: str
    sites: Mapping[str, Difference]
    macro: Difference
    pooled: Difference | None


@dataclass(frozen=True)
class DifferingSentence:
    """A test sentence that two runs translate differently. gain: chrF of the second run minus that of the first."""

    site: str
    direction: str
    source: str
    reference: str
    first: str
    second: str
    gain: float


@dataclass(frozen=True)
class OverSeeds:
    """A method's runs that differ only in their seed; figures are (mean, sample standard deviation), None if a run has none.

    method: Its name, with the settings that distinguish these runs from the method's other runs."""

    method: str
    seeds: tuple[int, ...]
    macro: MeanAndSd
    worst: MeanAndSd
    spread: MeanAndSd
    gain: MeanAndSd


@dataclass(frozen=True)
class Comparison:
    """Runs in the given order, each compared with the first. scores: Site -> one score per run.
    samples: The number of bootstrap samples."""

    metric: Metric
    runs: Sequence[ComparedRun]
    scores: Mapping[str, Sequence[float]]
    beside: Sequence[Beside]
    fairness: Sequence[Fairness]
    over_seeds: Sequence[OverSeeds]
    sentences: Sequence[DifferingSentence]
    samples: int


def compare(runs: Sequence[ComparedRun], metric_name: str, samples: int, sentences: int) -> Comparison:
    """Compare runs with the first by a metric.

    Args:
        metric_name: A metric of TEXT_METRICS or, without p, any other in the runs' scores.json; "": the first metric of their task.
        samples: The number of bootstrap samples.
        sentences: How many sentences that differ between the first two runs to list for each site.

    Raises:
        ConfigError: There is no such metric. RunError: A run has no scores by it.
    """
    metric = _metric(runs, metric_name)
    sites = common_sites(runs)
    for run in runs:
        if missing := [site for site in sites if metric.key not in run.scores["sites"][site]]:
            raise RunError(f"{run.name} has no {metric.name} of {', '.join(missing)}; {_advice(run, metric_name)}")
    scores = {site: [float(run.scores["sites"][site][metric.key]) for run in runs] for site in sites}
    alone = {run.seed: run for run in runs if run.method in LOCAL_METHODS}
    fair = [fairness(run, None if run.method in LOCAL_METHODS else alone.get(run.seed), metric) for run in runs]
    beside = [_beside(runs[0], run, metric, sites, samples) for run in runs[1:]]
    differing = differing_sentences(runs[0], runs[1], sites, sentences) if len(runs) > 1 else []
    return Comparison(metric, runs, scores, beside, fair, _over_seeds(runs, fair, metric), differing, samples)


def _metric(runs: Sequence[ComparedRun], name: str) -> Metric:
    if not name:
        return runs[0].metrics[0]
    known = {**OF_TEXT, **{metric.key: metric for metric in METRICS["masked-language"]}}
    if name not in known:
        raise ConfigError(f"there is no metric {name!r}{nearest(name, known)}; there are {', '.join(known)}")
    return known[name]


def _advice(run: ComparedRun, name: str) -> str:
    """Say how to measure a metric that a run lacks, or which metrics its task has."""
    translates = run.metrics == METRICS["translation"]
    if translates and name in OF_TEXT:
        where = ", where its model knows the target language" if name == "off-target" else ""
        return f"measure it{where}: fedlingua score --run FOLDER --metric {name}"
    return f"its task is scored by {', '.join(OF_TEXT if translates else (each.key for each in run.metrics))}"


def _beside(first: ComparedRun, second: ComparedRun, metric: Metric, sites: Sequence[str], samples: int) -> Beside:
    """Compare two runs. A site's bootstrap samples are sacreBLEU's; for the mean over sites, each site is resampled independently."""
    both = (first, second)
    values = [[run.values(metric.key)[site] for site in sites] for run in both]
    before, after = (run.macro(metric.key, sites) for run in both)
    name = next((name for name, known in OF_TEXT.items() if known == metric and name in TEXT_METRICS), "")
    if not name or not all(site in run.texts for run in both for site in sites):
        alone = {site: Difference(*pair) for site, *pair in zip(sites, *values, strict=True)}
        return Beside(second.name, alone, Difference(before, after), None)
    measure = TEXT_METRICS[name]
    counts = [[measure.count(run.texts[site]) for site in sites] for run in both]
    of_sites = {
        site: paired(of_first, of_second, measure.score, draws(len(of_first), samples))
        for site, of_first, of_second in zip(sites, *counts, strict=True)
    }
    drawn = [draws(len(of_site), samples, (SEED, place)) for place, of_site in enumerate(counts[0])]
    means = [
        np.mean([resampled(of_site, measure.score, each) for of_site, each in zip(of_run, drawn, strict=True)], axis=0)
        for of_run in counts
    ]
    whole_first, whole_second = map(np.concatenate, counts)
    pooled = paired(whole_first, whole_second, measure.score, draws(len(whole_first), samples))
    return Beside(second.name, of_sites, difference(before, after, means[0], means[1]), pooled)


def _over_seeds(runs: Sequence[ComparedRun], fair: Sequence[Fairness], metric: Metric) -> list[OverSeeds]:
    """Summarize the runs of each method (with its settings) that has several runs, each with its own seed."""
    of_method: dict[str, list[tuple[ComparedRun, Fairness]]] = defaultdict(list)
    for variant, run, fairness_of_it in zip(variants(runs), runs, fair, strict=True):
        of_method[variant].append((run, fairness_of_it))

    def mean_and_sd(values: Sequence[float | None]) -> MeanAndSd:
        known = [value for value in values if value is not None]
        return (fmean(known), stdev(known)) if len(known) == len(values) else None

    rows = []
    for method, pairs in of_method.items():
        if len({run.seed for run, _ in pairs}) == len(pairs) > 1:
            macro = mean_and_sd([run.macro(metric.key, run.values(metric.key)) for run, _ in pairs])
            others = (mean_and_sd([getattr(fares, name) for _, fares in pairs]) for name in ("worst", "spread", "gain"))
            rows.append(OverSeeds(method, tuple(run.seed for run, _ in pairs), macro, *others))
    return rows


def differing_sentences(first: ComparedRun, second: ComparedRun, sites: Sequence[str], most: int) -> list[DifferingSentence]:
    """Return, for each site whose translations are here, the `most` sentences that differ most in chrF between two runs."""
    chrf, sentences = CHRF(), []
    for site in sites if most else ():
        if site not in first.texts or site not in second.texts:
            continue
        ours, direction = first.texts[site], str(first.scores["sites"][site]["direction"])
        rows = zip(ours.sources, ours.references, ours.hypotheses, second.texts[site].hypotheses, strict=True)
        of_site = []
        for source, reference, before, after in rows:
            if before != after:
                gain = chrf.sentence_score(after, [reference]).score - chrf.sentence_score(before, [reference]).score
                of_site.append(DifferingSentence(site, direction, source, reference, before, after, gain))
        sentences += sorted(of_site, key=lambda sentence: -abs(sentence.gain))[:most]
    return sentences
