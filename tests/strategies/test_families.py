"""A federation of three sites on every family of models: it trains, its dev loss falls, it translates, what travels is counted, it can be
killed and resumed, and what is exported translates as the site does."""

import contextlib
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedlingua.desk.export.model import export_model
from fedlingua.desk.translating.models import RunModels
from fedlingua.exchange.trainable import build_trainable
from fedlingua.settings.checks import settings_from
from tests.conftest import short_run_config
from tests.families import ENCODERS, TRANSLATING
from tests.faults.test_resume import begin, resume
from tests.federations import phrasebook_federation
from tests.in_process import checkpoint_bytes, rounds, run
from tests.translated_runs import translator_of_site

THREE = phrasebook_federation("three", hospital=("de-fr", 40), court=("de-fr", 36), school=("de-fr", 32))
SETS = ("adapters", "lora", "full")
FAMILIES = [*TRANSLATING, *ENCODERS]
QUICK = [
    *[
        ("nllb", "adapters"),
        ("marian", "lora"),
        ("student", "adapters"),
        ("madlad", "adapters"),
        ("qwen3", "lora"),
        ("gemma2", "full"),
    ],
    *[("bert", "full"), ("modernbert", "adapters"), ("deberta", "adapters")],
]
OTHERS = [(name, each) for name in FAMILIES for each in SETS if (name, each) not in QUICK]


def config_of(backbone: Path, tensor_set: str, folder: Path, is_encoder: bool) -> dict[str, Any]:
    (folder / "three.toml").write_text(THREE.replace('direction = "de-fr"', 'language = "de"') if is_encoder else THREE)
    config: dict[str, Any] = {**short_run_config(backbone), "federation": str(folder / "three.toml"), "deadline.phase-s": 120.0}
    more: dict[str, Any] = {"task": "masked-language", "batch-size": 2, "local-epochs": 4} if is_encoder else {}
    rate = {"adapters": 1e-2, "lora": 3e-3, "full": 3e-3}[tensor_set]
    if "modernbert" in str(backbone) and tensor_set == "lora":
        more["lora.targets"] = "Wqkv"
    return {**config, **more, "tensor-set": tensor_set, "learning-rate": rate, "max-tokens": 48}


def held(name: str, tensor_set: str, family_folder: Callable[[str], Path], tmp_path: Path) -> Path:
    """Run a federation and hold what it says of itself."""
    config = config_of(family_folder(name), tensor_set, tmp_path, name in ENCODERS)
    folder, _ = run(config, tmp_path / "run")
    losses = [line["dev_loss"] for line in rounds(folder)]
    assert len(losses) == 3  # of the backbone, and after each round
    assert losses[-1] < losses[0]
    about = json.loads((folder.directory / "run.json").read_text())
    trainable = build_trainable(settings_from(config))
    assert about["exchanged_parameters"] == trainable.tensor_set.num_parameters > 0
    assert json.loads((folder.directory / "scores.json").read_text())["sites"]
    return folder.directory


@pytest.mark.parametrize(("name", "tensor_set"), QUICK)
def test_a_federation_of_three(name: str, tensor_set: str, family_folder: Callable[[str], Path], tmp_path: Path) -> None:
    directory = held(name, tensor_set, family_folder, tmp_path)
    if name in TRANSLATING:
        own = translator_of_site(directory, "hospital")
        assert any(own.translate(["ja", "Guten Morgen.", "der Arzt"]))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tensor_set"), OTHERS)
def test_a_federation_of_three_with_other_sets(
    name: str, tensor_set: str, family_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    held(name, tensor_set, family_folder, tmp_path)


@pytest.mark.parametrize("name", ["marian", "qwen3"])
def test_what_is_exported_for_peft_is_what_the_site_uses(name: str, family_folder: Callable[[str], Path], tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    directory = held(name, "lora", family_folder, tmp_path)
    export_model(RunModels(directory).of_site("hospital"), tmp_path / "out", "peft", directory)
    kind = AutoModelForCausalLM if name == "qwen3" else AutoModelForSeq2SeqLM
    model = PeftModel.from_pretrained(kind.from_pretrained(family_folder(name)), tmp_path / "out")
    own = translator_of_site(directory, "hospital")
    codec, sentence = own.trainable.backbone.codec, "Guten Morgen."
    (ids,) = codec.encode_source([sentence], RunModels(directory).of_site("hospital").direction, 48)
    made = model.generate(input_ids=torch.tensor([ids]), num_beams=1, do_sample=False, max_new_tokens=6)
    made = made[:, len(ids) :] if codec.is_causal else made
    assert codec.decode(made.tolist()) == own.translate([sentence])


CONVERTED = ["nllb", "marian-to-many", "madlad", "qwen3"]


@pytest.mark.parametrize(
    "name",
    [name if name in CONVERTED else pytest.param(name, marks=pytest.mark.slow) for name in TRANSLATING if name != "student"],
)
def test_ctranslate2_translates_as_the_site_does(name: str, family_folder: Callable[[str], Path], tmp_path: Path) -> None:
    """By the code that the model's card gives, with nothing changed but the folder and the sentences."""
    pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    config = {**config_of(family_folder(name), "lora", tmp_path, False), "keep.choose": False, "rounds": 1}
    directory = run(config, tmp_path / "run")[0].directory
    out = export_model(RunModels(directory).of_site("hospital"), tmp_path / "out", "ctranslate2", directory).directory
    sentences = ["Guten Morgen.", "Der Arzt liest ein Buch.", "Die Frau kauft heute das Haus."]
    code = re.search(r"```python\n(.*?)```", (out / "README.md").read_text(), re.DOTALL)
    assert code
    lines = code[1].replace("this/folder", str(out)).splitlines()
    (place,) = (number for number, line in enumerate(lines) if line.startswith("sentences = "))
    (text,) = json.loads(lines[place].removeprefix("sentences = "))
    lines[place] = f"sentences = {[text.replace('...', sentence) for sentence in sentences]!r}"
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec("\n".join(lines), {})
    own = translator_of_site(directory, "hospital")
    assert said.getvalue().splitlines() == [own.translate([sentence])[0] for sentence in sentences]


@pytest.mark.parametrize(
    ("name", "tensor_set"),
    [
        *[("madlad", "adapters"), ("qwen3", "lora"), ("deberta", "full")],
        *[pytest.param(*each, marks=pytest.mark.slow) for each in OTHERS],
    ],
)
def test_killed_and_resumed_it_ends_in_the_same_bytes(
    name: str, tensor_set: str, family_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    config = {**config_of(family_folder(name), tensor_set, tmp_path, name in ENCODERS), "keep.choose": False}
    whole, _ = run(config, tmp_path / "whole")
    resumed = resume(config, begin(config, tmp_path / "killed", number=2, answered=True))
    assert checkpoint_bytes(resumed) == checkpoint_bytes(whole)
