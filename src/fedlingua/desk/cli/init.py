"""`fedlingua init`: write a federation file and an experiment file for text of one's own."""

import json
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from typer import Argument, Option

from fedlingua.backbones.directories import made_here
from fedlingua.common.errors import ConfigError, CorpusError, FedlinguaError
from fedlingua.common.files import read_toml, replace_text
from fedlingua.common.languages import normal_code, parse_direction
from fedlingua.consent.site_file import site_table
from fedlingua.corpora.damage import doubts_about
from fedlingua.desk.cli.corpus_input import ending_kind
from fedlingua.desk.cli.output import Answer, Commands, example, say, warn
from fedlingua.desk.cli.run import check_experiment
from fedlingua.desk.experiment import experiment_file
from fedlingua.desk.paths import check_absent, check_folder_to_write
from fedlingua.settings.config import Scalar
from fedlingua.settings.kinds import flat_keys

commands = Commands()
LOOKED_AT, FEWEST = 1000, 50
"""Pairs of a site that are read, and how many a site needs, so that each split has some."""
SPLIT = """
[split]  # at most so many sentences of a site, so that a first run takes minutes; without these lines: all
max-train = 500
max-dev = 100
max-test = 200
"""
Found = list[tuple[str, dict[str, str]]]
"""Of each site its name, and its text as in a [[site]]; paths are still relative to the current folder."""


@commands.command(epilog=example("fedlingua init clinic.de-fr.tsv court.de-fr.tsv --backbone demo --to own"))
def init(
    backbone: Annotated[str, Option(help="The model to start from: student-en-pt, a hub id, a folder, or demo.")],
    text: Annotated[
        list[Path] | None,
        Argument(
            help="Files, one for each site: .tsv, .csv, .tmx, .po, .jsonl (also .gz), .parquet, a .zip of OPUS, or X.de with X.fr; "
            "or folders of them; default: the current folder."
        ),
    ] = None,
    direction: Annotated[
        str, Option(help="Source and target, such as de-fr; default: as in the names of the files, such as clinic.de-fr.tsv.")
    ] = "",
    to: Annotated[Path, Option(help="Folder of the two files.")] = Path(),
) -> Answer:
    federation, experiment = to / "federation.toml", to / "experiment.toml"
    check_folder_to_write(to, "--to")
    is_new = not to.exists()
    for file in (federation, experiment):
        check_absent(file)
    settings = {"federation": federation.name, "backbone": backbone, **_settings(backbone)}
    tables = [site_table({"name": name, **_from(to, entry)}) for name, entry in _sites(text or [Path()], direction)]
    head = "# Written by `fedlingua init`. Paths are relative to this file"
    named = tomli_w.dumps({"name": _plain(to.resolve().name) or "own"})
    replace_text(federation, "\n".join([f"{head}; all keys: docs/files.md\n{named}{SPLIT}", *tables]))
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in settings.items()]
    replace_text(experiment, f"{head}; all keys: docs/options.md\n{''.join(lines)}")
    try:
        sites = check_experiment(experiment, None, None, None)[1].sites
        for site in sites:
            assert site.corpus is not None
            pairs = list(islice(site.corpus.read(), LOOKED_AT))
            if len(pairs) < FEWEST:
                raise CorpusError(
                    f"site {site.name}: {len(pairs)} pairs; wanted {FEWEST} or more, to train, to choose and to test on"
                )
            for doubt in doubts_about(pairs, site.direction, site.name):
                warn(f"warning: {doubt}", style="")
            files = " and ".join(os.path.relpath(str(path)) for path in site.corpus.paths())
            say(f"site: {site.name}, {site.direction}, {files}")
    except FedlinguaError:
        federation.unlink()
        experiment.unlink()
        if is_new:
            to.rmdir()
        raise
    say(f"written: {federation} and {experiment}; next: fedlingua run {experiment}")
    return {"federation": federation, "experiment": experiment, "sites": {site.name: str(site.direction) for site in sites}}


