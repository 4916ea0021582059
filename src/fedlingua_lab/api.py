"""What the lab adds to the Python interface: `fl.compare` and `fl.suite`."""

from pathlib import Path
from typing import Any

from pandas import DataFrame  # type: ignore[import-untyped]

from fedlingua.common.errors import ConfigError
from fedlingua.desk.api import Options, Place, Run, given_keys
from fedlingua_lab.cli import compare as compare_command
from fedlingua_lab.cli import suite as suite_command

__all__ = ["compare", "suite"]


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
    answer = suite_command.suite(
        Path(file), text, given_keys(options, settings), jobs, to=result, profile=profile or "simulation"
    )
    table = DataFrame(answer.pop("table"))
    table.attrs |= answer
    return table
