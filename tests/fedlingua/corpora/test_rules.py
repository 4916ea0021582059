"""The rules for the text as they go over the wire."""

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
        ({"split.mode": "by-moon"}, "mode = 'by-moon'"),
        ({"cleaning.normalize": "NFD"}, "normalize = 'NFD', unknown to this version"),
        ({"text.deidentify": "Required"}, "deidentify = 'Required', unknown to this version"),
        ({"directions": ["de-xx"]}, "language = 'xx' is not known"),
    ],
)
def test_a_rule_that_is_not_known_here_is_refused(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        TextRules.from_flat({**RULES.flat(), **changed})
