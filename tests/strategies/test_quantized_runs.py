"""A federation whose frozen base is held in 8 or 4 bits learns, resumes to the same bytes, and is exported in full precision."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from clients.node import trainable_of
from fedlingua.desk.export.adapter import load_adapter
from fedlingua.desk.export.model import export_model
from fedlingua.desk.translating.models import RunModels
from fedlingua.exchange import trainable
from fedlingua.exchange.trainable import Trainable, build_trainable
from fedlingua.settings.config import Settings
from tests.faults.test_resume import begin, final_bytes, resume
from tests.in_process import rounds, run
from tests.strategies.test_families import config_of
from tests.translated_runs import translator_of_site


def rounded(built: Trainable) -> dict[str, torch.Tensor]:
    """The quantized weights."""
    parameters = built.model.named_parameters()
    return {name: parameter.detach() for name, parameter in parameters if parameter.dtype in (torch.int8, torch.uint8)}


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Trainable]]:
    """Who -> the models that it has built."""
    made: dict[str, list[Trainable]] = {"server": [], "sites": []}

    def build(settings: Settings, computes: bool = True) -> Trainable:
        built = build_trainable(settings, computes)
        made["sites" if computes else "server"].append(built)
        return built

    trainable_of.cache_clear()
    monkeypatch.setattr(trainable, "build_trainable", build)
    return made


@pytest.mark.parametrize(("name", "tensor_set", "bits"), [("nllb", "lora", 8), ("qwen3", "adapters", 4)])
@pytest.mark.usefixtures("quantizes_on_cpu")
def test_a_federation_on_a_quantized_base(
    name: str,
    tensor_set: str,
    bits: int,
    builds: dict[str, list[Trainable]],
    family_folder: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backbone = family_folder(name)
    config = {**config_of(backbone, tensor_set, tmp_path, False), "frozen-bits": bits}
    folder, _ = run(config, tmp_path / "whole")
    losses = [line["dev_loss"] for line in rounds(folder)]
    assert losses[-1] < losses[0]
    (at_server,), (of_all_sites,) = builds["server"], builds["sites"]
    assert rounded(at_server) == {}
    stored = rounded(of_all_sites)
    assert len(stored) > 10
    fresh = rounded(build_trainable(of_the_run := RunModels(folder.directory).settings))
    assert all(torch.equal(weight, fresh[each]) for each, weight in stored.items())
    assert of_the_run.frozen_bits == bits
    plain, _ = run({**config, "frozen-bits": 0}, tmp_path / "plain")
    assert [line["dev_loss"] for line in rounds(plain)] != losses
    killed = begin(config, tmp_path / "killed", number=2)
    assert final_bytes(resume(config, killed, shuffle_seed=3)) == final_bytes(folder)

    own = translator_of_site(folder.directory, "hospital")
    assert len(rounded(own.trainable)) == len(stored)
    assert len(own.translate(["Guten Morgen.", "der Arzt"])) == 2
    monkeypatch.undo()  # whoever gets an export needs no GPU
    form = "adapter" if tensor_set == "adapters" else "transformers"
    out = export_model(own.model, tmp_path / "out", form).directory
    assert f"held in {bits} bits" in (out / "README.md").read_text()
    if form == "adapter":
        loaded = load_adapter(out, str(backbone))
        assert rounded(loaded) == {}
        return
    merged, published = load_file(out / "model.safetensors"), load_file(backbone / "model.safetensors")
    changed = {each for each, weight in published.items() if not torch.equal(weight, merged[each])}
    assert changed
    assert all(each.endswith(("q_proj.weight", "v_proj.weight")) for each in changed)
