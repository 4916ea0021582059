"""Lines of rounds.jsonl, put together by round."""

from fedlingua.desk.json_values import by_round


def test_dev_losses_of_a_later_line_stand_under_their_own_round() -> None:
    court = {"seconds": {"train": 2.0}, "uplink_bytes": 5}
    figures = {"dev_loss": 2.5, "dev_tokens": 9, "seconds": {"evaluate": 0.5}}
    lines = [
        {"round": 0, "dev_loss": None, "sites": {}},
        {"round": 1, "dev_loss": None, "sites": {"court": court}, "measured": {"round": 0, "dev_loss": 4.0, "sites": {}}},
        {
            "round": 2,
            "dev_loss": 2.0,
            "sites": {"court": {"dev_loss": 2.0}},
            "measured": {"round": 1, "dev_loss": 3.0, "sites": {"court": figures, "bank": figures}},
        },
    ]
    rounds = by_round(lines)
    assert [line["dev_loss"] for line in rounds.values()] == [4.0, 3.0, 2.0]
    assert rounds[1]["sites"]["court"] == {**court, **figures, "seconds": {"train": 2.0, "evaluate": 0.5}}
    assert rounds[1]["sites"]["bank"] == figures
    assert rounds[2]["sites"] == {"court": {"dev_loss": 2.0}}
    assert court["seconds"] == {"train": 2.0}  # what was read stays as it is


def test_a_line_from_before_and_one_that_is_none_are_taken_as_they_are() -> None:
    older = {"round": 1, "dev_loss": 1.5, "sites": {"court": {"dev_loss": 1.5}}}
    assert by_round([{"round": 2}, older, {"round": True}, {"round": "x"}, {}]) == {1: older, 2: {"round": 2}}
    for measured in (3, [], {}, {"round": []}, {"round": 9}, {"round": 1.0, "sites": 3}, {"round": 1, "sites": {"a": None}}):
        assert set(by_round([older, {"round": 2, "measured": measured}])) == {1, 2}
    assert by_round([older, {"round": 1, "dev_loss": 1.0}])[1]["dev_loss"] == 1.0  # made again by a resumed run
