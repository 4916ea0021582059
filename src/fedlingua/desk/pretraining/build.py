"""A small M2M-100 from nothing: its own SentencePiece, its own random weights, in the published layout."""

import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import sentencepiece
import torch
from transformers import M2M100Config, M2M100ForConditionalGeneration, M2M100Tokenizer

from fedlingua.backbones.sizes import ModelSize
from fedlingua.common.errors import BackboneError
from fedlingua.common.languages import known_as

SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")


def build_tokenizer(sentences: Iterable[str], languages: Sequence[str], vocab_size: int, directory: Path) -> M2M100Tokenizer:
    """Train a joint BPE and wrap it as an M2M-100 tokenizer, saved in `directory`.

    Raises:
        BackboneError: a language that M2M-100 has no token for, or text too small for the vocabulary.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            character_coverage=0.9995,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            unk_id=0,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise BackboneError(
            f"a vocabulary of {vocab_size} cannot be made from this text ({error}); give a smaller vocab_size or more text"
        ) from error
    directory.mkdir(parents=True, exist_ok=True)
    spm_file, vocab_file = directory / "sentencepiece.bpe.model", directory / "vocab.json"
    spm_file.write_bytes(model.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [processor.id_to_piece(number) for number in range(1, processor.get_piece_size())]
    vocabulary = {piece: number for number, piece in enumerate([*SPECIAL_TOKENS, *pieces])}
    vocab_file.write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    # Without the language tokens among the special ones, decoded text keeps "__sv__".
    probe = M2M100Tokenizer(vocab_file=str(vocab_file), spm_file=str(spm_file))
    for language in languages:
        if known_as(language, probe.lang_code_to_id) is None:
            raise BackboneError(
                f"M2M-100 has no language token for {language!r}; it has {', '.join(sorted(probe.lang_code_to_id))}"
            )
    tokenizer = M2M100Tokenizer(
        vocab_file=str(vocab_file), spm_file=str(spm_file), additional_special_tokens=list(probe.lang_token_to_id)
    )
    tokenizer.save_pretrained(directory)
    return tokenizer


def build_model(size: ModelSize, tokenizer: M2M100Tokenizer, seed: int) -> M2M100ForConditionalGeneration:
    """An M2M-100 of this size with random weights."""
    # The published layout: pieces, one row a language, eight spare rows.
    rows = tokenizer.encoder_size + len(tokenizer.lang_code_to_id) + tokenizer.num_madeup_words
    config = M2M100Config(
        vocab_size=rows,
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
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return M2M100ForConditionalGeneration(config)
