"""`fedlingua backbone show`: what it tells is what a run would train and send, and a model that does not fit is refused."""

import json
from pathlib import Path

import pytest

from fedlingua.desk.cli.app import app
from fedlingua.desk.cli.output import run_commands
from fedlingua.exchange.trainable import build_trainable
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import default_run_config


def shown(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    with pytest.raises(SystemExit) as ended:
        run_commands(app, ["backbone", "show", *words])
    out, err = capsys.readouterr()
    assert (ended.value.code or 0) == code
    return out, err


def test_numbers_are_those_of_a_run(tiny_backbone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    about = json.loads(shown(capsys, str(tiny_backbone), "--format", "json")[0])
    assert (about["type"], about["shape"], about["task"]) == ("m2m_100", "encoder-decoder", "translation")
    assert {part: stack["layers"] for part, stack in about["stacks"].items()} == {"encoder": 2, "decoder": 2}
    assert "de" in about["reads"]
    assert "fr" in about["writes"]
    told = {each["name"]: each for each in about["tensor_sets"]}
    for name in ("adapters", "full", "lora", "controllers"):
        config = {**default_run_config(), "backbone": str(tiny_backbone), "tensor-set": name}
        trainable = build_trainable(settings_from(config))
        assert told[name]["trains"] == trainable.trained.num_parameters
        assert told[name]["bytes"] == 4 * trainable.tensor_set.num_parameters


def test_the_demo_reads_and_writes_what_it_was_trained_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Its tokenizer has the 100 languages of every M2M-100."""
    about = json.loads(shown(capsys, "demo", "--format", "json")[0])
    assert about["reads"] == about["writes"] == ["cs", "de", "es", "fr", "it", "nl", "pl", "sl", "sv"]


def test_what_a_model_cannot_is_said_beside_what_it_can(tiny_encoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = "".join(shown(capsys, str(tiny_encoder)))
    assert "xlm-roberta, encoder" in told
    assert "encoder: 2 layers in roberta.encoder.layer; adapters after attention.output.dense, output.dense" in told
    assert "controllers are layers of an M2M-100 or mBART" in " ".join(told.split())


def test_a_folder_that_is_no_backbone_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "nllb-moe"}')
    assert "is of type 'nllb-moe'; wanted one of m2m_100" in " ".join("".join(shown(capsys, str(tmp_path), code=1)).split())
