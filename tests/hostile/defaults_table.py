"""What one site of four may answer in a run under default settings: four-bit changes up and down, and a last phase in which sites choose.

Rows hold as those of replies_table do. The changes that a site sends are coded, so most lies are about the bytes of a code.
"""

import json
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from flwr.app import MetricRecord

from fedlingua.exchange import protocol
from fedlingua.exchange.coding.coder import Shapes, decode, encode, generator_of
from fedlingua.exchange.records import from_record, to_record
from fedlingua.personalization.choice import CANDIDATES, FEDERATION
from fedlingua.settings.checks import settings_from
from fedlingua.settings.codes import Code, parse_code
from tests.hostile.attacks import Attack
from tests.hostile.replies_table import Change, Changes, Row, brings, first_tensor, lacks, leaves_out, metrics, rows, scored
from tests.hostile.replies_table import fill as filled
from tests.hostile.replies_table import put as placed
from tests.hostile.world import SITE, World, world
from tests.in_process import _start

TITLE = "Replies that cannot be true, under default settings"
DEFAULTS: Changes = (("send.code", "auto"), ("keep.choose", True), ("rounds", 1))
TWO_ROUNDS: Changes = (*DEFAULTS[:2], ("rounds", 2))
Payload = Callable[[bytes], bytes]

# --- Bytes of a code -----------------------------------------------------------------------------------------------------------


@cache
def _coded(part: str) -> tuple[Shapes, Code]:
    """The shapes of a part's tensors, and the code of its changes."""
    settings = settings_from(world(*DEFAULTS).config)
    return _start(settings)[0].shapes_of(part), settings.code_up


def payload(change: Payload) -> Change:
    """Other bytes of the encoder's change."""
    return first_tensor(lambda array: np.frombuffer(change(array.tobytes()), np.uint8))


def changed(change: Callable[[Any], Any]) -> Change:
    """Another change of both parts, coded as the site would have."""

    def apply(reply: Any) -> None:
        coded = {}
        for part, array in from_record(reply.content.array_records[protocol.ARRAYS]).items():
            shapes, code = _coded(part)
            other = np.ascontiguousarray(change(decode(array.tobytes(), shapes, code)), np.float32)
            coded[part] = np.frombuffer(encode(other, shapes, code, generator_of(1, 1, SITE, part)), np.uint8)
        reply.content.array_records[protocol.ARRAYS] = to_record(coded)

    return apply


def scales(change: Callable[[Any], Any]) -> Payload:
    """Other scales, of all tensors that have one."""

    def apply(data: bytes) -> bytes:
        first, last = _scales_at(data)
        return data[:first] + np.asarray(change(np.frombuffer(data[first:last], np.float32)), np.float32).tobytes() + data[last:]

    return apply


