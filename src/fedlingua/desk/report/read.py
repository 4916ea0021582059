"""Read a run folder in any state. If a file is missing or truncated, its part stays empty and a note says why."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator
from pydantic.dataclasses import dataclass as read_dataclass

from fedlingua.common.errors import FedlinguaError
from fedlingua.desk import units
from fedlingua.desk.completed import settings_of
from fedlingua.desk.json_values import by_round, integers, json_object, mapping, number, objects, sequence, text, whole
from fedlingua.desk.report import signatures
from fedlingua.desk.report.signatures import SiteSignatures
from fedlingua.desk.report.values import Amount, Integers, Number, Numbers, Share, Text, Texts, Whole, read_as
from fedlingua.runs.folder import run_about
from fedlingua.settings.config import Settings
from fedlingua.settings.metrics import METRICS, Metric

Clusters = dict[str, dict[str, list[str]]]
Traffic = dict[str, tuple[float, float]]
"""Kind of message -> bytes (up, down) of all sites in the whole run."""
Line = TypeVar("Line")


@dataclass(frozen=True)
class Change:
    """A metric before and after training, in the displayed unit."""

    metric: Metric
    before: float | None = None
    after: float | None = None

    @property
    def gain(self) -> float | None:
        """How much better the metric became; None if a value is missing."""
        return self.metric.gain(self.after, self.before)


@dataclass(frozen=True)
class Choice:
    """A site's choice, in the first metric.

    alone, two_alone, federated: The scores of its model trained alone, of the ensemble of two such models if it made one, and of the
    federation's. candidate: What it keeps. gain: The kept model's gain over the reference, the best by dev of what the site can have
    without the federation, as (gain, low, high) with a 95 % interval. one_model: The gain of the best single model over the best one
    without the federation.
    """

    alone: float | None
    federated: float | None
    two_alone: float | None = None
    candidate: str = ""
    gain: tuple[float, float | None, float | None] | None = None
    one_model: float | None = None

    @property
    def joined(self) -> str:
        """The gain as text, such as "+5.2 [3.1, 7.4]"."""
        if self.gain is None:
            return units.NOTHING
        gain, low, high = self.gain
        return f"{round(gain, 1) + 0.0:+.1f}" + ("" if low is None or high is None else f" [{low:.1f}, {high:.1f}]")

    @property
    def is_better(self) -> bool | None:
        """Whether the site is better off beyond chance, that is, the interval lies above 0; False: worse; None: within chance."""
        gain, low, high = self.gain or (0.0, None, None)
        ends = (gain, gain) if low is None or high is None else (low, high)
        return True if ends[0] > 0 else False if ends[1] < 0 else None


@read_dataclass(frozen=True)
class Score:
    """A line of the score table, in both metrics of the run's task, for a site, one direction of a site, or an average.

    parts: For masked text, (mean, standard deviation) of perplexity over four parts. choice: None if sites did not choose.
    """

    site: Text
    first: Change
    second: Change
    direction: Text = ""
    sentences: Whole = None
    signature: Text = ""
    chrf_signature: Text = ""
    parts: tuple[float, float] | None = None
    choice: Choice | None = None


@read_dataclass(frozen=True)
class SiteRound:
    """What one site did in one round.

    dev_tokens: The number of tokens over which the dev loss is the mean. Under a selection rule, else None: tensors_share, numbers_share:
    The share of its update sent, 0-1; deviation: The median over its tensors; theta: Its own threshold, fixed or random.
    """

    train_loss: Number = None
    dev_loss: Number = None
    seconds: Numbers = field(default_factory=dict)
    uplink_bytes: Amount = 0.0
    downlink_bytes: Amount = 0.0
    tensors_share: Share = None
    numbers_share: Share = None
    deviation: Number = None
    theta: Number = None
    dev_tokens: Whole = None


@read_dataclass(frozen=True)
class Failure:
    site: Text = ""
    phase: Text = ""
    reason: Text = ""


Failures = Annotated[list[Failure], BeforeValidator(lambda value: [mapping(each) for each in sequence(value)])]


@read_dataclass(frozen=True)
class Round:
    """One round over all sites; round 0 is the base before training. phase_s, server_s: Seconds by phase and by task of the server.

    threshold: The learned threshold on deviations: "theta", the sites' value; "mu", the network's output; "scale", the initial value.
    """

    number: int
    seconds: Number = None
    dev_loss: Number = None
    sites: dict[Text, SiteRound] = field(default_factory=dict)
    failures: Failures = field(default_factory=list)
    threshold: Numbers = field(default_factory=dict)
    phase_s: Numbers = field(default_factory=dict)
    server_s: Numbers = field(default_factory=dict)


@read_dataclass(frozen=True)
class Account:
    """An account of the pairs read for one direction of a site. failed_documents: De-identification failures by type."""

    direction: Text
    read: Whole = None
    kept: Whole = None
    dropped: Integers = field(default_factory=dict)
    failed_documents: Integers = field(default_factory=dict)

    @property
    def adds_up(self) -> bool:
        """Whether every pair read is accounted for."""
        return self.read is not None and self.kept is not None and self.read == self.kept + sum(self.dropped.values())


Accounts = Annotated[
    list[Account], BeforeValidator(lambda value: [{**of, "direction": direction} for direction, of in objects(value).items()])
]


@read_dataclass(frozen=True)
class Site:
    name: Text
    accounts: Accounts = field(default_factory=list)
    node: Text = ""
    directions: Texts = field(default_factory=list)
    train: Whole = None
    dev: Whole = None
    test: Whole = None


@dataclass(frozen=True)
class RunContent:
    """The content of a run folder. notes: Name of an incomplete file -> what is wrong with it."""

    path: Path
    run: dict[str, Any]
    sites: list[Site] = field(default_factory=list)
    clusters: Clusters = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    scores: list[Score] = field(default_factory=list)
    site_signatures: list[SiteSignatures] = field(default_factory=list)
    traffic: Traffic = field(default_factory=dict)
    overlap: dict[str, Any] = field(default_factory=dict)
    overlap_removed: bool = False
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[Metric, Metric]:
        return METRICS.get(text(mapping(self.run.get("config")).get("task")), metrics_of(self.summary))

    @property
    def settings(self) -> Settings | None:
        """The run's settings; None if it is from a version with other keys, or has no such values."""
        try:
            return settings_of(mapping(self.run.get("config")))
        except (FedlinguaError, ArithmeticError, TypeError, ValueError):
            return None

    @property
    def name(self) -> str:
        """The name of the run; the folder's name if run.json has none."""
        return text(self.run.get("name"), self.path.name)

    @property
    def status(self) -> str:
        return text(self.run.get("status"), "unknown")

    @property
    def best_round(self) -> int | None:
        """The best round, if it is the same for all sites."""
        return whole(self.run.get("best_round"))

    @property
    def best_rounds(self) -> dict[str, int]:
        """Site -> the round that it chose, if each site chose its own."""
        return integers(self.run.get("best_round"))

    @property
    def exchanged_parameters(self) -> float | None:
        """The number of parameters in a site's whole update."""
        return number(self.run.get("exchanged_parameters"))

    @property
    def failures(self) -> list[tuple[int, Failure]]:
        """Every failure with its round."""
        return [(each.number, failure) for each in self.rounds for failure in each.failures]

    @property
    def round_sites(self) -> list[str]:
        """The sites that took part in any round, in order of appearance."""
        return list(dict.fromkeys(site for each in self.rounds for site in each.sites))


