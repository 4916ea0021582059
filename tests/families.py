"""A folder of the published shape for every family of models: small, random weights, a tokenizer trained on the spot."""

import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import transformers as t
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from fedlingua.backbones.student import StudentConfig, StudentModel

SIZE = {"num_attention_heads": 2, "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64}
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _bart(**changes: Any) -> dict[str, Any]:
    stacks = {
        f"{side}_{what}": value for side in ("encoder", "decoder") for what, value in (("layers", 2), ("attention_heads", 2))
    }
    return {"d_model": 32, **stacks, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 128, **changes}


def _spm(sentences: Iterable[str], **options: Any) -> bytes:
    model = io.BytesIO()
    how: dict[str, Any] = {"vocab_size": 300, "model_type": "unigram", "num_threads": 1, "minloglevel": 2, **options}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_writer=model, **how)
    return model.getvalue()


def _pieces(model: bytes) -> list[tuple[str, float]]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [(processor.id_to_piece(number), processor.get_score(number)) for number in range(3, processor.get_piece_size())]


def _bpe(sentences: Iterable[str], special: list[str], bytes_: bool) -> tuple[dict[str, int], list[tuple[str, str]]]:
    tokenizer = Tokenizer(models.BPE(unk_token=None if bytes_ else "<unk>"))
    alphabet = pre_tokenizers.ByteLevel.alphabet() if bytes_ else []
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if bytes_ else pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.ByteLevel() if bytes_ else decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(sentences, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def nllb(directory: Path, sentences: list[str]) -> None:
    vocab, merges = _bpe(sentences, ["<s>", "<pad>", "</s>", "<unk>"], bytes_=False)
    tokenizer = t.NllbTokenizer(vocab=vocab, merges=merges)
    config = t.M2M100Config(vocab_size=len(tokenizer), decoder_start_token_id=2, **_bart())
    _save(directory, tokenizer, t.M2M100ForConditionalGeneration, config)


def _marian(directory: Path, sentences: list[str], codes: list[str], languages: tuple[str, str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    sides = [_spm(some, vocab_size=150) for some in (sentences[::2], sentences[1::2])]
    for name, model in zip(("source.spm", "target.spm"), sides, strict=True):
        (directory / name).write_bytes(model)
    pieces = dict.fromkeys(piece for model in sides for piece, _ in _pieces(model))
    vocab = {piece: number for number, piece in enumerate(["</s>", "<unk>", *codes, *pieces, "<pad>"])}
    (directory / "vocab.json").write_text(json.dumps(vocab))
    files = [str(directory / name) for name in ("source.spm", "target.spm", "vocab.json")]
    tokenizer = t.MarianTokenizer(*files, source_lang=languages[0], target_lang=languages[1])
    pad = vocab["<pad>"]
    ids = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0, "forced_eos_token_id": None}
    _save(directory, tokenizer, t.MarianMTModel, t.MarianConfig(vocab_size=len(vocab), **ids, **_bart()))


def marian(directory: Path, sentences: list[str]) -> None:
    _marian(directory, sentences, [], ("de", "fr"))


def marian_to_many(directory: Path, sentences: list[str]) -> None:
    _marian(directory, sentences, [">>fra<<", ">>spa<<"], ("de", "roa"))


def student(directory: Path, sentences: list[str]) -> None:
    """One vocabulary for both sides, as `fedlingua backbone fetch` writes it."""
    directory.mkdir(parents=True, exist_ok=True)
    model = _spm(sentences, vocab_size=200, bos_id=-1, eos_id=0, unk_id=1)
    for name in ("source.spm", "target.spm"):
        (directory / name).write_bytes(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pad = processor.get_piece_size()
    vocab = {processor.id_to_piece(number): number for number in range(pad)} | {"<pad>": pad}
    (directory / "vocab.json").write_text(json.dumps(vocab))
    files = [str(directory / name) for name in ("source.spm", "target.spm", "vocab.json")]
    tokenizer = t.MarianTokenizer(*files, source_lang="de", target_lang="fr")
    ids = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0, "forced_eos_token_id": None}
    how = {"scale_embedding": True, "activation_function": "relu", "share_encoder_decoder_embeddings": True}
    _save(directory, tokenizer, StudentModel, StudentConfig(vocab_size=len(vocab), **ids, **how, **_bart()))


def _t5(directory: Path, sentences: list[str], more: list[str], **changes: Any) -> None:
    vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((code, 0.0) for code in more), *_pieces(_spm(sentences))]
    tokenizer = t.T5Tokenizer(vocab=vocab, extra_ids=0, additional_special_tokens=None)
    tokenizer.add_tokens(more, special_tokens=True)
    size = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 2}
    _save(
        directory,
        tokenizer,
        t.T5ForConditionalGeneration,
        t.T5Config(vocab_size=len(tokenizer), decoder_start_token_id=0, **size, **changes),
    )


def t5(directory: Path, sentences: list[str]) -> None:
    tasks = {
        f"translation_de_to_{code}": {"prefix": f"translate German to {name}: "}
        for code, name in (("fr", "French"), ("es", "Spanish"))
    }
    words = ["translate German to French:", "translate German to Spanish:"]
    _t5(directory, sentences + words, [], task_specific_params=tasks, tie_word_embeddings=True)


