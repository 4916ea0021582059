"""What a request's tensors are, by the hash of each part: a site is not sent what it already has, it is told its name."""

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
    """A part that a request names and this site does not have: the server sends it whole, then."""


@dataclass(frozen=True)
class NamedState:
    """A request's STATE record.

    Args:
        number: The round that the tensors are of; 0: those that everybody starts from.
        keep: The round whose tensors the site may be asked for at the end, besides the newest.
        digests: part -> hash of its numbers. What the request's ARRAYS do not hold of them, the site has.
        bases: part -> hash of what the site has, of a part that comes as a coded change of that.
    """

    number: int
    keep: int
    digests: Mapping[str, str]
    bases: Mapping[str, str] = field(default_factory=dict)

    def record(self) -> ConfigRecord:
        """As a request holds it."""
        bases = {f"{_BASE}{part}": digest for part, digest in self.bases.items()}
        return ConfigRecord({_ROUND: self.number, _KEEP: self.keep, **self.digests, **bases})

    @classmethod
    def of(cls, content: RecordDict) -> "NamedState | None":
        """Read a request's; None where it has none, that is where all of its tensors come with it.

        Raises:
            ExchangeError: It is not a record of this version.
        """
        record: Mapping[str, Any] | None = content.config_records.get(STATE)
        if record is None:
            return None
        hashes = {name: digest for name, digest in record.items() if name not in (_ROUND, _KEEP)}
        bases = {name.removeprefix(_BASE): digest for name, digest in hashes.items() if name.startswith(_BASE)}
        digests = {part: digest for part, digest in hashes.items() if not part.startswith(_BASE)}
        numbers = [record.get(_ROUND), record.get(_KEEP)]
        good = all(isinstance(number, int) and number >= 0 for number in numbers)
        if not good or not all(isinstance(digest, str) for digest in hashes.values()):
            raise ExchangeError(f"a request's state is {dict(record)!r:.200}; wanted two rounds, and a hash for each part")
        return cls(int(record[_ROUND]), int(record[_KEEP]), digests, bases)


def outdated(rounds: Iterable[int], state: NamedState, last: int) -> list[int]:
    """Those that nobody names again after a request: earlier than the last ones, and later ones, of a server that died since."""
    return [number for number in rounds if not state.number - last < number <= state.number and number != state.keep]


def digest_of(*pieces: Numbers) -> str:
    """SHA-256 over a part's numbers, float32 end to end."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(np.ascontiguousarray(piece).data)
    return digest.hexdigest()


def digests_of(tensors: NamedTensors, chosen: TensorSet) -> dict[str, str]:
    """part -> hash of a set's tensors."""
    return {part: digest_of(*pieces) for part, pieces in runs(tensors, chosen).items()}


def identity(content: RecordDict) -> str:
    """Hash what a request asks, whether its tensors come with it or by name.

    Who sends other tensors than it names is refused when they are read.
    """
    if STATE not in content:
        return content.object_id
    state = NamedState.of(content)
    assert state
    rest = {name: record for name, record in content.items() if name not in (ARRAYS, STATE)}
    return RecordDict({**rest, STATE: replace(state, bases={}).record()}).object_id