def read_run(run_dir: Path) -> RunContent:
    """Read a run folder, of which only run.json has to exist; raise RunError if it does not."""
    notes: dict[str, str] = {}
    summary = read_object(run_dir / "scores.json", notes)
    overlap = read_object(run_dir / "overlap.json", notes)
    site_signatures: list[SiteSignatures] = []
    try:
        site_signatures += signatures.read_site_signatures(run_dir / signatures.FILE)
    except (OSError, ValueError) as error:
        notes[signatures.FILE] = _why_not(run_dir / signatures.FILE, error)
    return RunContent(
        path=run_dir,
        run=mapping(run_about(run_dir)),
        sites=[read_as(Site, each, name=name) for name, each in objects(read_object(run_dir / "sites.json", notes)).items()],
        clusters={
            part: {cluster: [text(site) for site in sequence(sites)] for cluster, sites in of_part.items()}
            for part, of_part in objects(read_object(run_dir / "clusters.json", notes)).items()
        },
        rounds=_rounds(run_dir / "rounds.jsonl", notes),
        summary=summary,
        scores=[_score(key, each, metrics_of(summary)) for key, each in objects(summary.get("sites")).items()],
        site_signatures=site_signatures,
        traffic=_traffic(read_object(run_dir / "traffic.json", notes)),
        overlap=_overlap(overlap),
        overlap_removed=overlap.get("removed") is True,
        notes=notes,
    )


