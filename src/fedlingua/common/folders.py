"""Write folders atomically, with checksums that detect damage."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from fedlingua.common.errors import RunError
from fedlingua.common.files import sha256, to_disk

CHECKSUMS = "checksums"


def write_folder(final: Path, write: Callable[[Path], None]) -> None:
    """Store the files that `write` makes in the folder given to it as `final`, with checksums; replace an older folder."""

    def with_checksums(aside: Path) -> None:
        write(aside)
        lines = [f"{sha256(file)}  {file.name}\n" for file in sorted(aside.iterdir())]
        (aside / CHECKSUMS).write_text("".join(lines), encoding="utf-8")

    replace_folder(final, with_checksums)


def replace_folder(final: Path, write: Callable[[Path], None]) -> None:
    """Store the files that `write` makes as the folder `final`, without checksums. An older folder stays until the new one is
    complete, and is restored if the new one cannot be renamed.
    """
    aside, old = (final.with_name(f".{final.name}.{ending}") for ending in ("writing", "old"))
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        write(aside)
        for file in aside.iterdir():
            to_disk(file)
        to_disk(aside)
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
    to_disk(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def check_folder(folder: Path, must_have: str, instead: str) -> None:
    """Refuse a folder whose files differ from its list of checksums.

    must_have: a file that the list must name. instead: advice for the error message, such as "use another round's checkpoint".

    Raises:
        RunError: names the folder, or the file in it.
    """
    try:
        lines = (folder / CHECKSUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{folder} has no readable checksums ({error}); {instead}") from error
    listed = {name: checksum for checksum, _, name in (line.partition("  ") for line in lines)}
    present = {file.name for file in folder.iterdir()} - {CHECKSUMS}
    if present != set(listed) or must_have not in listed:
        odd = ", ".join(sorted(present ^ set(listed))) or must_have
        raise RunError(f"{folder} has been changed (listed and present files differ in {odd}); {instead}")
    for name, checksum in listed.items():
        if sha256(folder / name) != checksum:
            raise RunError(f"{folder / name} has been changed (checksum differs); {instead}")
