"""The replies that a deployed site has given in a run: who asks again gets the same bytes, and no question has two answers.

Otherwise a server could average noise away, ask about many models instead of one, or count rounds up and go back. A run, here, is
Flower's, of which every attempt has one of its own: it is bound to the approval, run and attempt that were named first.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from safetensors import safe_open
from safetensors.numpy import save_file

from fedlingua.common.errors import ExchangeError

Answer = tuple[RecordDict, dict[str, Any]]
"""A reply, and what the audit log says of it besides its bytes."""


class Answers:
    """A folder of one Flower run; there may be `max_runs` beside each other, of which the newest three keep their replies.

    A file for each thing that was said first, written once: `run`, `hospital/0003.train`; and beside a question its reply.
    """

    def __init__(self, folder: Path, max_runs: int) -> None:
        self.folder, self.max_runs = folder, max_runs

    def admit(self, site: str, bound: Mapping[str, str], question: str, stage: int, asked: str) -> Answer | None:
        """Note a request; its answer, where it was given. A request that failed may be repeated, another may not take its place.

        bound: equal in all requests of the run. stage: the round, or past the last. asked: the request's hash.

        Raises:
            ExchangeError: a run too many, a bound value that changed, a stage that is over, or another request than was made.
        """
        if not self.folder.is_dir():
            self._begin()
        for key, value in bound.items():
            if not _is_first(self.folder / key, value):
                raise ExchangeError(f"a run stays as it began, and now it has another {key} {value[:99]!r}")
        stages = {file: int(file.name.partition(".")[0]) for file in (self.folder / site).glob("*")}
        if stage < (newest := max(stages.values(), default=0)):
            raise ExchangeError(f"asked about round {stage}, and the server has gone on to {newest} here")
        if not _is_first(self._file(site, stage, question), asked):
            raise ExchangeError(f"asked another {question} of round {stage} than before; each is answered once")
        for old in (file for file, number in stages.items() if number < stage):
            old.unlink(missing_ok=True)
        reply = self._file(site, stage, f"{question}.reply")
        if not reply.is_file():
            return None
        with safe_open(reply, "numpy") as stored:
            objects, about = {name: stored.get_tensor(name).tobytes() for name in stored.keys()}, stored.metadata()  # noqa: SIM118
        return cast(RecordDict, inflate_object_from_contents(about["root"], objects)), json.loads(about["note"])

    def keep(self, site: str, question: str, stage: int, answer: Answer) -> None:
        """Store an answer before it leaves, whole or not at all: Flower's objects that it is made of, by their ids."""
        objects = {name: np.frombuffer(one.deflate(), np.uint8) for name, one in get_all_nested_objects(answer[0]).items()}
        aside = self._file(site, stage, f"{question}.aside")
        save_file(objects, aside, {"root": answer[0].object_id, "note": json.dumps(answer[1])})
        aside.replace(self._file(site, stage, f"{question}.reply"))

    def _begin(self) -> None:
        runs = sorted(self.folder.parent.glob("*/"), key=lambda run: run.stat().st_mtime_ns)
        if len(runs) >= self.max_runs:
            raise ExchangeError(
                f"the run would be number {len(runs) + 1} here; this site's file allows {self.max_runs} ([limits] max-runs)"
            )
        for reply in (reply for old in runs[:-2] for reply in old.glob("*/*.reply")):
            reply.unlink(missing_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def _file(self, site: str, stage: int, name: str) -> Path:
        return self.folder / site / f"{stage:04d}.{name}"


def _is_first(file: Path, said: str) -> bool:
    """Whether nothing else was said before: of processes that say something at once, one makes the file."""
    file.parent.mkdir(exist_ok=True)
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(said)
    except FileExistsError:
        return file.read_text(encoding="utf-8") == said
    return True