def read_object(path: Path, notes: dict[str, str]) -> dict[str, Any]:
    """Return the JSON object in a file. If the file is missing or invalid, return an empty one and add a note under the file's name."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        notes[path.name] = _why_not(path, error)
        return {}
    if not isinstance(content, dict):
        notes[path.name] = f"{path.name} holds a JSON {type(content).__name__}, not an object."
    return mapping(content)


def _why_not(path: Path, error: Exception) -> str:
    return f"{path.name} is not there yet." if isinstance(error, FileNotFoundError) else f"{path.name} cannot be read: {error}"


def read_lines(path: Path, line: Callable[[dict[str, Any]], Line | None]) -> tuple[list[Line], str]:
    """Return the lines of a JSON Lines file, converted by `line`, and a note on a file or lines that cannot be read.

    The last line may be half-written during the run, so the note counts only unreadable lines before it.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        return [], _why_not(path, error)
    objects = [json_object(each) for each in content.splitlines() if each.strip()]
    read = [None if each is None else line(mapping(each)) for each in objects]
    broken = sum(each is None for each in read[:-1])
    note = f"{broken} line(s) of {path.name} cannot be read and are left out." if broken else ""
    return [each for each in read if each is not None], note


def _rounds(path: Path, notes: dict[str, str]) -> list[Round]:
    lines, note = read_lines(path, lambda line: line)
    rounds = [read_as(Round, line, number=index, sites=objects(line.get("sites"))) for index, line in by_round(lines).items()]
    if note or not rounds:
        notes[path.name] = note or f"{path.name} holds no finished round yet."
    return rounds


def _traffic(content: dict[str, Any]) -> Traffic:
    total: Traffic = {}
    for messages in objects(content).values():
        for kind, moved in objects(messages).items():
            up, down = total.get(kind, (0.0, 0.0))
            total[kind] = (up + (number(moved.get("uplink_bytes")) or 0.0), down + (number(moved.get("downlink_bytes")) or 0.0))
    return total


def _overlap(content: dict[str, Any]) -> dict[str, Any]:
    """Return site -> `leaks`, split -> pairs with a sentence on which another site trains, and `languages` that others have, too.

    languages: Language -> the site's distinct `sentences` by split and for "all", and those of them that are `elsewhere`.
    """
    return {
        site: {
            "leaks": integers(of_site.get("leaks")),
            "languages": {
                language: {name: integers(counts.get(name)) for name in ("sentences", "elsewhere")}
                for language, counts in objects(of_site.get("languages")).items()
                if counts.get("at")
            },
        }
        for site, of_site in objects(content.get("sites")).items()
    }


def change(metric: Metric, content: Mapping[str, Any], prefix: str = "") -> Change:
    """Return a metric before and after training, from scores.json or an entry of a site. prefix: An average's, such as "macro_"."""
    before, after = number(content.get(f"base_{prefix}{metric.key}")), number(content.get(f"{prefix}{metric.key}"))
    return Change(metric, *(None if value is None else metric.scale * value for value in (before, after)))


def choice(metric: Metric, content: Mapping[str, Any], prefix: str = "") -> Choice | None:
    """Return the choice recorded for a site or an average in scores.json; None if there was none. prefix: As in `change`."""
    sides = ("alone", "federated", "alone_ensemble", "single", "reference")
    alone, federated, two_alone, single, reference = (number(content.get(f"{prefix}{side}_{metric.key}")) for side in sides)
    if federated is None:
        return None
    of_gain, of = mapping(content.get("gain")), mapping(content.get("reference"))
    gain = (
        None
        if (value := number(of_gain.get(metric.key))) is None
        else (value, number(of_gain.get("low")), number(of_gain.get("high")))
    )
    before_after = change(metric, content, prefix)
    if prefix and (mean := metric.gain(before_after.after, reference)) is not None:
        gain = mean, None, None
    one = (
        before_after.before if of.get("name") == "base" else alone
    )  # of an average: the models trained alone, if all sites have one
    return Choice(alone, federated, two_alone, text(content.get("kept")), gain, metric.gain(single, one))


def _score(key: str, content: dict[str, Any], metrics: tuple[Metric, Metric]) -> Score:
    direction = text(content.get("direction"))
    first, second = (change(metric, content) for metric in metrics)
    mean, deviation = number(content.get("perplexity_of_parts")), number(content.get("perplexity_of_parts_sd"))
    return read_as(
        Score,
        content,
        # A site with several directions has one entry per direction, "<site>:<direction>".
        site=key.removesuffix(f":{direction}") if direction else key,
        first=first,
        second=second,
        parts=None if mean is None or deviation is None else (mean, deviation),
        choice=choice(metrics[0], content),
    )


def metrics_of(scores: Mapping[str, Any]) -> tuple[Metric, Metric]:
    """Return the two metrics of a scores.json; translation's, if it has none."""
    return next((both for both in METRICS.values() if f"macro_{both[0].key}" in scores), METRICS["translation"])