def madlad(directory: Path, sentences: list[str]) -> None:
    _t5(
        directory, sentences, ["<2de>", "<2fr>", "<2es>", "<2zh_Hant>"], feed_forward_proj="gated-gelu", tie_word_embeddings=False
    )


def _causal(directory: Path, sentences: list[str], kind: Any, config: Any, chat: bool, **changes: Any) -> None:
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    vocab, merges = _bpe(sentences, special, bytes_=True)
    end = "<|im_end|>" if chat else "<|endoftext|>"
    tokenizer = t.Qwen2Tokenizer(vocab=vocab, merges=merges, eos_token=end, pad_token="<|endoftext|>")
    if chat:
        tokenizer.chat_template = CHAT
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    shape = {"vocab_size": len(tokenizer), "head_dim": 16, "num_key_value_heads": 1, "max_position_embeddings": 256, **SIZE}
    _save(directory, tokenizer, kind, config(**shape, **ids, **changes))


def qwen3(directory: Path, sentences: list[str]) -> None:
    _causal(directory, sentences, t.Qwen3ForCausalLM, t.Qwen3Config, True, tie_word_embeddings=True)


def qwen2(directory: Path, sentences: list[str]) -> None:
    _causal(directory, sentences, t.Qwen2ForCausalLM, t.Qwen2Config, False)


def llama(directory: Path, sentences: list[str]) -> None:
    vocab, merges = _bpe(sentences, ["<unk>", "<s>", "</s>"], bytes_=False)
    tokenizer = t.LlamaTokenizer(vocab=vocab, merges=merges)
    config = t.LlamaConfig(vocab_size=len(tokenizer), num_key_value_heads=2, max_position_embeddings=256, **SIZE)
    _save(directory, tokenizer, t.LlamaForCausalLM, config)


def gemma2(directory: Path, sentences: list[str]) -> None:
    _causal(
        directory, sentences, t.Gemma2ForCausalLM, t.Gemma2Config, False, final_logit_softcapping=3.0, query_pre_attn_scalar=16
    )


def gemma3(directory: Path, sentences: list[str]) -> None:
    _causal(directory, sentences, t.Gemma3ForCausalLM, t.Gemma3TextConfig, True, query_pre_attn_scalar=16)


def _encoder(directory: Path, sentences: list[str], kind: Any, config: Any, **changes: Any) -> None:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = dict.fromkeys(word for sentence in sentences for word in sentence.split())
    vocab = {piece: number for number, piece in enumerate([*special, *words])}
    tokenizer = t.BertTokenizer(vocab=vocab, do_lower_case=False)
    shape = {"vocab_size": len(vocab), "max_position_embeddings": 64, "pad_token_id": 0, **SIZE}
    _save(directory, tokenizer, kind, config(**shape, **changes))


def bert(directory: Path, sentences: list[str]) -> None:
    _encoder(directory, sentences, t.BertForMaskedLM, t.BertConfig)


def modernbert(directory: Path, sentences: list[str]) -> None:
    ids = {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
    _encoder(directory, sentences, t.ModernBertForMaskedLM, t.ModernBertConfig, **ids)


def deberta(directory: Path, sentences: list[str]) -> None:
    how = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16, "norm_rel_ebd": "layer_norm"}
    _encoder(directory, sentences, t.DebertaV2ForMaskedLM, t.DebertaV2Config, legacy=True, share_att_key=True, **how)


def deberta_new(directory: Path, sentences: list[str]) -> None:
    """Published ones have this head, and a config that does not say so."""
    _encoder(directory, sentences, t.DebertaV2ForMaskedLM, t.DebertaV2Config, legacy=False)
    config = json.loads((directory / "config.json").read_text())
    del config["legacy"]
    (directory / "config.json").write_text(json.dumps(config))


def xlm_roberta_xl(directory: Path, sentences: list[str]) -> None:
    words = dict.fromkeys(f"▁{word}" for sentence in sentences for word in sentence.split())
    vocab = [(piece, 0.0) for piece in ("<s>", "<pad>", "</s>", "<unk>")] + [(word, -1.0) for word in words] + [("<mask>", 0.0)]
    tokenizer = t.XLMRobertaTokenizer(vocab=vocab)
    config = t.XLMRobertaXLConfig(vocab_size=len(tokenizer), max_position_embeddings=66, pad_token_id=1, **SIZE)
    _save(directory, tokenizer, t.XLMRobertaXLForMaskedLM, config)


def _save(directory: Path, tokenizer: Any, kind: Any, config: Any) -> None:
    torch.manual_seed(7)
    model = kind(config)
    with torch.no_grad():  # so large that what a model reads tells in what it says
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "norm" not in name.lower():
                parameter.normal_(0.0, 0.2)
        if config.pad_token_id is not None and config.is_encoder_decoder:
            model.get_input_embeddings().weight[config.pad_token_id] = 0.0  # as in what is published
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


Build = Callable[[Path, list[str]], None]
TRANSLATING: dict[str, Build] = {
    "nllb": nllb,
    "marian": marian,
    "marian-to-many": marian_to_many,
    "student": student,
    "t5": t5,
    "madlad": madlad,
    "llama": llama,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "gemma2": gemma2,
    "gemma3": gemma3,
}
ENCODERS: dict[str, Build] = {
    "bert": bert,
    "modernbert": modernbert,
    "deberta": deberta,
    "deberta-new": deberta_new,
    "xlm-roberta-xl": xlm_roberta_xl,
}
