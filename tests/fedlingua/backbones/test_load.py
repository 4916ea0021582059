"""Loading: frozen, in evaluation mode, and a fingerprint that follows the files' bytes."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from fedlingua.backbones.load import Backbone, load_backbone, published_or_local
from fedlingua.errors import BackboneError


@pytest.fixture
def copied(tiny_backbone: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_backbone, tmp_path / "copied"))


def test_a_loaded_backbone_is_frozen_and_evaluates(backbone: Backbone) -> None:
    assert not any(parameter.requires_grad for parameter in backbone.model.parameters())
    assert not backbone.model.training


def test_the_size_counts_tied_embeddings_once(backbone: Backbone) -> None:
    embedding, norm = 411 * 32, 2 * 32
    attention, feed_forward = 4 * (32 * 32 + 32), 32 * 64 + 64 + 64 * 32 + 32
    encoder_layer, decoder_layer = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
    assert backbone.num_parameters == embedding + 2 * encoder_layer + 2 * decoder_layer + 2 * norm


def test_a_copy_has_the_same_fingerprint(backbone: Backbone, copied: Path) -> None:
    assert load_backbone(copied).fingerprint == backbone.fingerprint


@pytest.mark.parametrize("file", ["model.safetensors", "sentencepiece.bpe.model", "vocab.json"])
def test_one_changed_byte_changes_the_fingerprint(backbone: Backbone, copied: Path, file: str) -> None:
    with (copied / file).open("r+b") as stream:
        stream.seek(-1, 2)
        last = stream.read(1)
        stream.seek(-1, 2)
        stream.write(bytes([last[0] ^ 1]))
    assert Backbone("copied", copied, backbone.model, backbone.codec).fingerprint != backbone.fingerprint


def test_a_file_that_is_no_part_of_the_backbone_leaves_the_fingerprint(backbone: Backbone, copied: Path) -> None:
    (copied / "README.md").write_text("tiny")
    assert load_backbone(copied).fingerprint == backbone.fingerprint


def test_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "marian"}))
    with pytest.raises(BackboneError, match=r"'marian'; wanted one of m2m_100, mbart"):
        load_backbone(tmp_path, "opus")


def test_a_directory_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match="cannot be loaded"):
        load_backbone(tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_refused(tiny_backbone: Path) -> None:
    with pytest.raises(BackboneError, match="torch sees no GPU here"):
        load_backbone(tiny_backbone, device="cuda")


def test_a_local_directory_is_itself(tiny_backbone: Path) -> None:
    assert published_or_local(str(tiny_backbone)) == tiny_backbone.resolve()


def test_a_name_that_is_neither_directory_nor_hub_id_is_refused(tmp_path: Path) -> None:
    for name in ("tyni", str(tmp_path / "nowhere"), "./a/b"):
        with pytest.raises(BackboneError, match="there is no such directory"):
            published_or_local(name)


def test_a_hub_id_without_a_pinned_revision_is_refused() -> None:
    with pytest.raises(BackboneError, match="no pinned revision"):
        published_or_local("somebody/some-model")
