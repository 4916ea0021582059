"""Make small models in the published layout, with random weights and a trained tokenizer: an M2M-100 and an XLM-RoBERTa."""

import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
    XLMRobertaTokenizer,
)

from fedlingua.common.errors import BackboneError
from fedlingua.common.language_codes import known_as
from fedlingua.desk.pretraining.settings import EncoderSize, ModelSize

Model = TypeVar("Model", M2M100ForConditionalGeneration, XLMRobertaForMaskedLM)
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")


def build_tokenizer(
    sentences: Iterable[str], languages: Sequence[str], vocab_size: int, directory: Path, alphabet: str = ""
) -> M2M100Tokenizer:
    """Train a joint BPE and wrap it as an M2M-100 tokenizer, saved in `directory`.

    Args:
        alphabet: Characters that get a piece of their own, whether the sentences have them or not. With it no text is unknown: a
            character without a piece is spelt in bytes, and none is normalized, which also spares a table of 240 kB in the file.

    Raises:
        BackboneError: a language that M2M-100 has no token for, or text too small for the vocabulary.
    """
    options: dict[str, Any] = {"model_type": "bpe"}
    if alphabet:
        sentences = [*sentences, " ".join(alphabet)]
        options |= {"character_coverage": 1.0, "byte_fallback": True, "normalization_rule_name": "identity"}
    model = _sentencepiece(sentences, vocab_size, **options)
    directory.mkdir(parents=True, exist_ok=True)
    spm_file, vocab_file = directory / "sentencepiece.bpe.model", directory / "vocab.json"
    spm_file.write_bytes(model)
    vocabulary = {piece: number for number, piece in enumerate([*SPECIAL_TOKENS, *(piece for piece, _ in _pieces(model))])}
    vocab_file.write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    files: dict[str, Any] = {"vocab_file": str(vocab_file), "spm_file": str(spm_file)}
    # Without the language tokens among the special ones, decoded text keeps "__sv__".
    probe = M2M100Tokenizer(**files)
    known = probe.lang_code_to_id
    for language in languages:
        if known_as(language, known) is None:
            raise BackboneError(f"M2M-100 has no language token for {language!r}; it has {', '.join(sorted(known))}")
    tokenizer = M2M100Tokenizer(**files, additional_special_tokens=list(probe.lang_token_to_id))
    tokenizer.save_pretrained(directory)
    return tokenizer


def build_text_tokenizer(sentences: Iterable[str], vocab_size: int, directory: Path) -> XLMRobertaTokenizer:
    """Train a unigram model and wrap it as an XLM-R tokenizer, saved in `directory`; BackboneError for too little text."""
    # The tokenizer splits at white space alone, and changes no character.
    model = _sentencepiece(sentences, vocab_size, model_type="unigram", normalization_rule_name="identity")
    special = [(token, 0.0) for token in SPECIAL_TOKENS]
    tokenizer = XLMRobertaTokenizer(vocab=[*special, *_pieces(model), ("<mask>", 0.0)])
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(directory)
    return tokenizer


def _sentencepiece(sentences: Iterable[str], vocab_size: int, **options: Any) -> bytes:
    model = io.BytesIO()
    options = {"character_coverage": 0.9995, "bos_id": -1, "eos_id": -1, "pad_id": -1, "unk_id": 0} | options
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            vocab_size=vocab_size,
            num_threads=1,
            minloglevel=2,
            **options,
        )
    except RuntimeError as error:
        raise BackboneError(
            f"a vocabulary of {vocab_size} cannot be made from this text ({error}); give a smaller vocab-size or more text"
        ) from error
    return model.getvalue()


def _pieces(model: bytes) -> list[tuple[str, float]]:
    """Return all pieces but <unk>, each with its score."""
    processor = SentencePieceProcessor(model_proto=model)
    numbers = range(1, processor.get_piece_size())
    return [(processor.id_to_piece(number), processor.get_score(number)) for number in numbers]


def build_model(size: ModelSize, tokenizer: M2M100Tokenizer, seed: int) -> M2M100ForConditionalGeneration:
    config = M2M100Config(
        # The published layout: pieces, one row for each language, eight spare rows.
        vocab_size=tokenizer.encoder_size + len(tokenizer.lang_code_to_id) + tokenizer.num_madeup_words,
        d_model=size.d_model,
        encoder_layers=size.encoder_layers,
        decoder_layers=size.decoder_layers,
        encoder_attention_heads=size.heads,
        decoder_attention_heads=size.heads,
        encoder_ffn_dim=size.ffn_dim,
        decoder_ffn_dim=size.ffn_dim,
        dropout=size.dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
        max_position_embeddings=size.max_positions,
        decoder_start_token_id=tokenizer.eos_token_id,
        **_special_ids(tokenizer),
    )
    return _drawn(M2M100ForConditionalGeneration, config, seed)


def build_encoder(size: EncoderSize, tokenizer: XLMRobertaTokenizer, seed: int) -> XLMRobertaForMaskedLM:
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
        **_special_ids(tokenizer),
    )
    return _drawn(XLMRobertaForMaskedLM, config, seed)


def _special_ids(tokenizer: Any) -> dict[str, Any]:
    return {name: getattr(tokenizer, name) for name in ("bos_token_id", "pad_token_id", "eos_token_id")}


def _drawn(kind: type[Model], config: Any, seed: int) -> Model:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(config)
