"""What a run leaves at a site: the trained tensors bit for bit, and what they fit on."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedlingua.common import files
from fedlingua.common.errors import RunError
from fedlingua.desk.translating.models import delivered, delivered_second
from fedlingua.exchange import delivery
from fedlingua.exchange.delivery import Second, deliver, delivered_about, is_delivered
from fedlingua.exchange.trainable import build_trainable
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar

SITE = {"site": "ward", "direction": "de-fr", "round": 3}


@pytest.mark.parametrize(
    ("name", "file", "told"),
    [
        (
            "adapters",
            "adapter/adapter.safetensors",
            {"type": "bottleneck", "dim": 4},
        ),
        ("lora", "adapter/adapter.safetensors", {"type": "lora", "rank": 8, "alpha": 16.0, "targets": "q_proj,v_proj"}),
        ("controllers", "model.safetensors", None),
        ("full", "model.safetensors", None),
    ],
)
def test_what_was_delivered_is_all_that_was_trained_bit_for_bit(
    tiny_run_config: dict[str, Scalar], tmp_path: Path, name: str, file: str, told: dict[str, object] | None
) -> None:
    settings = settings_from({**tiny_run_config, "tensor-set": name})
    trainable = build_trainable(settings)
    deliver(tmp_path, trainable, settings, SITE)
    assert (tmp_path / file).is_file()
    tensors, about = delivered(tmp_path)
    assert {n: array.tobytes() for n, array in tensors.items()} == {n: a.tobytes() for n, a in trainable.initial.items()}
    where = {**SITE, "backbone": settings.backbone, "backbone_fingerprint": trainable.backbone.fingerprint}
    assert about == {**where, "settings": settings.flat()}
    if told:
        config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
        assert config == {**told, "layers": "all", **where}


def test_nothing_delivered_is_said_so_and_lost_tensors_too(tiny_run_config: dict[str, Scalar], tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nothing was delivered here"):
        delivered(tmp_path)
    settings = settings_from(tiny_run_config)
    deliver(tmp_path, build_trainable(settings), settings, SITE)
    assert is_delivered(tmp_path)
    (tmp_path / "adapter" / "adapter.safetensors").unlink()
    with pytest.raises(RunError, match="the delivered tensors are gone"):
        delivered(tmp_path)


def test_what_is_damaged_is_told_with_the_file(tiny_run_config: dict[str, Scalar], tmp_path: Path) -> None:
    settings = settings_from(tiny_run_config)
    deliver(tmp_path, build_trainable(settings), settings, SITE)
    assert not list(tmp_path.rglob(".*"))
    tensors = tmp_path / "adapter/adapter.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:200])
    with pytest.raises(RunError, match=r"adapter\.safetensors is damaged"):
        delivered(tmp_path)
    (tmp_path / "delivered.json").write_text('{"site": "wa')
    with pytest.raises(RunError, match=r"delivered\.json is damaged"):
        delivered_about(tmp_path)


def test_an_ensemble_is_never_of_models_that_do_not_belong_together(
    tiny_run_config: dict[str, Scalar], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site that finishes again, and dies while it stores the federation's model over an ensemble, has that model."""
    settings = settings_from(tiny_run_config)
    trainable = build_trainable(settings)
    second = Second("own", "alone", {name: array + 1 for name, array in trainable.initial.items()}, 0.4)
    deliver(tmp_path, trainable, settings, {**SITE, "kept": "ensemble"}, second)
    about = delivered_about(tmp_path)
    assert (about["kept"], about["ensemble"]) == ("ensemble", {"first": "own", "second": "alone", "share": 0.4})
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["kept"] == "own"
    assert delivered_second(tmp_path).keys() == second.tensors.keys()
    with monkeypatch.context() as dying:
        dying.setattr(delivery, "replace_text", _dies_at("adapter_config.json"))
        with pytest.raises(KeyboardInterrupt):
            deliver(tmp_path, trainable, settings, {**SITE, "kept": "federation"})
    about = delivered_about(tmp_path)
    assert about["kept"] == "federation"
    assert "ensemble" not in about
    deliver(tmp_path, trainable, settings, {**SITE, "kept": "federation"})
    with pytest.raises(RunError, match=r"second.safetensors is damaged or missing"):
        delivered_second(tmp_path)


def _dies_at(name: str) -> Any:
    def replace_text(file: Path, text: str) -> None:
        if file.name == name:
            raise KeyboardInterrupt
        files.replace_text(file, text)

    return replace_text
