"""The way of one update, traced: which functions hold it between the server's request and the next state, and in which forms.

docs/one-update.md says what is traced here. After a change of the way, write it anew:

    ONE_UPDATE=write python -m pytest tests/test_one_update.py
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict
from transformers import PreTrainedModel

from fedlingua.backbones.parts import PARTS
from fedlingua.exchange import protocol
from fedlingua.exchange.records import from_record
from fedlingua.settings.config import Scalar
from tests.in_process import run

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "one-update.md"
SITE, ROUND, PART = "court", 2, "decoder"
MOST_FUNCTIONS, MOST_FILES, MOST_CHANGES = 30, 12, 7
STEPS = ("request", "update", "state")
"""What is followed, by its numbers: what the site starts from, what it trains, and what the server makes of all sites' updates."""
MESSAGE, NAMED, FLAT, MODEL, LIST = "message", "named tensors", "flat array a part", "model", "list of arrays"


@dataclass(frozen=True)
class Seen:
    """A function that held one of the followed things, as an argument or as its result. form: of its container."""

    file: str
    function: str
    step: str
    form: str


class Trace:
    """Watches calls of this project's functions. followed: step -> the numbers of one part, end to end."""

    def __init__(self, followed: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self.bytes = {step: array.tobytes() for step, array in followed.items()}
        self.seen: list[Seen] = []

    def __enter__(self) -> "Trace":
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, result: Any) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event not in ("call", "return") or code.co_name.startswith("<") or not path.is_relative_to(ROOT):
            return
        file = str(path.relative_to(ROOT))
        if not file.startswith(("src/", "clients/", "strategies/")):
            return
        names = code.co_varnames[code.co_name == "__init__" : code.co_argcount + code.co_kwonlyargcount]
        values = [result] if event == "return" else [frame.f_locals[name] for name in names if name in frame.f_locals]
        for value in values:
            for step, form in self._held(value, ""):
                self.seen.append(Seen(file, code.co_qualname, step, form))

    def _held(self, value: Any, form: str, depth: int = 5) -> Iterator[tuple[str, str]]:
        """(step, form) of what a value holds; each array is looked at by its numbers, so a copy counts as what it was copied of."""
        if depth == 0 or isinstance(value, str | int | float | type(None)):
            return
        if isinstance(value, bytes | memoryview):
            yield from ((step, MESSAGE) for step, wanted in self.bytes.items() if wanted in bytes(value))
        elif isinstance(value, np.ndarray):
            numbers = value.tobytes() if value.dtype == np.float32 and value.size >= 32 else b""
            yield from (
                (step, form or FLAT)
                for step, wanted in self.bytes.items()
                if numbers and np.any(value) and (numbers in wanted or wanted in numbers)
            )
        elif isinstance(value, PreTrainedModel):
            for _, parameter in value.named_parameters():
                if parameter.numel() >= 32:
                    yield from self._held(parameter.detach().numpy(), MODEL, depth - 1)
        elif isinstance(value, Message):
            if value.has_content():
                yield from self._held(value.content, MESSAGE, depth)
        elif isinstance(value, Array):
            yield from self._held(value.data, MESSAGE, depth)
        elif isinstance(value, RecordDict | ArrayRecord):
            for each in value.values():
                yield from self._held(each, MESSAGE, depth)
        elif isinstance(value, Mapping):
            flat = set(value) <= set(PARTS)
            for each in list(value.values()):
                yield from self._held(each, form or (FLAT if flat else NAMED), depth - 1)
        elif isinstance(value, list | tuple):
            for each in value:
                yield from self._held(each, form or (LIST if isinstance(each, np.ndarray) else ""), depth - 1)
        elif is_dataclass(value) and not isinstance(value, type):
            for field in fields(value):
                yield from self._held(getattr(value, field.name, None), form, depth - 1)


def part_of(messages: list[Message], kind: str, number: int) -> np.ndarray[Any, Any]:
    """The part's numbers in the site's message of a kind and round."""
    for message in messages:
        task = message.content.config_records.get(protocol.TASK, {})
        if message.metadata.message_type == kind and (task.get("site"), task.get("round")) == (SITE, number):
            return from_record(message.content.array_records[protocol.ARRAYS])[PART]
    raise AssertionError(f"no {kind} of round {number}")


@pytest.fixture
def seen(four_sites: dict[str, Scalar], tmp_path: Path) -> list[Seen]:
    """What a second run of the same bytes shows of what the first one sent."""
    config = {**four_sites, "method": "adapter-fed", "rounds": ROUND, "accumulation": 1}
    _, grid = run(config, tmp_path / "first")
    followed = {
        "request": part_of(grid.sent, protocol.TRAIN, ROUND),
        "update": part_of(grid.received, protocol.TRAIN, ROUND),
        "state": part_of(grid.sent, protocol.EVALUATE, ROUND),
    }
    with Trace(followed) as trace:
        run(config, tmp_path / "second")
    return trace.seen


def test_print(seen):
    last = None
    for one in seen:
        if one != last:
            print(one.step, "|", one.form, "|", one.file, one.function)
        last = one
