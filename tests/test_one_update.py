"""The way of one update, traced: which functions hold it between the server's request and the next state, and in which forms.

docs/one-update.md says what is traced here. After a change of the way, write it anew:

    ONE_UPDATE=write python -m pytest tests/test_one_update.py
"""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict
from transformers import PreTrainedModel

from fedlingua.backbones.parts import PARTS
from fedlingua.common.cores import on_cores
from fedlingua.exchange import protocol
from fedlingua.exchange.joined import Joined
from fedlingua.exchange.records import from_record
from fedlingua.exchange.trainable import Trainable
from fedlingua.settings.experiment import default_run_config
from strategies.rounds.flower_records import LazyArray
from tests.federations import TWO_SITES
from tests.in_process import InProcessGrid, run

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "one-update.md"
SITE, ROUND, PART = "court", 2, "decoder"
MOST = {"functions": 47, "files": 22, "changes of form": 8, "pass a closed message on": 15}
"""What is reached; wanted are 26, 10 and 6. Whoever shortens the way lowers it."""
MESSAGE, NAMED, FLAT, MODEL, LIST = "message", "named arrays", "flat arrays", "model", "list of arrays"
Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Seen:
    """A function that held one of the followed things, as an argument or as its result.

    Args:
        form: of its container.
        closed: whether all that it held was a Message, whose numbers it did not look at.
    """

    side: str
    step: str
    form: str
    file: str
    function: str
    closed: bool = False


class Trace:
    """Watches calls of this project's functions. followed: step -> the numbers of one part, end to end."""

    def __init__(self, followed: Mapping[str, Numbers]) -> None:
        self.bytes = {step: array.tobytes() for step, array in followed.items()}
        self.seen: list[Seen] = []
        self.side = "server"
        self.models: dict[int, set[str]] = {}  # a frame -> what its model held when it was called
        self.opened: set[int] = set()  # frames that have looked at a message's numbers

    def __enter__(self) -> "Trace":
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, result: Any) -> None:
        code = frame.f_code
        file = code.co_filename.removeprefix(f"{ROOT}/")
        if event not in ("call", "return"):
            return
        if not _is_ours(frame):
            looks = event == "call" and code.co_qualname in OPENS and isinstance(frame.f_locals.get("self"), OPENED)
            if looks and frame.f_locals.get("key", protocol.ARRAYS) == protocol.ARRAYS:
                self.opened |= {id(caller) for caller in [_caller(frame)] if caller}
            return
        if code.co_name.startswith(("<", "__")) or code.co_qualname.startswith("Joined."):
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        arguments = [frame.f_locals[name] for name in names if name in frame.f_locals]
        opened = event == "return" and id(frame) in self.opened
        values = [result, *(arguments if opened else ())] if event == "return" else arguments
        seen = [
            Seen(self.side, step, form, file, code.co_qualname, _is_closed(value) and not opened)
            for value in values
            for step, form in self._held(value, "")
        ]
        seen += [Seen(self.side, step, form, file, code.co_qualname) for step, form in self._in_models(frame, event, arguments)]
        self.seen += dict.fromkeys(seen)
        if event == "return":
            self.opened.discard(id(frame))

    def _in_models(self, frame: FrameType, event: str, arguments: list[Any]) -> list[tuple[str, str]]:
        """A model passes through many functions; of the way are those that put numbers into it, change them or take them out."""
        models = [value for value in arguments if isinstance(value, PreTrainedModel)]
        if not models:
            return []
        parameters = [each.detach().float().numpy() for each in models[0].parameters()]
        now = {step for step, _ in self._held(parameters, MODEL)}
        if event == "call":
            self.models[id(frame)] = now
            return []
        before = self.models.pop(id(frame), now)
        reads = frame.f_code.co_name == "read_joined"
        return [(step, MODEL) for step in sorted(before | now, key=list(self.bytes).index)] if before != now or reads else []

    def _held(self, value: Any, form: str, depth: int = 9) -> Iterator[tuple[str, str]]:
        """(step, form) of what a value holds; arrays are known by their numbers, so a copy counts as what it was copied of."""
        if depth == 0 or isinstance(value, str | int | float | type(None)):
            return
        if isinstance(value, bytes | memoryview):
            yield from ((step, MESSAGE) for step, wanted in self.bytes.items() if wanted in bytes(value))
        elif isinstance(value, np.ndarray):
            numbers = value.tobytes() if value.dtype == np.float32 and value.size >= LEAST and np.any(value) else b""
            matching = (step for step, wanted in self.bytes.items() if numbers and (numbers in wanted or wanted in numbers))
            yield from ((step, form or FLAT) for step in matching)
        elif isinstance(value, LazyArray):  # a Flower array that stands for numbers elsewhere
            yield from self._held(value.numbers, FLAT, depth - 1)
        elif isinstance(value, Message | Array | RecordDict | ArrayRecord):
            inner = value.content.values() if isinstance(value, Message) and value.has_content() else ()
            inner = [value.data] if isinstance(value, Array) else inner if isinstance(value, Message) else value.values()
            for each in inner:
                yield from self._held(each, MESSAGE, depth)
        elif isinstance(value, Joined):
            for each in value.parts.values():
                yield from self._held(each, FLAT, depth - 1)
        elif isinstance(value, Mapping):
            of_arrays = FLAT if set(value) <= set(PARTS) else NAMED
            for each in list(value.values()):
                yield from self._held(each, form or (of_arrays if isinstance(each, np.ndarray) else ""), depth - 1)
        elif isinstance(value, list | tuple):
            for each in value:
                yield from self._held(each, form or (LIST if isinstance(each, np.ndarray) and len(value) > 1 else ""), depth - 1)
        elif is_dataclass(value) and not isinstance(value, type | Trainable):
            for field in fields(value):
                yield from self._held(getattr(value, field.name, None), form, depth - 1)


