"""A site's secrets in a secure sum, derived from one random number, and their shares among all sites (Shamir 1979)."""

import hashlib
from collections.abc import Mapping, Sequence

from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedlingua.common.errors import ExchangeError
from fedlingua.privacy.roster import Roster

SECRET_BYTES = 32
_HALF = 16
"""Bytes that pycryptodome's Shamir can share at a time; also of a share's hash."""
SEALED_BYTES = 2 * SECRET_BYTES + 16 + 2 * _HALF
"""Size of a sum's sealed share: a share of the self mask's seed, a share of the private key, and the 16-byte authentication tag; and the
hashes of both shares, which the server can compare with what the holder gives."""


def derived(secret: bytes, info: str, salt: bytes | None = None) -> bytes:
    """Derive 32 bytes from a secret by HKDF-SHA256 (RFC 5869)."""
    return HKDF(SHA256(), SECRET_BYTES, salt, info.encode()).derive(secret)


def agreed(private: X25519PrivateKey, public: bytes) -> bytes:
    """Return the shared secret of two key holders (X25519, RFC 7748).

    Raises:
        ExchangeError: The public key is invalid, or of low order, which gives the same secret with every private key.
    """
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise ExchangeError(
            "a site's public key is none, or one of low order, with which everybody has the same secret"
        ) from error


def check_public(keys: bytes) -> None:
    """Raise ExchangeError unless all public keys, 32 bytes each, end to end, can be agreed on a secret with; as in `agreed`."""
    anybody = X25519PrivateKey.from_private_bytes(bytes(range(SECRET_BYTES)))
    for first in range(0, len(keys), SECRET_BYTES):
        agreed(anybody, keys[first : first + SECRET_BYTES])


class Secrets:
    """A site's secrets: a key pair for sealed shares, and for each sum a key pair for masks and the seed of its self mask.

    Args:
        master: 32 bytes from the system's random generator, from which all secrets are derived.
    """

    def __init__(self, master: bytes) -> None:
        self._master = master
        self.channel = X25519PrivateKey.from_private_bytes(derived(master, "channel"))

    def private_key(self, number: int) -> bytes:
        """Return the private key for the masks of a sum."""
        return derived(self._master, f"key {number}")

    def own_seed(self, number: int) -> bytes:
        """Return the seed of the self mask in a sum."""
        return derived(self._master, f"own {number}")

    def public_keys(self, num_sums: int) -> bytes:
        """Return the public keys of all sums, 32 bytes each."""
        return b"".join(public_of(self.private_key(number)) for number in range(1, num_sums + 1))

    def sealed_shares(self, roster: Roster, site: str) -> bytes:
        """Split both secrets of each sum among all sites, including this one, and seal each share for its holder.

        Returns:
            (sites, sums) sealed shares of `SEALED_BYTES` each, end to end.
        """
        sealed: list[list[bytes]] = [[] for _ in roster.names]
        sealers = [
            ChaCha20Poly1305(_channel_key(self.channel, channel, roster, site, holder))
            for holder, channel in zip(roster.names, roster.channels, strict=True)
        ]
        for number in range(1, roster.num_sums + 1):
            shares = zip(
                _split(self.own_seed(number), roster), _split(self.private_key(number), roster), sealers, sealed, strict=True
            )
            for own, key, sealer, held in shares:
                held.append(sealer.encrypt(number.to_bytes(12), own + key, None) + _hash(own) + _hash(key))
        return b"".join(map(b"".join, sealed))

    def open_share(self, sealed: bytes, roster: Roster, site: str, sender: str, number: int) -> tuple[bytes, bytes]:
        """Return this site's shares of a sender's seed and private key for a sum.

        Raises:
            ExchangeError: The share was sealed for another sender, holder, sum or roster, was modified, or has other hashes.
        """
        channel = roster.channels[roster.names.index(sender)]
        opener = ChaCha20Poly1305(_channel_key(self.channel, channel, roster, sender, site))
        try:
            both = opener.decrypt(number.to_bytes(12), sealed[: -2 * _HALF], None)
            own, key = both[:SECRET_BYTES], both[SECRET_BYTES:]
            if not (is_share(sealed, own, False) and is_share(sealed, key, True)):
                raise InvalidTag
        except (InvalidTag, ValueError) as error:
            raise ExchangeError(
                f"the share of {sender} for sum {number} is not sealed for this site under this roster"
            ) from error
        return own, key


def is_share(sealed: bytes, share: bytes, of_key: bool) -> bool:
    """Return whether a share is the one that was sealed, by its hash. of_key: Of the private key, not of the seed."""
    return _hash(share) == (sealed[-_HALF:] if of_key else sealed[-2 * _HALF : -_HALF])


def public_of(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def recovered(shares: Mapping[str, bytes], roster: Roster, most: int = 0) -> bytes:
    """Recover a secret from the first shares in roster order, holder -> 32 bytes; raise ExchangeError below the roster's threshold.

    most: How many shares to take; 0: the threshold.
    """
    if len(shares) < roster.threshold:
        raise ExchangeError(f"{len(shares)} sites gave their share of a secret; wanted {roster.threshold} of {len(roster.names)}")
    holders = [(at, name) for at, name in enumerate(roster.names, start=1) if name in shares][: most or roster.threshold]
    halves = ([(at, shares[name][first : first + _HALF]) for at, name in holders] for first in (0, _HALF))
    return b"".join(Shamir.combine(half, False) for half in halves)


def fit_together(shares: Mapping[str, bytes], roster: Roster) -> bool:
    """Return whether any of the shares of a secret, holder -> 32 bytes, make the same."""
    return recovered(shares, roster) == recovered(shares, roster, len(shares))


def _hash(share: bytes) -> bytes:
    return hashlib.sha256(share).digest()[:_HALF]


def _split(secret: bytes, roster: Roster) -> Sequence[bytes]:
    """Return the shares of a secret, one per site in roster order."""
    halves = [
        Shamir.split(roster.threshold, len(roster.names), secret[first : first + _HALF], False)
        for first in range(0, SECRET_BYTES, _HALF)
    ]
    return [first[1] + second[1] for first, second in zip(*halves, strict=True)]


def _channel_key(private: X25519PrivateKey, public: bytes, roster: Roster, sender: str, holder: str) -> bytes:
    """Derive the key that seals a sender's shares for a holder; both of them can derive it."""
    return derived(agreed(private, public), f"share {sender} -> {holder}", roster.hash)
