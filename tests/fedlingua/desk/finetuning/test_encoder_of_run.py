"""The encoder that a run has pre-trained: what its sites ended with, and after fine-tuning a model that loads as what was scored."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoModelForTokenClassification, PreTrainedModel

from fedlingua.common.errors import RunError
from fedlingua.desk.completed import CompletedRun
from fedlingua.desk.finetuning import encoder_of_run, tasks
from fedlingua.desk.finetuning.encoder import Encoder, load_encoder
from fedlingua.desk.finetuning.encoder_of_run import _write, attached, encoder_directory
from fedlingua.desk.finetuning.settings import FineTuning
from fedlingua.exchange.delivery import delivered
from fedlingua.exchange.tensor_sets import write_tensors
from fedlingua.runs.folder import RunFolder
from tests.encoders import write_tagging
from tests.in_process import run

TAGS = ["O", "B-Drug", "I-Drug"]
IDS = torch.tensor([[0, 5, 9, 7, 2], [0, 8, 6, 11, 2]])
KINDS: dict[str, dict[str, Any]] = {
    "full": {"method": "model-fed"},
    "lora": {"method": "adapter-fed", "tensor-set": "lora"},
    "adapters": {"method": "adapter-fed"},
    "pooled": {"method": "centralized"},
    "silo": {"method": "silo-hospital"},
    "local": {"method": "adapter-local"},
    "random": {"method": "model-fed", "backbone-weights": "random"},
}


@pytest.fixture
def config(four_texts: dict[str, Any]) -> dict[str, Any]:
    return {**four_texts, "rounds": 1, "learning-rate": 0.05}


def hidden(model: PreTrainedModel) -> torch.Tensor:
    """What a head sees."""
    with torch.no_grad():
        found: torch.Tensor = model.eval().base_model(input_ids=IDS).last_hidden_state
    return found


def logits(model: PreTrainedModel) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.eval()(input_ids=IDS).logits
    return found


def of_site(folder: RunFolder, site: str) -> PreTrainedModel:
    """What a site ended with, put together by hand."""
    trainable = CompletedRun.of(folder.directory).trainable()
    write_tensors(trainable.model, delivered(folder.directory / "sites" / site)[0])
    return trainable.model


@pytest.mark.parametrize("kind", KINDS)
def test_the_encoder_is_what_the_site_ended_with_and_a_fine_tuned_one_loads_as_what_was_scored(
    config: dict[str, Any], tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = run({**config, **KINDS[kind]}, tmp_path / "run", num_nodes=4)
    named = "school" if kind == "local" else None
    directory = encoder_directory(folder.directory, named)
    site = directory.name
    loaded = load_encoder(directory, "ner", TAGS, 1, None, "cpu")
    torch.testing.assert_close(hidden(loaded.model), hidden(of_site(folder, site)), atol=1e-5, rtol=0)
    assert not torch.allclose(hidden(loaded.model), hidden(AutoModelForMaskedLM.from_pretrained(config["backbone"])), atol=1e-3)

    data = write_tagging(tmp_path / "drugs", {"train": 16, "devel": 4, "test": 4})
    scored: list[Encoder] = []
    monkeypatch.setattr(tasks, "load_encoder", lambda *how: scored.append(load_encoder(*how)) or scored[-1])
    tasks.finetune("ner", directory, data, tmp_path / "out", FineTuning(epochs=1, learning_rate=1e-2), lambda epoch: None)
    about = json.loads((tmp_path / "out" / "finetuning.json").read_text())
    with_adapters = kind in ("adapters", "local")
    assert about["model"] == ("model-with-adapters" if with_adapters else "model")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["finetuning.json", about["model"], "predictions.tsv"]
    saved = tmp_path / "out" / about["model"]
    if with_adapters:
        again: PreTrainedModel = AutoModelForTokenClassification.from_pretrained(saved, use_safetensors=True)
        attached(again, saved)
        torch.testing.assert_close(hidden(load_encoder(saved, "ner", TAGS, 7, None, "cpu").model), hidden(again))
        assert str(tmp_path) not in (saved / "adapter" / "settings.json").read_text().replace(config["backbone"], "")
    else:
        again, info = AutoModelForTokenClassification.from_pretrained(saved, output_loading_info=True, use_safetensors=True)
        assert (info["missing_keys"], info["unexpected_keys"]) == (set(), set())
    torch.testing.assert_close(logits(again), logits(scored[0].model))


def test_the_directory_is_made_once(config: dict[str, Any], tmp_path: Path) -> None:
    folder, _ = run({**config, "method": "adapter-fed"}, tmp_path / "run", num_nodes=4)
    first = encoder_directory(folder.directory)
    before = {file: file.stat().st_mtime_ns for file in first.rglob("*")}
    assert encoder_directory(folder.directory) == first
    assert {file: file.stat().st_mtime_ns for file in first.rglob("*")} == before
    assert sorted(path.name for path in first.parent.iterdir()) == [f".{first.name}.lock", first.name]


def test_two_processes_make_the_directory_one_after_the_other(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = run({**config, "method": "adapter-fed"}, tmp_path / "run", num_nodes=4)
    written: list[Path] = []

    def slowly(directory: Path, *how: Any) -> None:
        written.append(directory)
        sleep(0.2)
        _write(directory, *how)

    monkeypatch.setattr(encoder_of_run, "_write", slowly)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(encoder_directory, [folder.directory] * 2)
    assert one == other
    assert len(written) == 1


def test_what_has_no_encoder_to_give_is_refused(config: dict[str, Any], tmp_path: Path) -> None:
    def refused(site: str | None = None) -> str:
        with pytest.raises(RunError) as caught:
            encoder_directory(tmp_path / "run", site)
        assert not (tmp_path / "run" / "encoder").exists()
        return str(caught.value)

    assert "is not a run folder" in refused()
    folder, _ = run({**config, "method": "adapter-local"}, tmp_path / "run", num_nodes=4)
    about = folder.read("run.json")
    assert "say whose with --site, one of hospital, court, school, bank" in refused()
    assert "nothing was delivered to site 'scool'; did you mean 'school'?; delivered: bank, court" in refused("scool")
    folder.update(config={**about["config"], "method": "adapter-fed", "keep.choose": True})
    folder.write("clusters.json", {"encoder": {"all": ["hospital", "court", "school", "bank"]}})
    assert "different encoders (keep.choose = true); say whose with --site, one of hospital, court" in refused()
    folder.update(config=about["config"])
    folder.update(backbone={**about["backbone"], "fingerprint": "f" * 64})
    folder.update(status="running")
    assert "the run is running, not completed" in refused("school")
    folder.update(status="completed", config={**about["config"], "method": "base"})
    assert "method base trains nothing; give its backbone itself with --encoder" in refused("school")
    translation = {"task": "translation", "method": "adapter-fed"}
    folder.update(config={**about["config"], **translation})
    assert "task = 'translation' trains no encoder" in refused("school")


def test_another_backbone_than_the_runs_is_refused(config: dict[str, Any], tmp_path: Path) -> None:
    folder, _ = run({**config, "method": "model-fed"}, tmp_path / "run", num_nodes=4)
    about = folder.directory / "sites" / "school" / "delivered.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "backbone_fingerprint": "f" * 64}))
    with pytest.raises(RunError, match="is not the one the run was trained on"):
        encoder_directory(folder.directory, "school")
