"""Runs that are given more rounds, or fewer: they end as one that had as many from the beginning."""

import json

import pytest

from fedlingua.common.errors import RunError
from fedlingua.exchange import protocol
from tests.faults.test_resume import CONTROLLERS, METASEND, begin, final_bytes, losses
from tests.federations import TWO_SITES
from tests.in_process import rounds, run

KEEPS = {"keep.choose": True, "keep.passes": 1, "learning-rate": 0.03}
"""The last phase, whose model trained alone has as many passes as there are rounds."""
BYTES = ("uplink_bytes_per_round", "downlink_bytes_per_round", "total_bytes")
"""Differ: the rounds done had ended, and their tensors are sent once more."""


@pytest.fixture
def config(least_run_config, tmp_path):
    (tmp_path / "two.toml").write_text(TWO_SITES)
    return {**least_run_config, "federation": str(tmp_path / "two.toml"), "method": "adapter-families", "cluster.least": 1}


def ended(folder):
    scores = folder.read("scores.json")
    choices = [json.loads(file.read_text()) for file in sorted(folder.directory.glob("sites/*/choice/choice.json"))]
    for about in choices:
        about["seconds"] = about["training_seconds"] = 0
    return final_bytes(folder), losses(folder), {key: scores[key] for key in scores.keys() - set(BYTES)}, choices


def extend(config, folder, number):
    return run({**config, "rounds": number, "resume": True}, folder.directory)[0]


@pytest.mark.parametrize(
    "changes",
    [
        KEEPS,
        {"send.code": "4bit", "schedule": "inverse-sqrt", "optimizer-state": "kept"},
        {"sample.least": 8, "server.optimizer": "adam", "server.schedule": "linear", "best-by": "last"},
        CONTROLLERS,
        METASEND,
        {"method": "adapter-local"},
        {"privacy.sum": "secure", "privacy.min-cluster": 2, "method": "adapter-fed", **KEEPS},
        {"evaluate-every": 3, "sites-per-round": 1, "method": "adapter-fed"},
    ],
    ids=["choice", "code", "server", "controllers", "metasend", "local", "secure", "measured"],
)
def test_a_run_of_two_rounds_that_is_given_two_more_ends_as_one_of_four(config, tmp_path, changes):
    config |= changes
    whole, _ = run({**config, "rounds": 4}, tmp_path / "whole")
    folder, _ = run({**config, "rounds": 2}, tmp_path / "extended")
    extend(config, folder, 4)
    assert ended(folder) == ended(whole)
    about, wanted = folder.read("run.json"), whole.read("run.json")
    assert (about["rounds"], about["attempt"], about["status"]) == (4, 2, "completed")
    assert [about[key] for key in ("config_hash", "best_round")] == [wanted[key] for key in ("config_hash", "best_round")]
    made_again = "evaluate-every" in changes  # round 2 was measured as the last one
    assert [line["attempt"] for line in rounds(folder)] == ([1, 1, 2, 2, 2] if made_again else [1, 1, 1, 2, 2])


def test_an_extension_that_is_killed_in_its_rounds_and_in_its_last_phase_ends_in_the_same_bytes(config, tmp_path):
    config |= KEEPS
    whole, _ = run({**config, "rounds": 4}, tmp_path / "whole")
    folder, _ = run({**config, "rounds": 2}, tmp_path / "extended")
    longer = {**config, "rounds": 4, "resume": True}
    begin(longer, folder.directory, protocol.TRAIN, 4)
    assert folder.read("scores.json") is None  # those of two rounds are not this run's
    begin(longer, folder.directory, protocol.FINISH, None, answered=True)
    assert ended(extend(config, folder, 4)) == ended(whole)


def test_a_killed_run_may_have_fewer_rounds_as_well_down_to_those_that_are_done(config, tmp_path):
    whole, _ = run({**config, "rounds": 3}, tmp_path / "whole")
    folder = begin({**config, "rounds": 6}, tmp_path / "killed", number=4)
    with pytest.raises(RunError, match=r"rounds = 2 \(was 6\), and 3 rounds are done; give 3 or more"):
        extend(config, folder, 2)
    assert folder.read("run.json")["attempt"] == 1
    assert ended(extend(config, folder, 3)) == ended(whole)  # round 3, which was not measured yet, is made again


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"schedule": "cosine"}, "under schedule = 'cosine': every round's rate follows from the number of all"),
        ({"server.optimizer": "sgd", "server.schedule": "cosine"}, "under server.schedule = 'cosine'"),
        ({"dp.epsilon": 8.0}, "under dp.epsilon = 8: every round's noise follows"),
        ({"patience": 1, "learning-rate": 1e-9, "rounds": 3}, "under patience = 1: the run stopped after round"),
    ],
    ids=["schedule", "server", "noise", "patience"],
)
def test_a_run_whose_rounds_depend_on_how_many_there_are_is_not_extended(config, tmp_path, changes, why):
    config = {**config, "rounds": 1, **changes}
    folder, _ = run(config, tmp_path / "done")
    before = folder.read("run.json"), folder.read("scores.json")
    with pytest.raises(RunError, match=rf"{why}.*--set start-from={folder.directory}$"):
        extend(config, folder, 5)
    assert (folder.read("run.json"), folder.read("scores.json")) == before
