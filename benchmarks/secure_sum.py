"""Seconds that one site masks and the server unmasks a round of mBART-50's adapters among twelve sites, beside the plain update.

    PYTHONPATH=. python benchmarks/secure_sum.py [--to experiments/results/benchmarks/kept.jsonl:secure_sum]

The plain update is packed as float32 and checked, as the server does without masks. Both run in one process, one after the other, with one
thread.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from kept import keep

from fedlingua.exchange.records import pack as pack_record
from fedlingua.exchange.records import unpack as unpack_record
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.privacy.fixed_point import Group, decode, encode, pack, unpack
from fedlingua.privacy.masks import context, masked, unmasked
from fedlingua.privacy.roster import Roster
from fedlingua.privacy.secrets import SEALED_BYTES, Secrets, recovered


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return a call's result and its CPU seconds."""
    began = time.process_time()
    result = call()
    return result, round(time.process_time() - began, 3)


def main() -> None:
    """Print the figures, and keep them where `--to` says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=12)
    parser.add_argument("--numbers", type=int, default=8_060_000)
    parser.add_argument("--to", type=Path)
    given = parser.parse_args()
    names = tuple(f"site-{number}" for number in range(given.sites))
    secrets = {name: Secrets(os.urandom(32)) for name in names}
    channels = tuple(each.channel.public_key().public_bytes_raw() for each in secrets.values())
    public, keys_s = timed(lambda: tuple(each.public_keys(25) for each in secrets.values()))
    roster = Roster(names, channels, public, {"encoder": {"all": names}})
    sealed, shares_s = timed(lambda: {name: secrets[name].sealed_shares(roster, name) for name in names})
    tensor_set = TensorSet("adapters", (TensorSpec("all", (given.numbers,), "encoder", None),))
    change = (0.003 * np.random.default_rng(1).standard_normal(given.numbers)).astype(np.float32)
    record, plain_pack_s = timed(lambda: pack_record({"all": change}, tensor_set))
    _, plain_parse_s = timed(lambda: unpack_record(record, tensor_set))
    group, bound = Group.of(given.sites), context(roster, "run", 1, 1, "encoder", "all", [-5], "hash")
    draws = np.random.default_rng(2)
    (levels, _), encode_s = timed(lambda: encode(change, [-5], [given.numbers], group, draws))
    hidden, mask_s = timed(lambda: masked(levels, secrets[names[0]], roster, names[0], names, 1, bound))
    packed, pack_s = timed(lambda: pack(group.reduced(hidden), group))
    _, unpack_s = timed(lambda: unpack(packed, given.numbers, group))
    survivors = names[1:]

    def share(owner: str, holder: str) -> tuple[bytes, bytes]:
        at = SEALED_BYTES * names.index(holder) * roster.num_sums
        return secrets[holder].open_share(sealed[owner][at : at + SEALED_BYTES], roster, holder, owner, 1)

    def opened() -> tuple[dict[str, bytes], dict[str, bytes]]:
        held = {owner: {holder: share(owner, holder) for holder in survivors} for owner in names}
        seeds = {owner: recovered({holder: both[0] for holder, both in held[owner].items()}, roster) for owner in survivors}
        return seeds, {names[0]: recovered({holder: both[1] for holder, both in held[names[0]].items()}, roster)}

    (seeds, keys), open_s = timed(opened)
    total, unmask_s = timed(lambda: unmasked(hidden, roster, names, seeds, keys, 1, bound))
    _, decode_s = timed(lambda: decode(group.reduced(total), [-5], [given.numbers], group))
    figures = {
        "sites": given.sites,
        "numbers": given.numbers,
        "bytes_a_number": round(len(packed) / given.numbers, 3),
        "site_s": {"encode": encode_s, "mask": mask_s, "pack": pack_s, "float32": plain_pack_s},
        "server_s": {
            "unpack_of_one_site": unpack_s,
            "shares_of_a_round": open_s,
            "unmask_with_one_site_lost": unmask_s,
            "decode": decode_s,
            "float32_of_one_site": plain_parse_s,
        },
        "before_25_rounds_s": {
            "keys_of_a_site": round(keys_s / given.sites, 3),
            "shares_of_a_site": round(shares_s / given.sites, 3),
        },
    }
    keep(figures, given.to, "cryptography", "numpy", "pycryptodome")


if __name__ == "__main__":
    main()
