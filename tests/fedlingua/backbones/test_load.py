"""Loading: frozen, in evaluation mode, and a fingerprint that follows the files' bytes."""

import json
import shutil
from fnmatch import fnmatch
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from fedlingua.backbones.codec import TextCodec
from fedlingua.backbones.load import Backbone, load_backbone
from fedlingua.backbones.published import PINNED_REVISIONS, published_or_local
from fedlingua.common.errors import BackboneError
from tests.encoders import build_bert


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
    assert (
        Backbone(name="copied", directory=copied, codec=backbone.codec, model=backbone.model).fingerprint != backbone.fingerprint
    )


def test_a_file_that_is_no_part_of_the_backbone_leaves_the_fingerprint(backbone: Backbone, copied: Path) -> None:
    (copied / "README.md").write_text("tiny")
    assert load_backbone(copied).fingerprint == backbone.fingerprint


def test_a_pickle_beside_safetensors_leaves_the_fingerprint(backbone: Backbone, copied: Path) -> None:
    (copied / "pytorch_model.bin").write_bytes(b"an older repository's")
    assert load_backbone(copied).fingerprint == backbone.fingerprint


def test_damaged_safetensors_are_refused(copied: Path) -> None:
    (copied / "model.safetensors").write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00{cut")
    with pytest.raises(BackboneError, match="cannot be loaded"):
        load_backbone(copied)


def test_a_model_that_brings_its_own_code_does_not_run_it(copied: Path, tmp_path: Path) -> None:
    config = json.loads((copied / "config.json").read_text())
    own = {"AutoConfig": "own.OwnConfig", "AutoModelForSeq2SeqLM": "own.OwnModel"}
    (copied / "config.json").write_text(json.dumps({**config, "model_type": "own", "auto_map": own}))
    (copied / "own.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'canary')!r})\n")
    with pytest.raises(BackboneError, match="cannot be loaded"):
        load_backbone(copied)
    assert not (tmp_path / "canary").exists()


def test_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nllb-moe"}))
    with pytest.raises(BackboneError, match=r"'nllb-moe'; wanted one of m2m_100, mbart, marian"):
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


class Hub:
    """A hub repository; downloads go to a folder, and what was asked for is kept."""

    def __init__(self, folder: Path, files: list[str]) -> None:
        self.folder, self.files = folder, files
        self.asked: list[tuple[str, str]] = []

    def snapshot_download(self, name: str, revision: str, allow_patterns: list[str]) -> str:
        self.asked.append((name, revision))
        for file in self.files:
            if any(fnmatch(file, pattern) for pattern in allow_patterns):
                (self.folder / file).write_text("")
        return str(self.folder)


@pytest.mark.parametrize(
    ("published", "wanted"),
    [
        (["config.json", "pytorch_model.bin", "model.safetensors", "rust_model.ot"], {"config.json", "model.safetensors"}),
        (["config.json", "pytorch_model.bin", "spm.model"], {"config.json", "pytorch_model.bin", "spm.model"}),
        (["pytorch_model.bin", "adapter_model.safetensors"], {"pytorch_model.bin", "adapter_model.safetensors"}),
    ],
)
def test_a_pickle_is_downloaded_only_where_there_are_no_safetensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: list[str], wanted: set[str]
) -> None:
    hub = Hub(tmp_path, published)
    monkeypatch.setattr("huggingface_hub.snapshot_download", hub.snapshot_download)
    assert published_or_local("facebook/m2m100_418M") == tmp_path
    assert {file.name for file in tmp_path.iterdir()} == wanted
    assert set(hub.asked) == {("facebook/m2m100_418M", PINNED_REVISIONS["facebook/m2m100_418M"])}


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_a_cached_snapshot_serves_without_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: str) -> None:
    name, revision = "somebody/some-model", "0" * 40
    snapshot = tmp_path / "models--somebody--some-model" / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (snapshot / weights).write_text("")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert published_or_local(name, revision) == snapshot
    with pytest.raises(BackboneError, match="cannot be downloaded"):
        published_or_local(name, "1" * 40)


