"""Shell completion of files of the right kind, runs, sites, keys and values. Imports little, since the user waits at each TAB.

click calls these functions, each the `shell_complete` of options in fedlingua.desk.cli.options; typer makes the shells' scripts.
This module adds only the values, which no library can know, and `mend_words`, since neither typer nor click rejoins bash's words.
"""

import json
import os
from collections.abc import Callable, Iterable, MutableMapping
from pathlib import Path

import click

from fedlingua.common.errors import ConfigError

Complete = Callable[[click.Context, click.Parameter, str], list[str]]

VARIABLE = "_FEDLINGUA_COMPLETE"
"""Environment variable that the shell's script sets to the request, such as "complete_bash"."""
_SPLIT = "_FEDLINGUA_SPLIT"


def toml_files(kind: str) -> Complete:
    """Return a completion to TOML files of a kind in fedlingua.settings.kinds, and to folders on the way to them."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        from fedlingua.common.files import read_toml
        from fedlingua.settings.kinds import kind_of

        matching = []
        for path in _beginning_with(incomplete):
            if path.is_dir():
                matching.append(f"{path}/")
            elif path.suffix == ".toml":
                try:
                    is_kind = kind_of(read_toml(path)) == kind
                except ConfigError:  # an unreadable file may still be the one meant
                    is_kind = True
                matching += [str(path)] if is_kind else []
        return matching

    return complete


def run_folders(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete to run folders below what is typed, or below ./runs, and to folders on the way to them."""
    folders = [path for path in _beginning_with(incomplete or "runs/") if path.is_dir()]
    return [str(path) if (path / "run.json").is_file() else f"{path}/" for path in folders]


def sites_of_run(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete to the sites of the run that --run names."""
    run = ctx.params.get("run")
    try:
        known = json.loads((Path(run) / "sites.json").read_text(encoding="utf-8")) if run else {}
    except (OSError, ValueError):
        known = {}
    return _of({name for about in known.values() for name in about.get("members", ())} or set(known), incomplete)


def metrics(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from fedlingua.settings.metrics import OF_TEXT

    return _of(OF_TEXT, incomplete)


def profiles(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete to the profiles in pyproject-flwr.toml."""
    from fedlingua.common.files import APP_DIR, read_toml
    from fedlingua.desk.cli.profile import PROFILES_FILE

    links = read_toml(APP_DIR / PROFILES_FILE).get("superlink", {})
    return _of((name for name, link in links.items() if isinstance(link, dict)), incomplete)


def settings(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete to keys of a run config, such as `rounds=`, and after the equals sign to the values that the key may have."""
    from fedlingua.settings.checks import choices_of
    from fedlingua.settings.table import OPTIONS

    key, equals, value = incomplete.partition("=")
    if equals:
        before = "" if os.environ.get(_SPLIT) else f"{key}="
        return [f"{before}{choice}" for choice in _of(choices_of(key), value)]
    return [f"{name}=" for name in _of(OPTIONS, incomplete)]


def mend_words(environment: MutableMapping[str, str]) -> None:
    """Rejoin `key=value`, which bash splits into three words, so that completion offers what follows the equals sign."""
    if environment.get(VARIABLE) != "complete_bash" or "=" not in environment.get("COMP_WORDS", "").split():
        return
    words, at = environment["COMP_WORDS"].split(), int(environment["COMP_CWORD"])
    typed = [*words[: at + 1], *([""] if at >= len(words) else [])]
    mended: list[str] = []
    for number, word in enumerate(typed):
        joins = mended and number > 1 and (word == "=" or typed[number - 1] == "=")
        mended = [*mended[:-1], mended[-1] + word] if joins else [*mended, word]
    if "=" in typed[-2:]:
        environment[_SPLIT] = "1"
    environment["COMP_WORDS"], environment["COMP_CWORD"] = " ".join(mended), str(len(mended) - 1)


def _beginning_with(incomplete: str) -> list[Path]:
    """Return the entries of the typed folder whose names begin with the rest; hidden ones only if a dot is typed."""
    folder, _, name = incomplete.rpartition("/")
    place = Path(f"{folder}/" if folder or incomplete.startswith("/") else ".").expanduser()
    try:
        entries = sorted(place.iterdir())
    except OSError:
        return []
    return [path for path in entries if path.name.startswith(name) and (name.startswith(".") or not path.name.startswith("."))]


def _of(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