def _scales_at(data: bytes) -> tuple[int, int]:
    first = 4 - (-len(_coded("encoder")[0]) // 8)
    return first, first + 4 * int(np.unpackbits(np.frombuffer(data[4:first], np.uint8)).sum())


def one_scale(value: float) -> Payload:
    return scales(lambda numbers: np.where(np.arange(len(numbers)) == 0, np.float32(value), numbers))


def count(number: int) -> Payload:
    """How many numbers are said to follow."""

    def apply(data: bytes) -> bytes:
        _, last = _scales_at(data)
        return data[:last] + number.to_bytes(4, "little") + data[last + 4 :]

    return apply


def spare_bit(data: bytes) -> bytes:
    """The last bit of the byte in which the last tensors are named."""
    first, _ = _scales_at(data)
    return data[: first - 1] + bytes([data[first - 1] | 1]) + data[first:]


def bomb(data: bytes) -> bytes:
    """A stream of 20 MB of zeros where the levels should be."""
    _, last = _scales_at(data)
    stream = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return data[:last] + (1).to_bytes(4, "little") + stream.compress(bytes(20_000_000)) + stream.flush()


def damaged(data: bytes) -> bytes:
    _, last = _scales_at(data)
    return data[: last + 4] + bytes(byte ^ 0x5A for byte in data[last + 4 :])


def of_code(text: str) -> Payload:
    """The same change in another code."""

    def apply(data: bytes) -> bytes:
        shapes, code = _coded("encoder")
        return encode(decode(data, shapes, code), shapes, parse_code(text), generator_of(1, 1, SITE, "encoder"))

    return apply


def noise(numbers: Any) -> Any:
    drawn = np.random.default_rng(7).standard_normal(len(numbers))
    return 90 * np.sqrt(np.mean(numbers**2)) * drawn


def one_number(numbers: Any) -> Any:
    return np.where(np.arange(len(numbers)) == len(numbers) // 2, 54, numbers)


# --- The update of an earlier round --------------------------------------------------------------------------------------------


def again(change: Payload = lambda data: data) -> Change:
    """What the site sent in round 1, in other bytes."""

    def apply(reply: Any) -> None:
        first = _first_update(world(*TWO_ROUNDS))
        coded = {part: np.frombuffer(change(array.tobytes()), np.uint8) for part, array in first.items()}
        reply.content.array_records[protocol.ARRAYS] = to_record(coded)

    return apply


def _first_update(of: World) -> dict[str, Any]:
    for (kind, _, task, *_), (answer, _) in of.answers.items():
        if kind == protocol.TRAIN and (asked := json.loads(task))["site"] == SITE and asked["round"] == 1:
            return from_record(answer.content.array_records[protocol.ARRAYS])
    raise AssertionError("no update of round 1")


def stored(data: bytes) -> bytes:
    """The same levels in a stream that is not compressed."""
    for start in range(5, len(data)):
        stream = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            content = stream.decompress(data[start:])
        except zlib.error:
            continue
        if stream.eof and not stream.unused_data and len(content) > 8:
            other = zlib.compressobj(0, zlib.DEFLATED, -zlib.MAX_WBITS)
            return data[:start] + other.compress(content) + other.flush()
    raise AssertionError("no stream")


TRAIN: dict[str, tuple[Any, str]] = {
    # Form
    "no bytes": (payload(lambda data: b""), "payload is cut"),
    "its first four bytes": (payload(lambda data: data[:4]), "payload is cut"),
    "a byte too few": (payload(lambda data: data[:-1]), "payload is cut"),
    "half of its bytes": (payload(lambda data: data[: len(data) // 2]), "payload is cut|damaged"),
    "a byte too many": (payload(lambda data: data + b"\0"), "goes on for 1 bytes"),
    "all bytes twice": (payload(lambda data: 2 * data), "goes on for"),
    "numbers in place of bytes": (first_tensor(lambda array: array.astype(np.float32)), "a change is float32"),
    "bytes with a sign": (first_tensor(lambda array: array.view(np.int8)), "a change is int8"),
    "bytes in two rows": (first_tensor(lambda array: array[None]), r"uint8 \(1, "),
    "another checksum": (payload(lambda data: bytes([data[0] ^ 1]) + data[1:]), "of another code or of other tensors"),
    "eight bits a number": (payload(of_code("8bit")), "of another code"),
    "signs": (payload(of_code("sign")), "of another code"),
    "the largest tenth": (payload(of_code("4bit top 0.1")), "of another code"),
    "no code": (payload(of_code("none")), "of another code"),
    "the decoder's change for the encoder's": (
        lambda reply: reply.content[protocol.ARRAYS].update(encoder=reply.content[protocol.ARRAYS]["decoder"]),
        "of other tensors",
    ),
    "zeros after the checksum": (payload(lambda data: data[:4] + bytes(len(data) - 4)), "payload"),
    "ones after the checksum": (payload(lambda data: data[:4] + b"\xff" * (len(data) - 4)), "payload"),
    "the encoder alone": (lambda reply: reply.content[protocol.ARRAYS].pop("decoder"), "'decoder' is wrong"),
    "a part of its own": (
        lambda reply: reply.content[protocol.ARRAYS].update(extra=reply.content[protocol.ARRAYS]["encoder"]),
        "'extra' is wrong",
    ),
    "a mask, as if it chose": (
        lambda reply: reply.content[protocol.ARRAYS].update(mask=reply.content[protocol.ARRAYS]["encoder"]),
        "'mask' is wrong",
    ),
    "no change": (brings(protocol.ARRAYS, to_record({})), "sends changes of nothing"),
    "deviations that nobody asked for": (
        brings(protocol.DEVIATIONS, to_record({protocol.DEVIATIONS: np.ones(3, np.float32)})),
        f"unknown '{protocol.DEVIATIONS}'",
    ),
    # Scales, places, levels
    "a tensor after the last": (payload(spare_bit), "names tensors after its"),
    "a scale of 0": (payload(one_scale(0.0)), "a scale of 0.0; wanted one over 0"),
    "a scale below 0": (payload(one_scale(-1.0)), "a scale of -1.0; wanted one over 0"),
    "a scale of NaN": (payload(one_scale(np.nan)), "a scale of nan"),
    "a scale of infinity": (payload(one_scale(np.inf)), "a scale of inf"),
    "a scale of 2e30": (payload(one_scale(2e30)), "up to 1e.30"),
    "a scale of 1e30": (payload(one_scale(1e30)), "move none further"),
    "all scales 1e30": (payload(scales(lambda numbers: np.full_like(numbers, 1e30))), "move none further"),
    "all scales a hundredfold": (payload(scales(lambda numbers: 100 * numbers)), "move none further"),
    "2^32 - 1 numbers": (payload(count(2**32 - 1)), "claims 4294967295 places"),
    "one number": (payload(count(1)), "payload"),
    "no numbers": (payload(count(0)), "payload|goes on"),
    "a stream of 20 MB": (payload(bomb), "payload is cut, or of other tensors"),
    "a damaged stream": (payload(damaged), "payload"),
    # Numbers
    "nothing changes": (changed(lambda numbers: 0 * numbers), "changes nothing"),
    "scales of 1e-30": (changed(lambda numbers: 1e-30 * np.sign(numbers)), "changes next to nothing"),
    "the smallest numbers that there are": (changed(lambda numbers: 1e-45 * np.sign(numbers)), "changes next to nothing"),
    "a thousandth of its change": (changed(lambda numbers: 1e-3 * numbers), "changes next to nothing"),
    "a hundredth of its change": (changed(lambda numbers: 1e-2 * numbers), "changes next to nothing"),
    "its change times 5": (changed(lambda numbers: 5 * numbers), "move none further|lead to expect"),
    "its change times -5": (changed(lambda numbers: -5 * numbers), "move none further|lead to expect"),
    "its change times 1e6": (changed(lambda numbers: 1e6 * numbers), "move none further"),
    "noise times 90": (changed(noise), "move none further"),
    "one number + 54": (changed(one_number), "move none further"),
    "all numbers + 1": (changed(lambda numbers: numbers + 1), "move none further"),
}
AGAIN: dict[str, tuple[Any, str]] = {
    "the change of round 1": (again(), "the update of an earlier round again"),
    "the change of round 1, not compressed": (again(stored), "the update of an earlier round again"),
    "the change of round 1, with a spare bit": (again(spare_bit), "names tensors after its|earlier round again"),
}

# --- The last phase ------------------------------------------------------------------------------------------------------------

CHOICE = f"{protocol.CHOICE_PREFIX}{SITE}"
ALONE, FEDERATED, SINGLE = (f"{protocol.SCORES_PREFIXES[of]}{SITE}" for of in ("alone", "federated", "single"))
FINISH: dict[str, tuple[Any, str]] = {
    "no choice": (leaves_out(CHOICE), "has a part of a choice"),
    "no scores of the federation's": (leaves_out(FEDERATED), "has a part of a choice"),
    "an empty choice": (brings(CHOICE, MetricRecord()), "the choice holds"),
    "a candidate of its own": (metrics(protocol.KEPT, 99, CHOICE), "wanted the number of a candidate"),
    "a candidate below 0": (metrics(protocol.KEPT, -1, CHOICE), "wanted the number of a candidate"),
    "half a candidate": (metrics(protocol.KEPT, 0.5, CHOICE), "wanted the number of a candidate"),
    "a list of candidates": (metrics(protocol.KEPT, [0, 1], CHOICE), "wanted the number of a candidate"),
    "a reference of its own": (metrics(protocol.REFERENCE, 99, CHOICE), "wanted the number of a candidate"),
    "no reference": (lacks(protocol.REFERENCE, CHOICE), "the choice holds"),
    "a gain over the federation's": (
        metrics(protocol.REFERENCE, CANDIDATES.index(FEDERATION), CHOICE),
        "compares with federation",
    ),
    "no scores of a single model": (leaves_out(SINGLE), "has a part of a choice"),
    "a single model's BLEU of 2^40": (scored("bleu", filled(2**40, 2, 3, 4, 5), SINGLE), "BLEU counts"),
    "a key of its own": (metrics("fame", 1.0, CHOICE), "the choice holds"),
    "an interval in one number": (metrics(protocol.OVER_REFERENCE, 1.0, CHOICE), "wanted two numbers|the choice holds"),
    "an interval of three ends": (
        metrics(protocol.OVER_REFERENCE, [0.0, 1.0, 2.0], CHOICE),
        "wanted two numbers|the choice holds",
    ),
    "an interval upside down": (metrics(protocol.OVER_REFERENCE, [1.0, 0.0], CHOICE), "wanted two numbers|the choice holds"),
    "a gain of 10^9": (metrics(protocol.OVER_REFERENCE, [0.0, 1e9], CHOICE), "wanted two numbers|the choice holds"),
    "a gain of NaN": (metrics(protocol.OVER_REFERENCE, [float("nan")] * 2, CHOICE), "wanted two numbers|the choice holds"),
    "the federation's BLEU of 2^40": (scored("bleu", filled(2**40, 2, 3, 4, 5), FEDERATED), "BLEU counts"),
    "its own BLEU of 2^40": (scored("bleu", filled(2**40, 2, 3, 4, 5), ALONE), "BLEU counts"),
    "the federation's of 10^6 sentences": (metrics("sentences", 10**6, FEDERATED), "the site has"),
    "its own of 10^6 sentences": (metrics("sentences", 10**6, ALONE), "the site has"),
    "the federation's chrF below 0": (scored("chrf", placed(0, -1), FEDERATED), "something else than counts"),
}


def _table() -> dict[str, Row]:
    found = rows(protocol.TRAIN, TRAIN, 1, DEFAULTS, prefix="train, four bits")
    found |= rows(protocol.TRAIN, AGAIN, 2, TWO_ROUNDS, prefix="train, four bits, round 2")
    return found | rows(protocol.FINISH, FINISH, 1, DEFAULTS, prefix="finish, with a choice")


ROWS = _table()
ATTACKS = [Attack(name, row.play) for name, row in ROWS.items()]
