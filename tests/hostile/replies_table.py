"""What one site of four may answer instead of the truth. Each row is a whole run: the court lies once, in one phase of one round.

A row holds where the run ends completed, the court is named with the reason, and the outcome (tensors, best round, dev losses, scores,
clusters) is to the last digit that of the run in which the court said nothing there; or, where its answer is one that an honest site
might give, that of the run in which it was honest.
"""

import io
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from fedlingua.exchange import protocol
from fedlingua.exchange.records import from_record, to_record
from tests.hostile.attacks import Attack, Outcome
from tests.hostile.world import SITE, Contents, Lie, play, silent, without, world

TITLE = "Replies that cannot be true"
Change = Callable[[Message], object]
Changes = tuple[tuple[str, Any], ...]

# --- What a lie is made of -----------------------------------------------------------------------------------------------------


def metrics(key: str, value: Any, record: str = protocol.METRICS) -> Change:
    return lambda reply: reply.content.metric_records[record].__setitem__(key, value)


def times(key: str, factor: float) -> Change:
    def change(reply: Message) -> None:
        sums = reply.content.metric_records[protocol.METRICS]
        sums[key] = type(sums[key])(sums[key] * factor)  # type: ignore[call-arg, operator]

    return change


def loss_of(nats: float, record: str = protocol.METRICS) -> Change:
    """So many nats a token, of as many tokens as there are."""

    def change(reply: Message) -> None:
        sums = reply.content.metric_records[record]
        sums["nll_sum"] = nats * float(sums["num_tokens"])  # type: ignore[arg-type]

    return change


def lacks(key: str, record: str = protocol.METRICS) -> Change:
    return lambda reply: reply.content[record].pop(key)


def says(key: str, value: Any, record: str = protocol.TASK) -> Change:
    return lambda reply: reply.content.config_records[record].__setitem__(key, value)


def brings(name: str, record: Any) -> Change:
    return lambda reply: reply.content.__setitem__(name, record)


def leaves_out(name: str) -> Change:
    return lambda reply: reply.content.pop(name)


def first_tensor(change: Callable[[Any], Any], record: str = protocol.ARRAYS) -> Change:
    def apply(reply: Message) -> None:
        tensors = from_record(reply.content.array_records[record])
        name = next(iter(tensors))
        tensors[name] = np.asarray(change(tensors[name]))
        reply.content.array_records[record] = to_record(tensors)

    return apply


def all_tensors(change: Callable[[Any], Any]) -> Change:
    def apply(reply: Message) -> None:
        tensors = from_record(reply.content.array_records[protocol.ARRAYS])
        reply.content.array_records[protocol.ARRAYS] = to_record({name: change(array) for name, array in tensors.items()})

    return apply


def raw(change: Callable[[bytes], bytes], **described: Any) -> Change:
    """The serialized bytes of the encoder's array, and what Flower says of them."""

    def apply(reply: Message) -> None:
        arrays = reply.content.array_records[protocol.ARRAYS]
        of = {name: getattr(arrays["encoder"], name) for name in ("dtype", "shape", "stype")} | described
        arrays["encoder"] = Array(of["dtype"], of["shape"], of["stype"], change(arrays["encoder"].data))

    return apply


def header(text: str, version: int = 1) -> Callable[[bytes], bytes]:
    """An npy header of one's own over the same numbers."""

    def change(data: bytes) -> bytes:
        numbers = data[10 + int.from_bytes(data[8:10], "little") :]
        line = text.encode().ljust(117) + b"\n"
        return b"\x93NUMPY" + bytes([version, 0]) + len(line).to_bytes(2 if version == 1 else 4, "little") + line + numbers

    return change


def pickled(data: bytes) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return stream.getvalue()


def edited(kind: str, edit: Callable[[Any], Any]) -> Callable[[Contents, str], None]:
    """Change the body, which is JSON, of the first serialized object of a kind."""

    def wire(contents: Contents, number: str) -> None:
        name = next(name for name, content in contents.items() if content.startswith(f"{kind} ".encode()))
        head, _, body = contents[name].partition(b"\0")
        changed = json.dumps(edit(json.loads(body))).encode()
        contents[name] = b" ".join([*head.split(b" ")[:2], str(len(changed)).encode()]) + b"\0" + changed

    return wire


def renamed(to: str, name: str) -> Callable[[Any], Any]:
    return lambda references: {to if one == name else one: of for one, of in references.items()}


def garbled(kind: str, change: Callable[[bytes], bytes]) -> Callable[[Contents, str], None]:
    """Change the bytes of the first serialized object of a kind."""

    def wire(contents: Contents, number: str) -> None:
        name = next(name for name, content in contents.items() if content.startswith(f"{kind} ".encode()))
        contents[name] = change(contents[name])

    return wire


def bomb(contents: Contents, number: str) -> None:
    """One chunk of 1 MB on the wire, and a descriptor that wants it 400 times."""
    name = next(name for name, content in contents.items() if content.startswith(b"Array "))
    chunk = next(name for name, content in contents.items() if content.startswith(b"ArrayChunk "))
    _, _, body = contents[name].partition(b"\0")
    contents[chunk] = b"ArrayChunk  1000000\0" + bytes(1_000_000)
    asked = json.dumps({**json.loads(body), "arraychunk_ids": [0] * 400}).encode()
    contents[name] = f"Array {chunk} {len(asked)}\0".encode() + asked


