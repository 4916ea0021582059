"""A backbone of another task, or too small for its pruning, is refused before anything is loaded or trained."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fedlingua.backbones.directories import BUILT_IN, backbone_directory
from fedlingua.common.errors import BackboneError
from fedlingua.desk.check_settings import check_backbone
from fedlingua.desk.pretraining import demo
from fedlingua.desk.pretraining.recipe import RESERVED
from fedlingua.exchange.trainable import build_trainable
from fedlingua.settings.checks import settings_from

MASKED = {"task": "masked-language", "method": "model-fed"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fedlingua" / "backbones"


def refusal(run_config: dict[str, Any], **changes: Any) -> str:
    with pytest.raises(BackboneError) as caught:
        check_backbone(settings_from({**run_config, **changes}))
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "changes", "of"),
    [("demo", MASKED, "translation"), ("demo-encoder", {}, "masked-language")],
    ids=["demo", "demo-encoder"],
)
def test_what_is_built_in_is_refused_for_another_task_and_not_trained(
    run_config: dict[str, Any], cache: Path, name: str, changes: dict[str, Any], of: str
) -> None:
    asked = changes.get("task", "translation")
    wanted = f"backbone = {name!r} is for task = {of!r}, and the run's is {asked!r}; change one of them"
    assert refusal(run_config, backbone=name, **changes) == wanted
    check_backbone(settings_from({**run_config, "backbone": name, **(MASKED if of == "masked-language" else {})}))
    assert not cache.exists()


def test_a_directory_is_refused_for_another_task_by_its_configuration_alone(
    run_config: dict[str, Any], cache: Path, tmp_path: Path
) -> None:
    """There are no weights to load."""
    for place, name in ((cache / "ours", "ours"), (tmp_path / "here", str(tmp_path / "here"))):
        place.mkdir(parents=True)
        (place / "config.json").write_text(json.dumps({"model_type": "xlm-roberta", "num_hidden_layers": 2}))
        assert "is for task = 'masked-language', and the run's is 'translation'" in refusal(run_config, backbone=name)
        check_backbone(settings_from({**run_config, **MASKED, "backbone": name}))
        pruned = {**MASKED, "backbone": name, "tensor-set": "adapters", "adapter.layers": "middle"}
        assert "keeps no layer of the encoder, which has 2" in refusal(run_config, **pruned)


def test_a_backbone_that_only_the_hub_has_is_checked_later(run_config: dict[str, Any], cache: Path) -> None:
    hub = {**run_config, **MASKED, "backbone": "somebody/some-encoder"}
    check_backbone(settings_from({**hub, "backbone-revision": "0" * 40}))
    with pytest.raises(BackboneError, match="has no pinned revision; give backbone-revision"):
        check_backbone(settings_from(hub))


@pytest.mark.parametrize("name", ["nobodys", "./nowhere", "empty"])
def test_a_backbone_that_is_nowhere_is_refused_before_anything_starts(
    run_config: dict[str, Any], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    told = refusal(run_config, backbone=name)
    assert f"backbone = '{name}'" in told
    assert ("no config.json" if name == "empty" else "no such directory") in told


def test_what_was_loaded_is_held_to_the_task_all_the_same(tiny_run_config: dict[str, Any], tiny_encoder: Path) -> None:
    with pytest.raises(BackboneError, match="is for task = 'masked-language', and the run's is 'translation'"):
        build_trainable(settings_from({**tiny_run_config, "backbone": str(tiny_encoder)}))


def test_a_recipes_encoder_is_found_by_its_name(cache: Path, tiny_encoder: Path) -> None:
    shutil.copytree(tiny_encoder, cache / "ours")
    assert backbone_directory("ours") == cache / "ours"


def test_no_recipe_takes_the_name_of_what_is_built_in() -> None:
    assert set(RESERVED) == set(BUILT_IN)


def test_another_text_is_another_demo_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    before = demo.demo_encoder_hash()
    monkeypatch.setattr(demo, "ENCODER_SENTENCES", demo.ENCODER_SENTENCES + 1)
    assert demo.demo_encoder_hash() != before
