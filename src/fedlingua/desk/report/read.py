"""Read a run folder as far as it has come: what is missing or half-written leaves its part empty and says why."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedlingua.common.errors import RunError
from fedlingua.desk.report import site_signatures, sites_overlap
from fedlingua.desk.report.site_signatures import SiteSignatures
from fedlingua.desk.report.sites_overlap import SitesOverlap
from fedlingua.desk.report.values import integers, mapping, number, numbers, objects, sequence, text, whole
from fedlingua.settings.metrics import METRICS, Metric, metrics_of

Clusters = dict[str, dict[str, list[str]]]
Traffic = dict[str, tuple[float, float]]
"""kind of message -> bytes (up, down) of all sites in the whole run"""


@dataclass(frozen=True)
class Change:
    """A metric before and after the training, as it is shown."""

    metric: Metric
    before: float | None = None
    after: float | None = None

    @property
    def gain(self) -> float | None:
        """By how much it became better."""
        return self.metric.gain(self.after, self.before)


@dataclass(frozen=True)
class Score:
    """One line of the score table: a site, a direction of a site, or an average; in both metrics of the run's task.

    parts: (mean, standard deviation) of the first metric over four parts of the text, of masked pieces.
    """

    site: str
    first: Change
    second: Change
    direction: str = ""
    sentences: int | None = None
    signature: str = ""
    chrf_signature: str = ""
    parts: tuple[float, float] | None = None


@dataclass(frozen=True)
class RoundThreshold:
    """The learned threshold on deviations of one round: what the sites got, the network's own, and where it began.

    `stepped`: whether the network then took a step; None where it does not learn.
    """

    theta: float | None
    mu: float | None
    scale: float | None
    stepped: bool | None


@dataclass(frozen=True)
class SiteRound:
    """What one site did in one round.

    `dev_tokens`: what the dev loss is the mean of. `tensors_share`, `numbers_share`: of its update, what it sent, 0-1; `deviation`: the
    median of its tensors'; `theta`: its own threshold, fixed or random. None without such a selection.
    """

    train_loss: float | None
    dev_loss: float | None
    seconds: dict[str, float]
    uplink_bytes: float
    downlink_bytes: float
    tensors_share: float | None = None
    numbers_share: float | None = None
    deviation: float | None = None
    theta: float | None = None
    dev_tokens: int | None = None


@dataclass(frozen=True)
class Failure:
    """A site that failed in a round, and why."""

    round: int
    site: str
    phase: str
    reason: str


@dataclass(frozen=True)
class Round:
    """One round over all sites; round 0 is the base before any training. `phase_s`, `server_s`: seconds by phase, and of the server's own
    work."""

    number: int
    seconds: float | None
    dev_loss: float | None
    sites: dict[str, SiteRound]
    failures: list[Failure]
    threshold: RoundThreshold | None = None
    phase_s: dict[str, float] = field(default_factory=dict)
    server_s: dict[str, float] = field(default_factory=dict)

    @property
    def train_seconds(self) -> dict[str, float]:
        """Of each site that told them."""
        return {name: site.seconds["train"] for name, site in self.sites.items() if "train" in site.seconds}


@dataclass(frozen=True)
class Account:
    """What became of the pairs read for one direction of a site. failed_documents: by the type of the hook's failure."""

    direction: str
    read: int | None
    kept: int | None
    dropped: dict[str, int]
    failed_documents: dict[str, int] = field(default_factory=dict)

    @property
    def adds_up(self) -> bool:
        """Whether every pair read is accounted for."""
        return self.read is not None and self.kept is not None and self.read == self.kept + sum(self.dropped.values())


@dataclass(frozen=True)
class Site:
    """A site and its corpora."""

    name: str
    node: str
    directions: list[str]
    train: int | None
    dev: int | None
    test: int | None
    accounts: list[Account]