OPENS = ("RecordDict.array_records", "TypedDict.__getitem__", "TypedDict.values", "TypedDict.items", "Array.children")
OPENED = RecordDict | ArrayRecord | Array
"""Calls of Flower's own that look into a message at its numbers, and whose they are."""


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(tuple(f"{ROOT}/{folder}/" for folder in ("src", "clients", "strategies")))


def _caller(frame: FrameType) -> FrameType | None:
    """The function of this project that called one of Flower's, through whatever of Flower's and Python's own."""
    while frame.f_back and ("/flwr/" in frame.f_code.co_filename or frame.f_code.co_filename.startswith("<frozen")):
        if frame.f_code.co_qualname in ("RecordDict.config_records", "RecordDict.metric_records"):
            return None
        frame = frame.f_back
    while frame.f_back and frame.f_code.co_name.startswith("<"):
        frame = frame.f_back
    return frame if _is_ours(frame) else None


def _is_closed(value: Any) -> bool:
    """Whether a value holds nothing of numbers but in messages."""
    if isinstance(value, list | tuple):
        return all(map(_is_closed, value))
    return isinstance(value, Message | str | int | float | None) or (
        isinstance(value, Mapping)
        and not isinstance(value, RecordDict | ArrayRecord | Joined)
        and _is_closed(list(value.values()))
    )


LEAST = 32
"""Numbers of an array that is looked for: fewer may be like others by chance."""


def part_of(messages: list[Message], kind: str) -> Numbers:
    """The part's numbers in the site's message of a kind, in the round that is followed."""
    for message in messages:
        task = message.content.config_records.get(protocol.TASK, {})
        if message.metadata.message_type == kind and (task.get("site"), task.get("round")) == (SITE, ROUND):
            return from_record(message.content.array_records[protocol.ARRAYS])[PART]
    raise AssertionError(f"no {kind} of round {ROUND}")


def way(seen: list[Seen]) -> list[Seen]:
    """Cut the trace: from where the round's request is made (the round before is in its checkpoint) to the next state."""
    asked = next(place for place, each in enumerate(seen) if (each.step, each.side) == ("update", "site"))
    stored = [place for place, each in enumerate(seen[:asked]) if each.file.startswith("src/fedlingua/runs/")]
    ended = next(place for place, each in enumerate(seen) if each.step == "state" and each.function == MEASURES)
    return list(dict.fromkeys(seen[max(stored) + 1 : ended]))


MEASURES = "SiteStrategy.evaluate"
"""It takes the next state to the sites, to be measured."""


def forms(seen: list[Seen]) -> list[Seen]:
    """The first function of each form that the numbers take, in order; looked up again on the way they do not count again."""
    firsts, update_is_there = list[Seen](), False
    for each in seen:
        update_is_there |= each.step == "update"
        known = any((one.side, one.step, one.form) == (each.side, each.step, each.form) for one in firsts)
        if not known and not (update_is_there and each.step == "request"):
            firsts.append(each)
    return firsts


def _sorted(seen: list[Seen]) -> list[Seen]:
    """By place and step; replies come in any order, so that of the trace is not always the same."""
    steps = ("request", "update", "state")
    return sorted(seen, key=lambda each: (steps.index(each.step), each.side, each.file, each.function, each.form))


