"""What trains at a site and what leaves it, for every tensor set: real local training, real messages."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import M2M100Tokenizer

from clients.node import trainable_of
from fedlingua.backbones.load import load_backbone
from fedlingua.common.errors import BackboneError, RunError
from fedlingua.common.languages import Direction
from fedlingua.desk.pretraining.build import build_model
from fedlingua.desk.pretraining.settings import ModelSize
from fedlingua.desk.translating.models import TrainedModel, delivered
from fedlingua.desk.translating.translator import Translator
from fedlingua.exchange import protocol
from fedlingua.exchange.joined import join
from fedlingua.exchange.records import from_record
from fedlingua.exchange.trainable import build_trainable
from fedlingua.settings.checks import settings_from
from tests.federations import phrasebook_federation
from tests.in_process import failing, rounds, run
from tests.translated_runs import translator_of_direction, translator_of_site

FEDERATION = phrasebook_federation("two", hospital=("de-fr", 48), court=("nl-es", 40))


@pytest.fixture(scope="session")
def three_layers(tiny_backbone, tmp_path_factory):
    """Directory of an M2M-100 with 3+3 layers, so that a third is one layer."""
    directory = tmp_path_factory.mktemp("backbones") / "three"
    tokenizer = M2M100Tokenizer.from_pretrained(tiny_backbone)
    size = ModelSize(d_model=32, encoder_layers=3, decoder_layers=3, heads=2, ffn_dim=64, vocab_size=300, max_positions=64)
    build_model(size, tokenizer, seed=7).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


@pytest.fixture
def config(tiny_run_config, three_layers, tmp_path):
    (tmp_path / "two.toml").write_text(FEDERATION)
    federation = {"federation": str(tmp_path / "two.toml"), "deadline.phase-s": 30.0, "backbone": str(three_layers)}
    return {**tiny_run_config, **federation, "method": "adapter-fed", "rounds": 1, "controllers": 2}


def layer_of(name: str) -> str | None:
    return name.partition(".layers.")[2].partition(".")[0] or None


def is_norm(name: str) -> bool:
    return "layer_norm" in name


def third(number: str):
    """The adapters and norms of one layer of each stack, and the final norms."""
    return lambda name: (".adapters." in name or is_norm(name)) and layer_of(name) in (number, None)


def everything(name: str) -> bool:
    return True


SETS = {
    "adapters": ({"tensor-set": "adapters"}, lambda name: ".adapters." in name or is_norm(name), everything),
    "input-end": ({"adapter.layers": "input-end"}, third("0"), everything),
    "middle": ({"adapter.layers": "middle"}, third("1"), everything),
    "output-end": ({"adapter.layers": "output-end"}, third("2"), everything),
    "full": ({"tensor-set": "full", "learning-rate": 0.001}, everything, everything),
    "controllers": ({"tensor-set": "controllers", "learning-rate": 0.001}, everything, lambda name: ".controllers." in name),
    "lora": ({"tensor-set": "lora"}, lambda name: ".lora_" in name, everything),
    "lora-middle": (
        {"tensor-set": "lora", "adapter.layers": "middle"},
        lambda name: ".lora_" in name and layer_of(name) == "1",
        everything,
    ),
}
"""what is asked for, which names train, which of these travel: said anew here, not taken from the code"""


def numbers(model: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: parameter.detach().numpy().copy() for name, parameter in model.named_parameters()}


def as_bytes(tensors: dict[str, np.ndarray]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in tensors.items()}


class Watch:
    """Looks into the client's model right after each of its answers: after training, and once it has scored the best round."""

    def __init__(self, settings):
        self.settings, self.seen, self.last = settings, {}, {}

    def __call__(self, request, reply):
        task = request.content.config_records.get(protocol.TASK)
        if request.metadata.message_type == protocol.TRAIN:
            self.seen[task["site"], task["round"]] = numbers(trainable_of(self.settings).model)
        if request.metadata.message_type == protocol.FINISH:
            self.last[task["site"]] = numbers(trainable_of(self.settings).model)
        return reply


@pytest.mark.parametrize("asked", SETS)
def test_exactly_the_set_trains_and_only_what_travels_leaves_the_site(config, three_layers, tmp_path, asked):
    more, trains, travels = SETS[asked]
    config = {**config, **more}
    watch = Watch(settings_from({**config, "run-dir": str(tmp_path / "run")}))
    folder, grid = run(config, tmp_path / "run", tamper=watch)
    start = {**numbers(load_backbone(three_layers).model), **build_trainable(watch.settings).initial}
    trained = {name for name in start if trains(name)}
    sent = {name for name in trained if travels(name)}
    assert set(watch.seen) == {("hospital", 1), ("court", 1)}
    for after in watch.seen.values():
        # peft puts a layer that it changes into another one; the frozen weight is the same.
        after = {name.replace(".base_layer.", "."): array for name, array in after.items()}
        assert set(after) == set(start)
        assert {name for name in start if after[name].tobytes() != start[name].tobytes()} == trained
    run_json = folder.read("run.json")
    assert run_json["trained_parameters"] == sum(start[name].size for name in trained)
    assert run_json["exchanged_parameters"] == sum(start[name].size for name in sent)
    assert run_json["backbone"]["parameters"] == sum(p.numel() for p in load_backbone(three_layers).model.parameters())

    chosen = build_trainable(watch.settings).tensor_set
    assert set(chosen.names) == sent
    for reply in grid.received:
        arrays = from_record(reply.content.array_records.get(protocol.ARRAYS, {}))
        if reply.metadata.message_type != protocol.TRAIN:
            assert not reply.content.array_records
            continue
        after = watch.seen[reply.content.config_records[protocol.TASK]["site"], 1]
        assert list(reply.content.array_records) == [protocol.ARRAYS]
        wanted = join({name: after[name] for name in chosen.names}, chosen)
        assert as_bytes(arrays) == as_bytes(wanted)


