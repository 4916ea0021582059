"""A folder that is written whole or not at all, with checksums that detect damage."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from fedlingua.common.errors import RunError
from fedlingua.common.hashing import sha256

CHECKSUMS = "checksums"


def write_folder(final: Path, write: Callable[[Path], None]) -> None:
    """What `write` leaves in the folder that it is given, on disk under its final name with checksums; an older one is replaced."""

    def with_checksums(aside: Path) -> None:
        write(aside)
        lines = [f"{sha256(file)}  {file.name}\n" for file in sorted(aside.iterdir())]
        (aside / CHECKSUMS).write_text("".join(lines), encoding="utf-8")

    replace_folder(final, with_checksums)


def replace_folder(final: Path, write: Callable[[Path], None]) -> None:
    """The same without checksums. An older one stays until the new one is whole, and where that cannot take
    its place.
    """
    aside, old = (final.with_name(f".{final.name}.{ending}") for ending in ("writing", "old"))
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        write(aside)
        for file in aside.iterdir():
            _to_disk(file)
        _to_disk(aside)
        if final.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.replace(final, old)
        try:
            os.replace(aside, final)
        except OSError:
            if old.exists():
                os.replace(old, final)
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    _to_disk(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def check_folder(folder: Path, must_have: str, instead: str) -> None:
    """Refuse a folder that holds more, less or something else than its list of checksums says.

    must_have: a file without which it is none. instead: what the user is told to do, such as "use another round's checkpoint".

    Raises:
        RunError: names the folder, or the file in it.
    """
    listed: dict[str, str] = {}
    try:
        for line in (folder / CHECKSUMS).read_text(encoding="utf-8").splitlines():
            checksum, _, name = line.partition("  ")
            listed[name] = checksum
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{folder} has no readable checksums ({error}); {instead}") from error
    present = {file.name for file in folder.iterdir()} - {CHECKSUMS}
    if present != set(listed) or must_have not in listed:
        odd = ", ".join(sorted(present ^ set(listed))) or must_have
        raise RunError(f"{folder} has been changed (listed and present files differ in {odd}); {instead}")
    for name, checksum in listed.items():
        if sha256(folder / name) != checksum:
            raise RunError(f"{folder / name} has been changed (checksum differs); {instead}")


def _to_disk(path: Path) -> None:
    """Return once the file's, or the folder's, content would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
