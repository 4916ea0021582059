"""Check that a place which a user names can be written to, before any work is done."""

import os
from pathlib import Path
from tempfile import TemporaryFile

from fedlingua.common.errors import ConfigError


def check_new_folder(folder: Path, option: str) -> None:
    """Raise ConfigError for a folder that already holds files, is a file, or may not be written by this user."""
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(f"{option} {folder}: already holds files; give a new folder, or remove it")
    check_folder_to_write(folder, option)


def check_absent(path: Path, kind: str = "folder") -> None:
    """Raise ConfigError if the path given with --to exists."""
    if path.exists():
        raise ConfigError(f"{path} already exists; remove it, or give another {kind} with --to")


def check_folder_to_write(folder: Path, option: str) -> None:
    """Raise ConfigError, before any work is done, if the folder cannot be written to."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{option} {folder}: is a file; give a folder")
    _check_writable(folder, option)


def check_file_to_write(file: Path, option: str) -> None:
    """Raise ConfigError, before any work is done, if the file cannot be written."""
    if file.is_dir():
        raise ConfigError(f"{option} {file}: is a folder; give a file")
    _check_writable(file, option)


def _check_writable(path: Path, option: str) -> None:
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists() or place.is_symlink())
    if there != path.absolute() and not there.is_dir():
        raise ConfigError(f"{option} {path}: {there} is a file, not a folder; give another path")
    try:
        if there.is_dir():  # tried, since root has access by permission also where nobody can write
            TemporaryFile(dir=there).close()
        elif not os.access(there, os.W_OK):
            raise PermissionError
    except OSError as error:
        raise ConfigError(f"{option} {path}: {there} cannot be written to by this user; give another path") from error