@dataclass(frozen=True)
class RunFolder:
    """All that a run folder tells; `notes` holds, for each file that tells nothing or not all, why."""

    path: Path
    run: dict[str, Any]
    sites: list[Site] = field(default_factory=list)
    clusters: Clusters = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    scores: list[Score] = field(default_factory=list)
    site_signatures: list[SiteSignatures] = field(default_factory=list)
    traffic: Traffic = field(default_factory=dict)
    overlap: SitesOverlap | None = None
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[Metric, Metric]:
        """What the run is measured by."""
        return METRICS.get(text(mapping(self.run.get("config")).get("task")), metrics_of(self.summary))

    @property
    def name(self) -> str:
        """The name of the run; the folder's where run.json gives none."""
        return text(self.run.get("name"), self.path.name)

    @property
    def status(self) -> str:
        """How the run stands, in one word."""
        return text(self.run.get("status"), "unknown")

    @property
    def best_round(self) -> int | None:
        """The round whose weights were kept, where it is one for all sites."""
        return whole(self.run.get("best_round"))

    @property
    def best_rounds(self) -> dict[str, int]:
        """The round each site chose, where each chose its own."""
        return integers(self.run.get("best_round"))

    @property
    def failures(self) -> list[Failure]:
        """The failures of all rounds, in order."""
        return [failure for each in self.rounds for failure in each.failures]

    @property
    def round_sites(self) -> list[str]:
        """The sites that took part in any round, in order of appearance."""
        return list(dict.fromkeys(site for each in self.rounds for site in each.sites))


def read_run(run_dir: Path) -> RunFolder:
    """Read the folder; only run.json has to be there."""
    run_dir = Path(run_dir)
    notes: dict[str, str] = {}
    run = _read_run_file(run_dir / "run.json")
    summary = read_object(run_dir / "scores.json", notes)
    return RunFolder(
        path=run_dir,
        run=run,
        sites=_sites(read_object(run_dir / "sites.json", notes)),
        clusters=_clusters(read_object(run_dir / "clusters.json", notes)),
        rounds=_rounds(run_dir / "rounds.jsonl", notes),
        summary=summary,
        scores=[_score(key, each, metrics_of(summary)) for key, each in objects(summary.get("sites")).items()],
        site_signatures=_site_signatures(run_dir / site_signatures.FILE, notes),
        traffic=_traffic(read_object(run_dir / "traffic.json", notes)),
        overlap=sites_overlap.read_overlap(read_object(run_dir / sites_overlap.FILE, notes)),
        notes=notes,
    )


def _read_run_file(path: Path) -> dict[str, Any]:
    """The content of run.json, or an error that says what to do."""
    try:
        content = json.loads(path.read_bytes())
        got = f"a JSON {type(content).__name__}"
    except FileNotFoundError:
        content, got = None, "no such file" if path.parent.is_dir() else f"no folder {path.parent}"
    except (OSError, ValueError) as error:
        content, got = None, str(error)
    if isinstance(content, dict):
        return mapping(content)
    raise RunError(
        f"The run folder has no readable run.json: {path}\n"
        f"  got:    {got}\n"
        "  wanted: a JSON object, as every run writes it at its start\n"
        "  to do:  name a folder that a run has made (runs/<name>), or start the run again"
    )


def read_object(path: Path, notes: dict[str, str], absent: str = "is not there yet") -> dict[str, Any]:
    """A JSON object from a file that need not be there; what is wrong with it goes into the notes, under its name."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        notes[path.name] = f"{path.name} {absent}."
        return {}
    except (OSError, ValueError) as error:
        notes[path.name] = f"{path.name} cannot be read: {error}"
        return {}
    if not isinstance(content, dict):
        notes[path.name] = f"{path.name} holds a JSON {type(content).__name__}, not an object."
    return mapping(content)


def _site_signatures(path: Path, notes: dict[str, str]) -> list[SiteSignatures]:
    """The signatures of a run that clusters by gradients, part by part; every other run has none."""
    try:
        return site_signatures.read_site_signatures(path)
    except FileNotFoundError:
        notes[path.name] = f"{path.name} is not there yet."
    except (OSError, ValueError) as error:
        notes[path.name] = f"{path.name} cannot be read: {error}"
    return []


def _rounds(path: Path, notes: dict[str, str]) -> list[Round]:
    """The rounds in order; where a round was done twice, as after a restart, the later line counts."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        notes[path.name] = f"{path.name} is not there yet." if missing else f"{path.name} cannot be read: {error}"
        return []
    read = [_round(line) for line in lines if line.strip()]
    # The last line may be half-written while the run goes on; only a broken line before it is worth a word.
    broken = sum(each is None for each in read[:-1])
    found = {each.number: each for each in read if each is not None}
    if broken:
        notes[path.name] = f"{broken} line(s) of {path.name} cannot be read and are left out."
    elif not found:
        notes[path.name] = f"{path.name} holds no finished round yet."
    return [found[number] for number in sorted(found)]


