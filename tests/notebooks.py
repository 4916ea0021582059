"""Flower's engine without Flower's processes, for `fl.run` in a notebook: a run takes a second instead of half a minute."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from fedlingua.desk.cli import run
from fedlingua.desk.cli.engine import RunStatus
from fedlingua.settings.config import Scalar
from tests import in_process


class InProcessEngine:
    """Carries a run out when it is handed over: the real server and the real sites, one after the other, in this process."""

    most_rounds = 1000

    def __init__(self, *where: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def submit(self, run_config: Mapping[str, Scalar], num_nodes: int) -> str:
        fewer = {"rounds": min(self.most_rounds, int(run_config["rounds"])), "keep.passes": 1, "keep.rates": "0.5"}
        short = {**run_config, **fewer, "max-decode-tokens": 8}
        in_process.run(short if self.most_rounds == 1 else dict(run_config), Path(str(run_config["run-dir"])), num_nodes)
        return "1"

    def status(self, run_id: str) -> RunStatus:
        return RunStatus("finished", "completed")


def in_this_process(most_rounds: int) -> None:
    """From now on `fl.run` of this process trains in it. most_rounds: of a run, whatever it asks for; 1: also of its last training, and in
    translations of few words."""
    InProcessEngine.most_rounds = most_rounds
    run.Engine = InProcessEngine  # type: ignore[misc, assignment]
