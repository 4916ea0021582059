"""The Python interface, `import fedlingua as fl`: the commands as functions, which raise FedlinguaErrors."""

import json
import re
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
from fedlingua.desk.cli import run as run_command
from fedlingua.desk.plugged import plugged
from fedlingua.desk.report.read import Choice, read_run
from fedlingua.desk.report.run_page import write_report
from fedlingua.desk.serving.models import Models
from fedlingua.desk.translating.decoding import Decoding
from fedlingua.desk.translating.glossary import named_direction
from fedlingua.desk.translating.models import RunModels
from fedlingua.runs.folder import RunFolder, run_about
from fedlingua.settings.options import Scalar
from fedlingua.settings.table import AS_ARGUMENTS

__all__ = ["FedlinguaError", "Run", "load", "run"]

Place = str | Path
Options = Mapping[str, Scalar] | None
FIELDS = [field.name for field in fields(Decoding)]
SCORES = ("base", "alone", "two_alone", "federation", "kept", "joined", "joined_low", "joined_high", "one_model")


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
            One row per site, which is the index. Columns: direction, sentences, base, alone, two_alone (an ensemble),
            federation, kept (after training, if sites do not choose), joined (gain over the best by dev of base, alone
            and two_alone) with its 95 % interval joined_low to joined_high, one_model (the same of one model against
            one), keeps (the site's choice).
        """
        content, rows = read_run(self.folder), []
        if not content.scores:
            RunModels(self.folder)  # refuses a run that is not completed
        for line in content.scores:
            choice = line.choice or Choice(None, None)
            joined = choice.gain or (None, None, None)
            values = (line.first.before, choice.alone, choice.two_alone, choice.federated, line.first.after, *joined)
            values = (*values, choice.one_model)
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
            what = "translate got site and direction; leave one out" if site else "translate needs site or direction"
            raise ConfigError(f"{what}; the run's sites are in its sites.json")
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
        resume: Instead of an experiment, the folder of an interrupted run, for example after Ctrl-C, or of any to be given more `rounds`.
        to: The run's folder; "": ./runs/<experiment>-<method>-<seed>.
        profile: A profile of pyproject-flwr.toml; "": simulation.
        options: Keys of the run as in an experiment file, such as {"send.code": "4bit"}.
        **settings: The same keys with underscores: rounds=4, seed=1, data_dir="text", send_code="4bit".
    """
    file, folder, old = (Path(place) if place else None for place in (experiment, to, resume))
    try:
        answer = run_command.run(file, None, given_keys(options, settings), None, folder, profile or "simulation", resume=old)
        return Run(answer["run"])
    except click.UsageError as error:
        raise ConfigError(_as_arguments(error.message.replace("--", ""), options, settings)) from error
    except ConfigError as error:
        raise ConfigError(_as_arguments(str(error), options, settings)) from error


def load(folder: Place) -> Run:
    """Open a run's folder. Example: `fl.load("runs/demo-adapter-families-2022").scores`"""
    return Run(folder)


def __getattr__(name: str) -> Any:
    """`compare` and `suite` are the lab's."""
    lab = None if name.startswith("_") else plugged("interface")
    if name not in getattr(lab, "__all__", ()):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return getattr(lab, name)


def _as_arguments(message: str, options: Options, settings: Mapping[str, Scalar]) -> str:
    """Return a message with `run`'s arguments in place of keys; what a file or `options` has keeps its key."""
    names = {**{key: name for name, key in AS_ARGUMENTS.items()}, **{name.replace("_", "-"): name for name in settings}}
    keys = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, sorted(names, key=len, reverse=True)))})(?![\w-]|\.\w)")
    lines = []
    for line in message.split("\n"):
        in_a_file, given, about = line.partition("command line: ")
        if given and not in_a_file:
            line = about if about.partition(" ")[0] in (options or {}) else keys.sub(lambda key: names[key[0]], about)
        lines.append(line.removeprefix("--"))
    return "\n".join(lines)


def given_keys(options: Options, settings: Mapping[str, Scalar]) -> list[str]:
    """Return options and keyword arguments as --set takes them."""
    given = {AS_ARGUMENTS.get(name, name.replace("_", "-")): value for name, value in settings.items()} | dict(options or {})
    if empty := [key for key, value in given.items() if value is None]:
        raise ConfigError(f"{empty[0]} = None is no value; leave it out for that of the experiment or the default")

    def plain(value: Any) -> Any:
        return value.item() if isinstance(value, np.generic) else str(value)

    return [f"{key}={json.dumps(value, ensure_ascii=False, default=plain)}" for key, value in given.items()]  # such JSON is TOML
