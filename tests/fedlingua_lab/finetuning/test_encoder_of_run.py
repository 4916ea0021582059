"""The encoder that a run has pre-trained: what its sites ended with, and after fine-tuning a model that loads as what was scored."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoModelForTokenClassification, PreTrainedModel

from fedlingua.common.errors import RunError
from fedlingua.desk.completed import CompletedRun
from fedlingua.desk.translating.models import delivered
from fedlingua.exchange.tensor_sets import write_tensors
from fedlingua.runs.folder import RunFolder
from fedlingua_lab.cli.finetune import model_of_run
from fedlingua_lab.finetuning.annotated import read_annotated
from fedlingua_lab.finetuning.encoder import Encoder, encoder_of_run
from fedlingua_lab.finetuning.settings import FineTuning
from fedlingua_lab.finetuning.training import finetune
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
    host = next(host for host, about in folder.read("sites.json").items() if site in about["members"])
    write_tensors(trainable.model, delivered(folder.directory / "sites" / host)[0])
    return trainable.model


@pytest.mark.parametrize("kind", KINDS)
def test_the_encoder_is_what_the_site_ended_with_and_a_fine_tuned_one_loads_as_what_was_scored(
    config: dict[str, Any], tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = run({**config, **KINDS[kind]}, tmp_path / "run", num_nodes=4)
    trained = model_of_run(folder.directory, "school" if kind == "local" else None)
    encoder = encoder_of_run(trained, "e")
    loaded = encoder.with_head("ner", TAGS, 1)
    assert trained.site
    torch.testing.assert_close(hidden(loaded), hidden(of_site(folder, trained.site)), atol=1e-5, rtol=0)
    assert not torch.allclose(hidden(loaded), hidden(AutoModelForMaskedLM.from_pretrained(config["backbone"])), atol=1e-3)

    data = write_tagging(tmp_path / "drugs", {"train": 16, "devel": 4, "test": 4})
    scored: list[PreTrainedModel] = []
    with_head = Encoder.with_head
    monkeypatch.setattr(Encoder, "with_head", lambda *how: scored.append(with_head(*how)) or scored[-1])
    texts = read_annotated(data, "iob")
    about = finetune("iob", encoder, texts, tmp_path / "out", FineTuning(epochs=1, learning_rate=1e-2), "drugs", print, print)
    if kind in ("adapters", "local"):  # transformers would load it without its adapters
        assert about["model"] is None
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["finetuning.json", "predictions.tsv"]
        return
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["finetuning.json", "model", "predictions.tsv"]
    again, info = AutoModelForTokenClassification.from_pretrained(tmp_path / "out" / "model", output_loading_info=True)
    assert (info["missing_keys"], info["unexpected_keys"]) == (set(), set())
    torch.testing.assert_close(logits(again), logits(scored[0]))


def test_what_has_no_encoder_to_give_is_refused(config: dict[str, Any], tmp_path: Path) -> None:
    def refused(site: str | None = None) -> str:
        with pytest.raises(RunError) as caught:
            model_of_run(tmp_path / "run", site)
        return str(caught.value)

    assert "is not a run folder" in refused()
    folder, _ = run({**config, "method": "adapter-local"}, tmp_path / "run", num_nodes=4)
    about = folder.read("run.json")
    assert "say whose with --site, one of hospital, court, school, bank" in refused()
    assert "has no site 'scool'; did you mean 'school'?" in refused("scool")
    folder.update(config={**about["config"], "method": "adapter-fed", "keep.choose": True})
    folder.write("clusters.json", {"encoder": {"all": ["hospital", "court", "school", "bank"]}})
    assert "different encoders (keep.choose = true); say whose with --site, one of hospital, court" in refused()
    folder.update(config=about["config"])
    folder.update(backbone={**about["backbone"], "fingerprint": "f" * 64})
    folder.update(status="running")
    assert "the run is running, not completed" in refused("school")
    folder.update(status="completed")
    translation = {"task": "translation", "method": "adapter-fed"}
    folder.update(config={**about["config"], **translation})
    assert "task = 'translation' trains no encoder" in refused("school")


def test_another_backbone_than_the_runs_is_refused(config: dict[str, Any], tmp_path: Path) -> None:
    folder, _ = run({**config, "method": "model-fed"}, tmp_path / "run", num_nodes=4)
    about = folder.read("run.json")
    folder.update(backbone={**about["backbone"], "fingerprint": "f" * 64})
    with pytest.raises(RunError, match="is not the one the run was trained on"):
        encoder_of_run(model_of_run(folder.directory, "school"), "e")