def page(seen: list[Seen]) -> str:
    """docs/one-update.md as the trace has it."""
    functions = {(each.file, each.function) for each in seen if not each.closed}
    passing = {(each.file, each.function) for each in seen} - functions
    chain = forms([each for each in seen if not each.closed])
    changes = sum(before.form != after.form for before, after in pairwise(chain))
    rows = dict.fromkeys(
        f"| {each.side} | {each.step} | {each.form} | `{each.function}` | `{each.file}` |"
        for each in _sorted(seen)
        if (each.file, each.function) in functions
    )
    steps = [f"{number}. {each.side}, {each.step}: {each.form} (`{each.function}`)" for number, each in enumerate(chain, start=1)]
    counts = f"functions: {len(functions)}\nfiles: {len({file for file, _ in functions})}\nchanges of form: {changes}\n"
    counts += f"pass a closed message on: {len(passing)}\n"
    closed = [f"| `{function}` | `{file}` |" for file, function in sorted(passing)]
    return TEXT.format(counts=counts, rows="\n".join(rows), steps="\n".join(steps), closed="\n".join(closed))


TEXT = """# The way of one update

The functions that one site's tensors pass from the server's request to the next state, in one round of `adapter-fed` on two sites.
`tests/test_one_update.py` traces them and compares this page; `ONE_UPDATE=write python -m pytest tests/test_one_update.py` writes it.

```text
{counts}```

Three things are followed: the request (what the site starts from), the update (what it has trained), and the state (what the server makes
of all updates), until it is sent out to be measured.

- A function counts if it takes the numbers as an argument or returns them: in a message, in records that a hook gets, or as views of
  memory elsewhere. A function inside another is part of it, unless it gets the numbers itself. Methods of `Joined`, the container, do not
  count.
- A function that only hands a `Message` on, asks for its task or takes its metrics, and never looks at its arrays, does not open it. Such
  functions are in a list of their own below. Counting a message's bytes is looking at it.
- A model passes through all of training. There only those functions count that put the numbers in, change them or take them out.

Two things make the way longer. Flower's hooks, `configure_train` and `aggregate_train`, get and give real records, which takes
`arrays_of`, `state_of`, `content_of` and `update_of`, in a file of their own. And what a site has is not sent again: both sides know
tensors by their hash, and a site stores what it received.

## Forms

A message is the serialized bytes in any envelope (Array, ArrayRecord, RecordDict, Message). Flat arrays are one array per part, from which
a tensor is read by its name.

{steps}

## Functions

| where | what | form | function | file |
|---|---|---|---|---|
{rows}

## Functions that pass a closed message on

| function | file |
|---|---|
{closed}
"""


@pytest.fixture(scope="module")
def seen(tiny_backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    """What a second run of the same bytes shows of what the first one sent."""
    folder = tmp_path_factory.mktemp("one-update")
    (folder / "two.toml").write_text(TWO_SITES)
    short = {"adapter.dim": 4, "batch-size": 8, "accumulation": 1, "beam": 1, "max-tokens": 32, "max-decode-tokens": 4}
    config = {
        **default_run_config(),
        "keep.choose": False,
        "send.code": "none",
        **short,
        "backbone": str(tiny_backbone),
        "federation": str(folder / "two.toml"),
    }
    # What is not measured after round 1 goes out with the request of round 2.
    config |= {"method": "adapter-fed", "rounds": ROUND, "evaluate-every": ROUND, "deadline.phase-s": 60.0}
    _, grid = run(config, folder / "first")
    followed = {
        "request": part_of(grid.sent, protocol.TRAIN),
        "update": part_of(grid.received, protocol.TRAIN),
        "state": part_of(grid.sent, protocol.EVALUATE),
    }
    trace, at_the_site = Trace(followed), InProcessGrid._run

    def marked(self: InProcessGrid, message: Message) -> Message:
        trace.side = "site"
        try:
            return at_the_site(self, message)
        finally:
            trace.side = "server"

    with pytest.MonkeyPatch.context() as patched, trace:
        patched.setattr(InProcessGrid, "_run", marked)
        patched.setattr(on_cores, "__defaults__", (1,))  # what other threads call is not seen
        run(config, folder / "second")
    return way(trace.seen)


def test_the_page_is_what_is_traced(seen: list[Seen]) -> None:
    traced = page(seen)
    if os.environ.get("ONE_UPDATE") == "write":
        PAGE.write_text(traced, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == traced, "ONE_UPDATE=write python -m pytest tests/test_one_update.py"


def test_the_way_is_short(seen: list[Seen]) -> None:
    counted = dict(line.split(": ") for line in page(seen).partition("```text\n")[2].partition("```")[0].splitlines())
    assert {what: int(number) for what, number in counted.items()} == MOST
