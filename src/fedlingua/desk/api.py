"""The Python interface, `import fedlingua as fl`: the commands as functions, which raise FedlinguaErrors."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import click
import numpy as np
from pandas import DataFrame  # type: ignore[import-untyped]

from fedlingua.common.errors import ConfigError, FedlinguaError
from fedlingua.common.languages import nearest, parse_direction
from fedlingua.desk.cli import compare as compare_command
from fedlingua.desk.cli import run as run_command
from fedlingua.desk.cli import suite as suite_command
from fedlingua.desk.report.read import Choice, read_run
from fedlingua.desk.report.run_page import write_report
from fedlingua.desk.serving.models import Models
from fedlingua.desk.translating.decoding import Decoding
from fedlingua.desk.translating.glossary import named_direction
from fedlingua.desk.translating.models import RunModels
from fedlingua.runs.folder import RunFolder, run_about
from fedlingua.settings.options import Scalar
from fedlingua.settings.table import AS_ARGUMENTS

__all__ = ["FedlinguaError", "Run", "compare", "load", "run", "suite"]

Place = str | Path
Options = Mapping[str, Scalar] | None
FIELDS = [field.name for field in fields(Decoding)]
SCORES = ("base", "alone", "federation", "kept", "joined", "joined_low", "joined_high")


class Run:
    """A run: its `folder`, and `about`, its run.json. Everything else is read on access, even while the run is going."""

    def __init__(self, folder: Place) -> None:
        self.about, self.folder = run_about(Path(folder)), Path(folder).resolve()
        self._models = lru_cache(maxsize=1)(self._loaded_models)

    def __repr__(self) -> str:
        return f"<Run {self.folder}: {self.about.get('status')}>"

    @property
    def scores(self) -> DataFrame:
        """Each site's scores, in the metric `scores.attrs["metric"]`. Example: `run.scores["kept"].mean()`

        Returns:
            One row per site, which is the index. Columns: direction, sentences, base, alone, federation, kept (after
            training, if sites do not choose), joined (gain over alone) with its 95 % interval joined_low to
            joined_high, keeps (the site's choice).
        """
        content, rows = read_run(self.folder), []
        if not content.scores:
            RunModels(self.folder)  # refuses a run that is not completed
        for line in content.scores:
            choice = line.choice or Choice(None, None)
            joined = choice.over_alone or (None, None, None)
            values = (line.first.before, choice.alone, choice.federated, line.first.after, *joined)
            rows.append((line.site, line.direction, line.sentences, *values, choice.candidate))
        table = DataFrame(rows, columns=["site", "direction", "sentences", *SCORES, "keeps"]).set_index("site")
        table.attrs["metric"] = content.metrics[0].name
        return table.astype(dict.fromkeys(SCORES, float))

    @property
    def rounds(self) -> DataFrame:
        """Losses, bytes and seconds, one row per round and site. Example: `run.rounds.groupby("round").dev_loss.mean()`"""
        rows = []
        for each in read_run(self.folder).rounds:
            for name, site in each.sites.items():
                seconds = sum(site.seconds.get(part, 0.0) for part in ("train", "evaluate"))
                rows.append({**vars(site), "round": each.number, "site": name, "seconds": seconds})
        return DataFrame(rows, columns=["round", "site", "dev_loss", "train_loss", "uplink_bytes", "downlink_bytes", "seconds"])

    @property
    def bytes(self) -> DataFrame:
        """All bytes, one row per site and kind of message. Example: `run.bytes.groupby("kind").uplink_bytes.sum()`"""
        traffic = RunFolder(self.folder).read("traffic.json") or {}
        rows = [{"site": site, "kind": kind} | moved for site, of in traffic.items() for kind, moved in of.items()]
        return DataFrame(rows, columns=["site", "kind", "uplink_bytes", "downlink_bytes"])

    @property
    def total_bytes(self) -> dict[str, float]:
        """Bytes of a completed run, mean over sites: up, down, fp32 (as float32). Example: `run.total_bytes["up"]`"""
        return dict(read_run(self.folder).summary.get("total_bytes") or {})

    def translate(self, sentences: str | Iterable[str], site: str = "", direction: str = "", **decoding: Any) -> list[str]:
        """Translate; the model stays in memory. Example: `run.translate(["der Arzt liest"], site="hospital-de")`

        Args:
            sentences: The sentences to translate; a string is one sentence.
            site: The site whose model translates.
            direction: A direction instead of a site, such as "de-fr".
            **decoding: Fields of `Decoding`: beam, most, max_tokens, max_new_tokens, threads, terms (a path).
        """
        if bool(site) == bool(direction):
            raise ConfigError("translate needs either site or direction; the run's sites are in its sites.json")
        if unknown := [name for name in decoding if name not in FIELDS]:
            near = nearest(unknown[0], FIELDS)
            raise ConfigError(f"translate takes no {unknown[0]!r}{near}; wanted site, direction or one of {', '.join(FIELDS)}")
        terms = Path(decoding["terms"]) if decoding.get("terms") else None
        how = Decoding(**{**decoding, "terms": terms})
        how.check()
        models = self._models(how)
        model = models.of_direction(parse_direction(direction, "direction")) if direction else models.run.of_site(site)
        if terms and not named_direction(terms):
            models.add_terms(terms, model.direction)
        return models.translate(model, [sentences] if isinstance(sentences, str) else list(sentences))

    def _loaded_models(self, how: Decoding) -> Models:
        named = how.terms is not None and named_direction(how.terms)
        return Models(RunModels(self.folder), how if named else replace(how, terms=None))

    def report(self) -> Path:
        """Write report.html again. Example: `webbrowser.open(run.report().as_uri())`"""
        return write_report(self.folder)


def run(
    experiment: Place = "", *, resume: Place = "", to: Place = "", profile: str = "", options: Options = None, **settings: Scalar
) -> Run:
    """Run a federation to its end. Example: `fl.run("experiments/demo.toml", rounds=4)`

    Args:
        experiment: The experiment file.
        resume: Instead of an experiment, the folder of an interrupted run, for example after Ctrl-C.
        to: The run's folder; "": ./runs/<experiment>-<method>-<seed>.
        profile: A profile of pyproject-flwr.toml; "": simulation.
        options: Keys of the run as in an experiment file, such as {"send.code": "4bit"}.
        **settings: The same keys with underscores: rounds=4, seed=1, data_dir="text", send_code="4bit".
    """
    file, folder, old = (Path(place) if place else None for place in (experiment, to, resume))
    try:
        answer = run_command.run(file, None, _keys(options, settings), None, folder, profile or "simulation", resume=old)
        return Run(answer["run"])
    except click.UsageError as error:
        raise ConfigError(error.message) from error


def load(folder: Place) -> Run:
    """Open a run's folder. Example: `fl.load("runs/demo-adapter-families-2022").scores`"""
    return Run(folder)


def compare(*runs: Run | Place, metric: str = "", samples: int = 1000, to: Place = "") -> DataFrame:
    """Compare runs with the first one, and print the tables. Example: `fl.compare("runs/alone", run, to="compared.html")`

    Args:
        *runs: Runs or their folders.
        metric: A metric such as chrf or comet; "": the first metric of the runs' task.
        samples: Number of samples of the paired bootstrap.
        to: The HTML page to write, if any.

    Returns:
        One row per run and site, "macro" and "pooled" included: first, second, difference, its 95 % interval low to high, p.
    """
    if samples < compare_command.LEAST_SAMPLES:
        raise ConfigError(f"samples = {samples}; wanted {compare_command.LEAST_SAMPLES} or more")
    folders = [Path(each.folder if isinstance(each, Run) else each) for each in runs]
    answer = compare_command.compare(folders, compare_command.PublicText(), metric, samples, to=Path(to) if to else None)
    of_runs = {of["run"]: {**of["sites"], "macro": of["macro"], "pooled": of["pooled"]} for of in answer["beside"]}
    rows = [{"run": name, "site": site} | each for name, sites in of_runs.items() for site, each in sites.items() if each]
    table = DataFrame(rows, columns=["run", "site", "first", "second", "difference", "low", "high", "p"])
    return table.astype(dict.fromkeys(("low", "high", "p"), float))


def suite(
    file: Place, data: Place = "", *, jobs: int = 1, to: Place = "", profile: str = "", options: Options = None, **settings: Any
) -> DataFrame:
    """Run or resume a suite; returns a row per method. Example: `fl.suite("experiments/real/sizes.toml", jobs=2).attrs`

    Args:
        file: The suite file, or FILE:VARIANT.
        data: Folder for relative corpus paths.
        jobs: Number of runs at the same time.
        to: Folder of the result; "": the command's default.
        profile: A profile of pyproject-flwr.toml; "": simulation.
        options, **settings: Keys of every row, given as to `run`.
    """
    if jobs < 1:
        raise ConfigError(f"jobs = {jobs}; wanted 1 or more")
    text, result = (Path(place) if place else None for place in (data, to))
    answer = suite_command.suite(Path(file), text, _keys(options, settings), jobs, to=result, profile=profile or "simulation")
    table = DataFrame(answer.pop("table"))
    table.attrs |= answer
    return table


def _keys(options: Options, settings: Mapping[str, Scalar]) -> list[str]:
    given = {AS_ARGUMENTS.get(name, name.replace("_", "-")): value for name, value in settings.items()} | dict(options or {})
    if empty := [key for key, value in given.items() if value is None]:
        raise ConfigError(f"{empty[0]} = None is no value; leave it out for that of the experiment or the default")

    def plain(value: Any) -> Any:
        return value.item() if isinstance(value, np.generic) else str(value)

    return [f"{key}={json.dumps(value, ensure_ascii=False, default=plain)}" for key, value in given.items()]  # such JSON is TOML
