"""The tensors that a site received, stored by round, so that a later request can name a part by its hash instead of sending it again."""

from pathlib import Path
from typing import cast

import numpy as np
from flwr.app import ArrayRecord, RecordDict
from safetensors import safe_open
from safetensors.numpy import load_file

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange import protocol
from fedlingua.exchange.coding.change import decode_change
from fedlingua.exchange.held import NamedState, NotHeldError, digest_of, outdated
from fedlingua.exchange.joined import Joined, Numbers, join, joined_set
from fedlingua.exchange.records import opened, unpack
from fedlingua.exchange.tensors import NamedTensors, TensorSet, check_forms, not_finite, save_tensors
from fedlingua.settings.codes import EXACT, Code


class ReceivedFiles:
    """A folder with one file per round: each part's tensors end to end, and the parts' hashes.

    Args:
        initial: The tensors from which every site starts; round 0 needs no file.
        code: The code of a part that is sent as a change instead of as tensors.
        last: How many of the last rounds are stored, besides the round that may be delivered.
    """

    def __init__(self, directory: Path, chosen: TensorSet, initial: NamedTensors, code: Code = EXACT, last: int = 1) -> None:
        self.directory, self.chosen, self.initial = directory, chosen, initial
        self.code, self.last = code, last

    def receive(self, content: RecordDict) -> NamedTensors:
        """Check, store and return a request's tensors, both those sent and those named by hash. A request may have none.

        Raises:
            NotHeldError: A part is named by hash but is not stored here. ExchangeError: A part is not as it should be.
        """
        record, state = content.array_records.get(protocol.ARRAYS, ArrayRecord()), NamedState.of(content)
        if state is None:
            return unpack(record, self.chosen, may_be_empty=True)
        wanted, given = joined_set(self.chosen), opened(record)
        if unknown := set(state.digests) ^ set(wanted.names):
            raise ExchangeError(
                f"a request's state names {', '.join(sorted(state.digests))}; {', '.join(sorted(unknown))} is wrong"
            )
        for part, base in state.bases.items():
            if part in given and self.code.method == "none":
                raise ExchangeError(f"part {part!r} comes as a change of what is here; the run has no code for that")
            if part in given:
                given[part] = decode_change(self._held(part, base), given[part], self.chosen.shapes_of(part), self.code)
        parts = given | {part: self._held(part, digest) for part, digest in state.digests.items() if part not in given}
        check_forms({part: (numbers.dtype, numbers.shape) for part, numbers in parts.items()}, wanted)
        for part, numbers in given.items():
            if digest_of(numbers) != state.digests[part]:
                raise ExchangeError(f"part {part!r} of a request is not what its hash says; wanted {state.digests[part]}")
            if not np.isfinite(numbers).all():
                raise not_finite(part)
        self._save(parts, state)
        return Joined(parts, self.chosen)

    def last_rounds(self, without: int) -> list[NamedTensors]:
        """Load the tensors of the last `self.last` rounds, in order, except those of round `without`."""
        oldest = max(rounds := self._rounds, default=0) - self.last
        wanted = [number for number in rounds if number > oldest and number != without]
        return [Joined(load_file(self._file(number)), self.chosen) for number in wanted]

    def _held(self, part: str, digest: str) -> Numbers:
        for number in reversed(self._rounds):
            with safe_open(self._file(number), "numpy") as stored:
                if stored.metadata().get(part) == digest:
                    return cast(Numbers, stored.get_tensor(part))
        initial = join(self.initial, self.chosen).get(part)
        if initial is None or digest_of(initial) != digest:
            raise NotHeldError(f"part {part!r} with the hash {digest} is not here")
        return initial

    def _save(self, parts: dict[str, Numbers], state: NamedState) -> None:
        """Store the parts and remove the rounds that the server will not name again."""
        if state.number and self._digests(state.number) != dict(state.digests):
            save_tensors(parts, self._file(state.number), state.digests)
        for number in outdated(self._rounds, state, self.last):
            self._file(number).unlink(missing_ok=True)

    def _digests(self, number: int) -> dict[str, str]:
        if not self._file(number).is_file():
            return {}
        with safe_open(self._file(number), "numpy") as stored:
            return dict(stored.metadata())

    @property
    def _rounds(self) -> list[int]:
        return sorted(int(file.stem) for file in self.directory.glob("*.safetensors") if file.stem.isdecimal())

    def _file(self, number: int) -> Path:
        return self.directory / f"{number:04d}.safetensors"
