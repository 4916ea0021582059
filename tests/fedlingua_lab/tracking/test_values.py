"""What of a run's files becomes numbers for a tracker."""

import json
from pathlib import Path

from fedlingua_lab.tracking.values import parameters, read_rounds, round_values, score_values

LINE = {
    "round": 2,
    "seconds": 20.0,
    "dev_loss": 1.5,
    "sites": {
        "court": {
            "seconds": {"train": 3.0},
            "uplink_bytes": 10,
            "downlink_bytes": 5,
            "train_loss": 2.0,
            "dev_loss": float("nan"),
            "theta": 0.25,
        },
        "bank": {"seconds": {}, "uplink_bytes": 0, "downlink_bytes": 5, "dev_loss": 1.25, "note": "words"},
    },
    "failures": [{"site": "bank", "phase": "train", "kind": "late", "reason": "words"}],
    "phase_s": {"train": 7.0},
    "server_s": {"aggregate": 0.5},
    "bytes": {
        "court": {"train": {"uplink_bytes": 10, "downlink_bytes": 5}, "evaluate": {"uplink_bytes": 1, "downlink_bytes": 2}}
    },
    "threshold": {"theta": 0.5, "stepped": True},
}


def test_a_round_as_numbers() -> None:
    assert round_values(LINE) == {
        "dev_loss": 1.5,
        "seconds/round": 20.0,
        "seconds/train": 7.0,
        "seconds/server aggregate": 0.5,
        "threshold/theta": 0.5,
        "bytes/up": 11.0,
        "bytes/down": 7.0,
        "failures": 1.0,
        "uplink_bytes/court": 10.0,
        "downlink_bytes/court": 5.0,
        "train_loss/court": 2.0,
        "theta/court": 0.25,
        "seconds train/court": 3.0,
        "uplink_bytes/bank": 0.0,
        "downlink_bytes/bank": 5.0,
        "dev_loss/bank": 1.25,
    }


def test_a_round_from_before_all_bytes_were_counted_has_those_of_training() -> None:
    older = {key: value for key, value in LINE.items() if key != "bytes"}
    assert (round_values(older)["bytes/up"], round_values(older)["bytes/down"]) == (10.0, 10.0)


def test_what_is_no_object_is_left_out() -> None:
    assert round_values({"round": 1, "sites": ["court"], "phase_s": None, "failures": None, "dev_loss": None}) == {
        "bytes/up": 0.0,
        "bytes/down": 0.0,
        "failures": 0.0,
    }


def test_scores_as_numbers() -> None:
    scores = {"seed": 7, "method": "base", "macro_bleu": 25.0, "base_macro_bleu": None}
    sites = {"court": {"direction": "de-fr", "bleu": 20.0, "signature": "tok:13a"}}
    assert score_values({**scores, "sites": sites}) == {"scores/macro_bleu": 25.0, "scores bleu/court": 20.0}


def test_parameters_are_the_settings_but_not_the_places() -> None:
    config = {
        "method": "base",
        "seed": 1,
        "resume": False,
        "data-dir": "/somewhere",
        "run-dir": "/there",
        "track": "mlflow",
        "meta.frozen": True,
    }
    run = {"config": config, "versions": {"torch": "2"}, "git_revision": None, "config_hash": "abc", "reason": "words"}
    assert parameters(run) == {"method": "base", "seed": 1, "meta.frozen": True, "config_hash": "abc", "version torch": "2"}


def test_rounds_are_read_in_order_and_a_half_written_one_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "rounds.jsonl"
    assert read_rounds(file, -1) == {}
    file.write_text("".join(json.dumps({"round": number}) + "\n" for number in (0, 2, 1)) + '[1]\n{"round": 3, "de')
    assert list(read_rounds(file, -1)) == [0, 1, 2]
    assert list(read_rounds(file, 1)) == [2]
    assert list(read_rounds(file, -1, at_end=False)) == [0, 1]  # the dev loss of the newest may come with the next
