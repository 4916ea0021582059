"""Results of the untrained backbone: made once, found only where all that decides them is the same, and never taken damaged."""

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedlingua.evaluation import base_results
from fedlingua.evaluation.base_results import base_result
from fedlingua.exchange.trainable import Trainable, build_trainable
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar, Settings


class Maker:
    """Counts how often it is asked, and gives each time something else."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> list[str]:
        self.made += 1
        return [f"Übersetzung {self.made}", "a\tb\nc\u2028"]


@pytest.fixture
def settings(tiny_run_config: dict[str, Scalar]) -> Settings:
    return settings_from(tiny_run_config)


@pytest.fixture
def trainable(settings: Settings) -> Trainable:
    return build_trainable(settings)


def test_a_result_is_made_once_and_comes_back_as_it_was(tmp_path: Path, trainable: Trainable, settings: Settings) -> None:
    make = Maker()
    first, second = (base_result(tmp_path / "kept", trainable, settings, ["text", 5], make) for _ in range(2))
    assert first == second == ["Übersetzung 1", "a\tb\nc\u2028"]
    assert make.made == 1


def test_another_text_setting_precision_or_number_of_threads_is_a_miss(
    tmp_path: Path, trainable: Trainable, settings: Settings
) -> None:
    make = Maker()
    base_result(tmp_path, trainable, settings, ["text", 5], make)
    base_result(tmp_path, trainable, settings, ["text.", 5], make)
    base_result(tmp_path, trainable, settings, ["text", 4], make)
    base_result(tmp_path, trainable, replace(settings, precision="bf16"), ["text", 5], make)
    assert make.made == 4
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    base_result(tmp_path, trainable, settings, ["text", 5], make)
    torch.set_num_threads(before)
    assert make.made == 5
    base_result(tmp_path, trainable, settings, ["text", 5], make)
    assert make.made == 5


def test_another_backbone_is_a_miss_and_another_method_or_seed_a_hit(tmp_path: Path, tiny_run_config: dict[str, Scalar]) -> None:
    make = Maker()
    more: list[dict[str, Any]] = [{}, {"method": "model-fed"}, {"seed": 7}, {"tensor-set": "lora"}, {"tensor-set": "controllers"}]
    for changes in more:
        settings = settings_from({**tiny_run_config, **changes})
        base_result(tmp_path, build_trainable(settings), settings, ["text"], make)
    assert make.made == 1
    drawn = settings_from({**tiny_run_config, "backbone-weights": "random", "method": "model-fed"})
    base_result(tmp_path, build_trainable(drawn), drawn, ["text"], make)
    assert make.made == 2


def test_another_library_or_app_is_a_miss(
    tmp_path: Path, trainable: Trainable, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Maker()
    base_result(tmp_path, trainable, settings, ["text"], make)
    monkeypatch.setattr(base_results, "_code", lambda: {"torch": "9"})
    base_result(tmp_path, trainable, settings, ["text"], make)
    assert make.made == 2


@pytest.mark.parametrize("damage", [b"", b"0\n[]", b"\xff\xfe", None], ids=["empty", "other", "no-text", "flipped"])
def test_a_damaged_result_is_made_again(tmp_path: Path, trainable: Trainable, settings: Settings, damage: bytes | None) -> None:
    make = Maker()
    base_result(tmp_path, trainable, settings, ["text"], make)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes().replace(b"1", b"2", 1) if damage is None else damage)
    assert base_result(tmp_path, trainable, settings, ["text"], make)[0] == "Übersetzung 2"
    assert base_result(tmp_path, trainable, settings, ["text"], make)[0] == "Übersetzung 2"


def test_results_are_for_their_user_alone(tmp_path: Path, trainable: Trainable, settings: Settings) -> None:
    before = os.umask(0)
    base_result(tmp_path / "kept", trainable, settings, ["text"], Maker())
    os.umask(before)
    (file,) = (tmp_path / "kept").iterdir()
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_was_not_used_for_longest_is_removed(
    tmp_path: Path, trainable: Trainable, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Maker()

    def made(text: str) -> bool:
        """Whether it had to be made; every use comes a second after the one before."""
        before = make.made
        base_result(tmp_path, trainable, settings, [text], make)
        for file in tmp_path.iterdir():
            os.utime(file, (0.0, file.stat().st_mtime - 1))
        return make.made > before

    assert made("a")
    monkeypatch.setattr(base_results, "MOST_BYTES", 3 * next(tmp_path.iterdir()).stat().st_size)
    assert made("b")
    assert made("c")
    assert not made("a")
    assert made("d")  # there is room for three
    assert len(list(tmp_path.iterdir())) == 3
    assert not made("a")
    assert made("b")


def test_a_place_that_cannot_be_written_costs_no_run(tmp_path: Path, trainable: Trainable, settings: Settings) -> None:
    (tmp_path / "file").write_text("")
    assert base_result(tmp_path / "file" / "folder", trainable, settings, ["text"], Maker())[0] == "Übersetzung 1"