def test_random_weights_are_of_the_seed_alone_and_keep_shape_and_tokenizer(tiny_backbone, backbone):
    drawn, again, other = (load_backbone(tiny_backbone, random_weights=seed) for seed in (1, 1, 2))
    names = dict(backbone.model.named_parameters())
    tensors = {name: [dict(one.model.named_parameters())[name] for one in (drawn, again, other)] for name in names}
    assert all(first.shape == names[name].shape and torch.equal(first, second) for name, (first, second, _) in tensors.items())
    assert any(not torch.equal(first, third) for first, _, third in tensors.values())
    assert not torch.equal(drawn.model.lm_head.weight, backbone.model.lm_head.weight)
    assert drawn.fingerprint == again.fingerprint
    assert len({drawn.fingerprint, other.fingerprint, backbone.fingerprint}) == 3


# --- Encoders ------------------------------------------------------------------------------------------------------------------


def test_an_encoder_loads_with_a_codec_of_text(encoder: Backbone, tiny_encoder: Path) -> None:
    assert encoder.task == "masked-language"
    assert isinstance(encoder.codec, TextCodec)
    assert (encoder.codec.start_id, encoder.codec.pad_id, encoder.codec.end_id) == (0, 1, 2)
    assert encoder.codec.mask_id == encoder.model.config.vocab_size - 1
    assert not any(parameter.requires_grad for parameter in encoder.model.parameters())
    assert load_backbone(tiny_encoder).fingerprint == encoder.fingerprint


def test_an_encoders_bytes_are_its_fingerprint(encoder: Backbone, tiny_encoder: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(tiny_encoder, tmp_path / "other"))
    weights = bytearray((other / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (other / "model.safetensors").write_bytes(weights)
    assert load_backbone(other).fingerprint != encoder.fingerprint


def test_random_weights_of_an_encoder_are_the_seeds(tiny_encoder: Path, encoder: Backbone) -> None:
    drawn, again = (load_backbone(tiny_encoder, random_weights=1).model.lm_head.decoder.weight for _ in range(2))
    assert torch.equal(drawn, again)
    assert not torch.equal(drawn, encoder.model.lm_head.decoder.weight)


def test_a_tokenizer_without_a_mask_is_refused(tiny_encoder: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(tiny_encoder, tmp_path / "other"))
    tokenizer = AutoTokenizer.from_pretrained(other)
    tokenizer.mask_token = None
    tokenizer.save_pretrained(other)
    assert AutoTokenizer.from_pretrained(other).mask_token_id is None
    with pytest.raises(BackboneError, match=r"'clinical': its tokenizer \(\w+\) has no mask token; wanted an encoder's"):
        load_backbone(other, "clinical")


def test_an_encoder_of_a_type_that_is_not_known_is_refused_with_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "albert"}))
    with pytest.raises(BackboneError, match=r"'albert'; wanted one of .*, bert, roberta, xlm-roberta, camembert,"):
        load_backbone(tmp_path)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    build_bert(tmp_path / "bert")
    for file in (tmp_path / "bert").glob("*token*"):
        file.unlink()
    with pytest.raises(BackboneError, match=r"has no tokenizer; put one of tokenizer.json, vocab.txt there"):
        load_backbone(tmp_path / "bert")


@pytest.mark.parametrize("how", ["lacks one", "another size"])
def test_weights_that_are_not_the_configurations_are_refused(how: str, tmp_path: Path) -> None:
    file = build_bert(tmp_path / "bert") / "model.safetensors"
    tensors = load_file(file)
    name = "bert.encoder.layer.0.output.dense.weight"
    weight = tensors.pop(name)
    save_file(tensors | ({} if how == "lacks one" else {name: weight[:, :8].contiguous()}), file, {"format": "pt"})
    told = rf"lack 1 of the model's tensors, first {name}" if how == "lacks one" else "cannot be loaded: .*"
    with pytest.raises(BackboneError, match=told):
        load_backbone(tmp_path / "bert")
