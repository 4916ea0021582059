"""A decoder's output under masks that are made beforehand, as a GPU wants them: the very numbers of transformers' own masks."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fedlingua.backbones.load import load_backbone
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.training import outputs
from fedlingua.training.batches import pad
from fedlingua.training.translation import encode_pairs
from tests.families import TRANSLATING
from tests.gate import cases

WITH_ENCODER = [name for name in TRANSLATING if name not in ("llama", "qwen2", "qwen3", "gemma2", "gemma3")]


def test_masks_by_hand() -> None:
    encoder, decoder, between = outputs.ready_masks(torch.tensor([[1, 1, 0], [1, 1, 1]]), 2)
    assert encoder.tolist() == [[[[True, True, False]] * 3], [[[True, True, True]] * 3]]
    assert decoder.tolist() == [[[[True, False], [True, True]]]]
    assert between.tolist() == [[[[True, True, False]] * 2], [[[True, True, True]] * 2]]


@pytest.mark.parametrize("name", cases(WITH_ENCODER, {"nllb", "marian", "t5"}))
def test_every_family_computes_the_same_with_them(
    name: str, family_folder: Callable[[str], Path], phrases: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = load_backbone(family_folder(name), name)
    model = backbone.model.eval()
    pairs = [Pair(*both) for both in zip(phrases["de"][:6], phrases["fr"][:6], strict=True)]
    batch = pad(encode_pairs(pairs, Direction("de", "fr"), backbone.codec, 64), backbone.codec)
    assert not batch.attention_mask.all()
    given = batch.input_ids, batch.attention_mask, batch.tensors()["decoder_input_ids"]
    wanted = outputs.decoder_output(model, *given)
    assert model.config._attn_implementation == "sdpa"
    monkeypatch.setattr(outputs, "_masks", lambda model, mask, tgt_len: outputs.ready_masks(mask, tgt_len))
    assert torch.allclose(outputs.decoder_output(model, *given), wanted, atol=1e-6)