def _settings(backbone: str) -> Mapping[str, Scalar]:
    """Return the settings of the experiment that a kind of backbone was tried with; for any other adapters, at the paper's rate."""
    config = (made_here(backbone) or Path(backbone).expanduser()) / "config.json"
    student = config.is_file() and json.loads(config.read_text(encoding="utf-8")).get("model_type") == "marian-ssru"
    tried = "demo" if backbone == "demo" else "real" if student else ""
    given = flat_keys(read_toml(experiment_file(Path(tried)))) if tried else {"learning-rate": 0, "beam": 1}
    return {key: value for key, value in given.items() if key not in ("federation", "backbone")}


def _sites(named: Iterable[Path], direction: str) -> Found:
    """Find the text of each site; raise ConfigError for a file that is none, and where no direction is known."""
    files, sides = list[tuple[Path, bool]](), dict[str, dict[str, Path]]()
    for place in named:
        if not place.exists():
            raise ConfigError(f"{place}: there is no such file or folder; check the path")
        inside = sorted(place.iterdir()) if place.is_dir() else []
        files += [(file, False) for file in inside if file.is_file() and not file.name.startswith(".")] or [(place, True)]
    for file, _ in files:
        parts = file.name.split(".")
        for number in range(1, len(parts)):
            if not ending_kind(file.name) and (code := normal_code(parts[number])):
                pattern = ".".join([*parts[:number], "{}", *parts[number + 1 :]])
                sides.setdefault(str(file.parent / pattern), {})[code] = file
    wanted = parse_direction(direction, "--direction").sides if direction else ()
    nway = {pattern: codes for pattern, codes in sides.items() if len(codes) > 1 and codes.keys() >= set(wanted)}
    halves = {half for codes in nway.values() for half in codes.values()}
    for pattern, codes in nway.items():
        if not direction:
            raise ConfigError(
                f"{pattern}: {' and '.join(sorted(codes))} can be translated either way; give --direction SOURCE-TARGET"
            )
    corpora: list[tuple[Path, dict[str, str]]] = [(Path(pattern), {"direction": direction, "nway": pattern}) for pattern in nway]
    for file, asked_for in files:
        if kind := ending_kind(file.name):
            if not (said := direction or _direction_in(file.name)):
                raise ConfigError(
                    f"{file}: no direction in its name; give --direction SOURCE-TARGET, or rename it as in {file.stem}.de-fr{file.suffix}"
                )
            corpora.append((file, {"direction": said, kind: str(file)}))
        elif asked_for and file not in halves:
            raise ConfigError(
                f"{file}: no text was found there; give .tsv, .csv, .tmx, .po, .jsonl, .parquet or .zip, or two files such as X.de "
                "and X.fr with --direction de-fr"
            )
    if not corpora:
        raise ConfigError(f"{', '.join(map(str, named))}: no text was found; give its files, one for each site")
    names = [_name(file) for file, _ in corpora]
    again = {name for name in names if names.count(name) > 1}
    return [
        (_plain(f"{file.resolve().parent.name}-{name}") if name in again else name, entry)
        for name, (file, entry) in zip(names, corpora, strict=True)
    ]


def _direction_in(name: str) -> str:
    """Return the direction that a part of a file's name is or ends in, as clinic.en-pt.tsv and clinic-en-pt.tsv; "" without one."""
    for part in re.split(r"[._ ]", name):
        ending = re.search("(?:^|-)([a-z]{2,3}-[a-z]{2,3})$", part)
        for said in (part, *(ending.groups() if ending else ())):
            with suppress(ConfigError):
                return str(parse_direction(said))
    return ""


def _name(file: Path) -> str:
    """Return a site's name: what a file's name begins with, without its direction unless that is all."""
    first = file.name.partition(".")[0]
    return _plain(first.removesuffix(_direction_in(first)) or first) or "site"


def _plain(name: str) -> str:
    """Return a name in the letters that a site's name may have."""
    letters = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9._-]+", "-", letters).strip("-._")


def _from(folder: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a [[site]] whose path is relative to the folder of the file."""
    return {key: value if key == "direction" else os.path.relpath(value, folder) for key, value in entry.items()}