def error(reason: str, code: int = 100) -> Callable[[Message], Message]:
    return lambda request: Message(Error(code, reason), reply_to=request)


def of_another(request: Message) -> Message:
    """A good reply in form, which says that it answers somebody else's message."""
    reply = Message(RecordDict({protocol.TASK: ConfigRecord({"site": "bank"})}), reply_to=request)
    reply.metadata.__dict__["_reply_to_message_id"] = "f" * 64
    return reply


def not_a_dict(contents: Contents, number: str) -> None:
    """The message's content is a record of arrays, where Flower has a dictionary of records."""
    arrays = next(name for name, content in contents.items() if content.startswith(b"ArrayRecord "))
    root = contents[number]
    kind, _, rest = root.partition(b" ")
    _, _, tail = rest.partition(b" ")
    contents[number] = b" ".join([kind, arrays.encode(), tail])


# --- Rows ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """lie, and the words that have to be in what is said of it. as_honest: the outcome is the honest run's instead of the silent one's."""

    lie: Lie
    said: str
    changes: Changes = ()
    as_honest: bool = False

    def play(self, folder: Path) -> Outcome:
        played = play(world(*self.changes), self.lie, folder / "run")
        phase, number = ("", 0) if self.as_honest else (self.lie.phase, self.lie.number)
        wanted = without(self.changes, phase, number)
        losses = wanted["losses"] if self.as_honest else self._losses(played.result["losses"], wanted["losses"])
        differs = [key for key in wanted if key != "losses" and played.result[key] != wanted[key]]
        differs += ["losses"] if losses != wanted["losses"] else []
        named = [words for words in played.named if re.search(self.said, words)]
        for file in folder.rglob("*.json*"):
            file.read_bytes().decode("utf-8")
            assert file.stat().st_size < 100_000, f"{file} has {file.stat().st_size} bytes"
        if differs:
            return Outcome(False, f"changed: {', '.join(differs)}")
        return Outcome(bool(named), named[0] if named else f"said: {'; '.join(played.named) or 'nothing'}; wanted {self.said}")

    def _losses(self, played: list[Any], wanted: list[Any]) -> list[Any]:
        """A site whose update is left out has measured the round before all the same, as an honest one."""
        before = self.lie.number - 1
        if self.lie.phase == protocol.TRAIN and played[before] == without(self.changes, "", 0)["losses"][before]:
            return [*played[:before], wanted[before], *played[before + 1 :]]
        return played


def rows(
    phase: str,
    lies: dict[str, tuple[Any, str]],
    number: int = 1,
    changes: Changes = (),
    prefix: str = "",
    until: int = 0,
    times: int = 99,
    **more: Any,
) -> dict[str, Row]:
    """Rows of one phase. lies: name -> (what is changed of the reply, or a Lie's own part, and what has to be said)."""
    kinds = {"wire": {"wire"}, "instead": {"instead"}}
    made = {}
    for name, (change, said) in lies.items():
        kind, call = change if isinstance(change, tuple) else ("content", change)
        assert kind in {"content", *kinds}, kind
        made[f"{prefix or phase.rpartition('.')[2]}: {name}"] = Row(
            Lie(phase, number, **{kind: call}, until=until, times=times), said, changes, **more
        )
    return made