@pytest.mark.parametrize("asked", ["adapters", "middle", "full", "controllers", "lora"])
@pytest.mark.parametrize("method", ["adapter-fed", "adapter-local"])
def test_what_is_delivered_is_all_that_it_takes_to_translate(config, tmp_path, asked, method):
    more, trains, _ = SETS[asked]
    config = {**config, **more, "method": method}
    watch = Watch(settings_from({**config, "run-dir": str(tmp_path / "run")}))
    folder, _ = run(config, tmp_path / "run", tamper=watch)
    site = folder.directory / "sites" / "court"
    tensors, _ = delivered(site)
    assert tensors
    assert all(trains(name) for name in tensors)
    lines = [line.split("\t") for line in (site / "translations.tsv").read_text().rstrip("\n").split("\n")[1:]]
    for translator in (translator_of_site(folder.directory, "court"), Translator(TrainedModel.of_delivery(site))):
        assert as_bytes(numbers(translator.trainable.model)) == as_bytes(watch.last["court"])
        assert translator.translate([line[0] for line in lines]) == [line[3] for line in lines]


def test_a_direction_needs_all_that_was_trained_at_the_server(config, tmp_path):
    folder, _ = run({**config, **SETS["lora"][0]}, tmp_path / "lora")
    assert translator_of_direction(folder.directory, Direction("de", "es")).translate([""]) == [""]
    folder, _ = run({**config, **SETS["controllers"][0]}, tmp_path / "controllers")
    with pytest.raises(RunError, match=r"only a part of what was trained is at the server.* give --site"):
        translator_of_direction(folder.directory, Direction("de", "es"))


def test_the_best_rounds_own_tensors_are_used_with_what_travelled_in_it(config, tmp_path):
    # So large a rate that the loss rises again: the best round is not the last.
    config = {**config, "tensor-set": "controllers", "learning-rate": 0.03, "rounds": 3}
    folder, _ = run(config, tmp_path / "run")
    best = folder.read("run.json")["best_round"]
    assert best < 3
    for site in ("hospital", "court"):
        tensors, _ = delivered(folder.directory / "sites" / site)
        own = load_file(folder.directory / "sites" / site / "rounds" / f"{best:04d}-1.safetensors")
        common = [load_file(file) for file in (folder.directory / "checkpoints" / f"{best:04d}").glob("*.safetensors")]
        wanted = own | {name: array for tensors in common for name, array in tensors.items()}
        assert as_bytes(tensors) == as_bytes(wanted)
        assert not any(".controllers." in name for name in own)


def test_a_site_begins_with_what_travelled_and_with_its_own_of_the_round_before(config, tmp_path):
    config = {**config, "tensor-set": "controllers", "learning-rate": 0.001, "rounds": 2}
    watch = Watch(settings_from({**config, "run-dir": str(tmp_path / "run")}))
    begun = {}

    def look(request, reply):
        task = request.content.config_records.get(protocol.TASK, {})
        if request.metadata.message_type == protocol.EVALUATE and task["round"] == 2:
            begun[task["site"]] = numbers(trainable_of(watch.settings).model)
        return watch(request, reply)

    folder, _ = run(config, tmp_path / "run", tamper=look)
    common = {}
    for part in ("encoder", "decoder"):
        common |= load_file(folder.directory / "checkpoints" / "0002" / f"{part}.all.safetensors")
    for site, got in begun.items():
        wanted = watch.seen[site, 2] | common
        assert as_bytes(got) == as_bytes(wanted)
    assert any((begun["hospital"][name] != begun["court"][name]).any() for name in begun["court"])
    # Two rounds and the best are kept, no more.
    kept = {file.stem for file in (folder.directory / "sites" / "court" / "rounds").iterdir()}
    assert kept == {"0001-1", "0002-1"}


def test_a_site_that_failed_once_goes_on_from_its_last_own_tensors(config, tmp_path):
    config = {**config, "tensor-set": "controllers", "learning-rate": 0.001, "rounds": 3, "quorum": 0.5}
    folder, grid = run(config, tmp_path / "run", tamper=failing("court", protocol.TRAIN, 2))
    assert [failure["site"] for record in rounds(folder) for failure in record["failures"]] == ["court"]
    asked = [m.content.config_records[protocol.TASK] for m in grid.sent if m.metadata.message_type == protocol.TRAIN]
    assert [list(task["own"]) for task in asked if task["site"] == "court"] == [[0, 0], [1, 1], [1, 1]]
    assert [list(task["own"]) for task in asked if task["site"] == "hospital"] == [[0, 0], [1, 1], [2, 1]]


def test_an_empty_third_is_refused_before_any_site_is_asked(config, tiny_backbone, tmp_path):
    config = {**config, "backbone": str(tiny_backbone), "adapter.layers": "middle"}
    with pytest.raises(BackboneError, match="keeps no layer of the encoder, which has 2"):
        run(config, tmp_path / "run")
    assert not Path(tmp_path / "run" / "sites.json").exists()
