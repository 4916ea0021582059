"""The roster: what it holds, its hash, and what is none."""

from dataclasses import replace
from typing import Any

import pytest

from fedlingua.common.errors import ExchangeError
from fedlingua.privacy.roster import Roster, signed_message

ROSTER = Roster(
    ("a", "b", "c"),
    (b"1" * 32, b"2" * 32, b"3" * 32),
    (b"4" * 64, b"5" * 64, b"6" * 64),
    {"encoder": {"one": ("a", "b"), "two": ("c",)}, "decoder": {"all": ("a", "b", "c")}},
)


def test_it_comes_back_from_its_record_with_the_same_hash() -> None:
    again = Roster.of(ROSTER.record())
    assert again == ROSTER
    assert again.hash == ROSTER.hash
    assert (again.num_sums, again.threshold) == (2, 3)
    assert again.public_key("b", 2) == b"5" * 32
    assert again.clusters_of("c") == {"encoder": ("two", ("c",)), "decoder": ("all", ("a", "b", "c"))}


@pytest.mark.parametrize(
    "change",
    [
        {"names": ["b", "a", "c"]},
        {"channels": b"1" * 64 + b"3" * 32},
        {"keys": b"4" * 191 + b"5"},
        {"clusters": '{"decoder": {"all": ["a", "b", "c"]}}'},
        {"sizes": [30, 20, 10]},
    ],
)
def test_its_hash_is_over_everything(change: dict[str, Any]) -> None:
    assert Roster.of({**ROSTER.record(), **change}).hash != ROSTER.hash


@pytest.mark.parametrize(
    "change",
    [
        {"names": ["a", "a", "c"]},
        {"names": ["a"], "channels": b"1" * 32, "keys": b"4" * 64, "clusters": "{}"},
        {"channels": b"1" * 95},
        {"keys": b"4" * 96 + b"5" * 20},
        {"keys": b""},
        {"clusters": '{"encoder": {"one": ["a", "b"]}}'},
        {"clusters": '{"encoder": {"one": ["a", "b", "c", "d"]}}'},
        {"clusters": '{"encoder": {"one": ["a", "b"], "two": ["b", "c"]}}'},
        {"clusters": '{"attention": {"one": ["a", "b", "c"]}}'},
        {"clusters": "none"},
        {"clusters": "[]"},
        {"names": 7},
        {"signers": ["a line"], "signatures": ["00"]},
        {"signers": ["a line", "another", "a third"]},
        {"signatures": ["no hexadecimal digits"]},
        {"channels": "text"},
        {"sizes": [30, 20]},
        {"sizes": [30, 20, 0]},
        {"sizes": ["many", 20, 10]},
    ],
)
def test_what_is_no_roster_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ExchangeError, match="the roster of the secure sum"):
        Roster.of({**ROSTER.record(), **change})


def test_changes_are_weighted_by_size_relative_to_the_largest_site() -> None:
    sized = replace(ROSTER, sizes=(40, 90, 10))
    assert Roster.of(sized.record()) == sized
    assert sized.factors(("a", "b"), 1.0) == pytest.approx({"a": 40 / 90, "b": 1.0})
    assert sized.factors(("a", "b"), 2.0) == pytest.approx({"a": (40 / 90) ** 0.5, "b": 1.0})
    assert sized.factors((), 1.0) == {}
    assert ROSTER.factors(("a", "b", "c"), 1.0) == {"a": 1.0, "b": 1.0, "c": 1.0}


def test_a_sum_that_is_mostly_one_sites_change_is_refused() -> None:
    sized = replace(ROSTER, sizes=(40, 90, 10))
    with pytest.raises(
        ExchangeError, match=r"site b has 64% of the weight in the secure sum of a, b, c.*: raise sampling-temperature"
    ):
        sized.check_weights(("a", "b", "c"), 1.0)
    sized.check_weights(("a", "b", "c"), 4.0)
    sized.check_weights(("a", "b"), 1.0)
    sized.check_weights((), 1.0)
    replace(ROSTER, sizes=(40, 50, 10)).check_weights(("a", "b", "c"), 1.0)
    ROSTER.check_weights(("a", "b", "c"), 1.0)


def test_a_signature_is_for_one_run_attempt_site_and_pair_of_keys() -> None:
    signed: dict[str, Any] = {"run": "run", "attempt": 1, "site": "a", "channel": b"1" * 32, "keys": b"4" * 64}
    others = {"run": "other", "attempt": 2, "site": "b", "channel": b"2" * 32, "keys": b"5" * 64}
    for name, other in others.items():
        assert signed_message(**{**signed, name: other}) != signed_message(**signed), name
