"""A site's leave for the bundle of a run: what has not been approved by its hash is not run, nor even imported."""

import hashlib
import re
from datetime import UTC, datetime
from pathlib import Path

from fedlingua.common.errors import ConfigError, DeploymentError
from fedlingua.common.files import replace_text

BUNDLE = "FEDLINGUA_BUNDLE"
"""Environment variable: the hash of the bundle that the gate has let through, for the code in it."""
KEPT = 5
"""Refused bundles that a site keeps, the newest."""
_HASH = re.compile(r"[0-9a-f]{64}")


def bundle_hash(content: bytes) -> str:
    """What a bundle is known by: the sha256 of its bytes, which is Flower's name for it too."""
    return hashlib.sha256(content).hexdigest()


def approved(file: Path) -> set[str]:
    """The hashes in a site's list: one a line, what follows it is a note.

    Raises:
        ConfigError: a line that begins with something else.
    """
    if not file.is_file():
        return set()
    hashes = set()
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), start=1):
        word = line.split("#")[0].strip()
        if word and not _HASH.fullmatch(word):
            raise ConfigError(f"{file}, line {number}: {word!r} is not the hash of a bundle; wanted 64 hexadecimal digits")
        hashes.add(word)
    return hashes - {""}


def approve(file: Path, bundle: str, note: str = "bundle") -> bool:
    """Add a hash, of a bundle or of what the note names, to a site's list; False if it is listed already.

    Raises:
        ConfigError: it is no hash.
    """
    if not _HASH.fullmatch(bundle):
        raise ConfigError(
            f"{bundle!r} is not the hash of a bundle; wanted the 64 hexadecimal digits that `fedlingua bundle` shows"
        )
    if bundle in approved(file):
        return False
    head = "# What this site runs, by sha256: bundles, and runs under them.\n"
    before = file.read_text(encoding="utf-8") if file.is_file() else head
    before += "" if before.endswith("\n") else "\n"  # an editor may leave the last line without its end
    replace_text(file, f"{before}{bundle}  # {datetime.now(UTC):%Y-%m-%d} {note}\n")
    return True


def check_approved(content: bytes, approvals: Path, refused: Path) -> None:
    """Refuse a bundle that is not in the site's list, and keep it unopened in the folder `refused`, to be read before it is approved.

    Raises:
        DeploymentError: it is not approved.
    """
    bundle = bundle_hash(content)
    try:
        if bundle in approved(approvals):
            return
    except (ConfigError, OSError, UnicodeDecodeError) as error:  # the words of which name a place, and these ones leave the site
        raise DeploymentError("this site's list of approved bundles cannot be read, so nothing runs there") from error
    refused.mkdir(parents=True, exist_ok=True)
    (refused / f"{bundle}.fab").write_bytes(content)
    # A server may offer as many as it likes; they are not to fill the site's disk.
    for old in sorted(refused.glob("*.fab"), key=lambda file: file.stat().st_mtime_ns)[:-KEPT]:
        old.unlink(missing_ok=True)
    raise DeploymentError(
        f"this site has not approved the bundle {bundle}; it is stored unopened in the site's state ({refused.name}/, a zip file): "
        "read it, then give its hash to `fedlingua site approve`"
    )
