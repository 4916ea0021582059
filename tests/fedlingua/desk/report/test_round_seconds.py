"""Where the seconds of a round went, by hand."""

import pytest

from fedlingua.desk.report.read import Round, SiteRound
from fedlingua.desk.report.round_seconds import META, PHASES, round_seconds, training_seconds


def site(**seconds: float) -> SiteRound:
    return SiteRound(None, None, {part.replace("_", " "): value for part, value in seconds.items()}, 0.0, 0.0)


def learned(number: int, theta: float) -> Round:
    """A round of MetaSend: the court selects and passes its batches slowest, the hospital makes its slope slowest."""
    sites = {
        "hospital": site(train=3.0, select=0.1, meta_batches=1.0, meta_slope=0.5),
        "court": site(train=2.0, select=0.3, meta_batches=2.0, meta_slope=0.25),
    }
    phases, server = (
        {"train": 10.0, "send": 4.0, "evaluate": 6.0},
        {"aggregate": 0.5, "theta": theta, "direction": 0.25, "step": 0.125},
    )
    return Round(number, 22.0, 1.0, sites, [], phase_s=phases, server_s=server)


def test_a_rounds_parts_are_means_over_rounds_of_the_slowest_site_and_the_servers_own() -> None:
    base = Round(0, 99.0, 1.0, {}, [], phase_s={"evaluate": 99.0})
    found = round_seconds([base, learned(1, 0.125), learned(2, 0.375)])
    assert found == {
        "train": 10.0,
        "select": 0.3,
        "send": 4.0,
        "aggregate": 0.5,
        "evaluate": 6.0,
        "round": 22.0,
        "theta": 0.25,
        "direction": 0.25,
        "batches": 2.0,
        "slope": 0.5,
        "step": 0.125,
        "meta": pytest.approx(0.25 + 0.25 + 2.0 + 0.5 + 0.125),
    }
    assert list(found) == [*PHASES, *META]


def test_a_part_of_one_round_is_a_mean_over_all_rounds_too() -> None:
    phases = [{"train": 2.0}, {"train": 1.0}, {"train": 1.5, "evaluate": 1.5}]
    rounds = [Round(number, 2.0 + number, 1.0, {}, [], phase_s=each) for number, each in enumerate(phases, start=1)]
    assert round_seconds(rounds) == {"train": 1.5, "evaluate": 0.5, "round": 4.0}


def test_a_round_trains_as_long_as_its_longest_site() -> None:
    rounds = [
        Round(n, sites=sites)
        for n, sites in enumerate(({"a": site(train=1.0), "b": site(train=3.0)}, {}, {"a": site(train=2.0)}))
    ]
    assert training_seconds(rounds) == 2.5
    assert training_seconds([Round(1, sites={"a": site(evaluate=1.0)})]) is None


def test_a_run_that_sends_all_has_no_part_in_selecting_and_meta() -> None:
    whole = Round(
        1, 5.0, 1.0, {"court": site(train=2.0)}, [], phase_s={"train": 3.0, "evaluate": 1.0}, server_s={"aggregate": 0.5}
    )
    assert round_seconds([whole]) == {"train": 3.0, "aggregate": 0.5, "evaluate": 1.0, "round": 5.0}


def test_rounds_of_before_the_phases_were_told_tell_nothing() -> None:
    assert round_seconds([Round(1, 5.0, 1.0, {"court": site(train=2.0)}, [])]) == {}
