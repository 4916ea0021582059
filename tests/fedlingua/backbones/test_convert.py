"""A pickled backbone: converted once, into the same model, and without running anything that a pickle can hold."""

import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from fedlingua.backbones.convert import as_safetensors
from fedlingua.backbones.load import Backbone, load_backbone
from fedlingua.common.errors import BackboneError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fedlingua" / "backbones"


@pytest.fixture
def pickled(tiny_backbone: Path, backbone: Backbone, tmp_path: Path) -> Path:
    """The tiny backbone as older repositories publish it: tied weights under every name of theirs, in one pytorch_model.bin."""
    directory = Path(shutil.copytree(tiny_backbone, tmp_path / "pickled", ignore=shutil.ignore_patterns("*.safetensors")))
    torch.save(backbone.model.state_dict(), directory / "pytorch_model.bin")
    return directory


class Canary:
    """What a stranger's pickle can be: told to make a folder as soon as it is opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


def test_a_converted_backbone_is_the_same_model(pickled: Path, backbone: Backbone, cache: Path) -> None:
    converted = load_backbone(pickled, "tiny")
    assert converted.directory.parent == cache
    assert converted.directory.name.startswith("converted-")
    state = converted.model.state_dict()
    assert list(state) == list(backbone.model.state_dict())
    assert all(torch.equal(state[name], tensor) for name, tensor in backbone.model.state_dict().items())
    assert converted.num_parameters == backbone.num_parameters


def test_tied_weights_are_stored_once_and_the_file_is_marked_for_transformers(pickled: Path, backbone: Backbone) -> None:
    with safe_open(as_safetensors(pickled) / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
        names = set(file.keys())
    assert set(backbone.model.state_dict()) - names == {
        "model.encoder.embed_tokens.weight",
        "model.decoder.embed_tokens.weight",
        "lm_head.weight",
    }


def test_the_tokenizer_comes_along_and_the_pickle_does_not(pickled: Path) -> None:
    converted = {file.name for file in as_safetensors(pickled).iterdir()}
    assert converted == {file.name for file in pickled.iterdir()} - {"pytorch_model.bin"} | {"model.safetensors"}


def test_a_backbone_is_converted_once_and_a_second_conversion_gives_the_same_bytes(pickled: Path, cache: Path) -> None:
    first = as_safetensors(pickled)
    written = (first / "model.safetensors").stat().st_mtime_ns
    content = (first / "model.safetensors").read_bytes()
    assert as_safetensors(pickled) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == written
    shutil.rmtree(first)
    assert (as_safetensors(pickled) / "model.safetensors").read_bytes() == content
    assert [path.name for path in cache.iterdir() if not path.name.endswith(".lock")] == [first.name]


@pytest.mark.parametrize("file", ["pytorch_model.bin", "config.json"])
def test_other_bytes_are_another_conversion(pickled: Path, file: str) -> None:
    before = as_safetensors(pickled)
    if file == "config.json":
        (pickled / file).write_text((pickled / file).read_text() + "\n")
    else:
        torch.save({"w": torch.ones(2)}, pickled / file)
    assert as_safetensors(pickled) != before


def test_a_directory_with_safetensors_is_itself_and_its_pickle_is_not_opened(pickled: Path, tiny_backbone: Path) -> None:
    shutil.copy(tiny_backbone / "model.safetensors", pickled)
    (pickled / "pytorch_model.bin").write_bytes(b"no pickle")
    assert load_backbone(pickled).directory == pickled


def test_a_pickle_in_the_old_format_is_read_too(pickled: Path, backbone: Backbone) -> None:
    torch.save(backbone.model.state_dict(), pickled / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert torch.equal(load_backbone(pickled).model.lm_head.weight, backbone.model.lm_head.weight)


def test_views_of_one_memory_are_stored_whole_each(tmp_path: Path) -> None:
    whole = torch.arange(6.0).reshape(2, 3)
    tensors = {"whole": whole, "turned": whole.T, "row": whole[1], "empty": torch.zeros(0), "none": torch.zeros(0)}
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    with safe_open(as_safetensors(tmp_path) / "model.safetensors", framework="pt") as file:
        assert {name: file.get_tensor(name).tolist() for name in file.keys()} == {n: t.tolist() for n, t in tensors.items()}  # noqa: SIM118


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(
    pickled: Path, tmp_path: Path, cache: Path, zipped: bool
) -> None:
    canary = tmp_path / "canary"
    tensors = {"w": torch.ones(2), "x": Canary(canary)}
    torch.save(tensors, pickled / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    with pytest.raises(BackboneError, match=r"pytorch_model.bin is damaged, or holds more than tensors and could run code"):
        load_backbone(pickled)
    assert not canary.exists()
    assert [path.name for path in cache.iterdir() if not path.name.endswith(".lock")] == []
    torch.load(pickled / "pytorch_model.bin", weights_only=False)
    assert canary.exists(), "the canary would not have run anyway, and this test shows nothing"


@pytest.mark.parametrize("content", [b"", b"no pickle", b"PK\x03\x04 cut"])
def test_a_damaged_pickle_is_refused(pickled: Path, content: bytes) -> None:
    (pickled / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(BackboneError, match="is damaged"):
        load_backbone(pickled)


@pytest.mark.parametrize("content", [[torch.ones(2)], {"state_dict": {"w": torch.ones(2)}}, {1: torch.ones(2)}])
def test_anything_but_named_tensors_is_refused(pickled: Path, content: object) -> None:
    torch.save(content, pickled / "pytorch_model.bin")
    with pytest.raises(BackboneError, match="no plain table of named tensors"):
        load_backbone(pickled)