ABOUT = f"{protocol.SITE_PREFIX}{SITE}"
DESCRIBE: dict[str, tuple[Any, str]] = {
    "2^50 sentences of train": (says("train", 2**50, ABOUT), "do not add up"),
    "2^50 sentences, and as many read": (
        lambda reply: reply.content[ABOUT].update({"train": 2**50, "kept": 2**51, "read": 2**51, "dropped": [], "reasons": []}),
        "1000 times the sites' median",
    ),
    "2^50 sentences of dev": (
        lambda reply: reply.content[ABOUT].update({"dev": 2**50, "kept": 2**51, "read": 2**51, "dropped": [], "reasons": []}),
        "sentences of dev, over",
    ),
    "2^50 sentences of test": (
        lambda reply: reply.content[ABOUT].update({"test": 2**50, "kept": 2**51, "read": 2**51, "dropped": [], "reasons": []}),
        "sentences of test, over",
    ),
    "sentences below 0": (says("train", -5, ABOUT), "wanted a count"),
    "half a sentence": (says("dev", 0.5, ABOUT), "wanted a count"),
    "sentences in words": (says("train", "many", ABOUT), "wanted a count"),
    "a list of sentences": (says("train", [1, 2], ABOUT), "wanted a count"),
    "2^60 dropped": (says("read", 2**60, ABOUT), "wanted a count"),
    "more in the splits than was kept": (says("kept", 1, ABOUT), "do not add up"),
    "no size": (lacks("train", ABOUT), "does not tell its train"),
    "a key of its own": (says("notes", "x", ABOUT), "tells an unknown 'notes'"),
    "other directions": (says("directions", ["xx-yy"], ABOUT), "the federation file says"),
    "10,000 directions": (says("directions", ["de-fr"] * 10_000, ABOUT), "has the directions"),
    "a sentence as a reason": (says("reasons", ["a secret sentence"], ABOUT), "drops sentences for reasons|not two lists"),
    "reasons without numbers": (says("reasons", ["empty"], ABOUT), "not two lists of one length|reasons"),
    "text in place of a failure's type": (
        lambda reply: reply.content[ABOUT].update({"failures": ["two words"], "failed_documents": [1]}),
        "not one word",
    ),
    "another backbone": (says("fingerprint", "0" * 64, protocol.NODE), "another backbone"),
    "a fingerprint that is a list": (says("fingerprint", [1] * 99, protocol.NODE), "another backbone"),
    "other code": (says("code", "0" * 64, protocol.NODE), "runs other code"),
    "no word of its code": (leaves_out(protocol.NODE), "another backbone"),
    "a name with a lone surrogate": (
        ("wire", edited("RecordDict", renamed("site.\ud800", ABOUT))),
        r"\\ud800|not in the federation",
    ),
    "a name that clears the terminal": (("wire", edited("RecordDict", renamed("site.\x1b[2J", ABOUT))), "not in the federation"),
    "a name of 100 kB": (("wire", edited("RecordDict", renamed("site." + "a" * 100_000, ABOUT))), "not in the federation"),
    "1 MB of itself": (says("notes", "x" * 1_100_000, ABOUT), "wanted at most|tells more than"),
    "an error of 10 MB": (("instead", error("x" * 10_000_000)), "^x{1999}"),
    "an error that clears the terminal": (("instead", error("\x1b[2J\x1b]0;title\x07gone")), r"^\\x1b\[2J"),
}
BESIDES: dict[str, tuple[Any, str]] = {
    "9,000 unknown names": (
        lambda reply: reply.content.update({f"site.{number}": ConfigRecord({"a": 1}) for number in range(9_000)}),
        "nor are 8999 more|tells more than",
    ),
    "900 unknown names": (
        lambda reply: reply.content.update({f"site.{number}": ConfigRecord({"a": number}) for number in range(900)}),
        "nor are 899 more",
    ),
    "a name that nobody has": (brings("site.nobody", ConfigRecord({"a": 1})), "not in the federation file"),
}

