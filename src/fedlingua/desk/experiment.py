"""Read an experiment file and --set. A path in a file is relative to that file, if something lies there."""

import dataclasses
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from fedlingua.backbones.directories import BUILT_IN, made_here
from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.files import CHECKOUT, read_toml
from fedlingua.common.languages import nearest
from fedlingua.corpora.read import Corpus
from fedlingua.corpora.sites import Federation, read_federation
from fedlingua.desk.check_settings import check_corpora
from fedlingua.settings.checks import refuse_unknown_key, settings_from
from fedlingua.settings.config import Scalar, Settings
from fedlingua.settings.experiment import default_run_config
from fedlingua.settings.kinds import EXPERIMENT, flat_keys, refuse_other_kind
from fedlingua.settings.table import CHANGES_WITHOUT_ASKING, OPTIONS

T = TypeVar("T")
PLACES: dict[str, Callable[[Path], bool]] = {
    "federation": Path.is_file,
    "backbone": Path.is_dir,
    "data-dir": Path.is_dir,
    "run-dir": lambda path: True,
    "start-from": Path.is_dir,
    "comet-model": Path.is_file,
}
"""Key that may be a path -> whether a path beside the file is meant. A run's folder is yet to be made."""


def experiment_file(named: Path) -> Path:
    """Return an experiment's file: the one at that path or, for a single word such as `demo`, the app's own of that name."""
    own = CHECKOUT / "experiments" / f"{named}.toml"
    return own if len(named.parts) == 1 and own.is_file() and not named.is_file() else named


def read_experiment(path: Path, overrides: Mapping[str, Scalar], deployed: bool = False) -> Settings:
    """Read and check a run's settings: defaults, overridden by the experiment file, overridden by `overrides`.

    deployed: Whether sites approve the settings; then what they approve stays as it is written.

    Raises:
        ConfigError: the file is missing or not TOML, or `settings_from` refuses the config.
    """
    content = read_toml(path)
    refuse_other_kind(path, content, EXPERIMENT)
    given = flat_keys(content)
    lies_beside = beside(path, given)
    if deployed:
        lies_beside = {key: place for key, place in lies_beside.items() if key in CHANGES_WITHOUT_ASKING}
    in_file = {**default_run_config(), **given, **lies_beside}
    try:
        return settings_from({**in_file, **overrides})
    except ConfigError as error:
        mistakes, of_file = str(error).split("\n"), _mistakes(in_file)
        raise ConfigError("\n".join(f"{path if each in of_file else 'command line'}: {each}" for each in mistakes)) from error


def beside(file: Path, keys: Mapping[str, Any]) -> dict[str, str]:
    """Return the paths among a file's keys that lie beside it, as absolute ones; no name of something built in or made here."""
    lies_beside = dict[str, str]()
    for key, is_meant in PLACES.items():
        value = keys.get(key)
        if isinstance(value, str) and value and value not in BUILT_IN and not (key == "backbone" and made_here(value)):
            path = file.resolve().parent / Path(value).expanduser()
            lies_beside |= {key: str(path)} if is_meant(path) else {}
    return lies_beside


def read_run_federation(settings: Settings, file: Path | None = None) -> tuple[Settings, Federation]:
    """Return a simulation's settings with the folder of its text, and its federation. file: The one that names the federation.

    Raises:
        ConfigError: There is no federation file, or it is wrong. CorpusError: A corpus is not there.
    """
    path = settings.federation_path
    if file is not None and not Path(settings.federation).expanduser().is_absolute() and not path.is_file():
        near = nearest(path.name, [other.name for other in file.parent.glob("*.toml") if other != file])
        where = f"there is no such file in {file.resolve().parent}, and none in {CHECKOUT}"
        raise ConfigError(f"federation = {settings.federation!r}: {where}{near}; check the path")
    federation, data_dir = read_with_text(path, settings.data_dir)
    return dataclasses.replace(settings, data_dir=data_dir), federation


def read_with_text(file: Path, data_dir: str) -> tuple[Federation, str]:
    """Return a federation, all of whose text is there, and the folder of the text; see `with_text`.

    Raises:
        ConfigError: The federation file is wrong. CorpusError: A corpus is not there; says where it was looked for.
    """
    federation, folder = with_text(
        lambda folder: read_federation(file, folder), lambda read: [site.corpus for site in read.sites], file, data_dir
    )
    looked = "" if data_dir else f"looked in {file.resolve().parent} and in {Path.cwd()}; "
    check_corpora(federation.sites, f"{looked}check the path, or give the folder with --data")
    return federation, folder


def with_text(
    read: Callable[[Path], T], corpora: Callable[[T], Iterable[Corpus[Any] | None]], file: Path, data_dir: str
) -> tuple[T, str]:
    """Return a file that names text, as read with the folder of its text, and that folder: the one given, or the file's own if all text
    lies there, or, as "", the current one."""
    own = file.resolve().parent
    if not data_dir:
        content = read(own)
        with suppress(CorpusError):  # the caller looks for itself, and names the site
            named = [corpus for corpus in corpora(content) if corpus]
            if not any(corpus.missing() for corpus in named) and any(corpus.paths() for corpus in named):
                return content, str(own)
    return read(Path(data_dir).expanduser()), data_dir


def _mistakes(config: Mapping[str, Any]) -> list[str]:
    """Return the reasons to refuse a run config."""
    try:
        settings_from(config)
    except ConfigError as error:
        return str(error).split("\n")
    return []


def given_settings(texts: Iterable[str]) -> dict[str, Scalar]:
    """Parse the run-config keys given by --set, a text option's value as it is; raise ConfigError for a key that is unknown."""
    given: dict[str, Scalar] = {}
    for text in texts:
        key, value = parse_override(text)
        try:
            refuse_unknown_key(key, value)
        except ConfigError as error:
            raise ConfigError(f"command line: {error}") from error
        as_written = OPTIONS[key].value_type is str and not isinstance(value, str | list)  # such as 0.3
        given[key] = text.partition("=")[2].strip() if as_written else value
    return given


def parse_override(text: str, option: str = "--set", example: str = "rounds=5") -> tuple[str, Any]:
    """Parse `key=value`, a value that is not TOML as a string; raise ConfigError if the key or the "=" is missing."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"{option} {text!r}: wanted key=value, for example {option} {example}")
    try:
        parsed = tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    return key.strip(), parsed
