"""Set up a site: its folder, its key, what it approves, and the few lines for the server's operator."""

import dataclasses
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomli_w
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import replace_text
from fedlingua.common.languages import parse_written
from fedlingua.consent.bundle import HASH, approved
from fedlingua.consent.keys import public_line
from fedlingua.consent.limits import SiteLimits
from fedlingua.consent.site_file import SiteFile, host_and_port, read_site_file, site_table
from fedlingua.corpora.sites import read_site
from fedlingua.desk.check_settings import check_corpora
from fedlingua.desk.deployment.build import make_private_folder
from fedlingua.desk.paths import check_absent

FILE = "site.toml"
PATHS = ("tsv", "moses", "nway", "opus", "tmx", "po", "parquet", "lines", "jsonl", "notes")
"""Keys of a corpus that name files."""
BACKBONES = """\
# Where a run's backbone lies here, if it is neither built in nor known by name; `fedlingua site check` prints the line.
[backbones]
"""


def init_site(
    directory: Path, name: str, direction: str, corpus: Mapping[str, Any], address: str, authority: Path | None
) -> tuple[SiteFile, Path]:
    """Make a site's folder; return its file and the file to send to the server's operator.

    direction: such as "de-fr", or the language of text that is not translated, such as "es". corpus: keys and values of a [[site]]
    table, with paths relative to the current folder. address, authority: "" and None if the server's invitation is to bring them;
    an address without `authority` stands for a server without TLS.

    Raises:
        ConfigError: a name, direction, address, corpus or certificate is invalid, or the folder already belongs to a site or holds a key.
    """
    file = directory / FILE
    check_absent(file)
    try:
        certificate = authority.read_bytes() if authority else b""
        if authority:
            x509.load_pem_x509_certificates(certificate)
    except ValueError as error:
        raise ConfigError(f"--authority {authority}: holds no certificate (PEM); give the server's ca.crt") from error
    except OSError as error:
        raise ConfigError(f"--authority {authority}: {error.strerror}; ask the server's operator for its ca.crt") from error
    insecure = bool(address) and authority is None
    if address:
        host_and_port(address, "--server")
    # Everything is checked before anything is written.
    who = {"name": name, "language" if parse_written(direction).is_one_language else "direction": direction}
    check_corpora([read_site({**who, **corpus}, 1, "the command line", Path())], "check the path")
    # A path inside the site's folder is written relative to it, so that the folder can be moved; other paths are absolute.
    folder = directory.resolve()
    paths = {key: Path(value).resolve() for key, value in corpus.items() if key in PATHS}
    inside = {key: path.relative_to(folder) for key, path in paths.items() if path.is_relative_to(folder)}
    entry = {**who, **corpus, **{key: str(path) for key, path in {**paths, **inside}.items()}}
    server = {**({"address": address} if address else {}), "insecure": insecure}
    tables = {"server": server, "node": {"state": "state", "home": "flower"}}
    head = "# Written by `fedlingua site init`; paths are relative to this file."
    text = "\n".join([head, site_table(entry), tomli_w.dumps(tables), BACKBONES, limits_text()])
    make_private_folder(directory, "--to")
    if not insecure:
        who["public-key"] = make_key(directory / "keys" / "site.key")
    if authority:
        (directory / "ca.crt").write_bytes(certificate)
    join_file = directory / f"{name}.join.toml"
    join_head = "# For the server's operator: `fedlingua server start`. Nothing in it is secret.\n"
    join_file.write_text(f"{join_head}{site_table(who)}", encoding="utf-8")
    replace_text(file, text, 0o644)  # whatever the umask says
    return read_site_file(file), join_file


def approve(file: Path, bundle: str, note: str = "bundle") -> bool:
    """Add a hash to a site's list; return False if it is listed already. note: what the hash is of, in one line.

    Raises:
        ConfigError: `bundle` is not a hash.
    """
    if not HASH.fullmatch(bundle):
        raise ConfigError(
            f"{bundle!r} is not the hash of a bundle; wanted the 64 hexadecimal digits that `fedlingua bundle` shows"
        )
    if bundle in approved(file):
        return False
    head = "# What this site runs, by sha256: bundles, and runs under them.\n"
    before = file.read_text(encoding="utf-8-sig") if file.is_file() else head
    before += "" if before.endswith("\n") else "\n"  # an editor may leave the last line without its end
    replace_text(file, f"{before}{bundle}  # {datetime.now(UTC):%Y-%m-%d} {note}\n", 0o644)
    return True


def make_key(file: Path) -> str:
    """Write a new ECDSA P-384 private key to `file` and its public key beside it, as `.pub`; return the public key's line.

    Raises:
        ConfigError: One of the two files already exists.
    """
    public_file = file.with_suffix(".pub")
    for path in (file, public_file):
        if path.exists():
            raise ConfigError(f"{path} already exists and may be in use; give another folder, or move it away")
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_text(file, private.decode(), 0o600)
    line = public_line(file)
    public_file.write_text(line + "\n", encoding="ascii")
    return line


def limits_text() -> str:
    """Return the table [limits], empty, with its defaults in comments, as `fedlingua site init` writes it."""
    lines = [f"# {name.replace('_', '-')} = {json.dumps(value)}\n" for name, value in dataclasses.asdict(SiteLimits()).items()]
    head = "# What the server may ask for, with the defaults; fedlingua/consent/limits.py says what each means.\n[limits]\n"
    return head + "".join(lines)
