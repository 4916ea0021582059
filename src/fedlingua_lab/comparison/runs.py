"""Read runs for a comparison, and refuse runs that were not scored on the same test text."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from fedlingua.common.errors import RunError
from fedlingua.desk.completed import check_completed, no_scores
from fedlingua.desk.report.keep import read_kept_runs
from fedlingua.desk.report.read import metrics_of
from fedlingua.desk.translating.site_translations import read_site_translations
from fedlingua.evaluation.text_metrics import Translated
from fedlingua.evaluation.totals import ALL_SITES
from fedlingua.runs.folder import RunFolder, run_about
from fedlingua.settings.config import MAY_CHANGE
from fedlingua.settings.experiment import config_of_run
from fedlingua.settings.methods import CENTRALIZED, SILO
from fedlingua.settings.metrics import Metric

Json = dict[str, Any]
NO_DIFFERENCE = {"method", "seed", *MAY_CHANGE}
"""Settings that a page of a comparison does not list: those shown elsewhere, and what a resumed run may change."""


@dataclass(frozen=True)
class ComparedRun:
    """A completed run. texts: Site -> its translations, if they are here; a deployment's are not. folder: As given by the caller."""

    name: str
    about: Json
    scores: Json
    texts: dict[str, Translated]
    folder: str = ""

    @property
    def method(self) -> str:
        return str(self.about["method"])

    @property
    def seed(self) -> int:
        return int(self.about["seed"])

    @property
    def metrics(self) -> tuple[Metric, Metric]:
        """The metrics of its task; methods are compared by the first."""
        return metrics_of(self.scores)

    @property
    def config(self) -> Json:
        return dict(self.about.get("config") or {})

    @property
    def costs(self) -> dict[str, float | None]:
        """Bytes per site and round, the number of rounds, and the seconds of the whole run."""
        seconds = self.about.get("seconds")
        return {
            "uplink_bytes_per_round": self.scores.get("uplink_bytes_per_round"),
            "downlink_bytes_per_round": self.scores.get("downlink_bytes_per_round"),
            "rounds": self.about.get("rounds"),
            "seconds": float(seconds) if seconds is not None else None,
        }

    @property
    def total_bytes(self) -> float | None:
        """A site's bytes in the whole run, up plus down; None for centralized and silo methods, whose text is in one place."""
        if self.method.startswith((CENTRALIZED, SILO)):
            return None
        if counted := self.scores.get("total_bytes"):
            return float(counted["up"] + counted["down"])
        up, down, rounds, _ = self.costs.values()  # an older run, which did not count all messages
        return None if up is None or down is None or rounds is None else (up + down) * rounds

    def values(self, key: str) -> dict[str, float]:
        """Return site -> score, for the sites that have it."""
        return {site: float(entry[key]) for site, entry in self.scores["sites"].items() if key in entry}

    def macro(self, key: str, sites: Collection[str]) -> float:
        """Return the mean score over `sites`; over all sites if the run knows only their sums, whose score is that of the pooled text."""
        if ALL_SITES in self.scores["sites"]:
            return float(self.scores[f"macro_{key}"])
        return fmean(self.values(key)[site] for site in sites)


def read_runs(folders: Sequence[Path]) -> list[ComparedRun]:
    """Read runs in the given order; raise RunError, naming site and reason, if one was scored on other text than the first."""
    runs = read_completed(folders)
    for run in runs[1:]:
        check_same_test(runs[0], run)
    return runs


def read_completed(folders: Sequence[Path]) -> list[ComparedRun]:
    """Read completed runs with scores, in the given order. A run is named after its folder, with a number appended to repeated names."""
    names: list[str] = []
    for folder in folders:
        name = folder.resolve().name
        names.append(name if name not in names else f"{name} ({1 + sum(other.startswith(name) for other in names)})")
    return [_read(folder, name) for folder, name in zip(folders, names, strict=True)]


def _read(folder: Path, name: str) -> ComparedRun:
    # The path is a run folder, or names a run kept in a result: experiments/results/<folder>/<suite>/<method>-<seed>.
    line = None if folder.is_dir() else read_kept_runs(folder.parent).get(folder.name)
    about, scores = (line["run"], line["scores"]) if line else (run_about(folder), RunFolder(folder).read("scores.json"))
    check_completed(folder, about)
    if scores is None:
        raise no_scores(folder)
    try:
        texts = {site: written.hypothesis for site, written in read_site_translations(folder).items()}
    except RunError:  # translations stayed at the sites, as in a deployment, or the run does not translate
        texts = {}
    about["config"] = config_of_run(about.get("config") or {})
    return ComparedRun(name, about, scores, texts, str(folder))


