"""Masks that cancel in a cluster's sum: Bonawitz et al. 2017, "Practical Secure Aggregation for Privacy-Preserving Machine Learning".

Site i adds to its levels a self mask, made from its own seed b_i, and a pair mask for every other site j of the cluster, made from the
shared secret of their keys: added if i comes before j in the roster, else subtracted. In a sum over the surviving sites all pair masks
cancel except those shared with a lost site. From the sites' shares the server recovers either the seed b_i of a survivor or the private
key of a lost site, never both for one site.
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

MODELS = "models"
"""Key of a request for a part of a sum: part -> cluster -> the hash of the tensors that its sites have received, as JSON."""
WITHOUT = "without"
"""Key of such a request: the sites of the roster that the sum is without, because they are not drawn, or gave no usable shares.

A server may so leave out whom it likes, but no sum is over fewer sites than open one, and a round is opened over one list of sites, in
whatever attempt: sums over a list and over the same without one site are of different rounds, so of different updates. Fewer drawn
sites are refused, since those that are not in a sum would have to open it, and these do not know of which tensors the losses in it are."""


def common_to_all(
    models: Mapping[str, Mapping[str, str]], measure: int | None, number: int, without: Collection[str] = ()
) -> str:
    """Return what all sites of a sum are asked on. models: as under MODELS; empty: the published backbone. measure: the round whose dev
    loss is asked for besides. number: the round. without: as under WITHOUT."""
    return json.dumps([models, measure, number, *sorted(without)], sort_keys=True)


def context(
    roster: Roster, run: str, attempt: int, number: int, part: str, cluster: str, exponents: Sequence[int], common: str
) -> bytes:
    """Return the hash to which a part's masks are bound, so that the masks of sites with different inputs do not cancel.

    Args:
        number: The number of the sum.
        common: What `common_to_all` returned.
    """
    about = [roster.hash.hex(), run, attempt, number, part, cluster, list(exponents), common]
    return hashlib.sha256(json.dumps(about).encode()).digest()


def masked(
    levels: Numbers, secrets: Secrets, roster: Roster, site: str, members: Collection[str], number: int, bound: bytes
) -> Numbers:
    """Add a site's masks to its levels, (n,) unsigned. members: The sites of its cluster. bound: The hash that `context` returns."""
    result = levels + _own_mask(secrets.own_seed(number), bound, levels)
    private = secrets.private_key(number)
    for other in members:
        if other != site:
            result = _add_pair(result, private, roster, site, other, number, bound)
    return result


def unmasked(
    total: Numbers,
    roster: Roster,
    members: Collection[str],
    seeds: Mapping[str, bytes],
    keys: Mapping[str, bytes],
    number: int,
    bound: bytes,
) -> Numbers:
    """Remove all masks from the sum over a cluster's surviving sites.

    Args:
        total: (n,), the sum of the survivors' masked numbers.
        members: The sites of the cluster.
        seeds: Survivor -> the seed of its self mask.
        keys: Lost site -> its private key of the sum.
    """
    result = total.copy()
    for site in members:
        if site in seeds:
            result -= _own_mask(seeds[site], bound, total)
    for gone in members:
        for site in members if gone in keys else ():
            if site in seeds:  # the opposite of the mask that this survivor added
                result = _add_pair(result, keys[gone], roster, gone, site, number, bound)
    return result


def _own_mask(seed: bytes, bound: bytes, like: Numbers) -> Numbers:
    return _stream(derived(seed, "own mask", bound), like)


def _add_pair(numbers: Numbers, private: bytes, roster: Roster, site: str, other: str, number: int, bound: bytes) -> Numbers:
    """Add to `site`'s numbers its pair mask with `other`, whose own pair mask has the opposite sign."""
    secret = agreed(X25519PrivateKey.from_private_bytes(private), roster.public_key(other, number))
    mask = _stream(derived(secret, "pair mask", bound), numbers)
    return numbers + mask if roster.names.index(site) < roster.names.index(other) else numbers - mask


def _stream(key: bytes, like: Numbers) -> Numbers:
    """Return ChaCha20's key stream as numbers of the size and type of `like`. A key is used only once."""
    stream = Cipher(ChaCha20(key, bytes(16)), None).encryptor().update(bytes(like.nbytes))
    return np.frombuffer(stream, like.dtype.newbyteorder("<"))
