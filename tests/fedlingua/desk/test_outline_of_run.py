"""What a backbone's files tell is what the loaded model has."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedlingua.backbones.load import load_backbone
from fedlingua.desk.described import describe
from fedlingua.desk.outline_of_run import outline_of
from fedlingua.exchange.trainable import build_trainable
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar

SETS: list[dict[str, Any]] = [
    {"tensor_set": "adapters"},
    {"tensor_set": "full"},
    {"tensor_set": "controllers", "controllers": 3},
    {"tensor_set": "lora", "lora_targets": "fc1,encoder_attn.q_proj"},
]


@pytest.mark.parametrize("changes", SETS, ids=lambda changes: "-".join(map(str, changes.values())))
def test_the_files_tell_what_trains_and_travels(changes: dict[str, Any], tiny_run_config: dict[str, Scalar]) -> None:
    settings = dataclasses.replace(settings_from(tiny_run_config), **changes)
    outline, loaded = outline_of(settings), build_trainable(settings)
    assert set(outline.trained.specs) == set(loaded.trained.specs)
    assert set(outline.tensor_set.specs) == set(loaded.tensor_set.specs)
    assert outline.backbone.num_parameters == loaded.backbone.num_parameters
    assert outline.backbone.fingerprint == loaded.backbone.fingerprint
    in_model = sum(parameter.numel() for parameter in loaded.model.parameters())
    assert outline.backbone.num_parameters + outline.num_added == in_model


@pytest.mark.parametrize("tensor_set", ["adapters", "full", "lora"])
def test_of_an_encoder_too(tensor_set: str, tiny_run_config: dict[str, Scalar], tiny_encoder: Path) -> None:
    config = {**tiny_run_config, "task": "masked-language", "backbone": str(tiny_encoder), "tensor-set": tensor_set}
    settings = settings_from({**config, "lora.targets": "query,value"})
    outline, loaded = outline_of(settings), build_trainable(settings)
    # Of a matrix under two names the file has another one than the loaded model.
    forms = [sorted((spec.shape, spec.part, str(spec.layer)) for spec in each.trained.specs) for each in (outline, loaded)]
    assert forms[0] == forms[1]
    assert outline.backbone.num_parameters == loaded.backbone.num_parameters


def test_its_languages_and_unknown_pieces_are_the_tokenizers(tiny_backbone: Path, tiny_encoder: Path) -> None:
    sentences = ["Der Arzt sieht den Patienten.", "Врач осматривает больного.", "医生"]
    for directory in (tiny_backbone, tiny_encoder):
        described, loaded = describe(directory), load_backbone(directory)
        assert set(described.codec.language_ids) == set(loaded.codec.language_ids)
        unknown = loaded.codec.tokenizer.unk_token_id
        wanted = [[number == unknown for number in row] for row in loaded.codec.pieces(sentences)]
        assert [[number == -1 for number in row] for row in described.codec.pieces(sentences)] == wanted


def test_nothing_of_it_loads_torch_or_transformers(tiny_backbone: Path) -> None:
    modules = ("desk.deployment.checks", "desk.cli.site", "desk.cli.corpus", "desk.outline_of_run", "consent.approval")
    names = ", ".join(f"fedlingua.{name}" for name in modules)
    show = "fedlingua.desk.cli.backbone.show(sys.argv[1])"
    code = (
        f"import sys, fedlingua.desk.cli.backbone, {names}; {show}; print({{'torch', 'transformers', 'flwr'}} & {{*sys.modules}})"
    )
    assert subprocess.check_output([sys.executable, "-c", code, str(tiny_backbone)], text=True).splitlines()[-1] == "set()"
