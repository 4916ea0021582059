"""SuperNode keys: with its private key a node proves which site it is."""

import base64
import hashlib
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from fedlingua.common.errors import ConfigError

KINDS = ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521")
"""OpenSSH's names of the key types that Flower accepts: ECDSA on a NIST curve."""


def public_line(file: Path) -> str:
    """Return the public key of a private key's file as one OpenSSH line; raise ConfigError if it holds no private key."""
    try:
        key = serialization.load_ssh_private_key(file.read_bytes(), None)
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"{file} holds no private key in OpenSSH's form; put the right one back, or make another site: fedlingua site init --to FOLDER"
        ) from error
    return key.public_key().public_bytes(Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def sign(file: Path, message: bytes) -> bytes:
    """Return the signature of a private key's file under a message: ECDSA with SHA-256."""
    key = serialization.load_ssh_private_key(file.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)  # `make_key` makes no other, and Flower accepts none
    return key.sign(message, ec.ECDSA(SHA256()))


def is_signed(line: str, message: bytes, signature: bytes) -> bool:
    """Return whether the key of an OpenSSH line signed a message; False for a line that is no key."""
    try:
        read_public_key(line, "").verify(signature, message, ec.ECDSA(SHA256()))
    except (ConfigError, InvalidSignature):
        return False
    return True


def read_public_key(text: str, where: str) -> ec.EllipticCurvePublicKey:
    """Parse the public key in one OpenSSH line. where: its file and site, for the error message, which never quotes the text.

    Raises:
        ConfigError: There is no public key, more than one line, or a key that is not ECDSA on a NIST curve.
    """
    wanted = "wanted one line 'ecdsa-sha2-nistp384 AAAA...', as in the .pub file beside the site's key"
    line = text.strip()
    if "PRIVATE KEY" in line:
        raise ConfigError(f"{where}: this is a private key; {wanted}. Make the site a new key: this one has left its machine")
    if "\n" in line:
        raise ConfigError(f"{where}: got {len(line.splitlines())} lines; {wanted}")
    kind = line.split(maxsplit=1)[0] if line else "nothing"
    if kind not in KINDS:
        got = f"a key of type {kind}" if kind.startswith(("ssh-", "sk-", "ecdsa-")) else "no OpenSSH public key"
        raise ConfigError(f"{where}: got {got}; {wanted}")
    try:
        key = serialization.load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{where}: the key is damaged ({error}); {wanted}. Copy it again, whole") from error
    assert isinstance(key, ec.EllipticCurvePublicKey)  # the line names its type, and the parser compares the two
    return key


def same_key(text: str, stored: bytes) -> bool:
    """Return whether `stored` (OpenSSH, or PEM as in Flower's NodeInfo) is the key of an OpenSSH line; False if unreadable."""
    is_pem = stored.lstrip().startswith(b"-----")
    try:
        line_key = read_public_key(text, "")
        stored_key = serialization.load_pem_public_key(stored) if is_pem else serialization.load_ssh_public_key(stored)
    except (ConfigError, ValueError, UnsupportedAlgorithm):
        return False
    return isinstance(stored_key, ec.EllipticCurvePublicKey) and stored_key.public_numbers() == line_key.public_numbers()


def key_fingerprint(text: str) -> str:
    """Return "SHA256:..." of an OpenSSH line, as `ssh-keygen -l` prints it; raise ConfigError where `read_public_key` does."""
    read_public_key(text, "fingerprint")
    digest = hashlib.sha256(base64.b64decode(text.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")
