"""Turn a student's files into a folder that transformers and this project load: configuration, safetensors, tokenizer, card."""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedlingua.common.errors import BackboneError
from fedlingua.common.folders import replace_folder
from fedlingua.common.languages import Direction
from fedlingua.desk.students.marian_bin import EMBEDDING, read_marian
from fedlingua.exchange.joined import Numbers

HEADS, HEAD_WIDTH, POSITIONS = 8, 32, 512
_ATTENTION = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "o"}
NEVER = -1e4
"""Bias of the start token's logit, which no translation contains."""


def files_of_student(folder: Path) -> tuple[Path, Path]:
    """Return weights and vocabulary of a student's folder; raise BackboneError if it does not hold one of each."""
    both = []
    for pattern, what in (("model*.bin", "weights"), ("vocab*.spm", "a vocabulary of both sides")):
        files = sorted(folder.glob(pattern))
        if len(files) != 1:
            has = ", ".join(file.name for file in files) or "none"
            raise BackboneError(
                f"{folder} has {has} of {pattern} ({what}); wanted one. Models with a vocabulary a side are not read"
            )
        both += files
    return both[0], both[1]


def write_student(weights: Path, vocabulary: Path, direction: Direction, card: str, folder: Path) -> None:
    """Write the backbone of a student.

    Args:
        weights: Marian's `.bin`.
        vocabulary: The SentencePiece model of both sides.
        card: What README.md says, with licence and source.

    Raises:
        BackboneError: the weights are no student's (an encoder with attention, a decoder with SSRU, one embedding), or do not fit the
            vocabulary.
    """
    from sentencepiece import SentencePieceProcessor
    from transformers import MarianTokenizer

    tensors = read_marian(weights)
    try:
        pieces = SentencePieceProcessor(model_file=str(vocabulary))
    except (OSError, RuntimeError) as error:
        raise BackboneError(
            f"{vocabulary} is no SentencePiece model ({error}); give the vocab.*.spm beside the weights"
        ) from error
    config, state = config_of(tensors, weights, pieces.get_piece_size()), dict(_state(tensors, weights))

    def write(made: Path) -> None:
        from safetensors.numpy import save_file

        (made / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        save_file(
            {name: np.ascontiguousarray(each, np.float32) for name, each in state.items()},
            made / "model.safetensors",
            {"format": "pt"},
        )
        for name in ("source.spm", "target.spm"):
            shutil.copyfile(vocabulary, made / name)
        ids = {pieces.id_to_piece(number): number for number in range(pieces.get_piece_size())} | {
            "<pad>": pieces.get_piece_size()
        }
        (made / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
        tokenizer = MarianTokenizer.from_pretrained(made, source_lang=direction.source, target_lang=direction.target)
        tokenizer.save_pretrained(made)
        (made / "README.md").write_text(card, encoding="utf-8")

    replace_folder(folder, write)


def config_of(tensors: Mapping[str, Numbers], weights: Path, pieces: int) -> dict[str, Any]:
    """Return config.json of a student by its tensors' shapes. pieces: of its vocabulary.

    Raises:
        BackboneError: the shapes are not a student's.
    """
    layers = {
        side: len({name.split("_")[1] for name in tensors if name.startswith(f"{side}_l")}) for side in ("encoder", "decoder")
    }
    embedding, width = tensors.get(EMBEDDING), tensors.get("decoder_l1_rnn_W")
    if embedding is None or width is None or not all(layers.values()):
        lacks = EMBEDDING if embedding is None else "decoder_l1_rnn_W, a decoder with SSRU" if width is None else "layers"
        raise BackboneError(
            f"{weights} is no student: it lacks {lacks}; wanted one of Firefox's or Bergamot's with one vocabulary"
        )
    if len(embedding) != pieces:
        raise BackboneError(
            f"{weights} has embeddings for {len(embedding)} pieces, and its vocabulary {pieces}; give the files of one model"
        )
    sides = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in (
            ("layers", layers[side]),
            ("ffn_dim", tensors[f"{side}_l1_ffn_W1"].shape[1]),
            ("attention_heads", max(1, embedding.shape[1] // HEAD_WIDTH)),
        )
    }
    return {
        "architectures": ["StudentModel"],
        "model_type": "marian-ssru",
        "activation_function": "relu",
        "d_model": embedding.shape[1],
        "decoder_start_token_id": pieces,
        "decoder_vocab_size": pieces + 1,
        "dropout": 0.0,  # students learn from so much text of a larger model that they are trained without; 0.1 ruins them in a pass
        "eos_token_id": 0,
        "forced_eos_token_id": None,
        "max_position_embeddings": POSITIONS,
        "pad_token_id": pieces,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "vocab_size": pieces + 1,
        **sides,
    }


def _state(tensors: Mapping[str, Numbers], weights: Path) -> Iterator[tuple[str, Numbers]]:
    """Yield each tensor under its name in transformers. The start token's embedding is zero."""
    try:
        embedding = tensors[EMBEDDING]
        yield "model.shared.weight", np.concatenate([embedding, np.zeros_like(embedding[:1])])
        yield "final_logits_bias", np.append(tensors["decoder_ff_logit_out_b"], np.float32(NEVER))[None]
        for side in ("encoder", "decoder"):
            number = 1
            while f"{side}_l{number}_ffn_W1" in tensors:
                ours, theirs = f"model.{side}.layers.{number - 1}", f"{side}_l{number}"
                if side == "encoder":
                    yield from _attention(tensors, f"{ours}.self_attn", f"{theirs}_self")
                else:
                    yield from _attention(tensors, f"{ours}.encoder_attn", f"{theirs}_context")
                    yield f"{ours}.self_attn.input.weight", tensors[f"{theirs}_rnn_W"].T
                    yield from _linear(tensors, f"{ours}.self_attn.forget", f"{theirs}_rnn_Wf", f"{theirs}_rnn_bf")
                    yield from _norm(tensors, f"{ours}.self_attn_layer_norm", f"{theirs}_rnn_ffn")
                yield from _linear(tensors, f"{ours}.fc1", f"{theirs}_ffn_W1", f"{theirs}_ffn_b1")
                yield from _linear(tensors, f"{ours}.fc2", f"{theirs}_ffn_W2", f"{theirs}_ffn_b2")
                yield from _norm(tensors, f"{ours}.final_layer_norm", f"{theirs}_ffn_ffn")
                number += 1
    except KeyError as error:
        raise BackboneError(f"{weights} lacks the tensor {error}; wanted a student of Firefox's or Bergamot's kind") from error


def _attention(tensors: Mapping[str, Numbers], ours: str, theirs: str) -> Iterator[tuple[str, Numbers]]:
    for name, letter in _ATTENTION.items():
        yield from _linear(tensors, f"{ours}.{name}", f"{theirs}_W{letter}", f"{theirs}_b{letter}")
    yield from _norm(tensors, f"{ours}_layer_norm", f"{theirs}_Wo")


def _linear(tensors: Mapping[str, Numbers], ours: str, weight: str, bias: str) -> Iterator[tuple[str, Numbers]]:
    yield from ((f"{ours}.weight", tensors[weight].T), (f"{ours}.bias", tensors[bias].ravel()))


def _norm(tensors: Mapping[str, Numbers], ours: str, theirs: str) -> Iterator[tuple[str, Numbers]]:
    yield from ((f"{ours}.weight", tensors[f"{theirs}_ln_scale"].ravel()), (f"{ours}.bias", tensors[f"{theirs}_ln_bias"].ravel()))
