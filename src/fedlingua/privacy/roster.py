"""The roster of a secure sum: the sites, their keys and their clusters. Every mask is bound to the roster's hash."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedlingua.backbones.parts import PARTS
from fedlingua.clustering.clusters import Clusters
from fedlingua.common.errors import ExchangeError

KEY_BYTES = 32
"""Bytes of an X25519 public key."""
MOST_SHARE = 0.5
"""The largest weight of a site among three or more: a sum that is mostly one site's change would tell it."""

SCORES = 1
"""The number of the sum of all sites' scores."""


def num_sums(num_rounds: int) -> int:
    """Return the number of a run's sums: the scores, and for each round its updates and its dev loss, which is also that of round 0."""
    return 2 * num_rounds + 2


def training_sum(round_number: int) -> int:
    """Return the number of the sum of a round's updates; odd, and above SCORES."""
    return 2 * round_number + 1


def dev_loss_sum(round_number: int) -> int:
    """Return the number of the sum of the dev losses after a round, if they are measured without training; even."""
    return 2 * round_number + 2


def sum_name(number: int) -> str:
    """Return what a sum is of, in words."""
    if number == SCORES:
        return "the scores"
    return f"round {(number - 1) // 2}" if number % 2 else f"the dev loss of round {(number - 2) // 2}"


@dataclass(frozen=True)
class Roster:
    """The sites of a secure sum in federation order.

    Args:
        names: The sites.
        channels: Each site's public key for sealing shares.
        keys: Each site's public keys for masks, 32 bytes per sum, end to end.
        clusters: Part -> cluster -> sites; a part without tensors has none.
        signers: Each site's public node key, one line of OpenSSH; empty in a simulation.
        signatures: Each site's signature of `signed_message` by its node key; empty in a simulation.
        sizes: The sites' training sentences, by which their changes are weighted; empty: all have equal weights.
        settings: Hash of the run's settings: of a sum of sites that train by others, one could be told alone.
    """

    names: tuple[str, ...]
    channels: tuple[bytes, ...]
    keys: tuple[bytes, ...]
    clusters: Clusters
    signers: tuple[str, ...] = ()
    signatures: tuple[bytes, ...] = ()
    sizes: tuple[int, ...] = ()
    settings: str = ""

    @property
    def threshold(self) -> int:
        """The fewest sites that can open a sum: more than two thirds, so that it cannot be opened for two lists of sites."""
        return 2 * len(self.names) // 3 + 1

    @property
    def num_sums(self) -> int:
        return len(self.keys[0]) // KEY_BYTES

    @cached_property
    def hash(self) -> bytes:
        """SHA-256 over the whole roster."""
        return hashlib.sha256(json.dumps(self.record(), sort_keys=True, default=bytes.hex).encode()).digest()

    def public_key(self, site: str, number: int) -> bytes:
        """Return a site's public key for the masks of a sum."""
        return self.keys[self.names.index(site)][KEY_BYTES * (number - 1) : KEY_BYTES * number]

    def clusters_of(self, site: str) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Return part -> (cluster of the site's part, the sites of that cluster)."""
        return {
            part: next((name, sites) for name, sites in self.clusters[part].items() if site in sites)
            for part in PARTS
            if self.clusters.get(part)
        }

    def factors(self, members: Sequence[str], temperature: float) -> dict[str, float]:
        """Return what each member of a cluster multiplies its change by: its weight (FedAvg, Liu et al. 2023, eq. 2) over the largest.

        temperature: `sampling-temperature`, which evens out sizes.
        """
        if not self.sizes:
            return dict.fromkeys(members, 1.0)
        sizes = {site: self.sizes[self.names.index(site)] for site in members}
        return {site: (size / max(sizes.values())) ** (1 / temperature) for site, size in sizes.items()}

    def check_weights(self, members: Sequence[str], temperature: float) -> None:
        """Raise ExchangeError if one of three or more members would have more than half of the weight in their sum."""
        factors = self.factors(members, temperature)
        site = max(factors, key=factors.__getitem__, default="")
        if len(members) > 2 and (share := factors[site] / sum(factors.values())) > MOST_SHARE:
            raise ExchangeError(
                f"site {site} has {share:.0%} of the weight in the secure sum of {', '.join(members)}, which would tell its change; wanted "
                f"{MOST_SHARE:.0%} at most: raise sampling-temperature, or give aggregation = 'fed-mean'"
            )

    def record(self) -> dict[str, Any]:
        """Return the roster as the content of a request's ConfigRecord."""
        clusters = {part: {name: list(sites) for name, sites in named.items()} for part, named in self.clusters.items()}
        return {
            "names": list(self.names),
            "channels": b"".join(self.channels),
            "keys": b"".join(self.keys),
            "clusters": json.dumps(clusters, sort_keys=True),
            "signers": list(self.signers),
            "signatures": [each.hex() for each in self.signatures],
            "sizes": list(self.sizes),
            "settings": self.settings,
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Roster":
        """Read a roster from what `record` returned.

        Raises:
            ExchangeError: A field is missing, a site is named twice, a key has a wrong length, or clusters do not match the roster's sites.
        """
        try:
            names = tuple(str(name) for name in record["names"])
            channels, keys = bytes(record["channels"]), bytes(record["keys"])
            clusters: Clusters = {
                part: {str(name): tuple(map(str, sites)) for name, sites in named.items()}
                for part, named in json.loads(record["clusters"]).items()
            }
            signers = tuple(str(line) for line in record["signers"])
            signatures = tuple(bytes.fromhex(each) for each in record["signatures"])
            sizes, settings = tuple(int(size) for size in record["sizes"]), str(record["settings"])
            of_site = len(keys) // max(1, len(names))
            well_formed = (
                len(set(names)) == len(names) > 1
                and len(channels) == KEY_BYTES * len(names)
                and len(signers) == len(signatures)
                and len(signers) in (0, len(names))
                and len(sizes) in (0, len(names))
                and min(sizes, default=1) > 0
                and of_site >= KEY_BYTES
                and of_site % KEY_BYTES == 0
                and len(keys) == of_site * len(names)
                and set(clusters) <= set(PARTS)
                and all(
                    sorted(site for sites in named.values() for site in sites) == sorted(names) for named in clusters.values()
                )
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ExchangeError(f"the roster of the secure sum cannot be read ({type(error).__name__})") from error
        if not well_formed:
            raise ExchangeError(
                "the roster of the secure sum is not one: wanted two sites or more, each once, with a key for shares and one for each "
                "sum, and in one cluster of every part; with the sizes of all or of none"
            )
        each = range(len(names))
        return cls(
            names,
            tuple(channels[KEY_BYTES * at : KEY_BYTES * (at + 1)] for at in each),
            tuple(keys[of_site * at : of_site * (at + 1)] for at in each),
            clusters,
            signers,
            signatures,
            sizes,
            settings,
        )


def signed_message(run: str, attempt: int, site: str, channel: bytes, keys: bytes) -> bytes:
    """Return the message that a site's node key signs: its public keys with their purpose, run, attempt and site."""
    return json.dumps(["secure sum", run, attempt, site, channel.hex(), hashlib.sha256(keys).hexdigest()]).encode()


def members_hash(signers: Mapping[str, str]) -> str:
    """Return the hash of sites and node keys that site owners approve. signers: site -> one line of OpenSSH, whose comment is ignored."""
    lines = sorted([site, *line.split()[:2]] for site, line in signers.items())
    return hashlib.sha256(json.dumps(["roster", lines]).encode()).hexdigest()
