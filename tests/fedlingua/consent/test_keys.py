"""Site keys: files that Flower takes, lines that are checked, equality across formats, ssh-keygen's fingerprint."""

import argparse
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.cli.supernode.register import try_load_public_key
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.cli.flower_supernode import _try_setup_client_authentication

from fedlingua.common.errors import ConfigError
from fedlingua.consent.keys import key_fingerprint, read_public_key, same_key
from fedlingua.desk.deployment.site_setup import make_key

# Made by `ssh-keygen -t ecdsa -b 256`, and what `ssh-keygen -l` says of it.
LINE = (
    "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBD++bpBBrDhGOQ72BuMUkzrqXqOr"
    "nwUCKYi8O3zDZtYT6fHhJpCUbz4In+13CddM+Jh6Xo9pgUBndGhjBz/4CEE="
)
FINGERPRINT = "SHA256:rc2Bteg8NrANruOXIX0E42bko6X4pP76YdPw4GzhDcc"


def openssh(key: ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey) -> str:
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def test_flower_takes_both_files(tmp_path: Path) -> None:
    line = make_key(tmp_path / "site.key")
    arguments = argparse.Namespace(auth_supernode_private_key=str(tmp_path / "site.key"), auth_supernode_public_key=None)
    pair = _try_setup_client_authentication(arguments)
    assert pair is not None
    registered = try_load_public_key(tmp_path / "site.pub")
    assert public_key_to_bytes(pair[1]) == registered
    assert same_key(line, registered)


def test_the_private_key_is_its_owners_alone_and_nothing_else_is_left(tmp_path: Path) -> None:
    line = make_key(tmp_path / "keys" / "clinic")
    assert sorted(path.name for path in (tmp_path / "keys").iterdir()) == ["clinic", "clinic.pub"]
    assert (tmp_path / "keys" / "clinic").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "keys" / "clinic.pub").read_text() == line + "\n"
    assert read_public_key(line, "here").curve.name == "secp384r1"


@pytest.mark.parametrize("there", ["site", "site.pub"])
def test_a_key_that_is_there_is_not_overwritten(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("old")
    with pytest.raises(ConfigError, match=rf"{there} already exists"):
        make_key(tmp_path / "site")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(there, "old")]


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda curve: curve.name)
def test_every_nist_curve_of_openssh_is_read(curve: ec.EllipticCurve) -> None:
    key = ec.generate_private_key(curve).public_key()
    assert read_public_key(openssh(key) + " somebody@clinic\n", "here").public_numbers() == key.public_numbers()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no OpenSSH public key"),
        ("clinic", "no OpenSSH public key"),
        (openssh(ed25519.Ed25519PrivateKey.generate().public_key()), "a key of type ssh-ed25519"),
        (f"{LINE}\n{LINE}", "got 2 lines"),
        (LINE[:-9], "damaged"),
        (LINE.replace("nistp256", "nistp384", 1), "damaged"),
        (f"command=x {LINE}", "no OpenSSH public key"),
        (f"# {LINE}", "no OpenSSH public key"),
        ("ecdsa-sha2-nistp256", "damaged"),
        ("ecdsa-sha2-nistp256-cert-v01@openssh.com AAAA", "a key of type ecdsa-sha2-nistp256-cert-v01@openssh.com"),
    ],
    ids=[
        "empty",
        "no key",
        "ed25519",
        "two lines",
        "cut",
        "another curve's name",
        "an option",
        "a remark",
        "no body",
        "a certificate",
    ],
)
def test_what_is_no_such_key_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        read_public_key(text, "sites.toml, site 'clinic'")
    assert str(caught.value).startswith("sites.toml, site 'clinic': ")


def test_a_private_key_in_the_wrong_place_is_not_quoted(tmp_path: Path) -> None:
    make_key(tmp_path / "site")
    text = (tmp_path / "site").read_text()
    with pytest.raises(ConfigError, match="this is a private key") as caught:
        read_public_key(text, "here")
    assert text.splitlines()[1] not in str(caught.value)


def test_a_key_is_the_same_in_either_format_and_whatever_its_comment() -> None:
    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    line = openssh(key)
    for stored in (public_key_to_bytes(key), line.encode(), f"{line} somebody@clinic\n".encode()):
        assert same_key(line, stored)
        assert same_key(f"{line} another comment", stored)


def test_another_key_or_anything_unreadable_is_not_the_same() -> None:
    key, other = (ec.generate_private_key(ec.SECP384R1()).public_key() for _ in range(2))
    pem = public_key_to_bytes(key)
    assert not same_key(openssh(other), pem)
    assert not same_key(LINE, pem)
    for stored in (b"", b"\xff\xfe", pem[:-30], b"-----BEGIN PUBLIC KEY-----", openssh(key)[:-5].encode()):
        assert not same_key(openssh(key), stored)
    for text in ("", "clinic", openssh(ed25519.Ed25519PrivateKey.generate().public_key())):
        assert not same_key(text, pem)


def test_the_fingerprint_is_the_one_that_ssh_keygen_prints() -> None:
    assert key_fingerprint(LINE) == key_fingerprint(f"{LINE} comment\n") == FINGERPRINT


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen here")
def test_ssh_keygen_reads_our_files_and_agrees(tmp_path: Path) -> None:
    line = make_key(tmp_path / "site")
    printed = subprocess.run(["ssh-keygen", "-l", "-f", tmp_path / "site.pub"], capture_output=True, text=True, check=True).stdout
    derived = subprocess.run(["ssh-keygen", "-y", "-f", tmp_path / "site"], capture_output=True, text=True, check=True).stdout
    assert printed.split()[1] == key_fingerprint(line)
    assert derived.split()[:2] == line.split()
