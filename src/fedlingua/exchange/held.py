"""Hashes of a request's tensors, one per part. If a site already has a part, only its hash is sent."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange.joined import Numbers, runs
from fedlingua.exchange.protocol import ARRAYS, STATE
from fedlingua.exchange.tensors import NamedTensors, TensorSet

_ROUND, _KEEP, _BASE = "round", "keep", "from."


class NotHeldError(ExchangeError):
    """The site does not have a part that the request names by its hash; the server then sends the part whole."""


@dataclass(frozen=True)
class NamedState:
    """A request's STATE record, which names the request's tensors.

    Args:
        number: The round that the tensors are from; 0: the initial tensors, equal at all sites.
        keep: A round besides the newest whose tensors the site must keep, since the end of the run may need them.
        digests: part -> hash of its numbers. The site already has the parts that are not in the request's ARRAYS.
        bases: part -> hash of the numbers at the site that the request's coded change applies to, for parts sent as a change.
    """

    number: int
    keep: int
    digests: Mapping[str, str]
    bases: Mapping[str, str] = field(default_factory=dict)

    def record(self) -> ConfigRecord:
        """Return the state as a request's record."""
        bases = {f"{_BASE}{part}": digest for part, digest in self.bases.items()}
        return ConfigRecord({_ROUND: self.number, _KEEP: self.keep, **self.digests, **bases})

    @classmethod
    def of(cls, content: RecordDict) -> "NamedState | None":
        """Read the state from a request; None if it has no such record, and therefore holds all its tensors.

        Raises:
            ExchangeError: The record is not of this version.
        """
        if STATE not in content:
            return None
        if STATE not in content.config_records:
            raise ExchangeError(f"a request's state is a {type(content[STATE]).__name__}; wanted a ConfigRecord")
        record: Mapping[str, Any] = content.config_records[STATE]
        hashes = {name: digest for name, digest in record.items() if name not in (_ROUND, _KEEP)}
        bases = {name.removeprefix(_BASE): digest for name, digest in hashes.items() if name.startswith(_BASE)}
        digests = {part: digest for part, digest in hashes.items() if not part.startswith(_BASE)}
        numbers = [record.get(_ROUND), record.get(_KEEP)]
        good = all(isinstance(number, int) and number >= 0 for number in numbers)
        if not good or not all(isinstance(digest, str) for digest in hashes.values()):
            raise ExchangeError(f"a request's state is {dict(record)!r:.200}; wanted two rounds, and a hash for each part")
        return cls(int(record[_ROUND]), int(record[_KEEP]), digests, bases)


def outdated(rounds: Iterable[int], state: NamedState, last: int) -> list[int]:
    """Return the rounds that no later request names: older than the `last` ones, or newer than `state` (from a server that died)."""
    return [number for number in rounds if not state.number - last < number <= state.number and number != state.keep]


def digest_of(*pieces: Numbers) -> str:
    """Return the SHA-256 of a part's numbers, float32 and end to end, given in pieces."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(np.ascontiguousarray(piece).data)
    return digest.hexdigest()


def digests_of(tensors: NamedTensors, chosen: TensorSet) -> dict[str, str]:
    """Return part -> hash of the part's tensors in the set."""
    return {part: digest_of(*pieces) for part, pieces in runs(tensors, chosen).items()}


def identity(content: RecordDict) -> str:
    """Return a hash of a request's content that does not depend on whether its tensors are sent or named by their hashes.

    Tensors that differ from the hashes in the request are refused later, when they are read.
    """
    if (state := NamedState.of(content)) is None:
        return content.object_id
    rest = {name: record for name, record in content.items() if name not in (ARRAYS, STATE)}
    return RecordDict({**rest, STATE: replace(state, bases={}).record()}).object_id
