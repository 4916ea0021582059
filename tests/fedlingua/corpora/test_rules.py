"""The rules for the text as they go over the wire."""

import re
from typing import Any

import pytest
from flwr.app import ConfigRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import Direction
from fedlingua.corpora.clean import CleaningRules
from fedlingua.corpora.rules import IntakeRules, TextRules
from fedlingua.corpora.sizes import Sizes
from fedlingua.corpora.split import SplitRules

RULES = TextRules(
    SplitRules("shared-side", "ü", 0.7, 0.1, 0.2, True),
    Sizes(1, 2, 3),
    CleaningRules(1, 99, 4.5, False, True, True, 0.5, True, "NFKC", True),
    (Direction("de", "fr"), Direction("pl", "es"), Direction("sv", "sv")),
    Sizes(4, 0, 6),
    IntakeRules("required"),
)


@pytest.mark.parametrize("rules", [RULES, TextRules()], ids=["all set", "defaults, no directions"])
def test_rules_arrive_through_flowers_records_as_they_were_sent(rules: TextRules) -> None:
    sent = RecordDict({"rules": ConfigRecord(rules.flat())})
    arrived = recorddict_from_proto(recorddict_to_proto(sent))
    back = TextRules.from_flat(arrived.config_records["rules"])
    assert back == rules
    assert (type(back.split.train), type(back.limits.dev), type(back.cleaning.drop_duplicates)) == (float, int, bool)


def test_the_flat_form_names_every_rule_with_its_table() -> None:
    flat = RULES.flat()
    assert (flat["split.key"], flat["limits.dev"], flat["cleaning.max_ratio"], flat["sizes.test"]) == ("ü", 2, 4.5, 6)
    assert flat["text.deidentify"] == "required"
    assert flat["directions"] == ["de-fr", "pl-es", "sv"]
    assert len(flat) == 6 + 3 + 10 + 3 + 1 + 1


@pytest.mark.parametrize("key", sorted(RULES.flat()))
def test_a_rule_that_is_missing_is_refused_rather_than_guessed(key: str) -> None:
    flat = RULES.flat()
    del flat[key]
    with pytest.raises(ConfigError, match=f"not those of this version.*{key}"):
        TextRules.from_flat(flat)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"split.seed": 3}, "split.seed"),
        ({"other.key": 3}, "other.key"),
        ({"": 3}, "not those of this version"),
        ({"split.mode": "by-moon"}, "[split]: mode = 'by-moon' is not known"),
        ({"cleaning.normalize": "NFD"}, "[cleaning]: normalize = 'NFD' is not known"),
        ({"text.deidentify": "Required"}, "[text]: deidentify = 'Required' is not known"),
        ({"directions": ["de-xx"]}, "language = 'xx' is not known"),
        ({"split.train": -5.0, "split.dev": 5.8}, "[split]: train, dev and test = -5, 5.8, 0.2; wanted three shares"),
        ({"split.train": 0.8}, "[split]: train, dev and test = 0.8, 0.1, 0.2; wanted three shares"),
        ({"limits.dev": 5.7}, "[limits]: dev = 5.7 is of type float; wanted int"),
        ({"limits.train": -5}, "[limits]: train = -5; wanted a whole number, 0 or above"),
        ({"sizes.test": -1}, "[sizes]: test = -1; wanted a whole number, 0 or above"),
        ({"cleaning.min_words": "x"}, "[cleaning]: min-words = 'x' is of type str; wanted int"),
        ({"cleaning.min_words": -1}, "[cleaning]: min-words = -1; wanted 0 or above"),
        ({"cleaning.min_script_share": 2.0}, "[cleaning]: min-script-share = 2 is not a share"),
    ],
)
def test_a_rule_that_is_not_known_here_is_refused(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        TextRules.from_flat({**RULES.flat(), **changed})
