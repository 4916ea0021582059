"""One answer to a question: the same bytes again, also in another process, and what came before is forgotten once the run moves on."""

import resource
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from clients.guard import StoredReplies
from fedlingua.common.errors import ExchangeError
from fedlingua.common.files import written_once
from fedlingua.exchange.records import to_record

BOUND = {"approval": "a", "run": "r", "attempt": "1"}
NOTE: dict[str, Any] = {"sentences": {"train": 60}, "tensors": 2}


def reply(number: float = 1.0) -> RecordDict:
    arrays = to_record({"encoder": np.full(5, number, np.float32), "decoder": np.zeros(0, np.float32)})
    content = RecordDict({"task": ConfigRecord({"site": "clinic"}), "metrics": MetricRecord({"nll_sum": number})})
    content["arrays"], content["empty"] = arrays, ArrayRecord()
    return content


def admitted(folder: Path, kind: str, stage: int, asked: str = "x", site: str = "clinic", most: int = 9) -> Any:
    return StoredReplies(folder, most).admit(site, BOUND, kind, stage, asked)


def test_a_repeated_request_gets_the_reply_that_was_kept(tmp_path: Path) -> None:
    assert admitted(tmp_path / "1", "train", 1) is None
    StoredReplies(tmp_path / "1", 9).store("clinic", "train", 1, (reply(), NOTE))
    content, note = admitted(tmp_path / "1", "train", 1)
    assert (content.object_id, note) == (reply().object_id, NOTE)
    assert content["metrics"]["nll_sum"] == 1.0


def test_a_reply_that_cannot_be_written_is_an_error_that_tells_the_free_space(tmp_path: Path) -> None:
    admitted(tmp_path / "1", "train", 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(
            ExchangeError, match=r"the reply cannot be written to the site's state \(\d.* free\); make room there"
        ):
            StoredReplies(tmp_path / "1", 9).store("clinic", "train", 1, (reply(), NOTE))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert admitted(tmp_path / "1", "train", 1) is None  # and may be asked for again


def test_a_request_that_failed_may_be_repeated_but_not_replaced(tmp_path: Path) -> None:
    assert admitted(tmp_path / "1", "train", 1) is None
    assert admitted(tmp_path / "1", "train", 1) is None
    with pytest.raises(ExchangeError, match="asked another train of round 1 than before"):
        admitted(tmp_path / "1", "train", 1, "y")


def test_replies_go_when_the_run_moves_on_and_it_does_not_go_back(tmp_path: Path) -> None:
    for stage in (1, 2):
        admitted(tmp_path / "1", "train", stage)
        StoredReplies(tmp_path / "1", 9).store("clinic", "train", stage, (reply(), NOTE))
    admitted(tmp_path / "1", "evaluate", 3)
    assert not list((tmp_path / "1").rglob("*.reply"))
    with pytest.raises(ExchangeError, match="asked about round 2, but the server is already at 3"):
        admitted(tmp_path / "1", "train", 2)
    assert admitted(tmp_path / "1", "train", 1, site="court") is None  # each site of a node has rounds of its own


@pytest.mark.parametrize("site", [*BOUND, "bound"])
def test_a_site_may_have_the_name_of_a_bound_value(tmp_path: Path, site: str) -> None:
    assert admitted(tmp_path / "1", "train", 1, site=site) is None
    StoredReplies(tmp_path / "1", 9).store(site, "train", 1, (reply(), NOTE))
    assert admitted(tmp_path / "1", "train", 1, site=site)[0].object_id == reply().object_id
    assert admitted(tmp_path / "1", "train", 1) is None


def test_a_refused_request_changes_nothing(tmp_path: Path) -> None:
    admitted(tmp_path / "1", "train", 1)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ExchangeError, match="another run 'q'"):
        StoredReplies(tmp_path / "1", 9).admit("clinic", {**BOUND, "run": "q"}, "train", 2, "x")
    assert sorted(tmp_path.rglob("*")) == before


def test_so_many_runs_and_no_more_and_the_replies_of_three(tmp_path: Path) -> None:
    for number in range(4):
        admitted(tmp_path / f"{number}", "train", 1, most=4)
        StoredReplies(tmp_path / f"{number}", 4).store("clinic", "train", 1, (reply(), NOTE))
    assert len(list(tmp_path.rglob("*.reply"))) == 3
    with pytest.raises(ExchangeError, match=r"number 5 here; this site's file allows 4 \(\[limits\] max-runs\)"):
        admitted(tmp_path / "4", "train", 1, most=4)
    assert admitted(tmp_path / "3", "train", 1, most=4) is not None


def test_what_a_run_was_first_asked_is_never_seen_half_written(tmp_path: Path) -> None:
    """Of two processes with the same request, the second may look while the first writes."""
    said, file, seen = "x" * 2**26, tmp_path / "run" / "bound", list[bool]()

    def look() -> None:
        while not file.exists():
            pass
        seen.append(file.stat().st_size == len(said))

    reader = threading.Thread(target=look)
    reader.start()
    assert written_once(file, said) == said
    reader.join()
    assert seen == [True]
    assert written_once(file, said) == said
    assert written_once(file, "y") == said
    assert [each.name for each in file.parent.iterdir()] == ["bound"]
