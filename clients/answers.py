"""The replies that a deployed site has given in a run: who asks again gets the same bytes, and no question has two answers.

Otherwise a server could average noise away, ask about many models instead of one, or count rounds up and go back. A run, here, is
Flower's, of which every attempt has one of its own: it is bound to the approval, run and attempt that were named first.
"""

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from safetensors import safe_open
from safetensors.numpy import save_file

from fedlingua.errors import ExchangeError
from fedlingua.files import replace_text

Answer = tuple[RecordDict, dict[str, Any]]
"""A reply, and what the audit log says of it besides its bytes."""


class Answers:
    """A folder of one Flower run; there may be `max_runs` such folders. Of three runs the newest replies stay, of others what was asked."""

    def __init__(self, folder: Path, max_runs: int) -> None:
        self.folder, self.max_runs = folder, max_runs

    def admit(self, site: str, bound: Mapping[str, str], question: str, stage: int, asked: str) -> Answer | None:
        """Note a request; its answer, where it was given. A request that failed may be repeated, another may not take its place.

        bound: equal in all requests of the run. stage: the round, or past the last. asked: the request's hash.

        Raises:
            ExchangeError: a run too many, a bound value that changed, a stage that is over, or another request than was made.
        """
        with self._ledger() as ledger:
            changed = [f"{key} {value[:99]!r}" for key, value in bound.items() if ledger.setdefault(key, value) != value]
            if changed:
                raise ExchangeError(f"a run stays as it began, and now it has another {', '.join(changed)}")
            state = ledger.setdefault(f"site {site}", {"stage": stage, "asked": {}})
            if stage < state["stage"]:
                raise ExchangeError(f"asked about round {stage}, and the server has gone on to {state['stage']} here")
            if stage > state["stage"]:
                shutil.rmtree(self.folder / site, ignore_errors=True)
                state |= {"stage": stage, "asked": {}}
            if state["asked"].setdefault(question, asked) != asked:
                raise ExchangeError(f"asked another {question} of round {stage} than before; each is answered once")
        file = self._file(site, question)
        if not file.is_file():
            return None
        with safe_open(file, "numpy") as stored:
            objects, about = {name: stored.get_tensor(name).tobytes() for name in stored.keys()}, stored.metadata()  # noqa: SIM118
        return cast(RecordDict, inflate_object_from_contents(about["root"], objects)), json.loads(about["note"])

    def keep(self, site: str, question: str, answer: Answer) -> None:
        """Store an answer before it leaves, whole or not at all: Flower's objects that it is made of, by their ids."""
        objects = {name: np.frombuffer(one.deflate(), np.uint8) for name, one in get_all_nested_objects(answer[0]).items()}
        file = self._file(site, question)
        file.parent.mkdir(exist_ok=True)
        save_file(objects, aside := file.with_suffix(".new"), {"root": answer[0].object_id, "note": json.dumps(answer[1])})
        aside.replace(file)

    def _file(self, site: str, question: str) -> Path:
        return self.folder / site / f"{question}.safetensors"

    @contextmanager
    def _ledger(self) -> Iterator[dict[str, Any]]:
        """What has been asked in the run, for one process at a time; stored where nothing is raised."""
        runs, file = self.folder.parent, self.folder / "asked.json"
        runs.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (runs / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            others = sorted((one for one in runs.iterdir() if one.is_dir()), key=lambda one: one.stat().st_mtime_ns)
            if self.folder not in others:
                if len(others) >= self.max_runs:
                    raise ExchangeError(
                        f"the run would be number {len(others) + 1} here; this site's file allows {self.max_runs} ([limits] max-runs)"
                    )
                for replies in (replies for old in others[:-2] for replies in old.glob("*/")):
                    shutil.rmtree(replies, ignore_errors=True)
            ledger = dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}
            yield ledger
            replace_text(file, json.dumps(ledger))
