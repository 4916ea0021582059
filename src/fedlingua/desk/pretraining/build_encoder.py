"""A small XLM-RoBERTa from nothing: its own unigram SentencePiece, its own random weights, in the published layout."""

import io
from collections.abc import Iterable
from pathlib import Path

import sentencepiece
import torch
from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM, XLMRobertaTokenizer

from fedlingua.backbones.sizes import EncoderSize
from fedlingua.common.errors import BackboneError


def build_text_tokenizer(sentences: Iterable[str], vocab_size: int, directory: Path) -> XLMRobertaTokenizer:
    """Train a unigram model and wrap it as an XLM-R tokenizer, saved in `directory`.

    Raises:
        BackboneError: text too small for the vocabulary.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size,
            character_coverage=0.9995,
            # The tokenizer splits at white space alone, and changes no character.
            normalization_rule_name="identity",
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            unk_id=0,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise BackboneError(
            f"a vocabulary of {vocab_size} cannot be made from this text ({error}); give a smaller vocab-size or more text"
        ) from error
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [(processor.id_to_piece(number), processor.get_score(number)) for number in range(1, processor.get_piece_size())]
    special = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    tokenizer = XLMRobertaTokenizer(vocab=[*special, *pieces, ("<mask>", 0.0)])
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(directory)
    return tokenizer


def build_encoder(size: EncoderSize, tokenizer: XLMRobertaTokenizer, seed: int) -> XLMRobertaForMaskedLM:
    """An XLM-RoBERTa of this size with random weights."""
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=size.d_model,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=size.ffn_dim,
        hidden_dropout_prob=size.dropout,
        attention_probs_dropout_prob=0.0,
        # Positions are counted from the padding's id on.
        max_position_embeddings=size.max_positions + 2,
        type_vocab_size=1,
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return XLMRobertaForMaskedLM(config)
