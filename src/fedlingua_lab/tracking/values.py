"""What a tracker gets of a run: named numbers, and the settings. The only words are names of sites, methods and settings."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlingua.desk.json_values import by_round, json_object, mapping, numbers, objects, sequence

PLACES = ("data-dir", "run-dir", "resume", "track")
"""Settings that say where and how a run is carried out; they are not reported as parameters."""
Values = dict[str, float]


def round_values(line: Mapping[str, Any]) -> Values:
    """Return the numbers in a line of rounds.jsonl: the round's by their kind, and those of each site as "<what>/<site>".

    seconds/*: those of the round, its phases and the server's work; bytes/*: all bytes that the round exchanged, up and down.
    """
    seconds = {"round": line.get("seconds"), **mapping(line.get("phase_s"))}
    seconds |= {f"server {part}": value for part, value in mapping(line.get("server_s")).items()}
    sites = objects(line.get("sites"))
    # A line from before all kinds of message were counted has only those of training.
    messages = [message for site in objects(line.get("bytes")).values() for message in objects(site).values()]
    counts = [numbers(each) for each in messages or sites.values()]
    values = numbers({"dev_loss": line.get("dev_loss"), "failures": len(sequence(line.get("failures")))})
    values |= _under("seconds", seconds) | _under("threshold", line.get("threshold"))
    values |= {f"bytes/{way}": sum(each.get(f"{way}link_bytes", 0.0) for each in counts) for way in ("up", "down")}
    for site, about in sites.items():
        of_parts = {f"seconds {part}": value for part, value in mapping(about.get("seconds")).items()}
        values |= {f"{what}/{site}": value for what, value in numbers({**about, **of_parts}).items()}
    return values


def score_values(scores: Mapping[str, Any]) -> Values:
    """Return the numbers of a scores.json: averages as "scores/<what>", those of a site as "scores <what>/<site>"."""
    values = _under("scores", {key: value for key, value in scores.items() if key != "seed"})
    for site, about in objects(scores.get("sites")).items():
        values |= {f"scores {what}/{site}": value for what, value in numbers(about).items()}
    return values


def _under(prefix: str, values: Any) -> Values:
    """Return the values that are numbers, under prefixed keys."""
    return {f"{prefix}/{key}": value for key, value in numbers(values).items()}


def parameters(run: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """Return a run.json's settings, their hash, and the versions of code and libraries."""
    settings = {key: value for key, value in mapping(run.get("config")).items() if key not in PLACES}
    versions = {f"version {name}": value for name, value in mapping(run.get("versions")).items()}
    about = {key: run.get(key) for key in ("config_hash", "git_revision", "exchanged_parameters")}
    return {key: value for key, value in {**settings, **about, **versions}.items() if isinstance(value, str | int | float)}


def read_rounds(file: Path, after: int, at_end: bool = True) -> dict[int, dict[str, Any]]:
    """Return round -> its line of rounds.jsonl, for rounds after `after`, in order. A half-written line is left out. Before the run's
    end, so is the newest line if it has no dev loss, which may come with the next line.
    """
    rounds = by_round(json_object(text) or {} for text in (file.read_bytes().split(b"\n") if file.is_file() else []))
    if rounds and not at_end and rounds[max(rounds)].get("dev_loss") is None:
        del rounds[max(rounds)]
    return {number: line for number, line in rounds.items() if number > after}


def accepted(name: str) -> str:
    """Return a metric's name as MLflow accepts it: letters, digits, and `_-. :/`."""
    return re.sub(r"[^\w\-. :/]", "_", name.replace("+", "p"), flags=re.ASCII)
