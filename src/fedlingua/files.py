"""Files that a user names: where their paths begin, and TOML, its mistakes told with their place; files that are written whole."""

import os
import tomllib
from pathlib import Path
from typing import Any

from fedlingua.errors import ConfigError
from fedlingua.languages import nearest

APP_DIR = Path(__file__).resolve().parents[2]
"""Root of the app: the checkout, or the bundle as a node unpacked it."""


def resolve(path: str) -> Path:
    """An absolute path as it is; another one from the app's root."""
    given = Path(path).expanduser()
    return given if given.is_absolute() else APP_DIR / given


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file.

    Raises:
        ConfigError: no such file, or not TOML; with the line.
    """
    try:
        with path.open("rb") as stream:
            return tomllib.load(stream)
    except (FileNotFoundError, IsADirectoryError) as error:
        near = nearest(path.name, [p.name for p in path.parent.glob("*.toml")]) if path.parent.is_dir() else ""
        raise ConfigError(f"{path}: there is no such file{near}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error


def replace_text(file: Path, text: str) -> None:
    """Write a file whole or not at all: aside, then renamed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    with aside.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(aside, file)
