"""Where a model may be written to: looked at before anything is loaded."""

import os
from pathlib import Path

from fedlingua.common.errors import ConfigError

FILE = "export.json"
"""Written with every form; a folder without it was not exported, and is not replaced."""


def check_place(to: Path, force: bool) -> Path:
    """Where to export to, as an absolute path.

    Raises:
        ConfigError: it is a file, holds something that is not to be replaced, or cannot be written.
    """
    final = Path(os.path.abspath(to.expanduser()))
    if final.is_symlink() or (final.exists() and not final.is_dir()):
        raise ConfigError(f"--to {to}: there is a file or a link of this name; give a folder that is not there yet")
    if final.is_dir() and any(final.iterdir()):
        if not force:
            raise ConfigError(f"--to {to} is there already; give another folder, or --force to replace an earlier export")
        if not (final / FILE).is_file():
            raise ConfigError(
                f"--to {to} was not exported by fedlingua (it has no {FILE}), so --force does not remove it; give another folder"
            )
    parent = next(above for above in final.parents if above.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise ConfigError(f"--to {to}: {parent} is no folder that you may write to; give another")
    return final
