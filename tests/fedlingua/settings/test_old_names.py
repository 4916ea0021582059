"""Keys of before they were grouped: files and kept runs that have them are read, on the command line the new name is said."""

from pathlib import Path
from typing import Any

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.desk.suites.read import read_suite
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import config_of_run, given_settings, read_experiment
from fedlingua.settings.table import OLD_NAMES, OPTIONS

OLD_FILE = 'adapter-dim = 8\nselection = "apf"\ndeadline-s = 5.0\n'


def test_an_old_file_is_read_as_the_same_in_tables_and_as_the_same_with_dots(tmp_path: Path) -> None:
    forms = (
        OLD_FILE,
        'adapter.dim = 8\nsend.rule = "apf"\ndeadline.phase-s = 5.0\n',
        '[adapter]\ndim = 8\n[send]\nrule = "apf"\n[deadline]\nphase-s = 5.0\n',
    )
    for number, text in enumerate(forms):
        (tmp_path / f"{number}.toml").write_text(text)
    settings = [read_experiment(tmp_path / f"{number}.toml", {}) for number in range(3)]
    assert settings[0] == settings[1] == settings[2]
    assert (settings[0].adapter_dim, settings[0].selection, settings[0].deadline_s) == (8, "apf", 5.0)


def test_an_old_suite_is_read(tmp_path: Path) -> None:
    row = '[[row]]\nmethod = "model-fed"\nselection = "apf"\n'
    (tmp_path / "suite.toml").write_text(f"seeds = [1]\n[settings]\nadapter-dim = 8\n{row}")
    only = read_suite(tmp_path / "suite.toml", {}).rows[0]
    assert dict(only.keys) == {"method": "model-fed", "send.rule": "apf"}
    assert only.settings.adapter_dim == 8


def test_a_kept_runs_config_has_todays_names(run_config: dict[str, Any]) -> None:
    kept = {option.first_name: run_config[key] for key, option in OPTIONS.items()}
    assert config_of_run(kept) == run_config


def test_an_old_name_on_the_command_line_is_told_its_new_one(run_config: dict[str, Any]) -> None:
    said = "adapter-dim = 64: this key is called adapter.dim now"
    with pytest.raises(ConfigError, match=f"command line: {said}"):
        given_settings(["adapter-dim=64"])
    with pytest.raises(ConfigError, match=said):
        settings_from({**run_config, "adapter-dim": 64})


def test_no_old_name_is_a_key_or_names_two() -> None:
    assert not set(OLD_NAMES) & set(OPTIONS)
    assert len(set(OLD_NAMES.values())) == len(OLD_NAMES)
