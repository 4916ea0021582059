"""Tables of a TOML file: a dataclass has the values that were given, and every mistake is told with its place."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.common.tables import fill, refuse_unknown, table


@dataclass(frozen=True)
class Tank:
    """What a table is read into."""

    most_litres: float = 40.0
    fuel: Literal["petrol", "diesel"] = "petrol"
    wheels: int = 4
    spare: bool = True


def test_keys_are_fields_with_hyphens_and_a_whole_number_is_a_float_where_one_is_wanted() -> None:
    read = fill(Tank, {"most-litres": 50, "fuel": "diesel"}, "car.toml [tank]")
    assert read == Tank(50.0, "diesel")
    assert type(read.most_litres) is float


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ({"most-litre": 50}, r"car.toml \[tank\]: most-litre = 50: there is no such key; did you mean 'most-litres'"),
        ({"most_litres": 50}, "there is no such key"),
        ({"wheels": 4.0}, "wheels = 4.0 is of type float; wanted int"),
        ({"wheels": True}, "wheels = True is of type bool; wanted int"),
        ({"spare": 1}, "wanted bool"),
        ({"fuel": "coal"}, "fuel = 'coal' is not known; choose one of petrol, diesel"),
    ],
)
def test_a_wrong_key_or_value_is_told(raw: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        fill(Tank, raw, "car.toml [tank]")


def test_a_table_that_is_not_there_is_empty_and_one_that_is_none_is_refused() -> None:
    assert table({"tank": {"wheels": 3}}, "tank", "car.toml") == {"wheels": 3}
    assert table({}, "tank", "car.toml") == {}
    with pytest.raises(ConfigError, match=r"car.toml: tank = 3; wanted a table, \[tank\] with keys below it"):
        table({"tank": 3}, "tank", "car.toml")


def test_what_is_known_stands_in_the_refusal() -> None:
    refuse_unknown({"a": 1}, {"a", "b"}, "x")
    with pytest.raises(ConfigError, match="x: c = 1: there is no such key; known: a, b"):
        refuse_unknown({"c": 1}, {"b", "a"}, "x")
