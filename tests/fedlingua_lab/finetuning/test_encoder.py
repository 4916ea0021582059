"""Loading an encoder: a head drawn by the seed, and every directory that cannot serve, refused."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from fedlingua.common.errors import BackboneError, ConfigError
from fedlingua_lab.finetuning.encoder import encoder_of_folder
from tests.encoders import build_bert, build_xlmr

TAGS = ["O", "B-x", "I-x"]


def load(directory: Path, seed: int = 1, task: str = "ner", tags: list[str] = TAGS) -> PreTrainedModel:
    return encoder_of_folder(directory, "e").with_head(task, tags, seed)


def test_the_seed_decides_the_head_and_the_encoder_is_the_directorys(encoder_directory: Path) -> None:
    one, again, other = (load(encoder_directory, seed).state_dict() for seed in (1, 1, 2))
    stored = load_file(encoder_directory / "model.safetensors")
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["classifier.weight"], other["classifier.weight"])
    assert all(torch.equal(one[name], stored[name]) for name in one if not name.startswith("classifier"))


@pytest.mark.parametrize("task", ["ner", "pairs"])
def test_bert_takes_both_heads_although_its_pooler_is_not_in_a_masked_language_model(tmp_path: Path, task: str) -> None:
    assert load(build_bert(tmp_path), task=task).config.id2label == {0: "O", 1: "B-x", 2: "I-x"}


def test_sequences_are_held_to_the_positions(encoder_directory: Path) -> None:
    encoder = encoder_of_folder(encoder_directory, "e")
    assert encoder.length(None) == encoder.length(64) == 64  # 66, of which RoBERTa leaves two unused
    for asked in (65, 7):
        with pytest.raises(ConfigError, match=f"--max-tokens {asked}: wanted 8 to 64"):
            encoder.length(asked)
    assert load(encoder_directory)(input_ids=torch.full((1, 64), 5)).logits.shape == (1, 64, 3)


def test_the_fingerprint_changes_with_a_byte_of_the_weights(tmp_path: Path) -> None:
    first = encoder_of_folder(build_xlmr(tmp_path / "a"), "a").fingerprint
    assert encoder_of_folder(build_xlmr(tmp_path / "b"), "b").fingerprint == first
    tensors = load_file(tmp_path / "b" / "model.safetensors")
    tensors["roberta.encoder.layer.1.output.dense.weight"] += 1
    save_file(tensors, tmp_path / "b" / "model.safetensors", {"format": "pt"})
    assert encoder_of_folder(tmp_path / "b", "b").fingerprint != first


def test_weights_that_are_not_all_there_are_refused_instead_of_drawn(tmp_path: Path) -> None:
    build_xlmr(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if "layer.1." not in name}
    save_file(kept, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(BackboneError, match=r"its weights lack .* of its parameters"):
        load(tmp_path)


@pytest.mark.parametrize("task", ["ner", "pairs"])
@pytest.mark.parametrize("labels", [2, 3])
def test_an_encoder_that_was_fine_tuned_before_gets_the_head_of_one_that_was_not(tmp_path: Path, task: str, labels: int) -> None:
    plain = load(build_xlmr(tmp_path / "plain"), task=task).state_dict()
    tuned = load(tmp_path / "plain", 5, task, ["O", "B-y", "I-y"][:labels])
    for parameter in tuned.parameters():
        parameter.data += 0.5
    tuned.save_pretrained(tmp_path / "tuned")
    encoder_of_folder(tmp_path / "plain", "e").tokenizer.save_pretrained(tmp_path / "tuned")
    body = tuned.state_dict()
    for name, tensor in load(tmp_path / "tuned", task=task).state_dict().items():
        assert torch.equal(tensor, plain[name] if name.startswith("classifier.") else body[name]), name


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    file = build_xlmr(tmp_path) / "model.safetensors"
    tensors = load_file(file)
    name = "roberta.encoder.layer.1.output.dense.weight"
    save_file(tensors | {name: tensors[name][:, :8].contiguous()}, file, {"format": "pt"})
    with pytest.raises(BackboneError, match="encoder e cannot be loaded: "):
        load(tmp_path)


def test_an_encoder_without_tokenizer_files_is_refused(tmp_path: Path) -> None:
    for file in build_bert(tmp_path).glob("*token*"):
        file.unlink()
    with pytest.raises(BackboneError, match=r"encoder: .* has no tokenizer; put one of tokenizer.json, vocab.txt there"):
        load(tmp_path)


def test_a_translation_model_and_an_empty_directory_are_refused(tmp_path: Path, tiny_backbone: Path) -> None:
    for directory, why in ((tiny_backbone, "its tokenizer has no first"), (tmp_path, "encoder e cannot be loaded")):
        with pytest.raises(BackboneError, match=why):
            load(directory)


def test_a_tokenizer_with_more_pieces_than_the_model_is_refused(tmp_path: Path) -> None:
    build_xlmr(tmp_path / "small", ["one"])
    build_xlmr(tmp_path / "large")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "small" / name).write_text((tmp_path / "large" / name).read_text())
    rows = json.loads((tmp_path / "small" / "config.json").read_text())["vocab_size"]
    with pytest.raises(BackboneError, match=f"pieces, its model {rows}; wanted those of one model"):
        load(tmp_path / "small")
