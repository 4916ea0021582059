"""Options that were taken out: named in messages, and read over in stored runs where they make no difference."""

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.desk.experiment import given_settings
from fedlingua.settings import removed
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import config_of_run, default_run_config
from fedlingua.settings.removed import KEYS, LAST, VALUES, Removed, without_removed
from fedlingua.settings.table import OPTIONS


def test_no_option_is_both_there_and_taken_out() -> None:
    assert not set(KEYS) & set(OPTIONS)
    for (key, value), (stand_in, _) in VALUES.items():
        assert value not in OPTIONS[key].choices
        assert settings_from({**default_run_config(), key: stand_in})


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_was_taken_out_is_refused_with_what_to_use(key: str) -> None:
    for refusing in (lambda: settings_from({**default_run_config(), key: "x"}), lambda: given_settings([f"{key}=x"])):
        with pytest.raises(ConfigError) as error:
            refusing()
        assert f"{key} was taken out; {KEYS[key].instead}" in str(error.value)
        assert LAST in str(error.value)


@pytest.mark.parametrize(("key", "value"), VALUES)
def test_a_value_that_was_taken_out_is_refused_with_what_to_use(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings_from({**default_run_config(), key: value})
    assert f"{key} = {value!r} was taken out; {VALUES[key, value][1].instead}" in str(error.value)


def test_a_stored_run_loses_only_what_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = {
        "steps": Removed("leave it out", (1,)),
        "own": Removed("leave it out", ("none",), spent=False),
        "wait": Removed("leave it out", None),
    }
    monkeypatch.setattr(removed, "KEYS", gone)
    monkeypatch.setattr(removed, "VALUES", {("rule", "old"): ("new", Removed("give rule = 'new'"))})
    assert without_removed({"wait": 7.0, "steps": 1, "own": "none", "rule": "new"}) == {"rule": "new"}
    going_on = {"steps": 2, "own": "mine", "rule": "old"}
    assert without_removed(going_on) == going_on
    assert without_removed(going_on, completed=True) == {"own": "mine", "rule": "new"}


def test_every_stored_default_of_what_was_taken_out_is_read() -> None:
    stored = {key: gone.without[0] for key, gone in KEYS.items() if gone.without}
    assert settings_from(config_of_run({**default_run_config(), **stored}))
