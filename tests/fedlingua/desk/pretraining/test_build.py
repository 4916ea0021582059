"""A backbone from nothing: its layout is the published one, and its seed decides its weights."""

from pathlib import Path

import pytest
import torch

from fedlingua.backbones.load import Backbone
from fedlingua.common.errors import BackboneError
from fedlingua.desk.pretraining.build import build_model, build_tokenizer
from fedlingua.desk.pretraining.settings import ModelSize

SIZE = ModelSize(d_model=8, encoder_layers=1, decoder_layers=2, heads=2, ffn_dim=16, max_positions=32)


def test_a_model_has_the_size_that_was_asked_for(backbone: Backbone) -> None:
    config = build_model(SIZE, backbone.codec.tokenizer, seed=1).config
    assert (config.d_model, config.encoder_layers, config.decoder_layers) == (8, 1, 2)
    assert (config.encoder_attention_heads, config.decoder_attention_heads) == (2, 2)
    assert (config.encoder_ffn_dim, config.decoder_ffn_dim) == (16, 16)


def test_the_embedding_has_a_row_for_every_piece_language_and_spare_row(backbone: Backbone) -> None:
    # 300 pieces with <unk> among them, and <s>, <pad>, </s>; M2M-100's 100 languages; its 8 spare rows.
    assert backbone.model.get_input_embeddings().weight.shape == (303 + 100 + 8, 32)
    assert max(backbone.codec.language_ids.values()) == 303 + 100 - 1


def test_special_tokens_have_the_published_ids(backbone: Backbone) -> None:
    tokenizer, config = backbone.codec.tokenizer, backbone.model.config
    assert [tokenizer.convert_tokens_to_ids(token) for token in ("<s>", "<pad>", "</s>", "<unk>")] == [0, 1, 2, 3]
    assert (config.bos_token_id, config.pad_token_id, config.eos_token_id, config.decoder_start_token_id) == (0, 1, 2, 2)


def test_the_seed_decides_the_weights_and_nothing_else_does(backbone: Backbone) -> None:
    torch.manual_seed(1)
    first = build_model(SIZE, backbone.codec.tokenizer, seed=1).state_dict()
    torch.manual_seed(2)
    again = build_model(SIZE, backbone.codec.tokenizer, seed=1).state_dict()
    other = build_model(SIZE, backbone.codec.tokenizer, seed=2).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["model.shared.weight"], other["model.shared.weight"])


def test_building_a_model_leaves_the_global_randomness_alone(backbone: Backbone) -> None:
    torch.manual_seed(3)
    wanted = torch.rand(1)
    torch.manual_seed(3)
    build_model(SIZE, backbone.codec.tokenizer, seed=1)
    assert torch.equal(torch.rand(1), wanted)


def test_a_vocabulary_that_the_text_cannot_fill_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match="a vocabulary of 500 cannot be made"):
        build_tokenizer(["ja", "nein"], ["de"], 500, tmp_path)


def test_a_language_that_m2m_100_does_not_have_is_refused(phrases: dict[str, list[str]], tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match="no language token for 'tlh'"):
        build_tokenizer(phrases["de"], ["de", "tlh"], 100, tmp_path)
