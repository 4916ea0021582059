"""A job and its answer as bytes: arrays in safetensors and the rest in JSON, so that reading them runs nothing."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import IO, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedlingua.backbones.codec import Codec, TextCodec
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings
from fedlingua.training.batches import TrainingExample
from fedlingua.training.loop import LocalResult
from fedlingua.training.masked_language import TextExample
from fedlingua.training.optimizers import Numbers
from fedlingua.training.parallel.job import Done, Failed, Job
from fedlingua.training.translation import PairExample

Arrays = dict[str, Numbers]
_TOLD = "told"
_SIZE = 8
"""Bytes before a message that say how long it is."""


def write_job(job: Job, to: IO[bytes]) -> None:
    """Its length and its bytes."""
    texts = [_of_examples(text) for text in job.texts]
    told = {
        "settings": job.settings.flat(),
        "seed": job.seed,
        "this_round": job.this_round,
        "names": list(job.tensors),
        "kept": None if job.kept is None else list(job.kept),
        "shares": [share for _, share in texts],
    }
    arrays = _numbered("tensor", job.tensors.values()) | _numbered("kept", (job.kept or {}).values())
    for number, (rows, _) in enumerate(texts):
        arrays |= {f"text {number} {name}": array for name, array in rows.items()}
    message = _packed(told, arrays)
    to.write(len(message).to_bytes(_SIZE, "big") + message)
    to.flush()


class ReadJob:
    """A job off the wire; its examples need the codec of the backbone that its settings name."""

    def __init__(self, source: IO[bytes]) -> None:
        told, self._arrays = _unpacked(source.read(int.from_bytes(source.read(_SIZE), "big")))
        self._told: Mapping[str, Any] = told
        self.settings: Settings = settings_from(told["settings"])

    def job(self, codec: Codec) -> Job:
        """All of it."""
        told = self._told
        kept = None if told["kept"] is None else _named("kept", told["kept"], self._arrays)
        texts = [_examples(number, share, self._arrays, codec) for number, share in enumerate(told["shares"])]
        this_round = (int(told["this_round"][0]), int(told["this_round"][1]))
        return Job(self.settings, _named("tensor", told["names"], self._arrays), texts, told["seed"], kept, this_round)


def answer_bytes(answer: Done | Failed) -> bytes:
    """An answer whole."""
    if isinstance(answer, Failed):
        return _packed({"failed": asdict(answer)}, {})
    kept = answer.kept
    told = {"result": asdict(answer.result), "names": list(answer.tensors), "kept": None if kept is None else list(kept)}
    return _packed(told, _numbered("tensor", answer.tensors.values()) | _numbered("kept", (kept or {}).values()))


def read_answer(message: bytes) -> Done | Failed | None:
    """What `answer_bytes` gave; None where it is not whole, as of a process that died."""
    try:
        told, arrays = _unpacked(message)
    except SafetensorError:
        return None
    if "failed" in told:
        return Failed(**told["failed"])
    kept = None if told["kept"] is None else _named("kept", told["kept"], arrays)
    return Done(LocalResult(**told["result"]), _named("tensor", told["names"], arrays), kept)


# --- Examples: all of a text in two arrays a field, ids one after another and where each example ends -------------------------------------


def _of_examples(text: Sequence[TrainingExample]) -> tuple[Arrays, float | None]:
    """Arrays of a text, and of masked text the share that is predicted; None of a translation's pairs."""
    if text and isinstance(text[0], TextExample):
        return _columns("ids", (one.target_ids for one in text)), text[0].share
    pairs = [one for one in text if isinstance(one, PairExample)]
    assert len(pairs) == len(text), "examples of another kind than pairs and masked text"
    return _columns("source", (one.source for one in pairs)) | _columns("target", (one.target for one in pairs)), None


def _examples(number: int, share: float | None, arrays: Arrays, codec: Codec) -> list[TrainingExample]:
    if share is None:
        both = (_rows(f"text {number} {side}", arrays) for side in ("source", "target"))
        return [PairExample(source, target) for source, target in zip(*both, strict=True)]
    assert isinstance(codec, TextCodec), type(codec)
    return [TextExample(ids, codec, share) for ids in _rows(f"text {number} ids", arrays)]


def _columns(name: str, rows: Iterable[Sequence[int]]) -> Arrays:
    listed = list(rows)
    ends = np.cumsum([len(row) for row in listed], dtype=np.int64)
    return {name: np.array([one for row in listed for one in row], dtype=np.int64), f"{name} ends": ends}


def _rows(name: str, arrays: Arrays) -> list[list[int]]:
    ids, ends = arrays[name].tolist(), arrays[f"{name} ends"].tolist()
    return [ids[start:end] for start, end in zip([0, *ends], ends, strict=False)]


# --- Bytes ------------------------------------------------------------------------------------------------------------------------------


def _numbered(kind: str, arrays: Iterable[Numbers]) -> Arrays:
    # ascontiguousarray would make a row of a lone number.
    return {f"{kind} {number}": np.require(array, requirements="C") for number, array in enumerate(arrays)}


def _named(kind: str, names: Sequence[str], arrays: Arrays) -> Arrays:
    return {name: arrays[f"{kind} {number}"] for number, name in enumerate(names)}


def _packed(told: Mapping[str, Any], arrays: Arrays) -> bytes:
    words = np.frombuffer(json.dumps(told).encode(), np.uint8)
    message: bytes = save({_TOLD: words, **arrays})
    return message


def _unpacked(message: bytes) -> tuple[dict[str, Any], Arrays]:
    arrays = load(message)
    return json.loads(arrays.pop(_TOLD).tobytes()), arrays