TRAIN: dict[str, tuple[Any, str]] = {
    # Its form
    "no encoder": (lambda reply: reply.content[protocol.ARRAYS].pop("encoder"), "is missing"),
    "a part of its own": (lambda reply: reply.content[protocol.ARRAYS].update(extra=Array(np.ones(3))), "'extra' first"),
    "no tensors": (brings(protocol.ARRAYS, ArrayRecord()), "is missing"),
    "a shape that does not broadcast": (first_tensor(lambda array: array[:-1]), "has shape"),
    "a shape that broadcasts": (first_tensor(lambda array: array[None]), "has shape"),
    "a scalar for a tensor": (first_tensor(lambda array: np.float32(1)), r"has shape \(\)"),
    "complex numbers": (first_tensor(lambda array: array.astype(np.complex64)), "complex64; wanted float32"),
    "strings": (first_tensor(lambda array: np.full(array.shape, "a")), "wanted float32"),
    "whole numbers": (first_tensor(lambda array: array.astype(np.int32)), "int32; wanted float32"),
    "doubles": (first_tensor(lambda array: array.astype(np.float64)), "float64; wanted float32|wanted at most"),
    "half precision": (first_tensor(lambda array: array.astype(np.float16)), "float16; wanted float32"),
    "numbers the other way round": (first_tensor(lambda array: array.astype(">f4")), "wanted float32"),
    "bytes cut off": (raw(lambda data: data[:-5]), "does not decode"),
    "no bytes": (raw(lambda data: b""), "does not decode"),
    "a pickled object": (raw(pickled), "does not decode"),
    "a header that numpy chokes on": (raw(header("{'descr': ((((")), "does not decode"),
    "a header with a call in it": (
        raw(header("{'descr': __import__('os').getpid(), 'fortran_order': False, 'shape': (1,)}")),
        "does not decode",
    ),
    "columns first": (raw(header("{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}")), "does not decode"),
    "a shape of 10^18": (raw(header("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 10**18)}")), "does not decode"),
    "a shape below 0": (raw(header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}")), "does not decode"),
    "a version of npy that is none": (raw(header("{}", version=9)), "does not decode"),
    "another serialization": (raw(lambda data: data, stype="pickle"), "serialized as 'pickle'"),
    "NaN in one tensor": (first_tensor(lambda array: np.full_like(array, np.nan)), "NaN or infinity"),
    "one NaN": (
        first_tensor(lambda array: np.where(np.arange(array.size) == 7, np.nan, array).astype(np.float32)),
        "NaN or infinity",
    ),
    "infinity": (first_tensor(lambda array: np.full_like(array, np.inf)), "NaN or infinity"),
    "minus infinity": (first_tensor(lambda array: np.full_like(array, -np.inf)), "NaN or infinity"),
    "tensors times 1e30": (all_tensors(lambda array: array * np.float32(1e30)), "move none further"),
    # Its sums
    "0 sentences": (metrics("num_examples", 0), "at least 1"),
    "-5 sentences": (metrics("num_examples", -5), "0 or more"),
    "10^12 sentences": (metrics("num_examples", 10**12), "the site has"),
    "2^50 sentences": (metrics("num_examples", 2**50), "the site has"),
    "half a sentence": (metrics("num_examples", 0.5), "at least 1"),
    "8 sentences of 16": (metrics("num_examples", 8), "wanted at least"),
    "1 sentence more": (metrics("num_examples", 17), "the site has"),
    "NaN sentences": (metrics("num_examples", math.nan), "finite"),
    "no number of sentences": (lacks("num_examples"), "lack 'num_examples'"),
    "no steps": (metrics("steps", 0), "wanted 2 to 2 steps"),
    "no number of steps": (lacks("steps"), "lack 'steps'"),
    "10^9 steps": (metrics("steps", 10**9), "wanted 2 to 2 steps"),
    "half a step": (metrics("steps", 1.5), "wanted 2 to 2 steps"),
    "a loss of 0": (metrics("nll_sum", 0.0), "0 nats a token"),
    "a loss of 1e-300": (metrics("nll_sum", 1e-300), "nats a token"),
    "a loss of 1e308": (metrics("nll_sum", 1e308), "nats a token"),
    "a loss of 30 nats a token": (loss_of(30.0), "wanted 1e-09 to 2"),
    "a loss of NaN": (metrics("nll_sum", math.nan), "finite"),
    "a loss of infinity": (metrics("nll_sum", math.inf), "finite"),
    "a loss below 0": (metrics("nll_sum", -1.0), "0 or more"),
    "no tokens": (metrics("num_tokens", 0), "at least 1"),
    "1 token": (metrics("num_tokens", 1), "wanted 16 to 512"),
    "2^53 tokens": (metrics("num_tokens", 2**53), "wanted 16 to 512"),
    "half a token": (metrics("num_tokens", 40.5), "whole number"),
    "10^9 seconds": (metrics("seconds", 1e9), "has not lasted so long"),
    "seconds of 1e308": (metrics("seconds", 1e308), "has not lasted so long"),
    "seconds below 0": (metrics("seconds", -1.0), "0 or more"),
    "seconds of infinity": (metrics("seconds", math.inf), "finite"),
    "a sum of its own": (metrics("reward", 1.0), "unknown sum 'reward'"),
    "a list for a loss": (metrics("nll_sum", [1.0, 2.0]), "finite number"),
    # Its records
    "no sums": (leaves_out(protocol.METRICS), "no 'metrics'"),
    "empty sums": (brings(protocol.METRICS, MetricRecord()), "lack"),
    "two records of arrays": (brings("more", ArrayRecord()), "unknown 'more'"),
    "no record of arrays": (leaves_out(protocol.ARRAYS), "no 'arrays'"),
    "words besides": (brings("words", ConfigRecord({"a": "b"})), "unknown 'words'"),
    "sums where arrays should be": (brings(protocol.ARRAYS, MetricRecord({"a": 1})), "bad reply"),
    "arrays where sums should be": (brings(protocol.METRICS, to_record({"a": np.ones(1, np.float32)})), "bad reply"),
    "sums where its task should be": (brings(protocol.TASK, MetricRecord({"round": 1})), "answers site None"),
    "no task": (leaves_out(protocol.TASK), "answers site None"),
    "another round": (says("round", 9), "answers round 9; wanted 1"),
    "another site's name": (says("site", "bank"), "answers site 'bank'; wanted 'court'"),
    "an attempt that is dead": (says("attempt", 7), "answers attempt 7; wanted 1"),
    "another run": (says("run", "0" * 32), "answers run '0000"),
    "10 MB of words": (says("note", "x" * 10_000_000), "wanted at most"),
    "10 MB of words, and another's name": (
        lambda reply: reply.content[protocol.TASK].update(site="bank", note="x" * 10_000_000),
        "wanted at most",
    ),
    "40 MB of tensors besides": (brings("more", to_record({"a": np.zeros(10_000_000, np.float32)})), "wanted at most"),
    "9,000 records": (
        lambda reply: reply.content.update({f"r{number}": ConfigRecord({"a": 1}) for number in range(9_000)}),
        "wanted at most",
    ),
    "700 names of one array": (
        lambda reply: reply.content[protocol.ARRAYS].update(
            {f"a{number}": reply.content[protocol.ARRAYS]["encoder"] for number in range(700)}
        ),
        "wanted at most|first",
    ),
    # What is on the wire
    "a chunk 400 times": (("wire", bomb), "its arrays are of 400000000 bytes; wanted at most"),
    "a record's name with a lone surrogate": (
        ("wire", edited("RecordDict", renamed("\udfff", protocol.METRICS))),
        r"unknown '\\udfff'",
    ),
    "a part's name with a lone surrogate": (("wire", edited("ArrayRecord", renamed("\udfff", "encoder"))), "udfff|missing"),
    "a part's name that clears the terminal": (("wire", edited("ArrayRecord", renamed("\x1b[2J", "encoder"))), "missing|x1b"),
    "a chunk that is not there": (("wire", edited("Array", lambda told: {**told, "arraychunk_ids": [7]})), "do not decode"),
    "a chunk's place in words": (("wire", edited("Array", lambda told: {**told, "arraychunk_ids": ["a"]})), "do not decode"),
    "a million places of no chunk": (
        ("wire", edited("Array", lambda told: {**told, "arraychunk_ids": [9] * 10**6})),
        "do not decode",
    ),
    "JSON 100,000 deep": (("wire", edited("Array", lambda told: told | {"shape": None})), "do not decode"),
    "an object cut off": (("wire", garbled("MetricRecord", lambda content: content[:-3])), "bad reply"),
    "an object of another kind": (
        ("wire", garbled("MetricRecord", lambda content: b"Config" + content[6:])),
        "do not decode|not those of a reply",
    ),
    "an object of no kind": (("wire", garbled("MetricRecord", lambda content: b"\xff" + content)), "do not decode"),
    "arrays in place of all records": (("wire", not_a_dict), "do not decode|not those of a reply"),
    "another message's number": (("instead", of_another), "answers another message"),
    "an error of 10 MB": (("instead", error("x" * 10_000_000)), "^x{1999}"),
    "an error in 10,000 lines": (("instead", error("Traceback\n" + "at\n" * 10_000 + "end")), "^end$"),
    "an error that clears the terminal": (("instead", error("\x1b[2J\x1b]0;title\x07gone")), r"^\\x1b\[2J"),
    "an error with a lone surrogate's escape": (("instead", error("\\ud800 \u202e gone")), "u202e"),
    "an error that says nothing": (("instead", error("")), "no reason given"),
    "an error of a lost node": (("instead", error("gone", code=3)), "gone"),
}
nested = "[" * 100_000 + "]" * 100_000
TRAIN["JSON 100,000 deep"] = (
    (
        "wire",
        garbled(
            "Array", lambda content: content.split(b" ")[0] + b" " + content.split(b" ")[1] + f" {len(nested)}\0{nested}".encode()
        ),
    ),
    "do not decode",
)

EVALUATE: dict[str, tuple[Any, str]] = {
    "a dev loss of 0": (metrics("nll_sum", 0.0), "0 nats a token"),
    "a dev loss of 1e-10": (loss_of(1e-10), "nats a token"),
    "a dev loss of 1e308": (metrics("nll_sum", 1e308), "nats a token"),
    "a dev loss of 30 nats a token": (loss_of(30.0), "wanted 1e-09 to 2"),
    "a dev loss of NaN": (metrics("nll_sum", math.nan), "finite"),
    "a dev loss of infinity": (metrics("nll_sum", math.inf), "finite"),
    "a dev loss below 0": (metrics("nll_sum", -3.0), "0 or more"),
    "10^6 dev sentences": (metrics("num_examples", 10**6), "the site has"),
    "1 dev sentence": (metrics("num_examples", 1), "wanted at least"),
    "no dev sentences": (metrics("num_examples", 0), "at least 1"),
    "1 token more than before": (
        lambda reply: metrics("num_tokens", reply.content[protocol.METRICS]["num_tokens"] + 1)(reply),
        "its dev text had",
    ),
    "twice the tokens": (times("num_tokens", 2), "num_tokens = "),
    "10^9 tokens": (metrics("num_tokens", 10**9), "num_tokens = 1000000000"),
    "1 token": (metrics("num_tokens", 1), "num_tokens = 1"),
    "10^9 seconds": (metrics("seconds", 1e9), "has not lasted so long"),
    "seconds of 1e308": (metrics("seconds", 1e308), "has not lasted so long"),
    "a sum of its own": (metrics("bleu", 100.0), "unknown sum 'bleu'"),
    "tensors": (brings(protocol.ARRAYS, to_record({"a": np.ones(3, np.float32)})), "unknown 'arrays'"),
    "a part in the meta step": (brings(protocol.META, MetricRecord({"slope": 1.0})), f"unknown '{protocol.META}'"),
    "another round": (says("round", 2), "answers round 2; wanted 1"),
    "another site's name": (says("site", "bank"), "answers site 'bank'"),
    "100 kB of words": (says("note", "x" * 100_000), "wanted at most 65536"),
    "1 MB of numbers": (brings("more", to_record({"a": np.zeros(250_000, np.float32)})), "wanted at most 65536"),
    "an error of 10 MB": (("instead", error("x" * 10_000_000)), "^x{1999}"),
    "another message's number": (("instead", of_another), "answers another message"),
}
RECORD = f"{protocol.SCORES_PREFIXES['result']}{SITE}"
BASE = f"{protocol.SCORES_PREFIXES['base']}{SITE}"


def scored(key: str, change: Callable[[list[Any]], object], *records: str) -> Change:
    """Change a list of the scores, and of the base's where both are named."""

    def apply(reply: Message) -> None:
        for record in records or (RECORD,):
            values = list(reply.content.metric_records[record][key])  # type: ignore[arg-type]
            change(values)
            reply.content.metric_records[record][key] = values

    return apply


def put(place: int, value: Any) -> Callable[[list[Any]], None]:
    return lambda values: values.__setitem__(place, value)


def add(value: float, *places: int) -> Callable[[list[Any]], None]:
    def change(values: list[Any]) -> None:
        for place in places:
            values[place] += value

    return change


def fill(value: Any, *places: int) -> Callable[[list[Any]], None]:
    return lambda values: [values.__setitem__(place, value) for place in places] and None


FINISH: dict[str, tuple[Any, str]] = {
    # BLEU: length, reference length, 4 matches, 4 n-grams
    "macro BLEU of 89,013,039": (scored("bleu", fill(2**40, 2, 3, 4, 5)), "BLEU counts"),
    "one match more than n-grams": (scored("bleu", lambda v: v.__setitem__(2, v[6] + 1)), "BLEU counts"),
    "more pairs than words match": (scored("bleu", lambda v: v.__setitem__(3, v[2] + 1)), "BLEU counts"),
    "more matches than the reference has words": (scored("bleu", fill(10**6, 0, 2, 3, 4, 5, 6, 7, 8, 9)), "BLEU counts"),
    "a length that is not its words": (scored("bleu", add(1, 0)), "BLEU counts"),
    "more pairs than words": (scored("bleu", lambda v: v.__setitem__(7, v[6] + 1)), "BLEU counts"),
    "sentences that do not end": (scored("bleu", lambda v: v.__setitem__(slice(7, 10), [v[6]] * 3)), "BLEU counts"),
    "no reference": (scored("bleu", put(1, 0), RECORD, BASE), "BLEU counts"),
    "a reference of one word": (scored("bleu", put(1, 1)), "BLEU counts|not of the same"),
    "a reference one word longer": (scored("bleu", add(1, 1)), "not of the same sentences and references|BLEU"),
    "a reference of 2^40 words": (scored("bleu", put(1, 2**40), RECORD, BASE), "BLEU counts"),
    "more words than characters": (scored("bleu", add(10**5, 0, 6, 7, 8, 9)), "BLEU counts"),
    "9 BLEU counts": (scored("bleu", lambda v: v.pop()), "10 BLEU counts"),
    "half a match": (scored("bleu", lambda v: v.__setitem__(slice(None), [0.5] * 10)), "something else than counts"),
    "BLEU counts below 0": (scored("bleu", lambda v: v.__setitem__(slice(None), [-1] * 10)), "something else than counts"),
    "BLEU in one number": (metrics("bleu", 100.0, RECORD), "10 BLEU counts"),
    # chrF: (translation, reference, common) of six orders
    "one common character more": (scored("chrf", lambda v: v.__setitem__(2, v[0] + 1)), "chrF counts"),
    "all characters common": (scored("chrf", lambda v: v.__setitem__(2, v[1] + 1)), "chrF counts"),
    "more common pairs than characters": (scored("chrf", lambda v: v.__setitem__(5, v[2] + 1)), "chrF counts"),
    "a reference one character longer": (scored("chrf", add(1, 1)), "not of the same|chrF"),
    "2^40 characters": (scored("chrf", add(2**40, *range(18)), RECORD, BASE), "chrF counts"),
    "more pairs than characters": (scored("chrf", lambda v: v.__setitem__(3, v[0] + 1)), "chrF counts"),
    "chrF counts below 0": (scored("chrf", lambda v: v.__setitem__(slice(None), [-1] * 18)), "something else than counts"),
    "17 chrF counts": (scored("chrf", lambda v: v.pop()), "18 chrF counts"),
    # Of what
    "10^6 test sentences": (metrics("sentences", 10**6, RECORD), "the site has"),
    "no test sentences": (metrics("sentences", 0, RECORD), "something else than counts|sentences"),
    "half a sentence": (metrics("sentences", 0.5, RECORD), "not one number of sentences"),
    "one sentence fewer than its base": (metrics("sentences", 7, RECORD), "not of the same|BLEU|chrF"),
    "fewer sentences than it has": (
        lambda reply: [metrics("sentences", 7, record)(reply) for record in (RECORD, BASE)],
        "the site has 8 of test|counts that no 7",
    ),
    "no base scores": (leaves_out(BASE), "no 'base-scores"),
    "scores of a text of its own": (brings("scores.other", MetricRecord({"sentences": 1})), "unknown 'scores.other'"),
    "a metric that nobody asked for": (metrics("more.fame", [1.0], RECORD), "scores hold"),
    "words with the scores": (brings("hypotheses", ConfigRecord({"0": "a sentence"})), "unknown 'hypotheses'"),
    "a checkpoint of 2^48": (metrics("comet-checkpoint", 2**48, RECORD), "wanted 48 bits"),
    "100 kB of words": (says("note", "x" * 100_000), "wanted at most 65536"),
    "another site's name": (says("site", "bank"), "answers site 'bank'"),
    "an error of 10 MB": (("instead", error("x" * 10_000_000)), "^x{1999}"),
}
METRICS: Changes = (("metrics", "bleu,chrf,chrf++,ter,length-ratio"),)
MORE: dict[str, tuple[Any, str]] = {
    "a TER of edits below 0": (scored("more.ter", put(0, -1.0)), "ter counts"),
    "10^9 edits": (scored("more.ter", put(0, 1e9)), "ter counts"),
    "edits of 1e308": (scored("more.ter", put(0, 1e308)), "ter counts"),
    "a TER of no reference": (scored("more.ter", put(1, 0.0), RECORD, BASE), "ter counts"),
    "a TER of another reference": (scored("more.ter", add(1.0, 1)), "not of the same|ter counts"),
    "a TER of NaN": (scored("more.ter", put(0, math.nan)), "finite numbers"),
    "chrF++ that is not chrF's": (scored("more.chrf++", add(1.0, 0)), r"chrf\+\+ counts"),
    "more common words than words": (scored("more.chrf++", lambda v: v.__setitem__(20, v[18] + 1)), r"chrf\+\+ counts"),
    "a length ratio of 10^6": (scored("more.length-ratio", put(0, 1e6)), "length-ratio counts"),
    "a length ratio of three numbers": (scored("more.length-ratio", lambda v: v.append(1.0)), "2 finite numbers"),
    "off-target without being asked, of more than there are": (
        metrics("more.off-target", [11.0, 10.0], RECORD),
        "off-target counts",
    ),
    "COMET of 10^6": (metrics("more.comet", [1e6, 10.0], RECORD), "comet counts"),
    "COMET of another number of sentences": (metrics("more.comet", [5.0, 9.0], RECORD), "comet counts"),
}
MASKED: Changes = (("task", "masked-language"), ("method", "model-fed"), ("learning-rate", 0.001))
PERPLEXITY: dict[str, tuple[Any, str]] = {
    "a loss of 0, and nothing guessed": (
        lambda reply: reply.content[RECORD].update(nll=[0.0] * 4, correct=[0] * 4),
        "too low for what was not guessed",
    ),
    "a loss of 700 nats a piece": (
        lambda reply: reply.content[RECORD].update(nll=[700.0 * one for one in reply.content[RECORD]["tokens"]]),
        "nats a masked piece",
    ),
    "a loss of 1e308": (scored("nll", put(0, 1e308)), "nats a masked piece"),
    "a loss of NaN": (scored("nll", put(0, math.nan)), "finite losses"),
    "a loss below 0": (scored("nll", put(0, -1.0)), "finite losses"),
    "more guessed than masked": (scored("correct", put(0, 10**6)), "more pieces guessed"),
    "one piece more than its base": (scored("tokens", add(1, 0)), "not of the same|nats"),
    "other masks than its base": (metrics("masks", 1, RECORD), "not of the same"),
    "masks of 2^48": (metrics("masks", 2**48, RECORD), "masked as"),
    "three parts": (scored("nll", lambda v: v.pop()), "4 losses"),
    "nothing masked": (
        lambda reply: reply.content[RECORD].update(tokens=[0] * 4, correct=[0] * 4, nll=[0.0] * 4),
        "nothing was masked",
    ),
    "10^6 sentences": (metrics("sentences", 10**6, RECORD), "the site has"),
}
SENDS: Changes = (("method", "metasend-g"), ("rounds", 1))
PROBE: dict[str, tuple[Any, str]] = {
    "a loss of 0": (metrics("nll_sum", 0.0), "0 nats a token"),
    "a loss of 1e308": (metrics("nll_sum", 1e308), "nats a token"),
    "a deviation below 0": (metrics("deviation", -1.0), "0 or more"),
    "a deviation of NaN": (metrics("deviation", math.nan), "finite"),
    "2^50 sentences": (metrics("num_examples", 2**50), "the site has"),
    "10^9 seconds of selecting": (metrics(protocol.SELECT_S, 1e9), "has not lasted so long"),
    "its update": (brings(protocol.ARRAYS, ArrayRecord()), "unknown 'arrays'"),
}
SEND: dict[str, tuple[Any, str]] = {
    "deviations below 0": (first_tensor(lambda array: -array - 1, protocol.DEVIATIONS), "0 or above"),
    "one deviation too few": (first_tensor(lambda array: array[:-1], protocol.DEVIATIONS), "the deviations are"),
    "no deviations": (leaves_out(protocol.DEVIATIONS), f"no '{protocol.DEVIATIONS}'"),
    "10^9 seconds of selecting": (metrics(protocol.SELECT_S, 1e9), "has not lasted so long"),
    "a sum of its own": (metrics("loss", 0.0), "unknown sum 'loss'"),
    "a chunk 400 times": (("wire", bomb), "wanted at most"),
}
UNASKED: dict[str, tuple[Any, str]] = {
    "an array that nobody asked for": (brings("more", to_record({"more": np.zeros((3, 16), np.float32)})), "unknown 'more'"),
}
META: dict[str, tuple[Any, str]] = {
    "a loss of 1e300": (metrics("nll_sum", 1e300, protocol.META), "nats a token"),
    "10^9 seconds": (metrics(protocol.BATCHES_S, 1e9, protocol.META), "has not lasted so long"),
    "no tokens": (metrics("num_tokens", 0, protocol.META), "num_tokens of 1 or more"),
    "a sum of its own": (metrics("reward", 1.0, protocol.META), "part in the meta step has"),
    "no part in the meta step": (leaves_out(protocol.META), "part in the meta step has"),
}


LEARNS: Changes = (("method", "model-fed"), ("learning-rate", 0.01), ("rounds", 3))
"""Every round is better than the one before by a few hundredths."""
OUTVOTED = "the best round is 3: site court alone would have another"
LIKELY, LIKELY_LATER = (
    {f"a dev loss of {nats:g} nats": (loss_of(nats, record), OUTVOTED) for nats in (1e-5, 0.01, 0.5, 2.0, 4.0)}
    for record in (protocol.METRICS, protocol.MEASURED)
)
LATER: dict[str, tuple[Any, str]] = {
    "a dev loss of 0": (metrics("nll_sum", 0.0, protocol.MEASURED), "0 nats a token"),
    "a dev loss of 1e308": (metrics("nll_sum", 1e308, protocol.MEASURED), "nats a token"),
    "1 dev sentence": (metrics("num_examples", 1, protocol.MEASURED), "wanted at least"),
    "no dev loss": (leaves_out(protocol.MEASURED), f"no '{protocol.MEASURED}'"),
}
UNLIKELY: dict[str, tuple[Any, str]] = {"a dev loss of 22 nats": (loss_of(22.0), OUTVOTED)}
MUTE: dict[str, tuple[Any, str]] = {"silent from then on": (("instead", silent), OUTVOTED)}
ONCE: dict[str, tuple[Any, str]] = {
    "NaN, once": (metrics("nll_sum", math.nan), "finite"),
    "an error, once": (("instead", error("gone")), "gone"),
    "no task, once": (leaves_out(protocol.TASK), "answers site None"),
}


def _table() -> dict[str, Row]:
    alone: Changes = (("rounds", 1),)
    found = rows(protocol.DESCRIBE, DESCRIBE, 0, alone)
    found |= rows(protocol.DESCRIBE, BESIDES, 0, alone, as_honest=True)
    found |= rows(protocol.TRAIN, TRAIN, 1, alone)
    found |= rows(protocol.EVALUATE, EVALUATE, 1, alone)
    base = {name: EVALUATE[name] for name in ("a dev loss of 0", "a dev loss of 1e308", "1 dev sentence")}
    for number in (1, 2):
        found |= rows(protocol.TRAIN, LATER, number, prefix=f"train, measure round {number - 1}")
    found |= rows(protocol.FINISH, FINISH, 1, alone)
    found |= rows(protocol.FINISH, MORE, 1, (*alone, *METRICS), prefix="finish, more metrics")
    found |= rows(protocol.FINISH, PERPLEXITY, 1, (*alone, *MASKED), prefix="finish, masked pieces")
    for rule in ("fed-avg", "by-loss"):
        weighed = {name: TRAIN[name] for name in ("a loss of 0", "a loss of 1e-300", "2^50 sentences", "8 sentences of 16")}
        found |= rows(protocol.TRAIN, weighed, 1, (*alone, ("aggregation", rule)), prefix=f"train, {rule}")
    patient: Changes = (("rounds", 3), ("patience", 1))
    found |= rows(protocol.EVALUATE, base, 1, patient, prefix="evaluate under patience")
    for number in (1, 2):
        found |= rows(protocol.TRAIN, LIKELY_LATER, number + 1, LEARNS, f"measure round {number} of 3", as_honest=True)
    found |= rows(protocol.EVALUATE, UNLIKELY, 3, LEARNS, "evaluate in round 3 of 3", as_honest=True)
    found |= rows(protocol.EVALUATE, MUTE, 3, LEARNS, "evaluate in round 3 of 3", as_honest=True)
    found |= rows(protocol.EVALUATE, LIKELY, 1, (*LEARNS, ("patience", 1)), "evaluate under patience", as_honest=True)
    for phase in (protocol.TRAIN, protocol.EVALUATE):
        found |= rows(phase, ONCE, 1, (*alone, ("quorum", 1.0)), f"{phase}, all are needed", times=1, as_honest=True)
    scores_once = {name: lie for name, lie in ONCE.items() if "NaN" not in name}
    found |= rows(protocol.FINISH, scores_once, 1, (*alone, ("quorum", 1.0)), "finish, all are needed", times=1, as_honest=True)
    found |= rows(protocol.PROBE, PROBE, 1, SENDS)
    found |= rows(protocol.SEND, SEND, 1, SENDS)
    found |= rows(protocol.SEND, UNASKED, 1, SENDS)
    found |= rows(protocol.EVALUATE, META | UNASKED, 1, SENDS, prefix="evaluate, meta step")
    return found


ROWS = _table()
ATTACKS = [Attack(name, row.play) for name, row in ROWS.items()]
