"""Masks that cancel in a cluster's sum: Bonawitz et al. 2017, "Practical Secure Aggregation for Privacy-Preserving Machine Learning".

Site i adds to its levels the mask of its own seed b_i and, for every other site j of the cluster, the mask of what the keys of i and
j have in common: with + if i comes before j in the roster, with - if after. Of a sum over the survivors, the pairs' masks cancel but
for those with a site that is gone. The server gets from the other sites' shares b_i of a survivor, or the private key of a site that
is gone, and never both.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fedlingua.exchange.joined import Numbers
from fedlingua.privacy.roster import Roster
from fedlingua.privacy.secrets import Secrets, agreed, derived


def context(
    roster: Roster, run: str, attempt: int, round_number: int, part: str, cluster: str, exponents: Sequence[int], received: str
) -> bytes:
    """Return the hash to which the masks of a part are bound: sites that were told different things have masks that do not cancel.

    received: The hash of the tensors that the round's training began with.
    """
    about = [roster.hash.hex(), run, attempt, round_number, part, cluster, list(exponents), received]
    return hashlib.sha256(json.dumps(about).encode()).digest()


def masked(
    levels: Numbers, secrets: Secrets, roster: Roster, site: str, members: Collection[str], round_number: int, bound: bytes
) -> Numbers:
    """Return a site's numbers under its masks. levels: (n,) unsigned. members: The sites of its cluster. bound: See `context`."""
    result = levels + _stream(own_seed(secrets.own_seed(round_number), bound), levels)
    private = secrets.private_key(round_number)
    for other in members:
        if other != site:
            result = _add_pair(result, private, roster, site, other, round_number, bound)
    return result


def unmasked(
    total: Numbers,
    roster: Roster,
    members: Collection[str],
    seeds: Mapping[str, bytes],
    keys: Mapping[str, bytes],
    round_number: int,
    bound: bytes,
) -> Numbers:
    """Take all masks off a sum over a cluster's survivors.

    Args:
        total: (n,) the sum of what the survivors sent.
        members: The sites of the cluster.
        seeds: Survivor -> the seed of its self mask.
        keys: Site that is gone -> its private key of the round.
    """
    result = total.copy()
    for site in members:
        if site in seeds:
            result -= _stream(own_seed(seeds[site], bound), total)
    for gone in members:
        for site in members if gone in keys else ():
            if site in seeds:  # with the other sign, what this survivor has added
                result = _add_pair(result, keys[gone], roster, gone, site, round_number, bound)
    return result


def own_seed(seed: bytes, bound: bytes) -> bytes:
    """Return the key of a self mask's stream."""
    return derived(seed, "own mask", bound)


def _add_pair(
    numbers: Numbers, private: bytes, roster: Roster, site: str, other: str, round_number: int, bound: bytes
) -> Numbers:
    """Add the mask that `site` has in common with another; their masks are each other's opposite."""
    secret = agreed(X25519PrivateKey.from_private_bytes(private), roster.public_key(other, round_number))
    mask = _stream(derived(secret, "pair mask", bound), numbers)
    return numbers + mask if roster.names.index(site) < roster.names.index(other) else numbers - mask


def _stream(key: bytes, like: Numbers) -> Numbers:
    """Return as many random numbers as `like` has, of its type: ChaCha20's key stream. A key is used once."""
    stream = Cipher(ChaCha20(key, bytes(16)), None).encryptor().update(bytes(like.nbytes))
    return np.frombuffer(stream, like.dtype.newbyteorder("<"))
