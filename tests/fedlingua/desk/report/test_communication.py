"""The cost of a round by the numbers of Liu et al. 2023, §2.4, and what a run's page says of it."""

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedlingua.common.errors import ConfigError
from fedlingua.desk.cli.app import app
from fedlingua.desk.report.communication import (
    Cost,
    Traffic,
    full_model,
    round_cost,
    run_communication,
)
from fedlingua.desk.report.read import read_run

MBART_50 = 610.9e6
ADAPTERS = 8_056_576


def test_the_full_model_takes_a_client_of_the_paper_19_5_seconds() -> None:
    assert round_cost(full_model(MBART_50), 1, 1000).up_s == pytest.approx(19.52, rel=0.002)


def test_clients_share_the_bandwidth() -> None:
    up = Traffic(None, 2.44e9, 0)
    assert round_cost(up, 12, 1000).up_s == pytest.approx(234, abs=0.5)
    assert round_cost(up, 12, 100).up_s == pytest.approx(2342.4)


def test_adapters_take_a_client_of_the_paper_0_26_seconds() -> None:
    assert round_cost(full_model(ADAPTERS), 1, 1000).up_s == pytest.approx(0.258, abs=0.001)


def test_share_is_of_transfer_and_training_together() -> None:
    assert Cost(200, 34, 7 * 60).share == pytest.approx(0.3578, abs=1e-4)
    assert Cost(0, 0, 420).share == 0
    assert Cost(0, 0, 0).share is None


def test_a_round_goes_up_and_down() -> None:
    cost = round_cost(Traffic(None, 1e6, 3e6), num_sites=10, bandwidth_mbps=80, training_s=12)
    assert (cost.up_s, cost.down_s, cost.transfer_s) == (1, 3, 4)
    assert cost.share == pytest.approx(0.25)
    assert Cost(1, 3).share is None


def write_run(folder: Path, uplink: int = 4 * ADAPTERS, **run: object) -> Path:
    told = {"backbone": {"parameters": MBART_50}, "exchanged_parameters": ADAPTERS, "status": "completed", **run}
    (folder / "run.json").write_text(json.dumps(told))

    def site(train: float) -> dict[str, object]:
        return {"seconds": {"train": train, "evaluate": 99.0}, "uplink_bytes": uplink, "downlink_bytes": uplink}

    # Round 0 moves nothing; it counts neither in the bytes nor in the training time.
    start = {"seconds": {"evaluate": 99.0}, "uplink_bytes": 0, "downlink_bytes": 0}
    rounds = [{"round": 0, "sites": {"a": start}}]
    rounds += [{"round": 1, "sites": {"a": site(100.0), "b": site(420.0)}}]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rounds))
    return folder


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf])
def test_a_bandwidth_that_is_none_is_refused(tmp_path: Path, wrong: float) -> None:
    with pytest.raises(ConfigError, match="bandwidth"):
        run_communication(read_run(write_run(tmp_path)), wrong)


def test_a_run_is_set_beside_its_full_model(tmp_path: Path) -> None:
    found = run_communication(read_run(write_run(tmp_path)))
    assert found is not None
    assert (found.num_sites, found.training_s) == (2, 420.0)
    assert found.bandwidths_mbps == (100, 1000, 10000)
    assert [round(cost.up_s, 3) for cost in found.costs("this run")] == [5.156, 0.516, 0.052]
    assert [round(cost.transfer_s, 1) for cost in found.costs("full model")] == [782.0, 78.2, 7.8]


def test_a_run_that_sends_nothing_takes_no_time(tmp_path: Path) -> None:
    found = run_communication(read_run(write_run(tmp_path, uplink=0)))
    assert found is not None
    assert [cost.share for cost in found.costs("this run")] == [0.0, 0.0, 0.0]


def test_the_bandwidth_is_the_readers_choice(tmp_path: Path) -> None:
    write_run(tmp_path)
    done = CliRunner().invoke(app, ["report", str(tmp_path), "--bandwidth", "50"])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "report.html").read_text()
    assert "50 Mbit/s" in page
    assert "1,000 Mbit/s" not in page
    refused = CliRunner().invoke(app, ["report", str(tmp_path), "--bandwidth", "0"])
    assert refused.exit_code != 0