def common_sites(runs: Sequence[ComparedRun]) -> list[str]:
    """Return the sites for which all runs have scores, in the first run's order."""
    return [site for site in runs[0].scores["sites"] if all(site in run.scores["sites"] for run in runs)]


def differing_settings(runs: Sequence[ComparedRun]) -> dict[str, list[Any]]:
    """Return setting -> its value in each run (None if it has none), for differing settings that are not in NO_DIFFERENCE."""
    keys = dict.fromkeys(key for run in runs for key in run.config if key not in NO_DIFFERENCE)
    values = {key: [run.config.get(key) for run in runs] for key in keys}
    return {key: each for key, each in values.items() if any(value != each[0] for value in each)}


def variants(runs: Sequence[ComparedRun]) -> list[str]:
    """Name each run by its method and the settings in which runs of that method differ, as suites name rows: fixed-g+median.

    Runs that differ only in their seed get the same name."""
    names = []
    for run in runs:
        alike = [other for other in runs if other.method == run.method]
        place = next(place for place, other in enumerate(alike) if other is run)
        own = {key: values[place] for key, values in differing_settings(alike).items() if values[place] not in (None, "")}
        names.append("+".join([run.method, *(v if isinstance(v, str) else f"{key} {v}" for key, v in own.items())]))
    return names


def check_same_test(first: ComparedRun, second: ComparedRun) -> None:
    """Raise RunError if two runs have no site in common or were scored on different text, or by different metrics, at a common site."""
    both = f"{first.name} and {second.name}"
    if first.metrics != second.metrics:
        of_first, of_second = (" and ".join(metric.name for metric in run.metrics) for run in (first, second))
        raise RunError(f"{both} are scored by different metrics: {of_first}; {of_second}; compare runs of one task")
    if first.scores.get("split", "test") != second.scores.get("split", "test"):
        raise RunError(f"{both} are scored on different splits: {first.scores.get('split')}, {second.scores.get('split')}")
    sites = common_sites([first, second])
    if not sites:
        of_first, of_second = (", ".join(run.scores["sites"]) for run in (first, second))
        shown = "; privacy.scores = 'sites' shows those of a secure sum" if ALL_SITES in (of_first, of_second) else ""
        raise RunError(f"{both} have no site in common: {of_first}; {of_second}{shown}")
    for site in sites:
        if reason := _differs(first, second, site):
            raise RunError(f"{both} were scored on different text at site {site}: {reason}; compare runs of one federation file")


def _differs(first: ComparedRun, second: ComparedRun, site: str) -> str:
    """Return in what the text that two runs scored at a site differs; "" if no difference is visible."""
    entries = [run.scores["sites"][site] for run in (first, second)]
    for key in ("direction", "sentences", "masked", "masks", "signature"):
        values = [entry.get(key) for entry in entries]
        if values[0] != values[1]:
            return f"{key} {values[0]} and {values[1]}"
    if site in first.texts and site in second.texts:
        ours, theirs = first.texts[site], second.texts[site]
        pairs = [list(zip(text.sources, text.references, strict=True)) for text in (ours, theirs)]
        if others := sum(pair != other for pair, other in zip(*pairs, strict=True)):
            return f"{others} of {len(pairs[0])} sentences differ"
    return ""


@dataclass(frozen=True)
class Fairness:
    """How a run's scores vary over sites. gains: Site -> gain of the federation over the site's own model, if known.

    The other fields are "" and None if the run knows only the sums of all sites' scores."""

    worst_site: str
    worst: float | None
    best: float | None
    spread: float | None
    gains: dict[str, float]

    @property
    def gain(self) -> float | None:
        """The mean gain over sites; None if no gain is known."""
        return fmean(self.gains.values()) if self.gains else None

    @property
    def left_behind(self) -> list[str]:
        """The sites that joining made worse."""
        return [site for site, gain in self.gains.items() if gain < 0]


def fairness(run: ComparedRun, alone: ComparedRun | None, metric: Metric) -> Fairness:
    """Measure how a run's scores vary over sites; the spread is the distance between best and worst, a positive number.

    alone: A run in which each site trains alone (adapter-local). None: Use the models that this run's sites trained alone, if any."""
    values = {site: value for site, value in run.values(metric.key).items() if site != ALL_SITES}
    if not values:
        return Fairness("", None, None, None, {})
    best = metric.best(values.values())
    worst_site = min(values, key=lambda site: metric.gain(values[site], best) or 0.0)
    own = alone.values(metric.key) if alone else run.values(f"alone_{metric.key}")
    gains = {site: metric.gain(value, own[site]) or 0.0 for site, value in values.items() if site in own}
    return Fairness(worst_site, values[worst_site], best, abs(best - values[worst_site]), gains)