def _round(line: bytes) -> Round | None:
    """One line of rounds.jsonl; None where it is not a whole one."""
    try:
        content = mapping(json.loads(line))
    except ValueError:
        return None
    index = whole(content.get("round"))
    if index is None:
        return None
    return Round(
        number=index,
        seconds=number(content.get("seconds")),
        dev_loss=number(content.get("dev_loss")),
        sites={name: _site_round(each) for name, each in objects(content.get("sites")).items()},
        failures=[_failure(index, mapping(each)) for each in sequence(content.get("failures"))],
        threshold=_threshold(mapping(content.get("threshold"))),
        phase_s=numbers(content.get("phase_s")),
        server_s=numbers(content.get("server_s")),
    )


def _threshold(content: dict[str, Any]) -> RoundThreshold | None:
    theta, mu, scale = (number(content.get(key)) for key in ("theta", "mu", "scale"))
    stepped = content.get("stepped")
    return RoundThreshold(theta, mu, scale, stepped if isinstance(stepped, bool) else None) if content else None


def _site_round(content: dict[str, Any]) -> SiteRound:
    return SiteRound(
        train_loss=number(content.get("train_loss")),
        dev_loss=number(content.get("dev_loss")),
        seconds=numbers(content.get("seconds")),
        uplink_bytes=number(content.get("uplink_bytes")) or 0.0,
        downlink_bytes=number(content.get("downlink_bytes")) or 0.0,
        tensors_share=_share(content.get("tensors_share")),
        numbers_share=_share(content.get("numbers_share")),
        deviation=number(content.get("deviation")),
        theta=number(content.get("theta")),
        dev_tokens=whole(content.get("dev_tokens")),
    )


def _share(value: Any) -> float | None:
    found = number(value)
    return found if found is not None and 0 <= found <= 1 else None


def _failure(index: int, content: dict[str, Any]) -> Failure:
    return Failure(index, text(content.get("site")), text(content.get("phase")), text(content.get("reason")))


def _sites(content: dict[str, Any]) -> list[Site]:
    return [
        Site(
            name=name,
            node=text(each.get("node")),
            directions=[text(direction) for direction in sequence(each.get("directions"))],
            train=whole(each.get("train")),
            dev=whole(each.get("dev")),
            test=whole(each.get("test")),
            accounts=[_account(direction, account) for direction, account in objects(each.get("accounts")).items()],
        )
        for name, each in objects(content).items()
    ]


def _account(direction: str, content: dict[str, Any]) -> Account:
    dropped, failed = integers(content.get("dropped")), integers(content.get("failed_documents"))
    return Account(direction, whole(content.get("read")), whole(content.get("kept")), dropped, failed)


def _traffic(content: dict[str, Any]) -> Traffic:
    found: Traffic = {}
    for kinds in objects(content).values():
        for kind, moved in objects(kinds).items():
            up, down = found.get(kind, (0.0, 0.0))
            found[kind] = (up + (number(moved.get("uplink_bytes")) or 0.0), down + (number(moved.get("downlink_bytes")) or 0.0))
    return found


def _clusters(content: dict[str, Any]) -> Clusters:
    return {
        part: {cluster: [text(site) for site in sequence(sites)] for cluster, sites in clusters.items()}
        for part, clusters in objects(content).items()
    }


def change(metric: Metric, content: Mapping[str, Any], prefix: str = "") -> Change:
    """A metric of scores.json, or of one of its sites; prefix: of an average, as "macro_"."""
    before, after = number(content.get(f"base_{prefix}{metric.key}")), number(content.get(f"{prefix}{metric.key}"))
    return Change(metric, *(None if value is None else metric.scale * value for value in (before, after)))


def _score(key: str, content: dict[str, Any], metrics: tuple[Metric, Metric]) -> Score:
    direction = text(content.get("direction"))
    first, second = (change(metric, content) for metric in metrics)
    mean, deviation = number(content.get("perplexity_of_parts")), number(content.get("perplexity_of_parts_sd"))
    return Score(
        # A site with several directions has one entry for each, "<site>:<direction>".
        site=key.removesuffix(f":{direction}") if direction else key,
        first=first,
        second=second,
        direction=direction,
        sentences=whole(content.get("sentences")),
        signature=text(content.get("signature")),
        chrf_signature=text(content.get("chrf_signature")),
        parts=None if mean is None or deviation is None else (mean, deviation),
    )
