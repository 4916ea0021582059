"""What an interrupted phase trained is used again only if it can be read; nothing is translated that cannot be chosen."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from fedlingua.common.files import json_text, replace_text
from fedlingua.exchange.tensors import save_tensors
from fedlingua.personalization.choice import DevResult, is_shown
from fedlingua.personalization.phase import Phase
from tests.damage import truncate


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    tensors, about = tmp_path / "alone.safetensors", tmp_path / "alone.json"
    save_tensors({"w": np.ones(3, np.float32)}, tensors)
    replace_text(about, json_text({"key": "k", "best": 2}))
    return tensors, about


def test_a_stored_model_counts_for_its_key_alone(files: tuple[Path, Path]) -> None:
    assert Phase._stored(files, "k") == {"key": "k", "best": 2}
    assert Phase._stored(files, "another") is None


@pytest.mark.parametrize("damage", [truncate, lambda file: file.write_bytes(b""), Path.unlink], ids=["cut", "empty", "gone"])
def test_a_model_whose_tensors_cannot_be_read_is_not_stored(files: tuple[Path, Path], damage) -> None:  # type: ignore[no-untyped-def]
    damage(files[0])
    assert Phase._stored(files, "k") is None


def test_nothing_is_translated_for_a_comparison_that_the_loss_has_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def result(loss: float) -> DevResult:
        return DevResult(np.full(40, 10 * loss), np.full(40, 10.0))

    translated = list[str]()

    def translate(self: Phase, name: str) -> bool:
        translated.append(name)
        self.dev[name] = replace(self.dev[name], chrf=np.ones((40, 18)))
        return True

    monkeypatch.setattr(Phase, "translate", translate)
    for by, asked in (("loss", []), ("both", ["alone", "better"]), ("chrf", ["alone", "worse", "better"])):
        phase = Phase(cast(Any, SimpleNamespace(by=by)), tmp_path, 0.0)
        phase.dev = {"alone": result(2.0), "worse": result(2.1), "better": result(1.5)}
        translated.clear()
        worse, better = phase.gains("alone", "worse"), phase.gains("alone", "better")
        assert translated == asked
        assert is_shown(worse) is False
        assert is_shown(better) is (by != "chrf")
