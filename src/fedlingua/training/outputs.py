"""Access to the last layers of each model family: the decoder's output, and the head that makes scores of hidden states."""

from typing import Any

import torch
from torch import Tensor, nn

from fedlingua.training.head import Head


def decoder_output(model: Any, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Tensor:
    """Return the input of the output head of a model with encoder and decoder, (batch, tgt_len, d)."""
    inner = model.model if hasattr(model, "model") else model  # T5 has no module around its stacks
    of_encoder, of_decoder, between = _masks(model, attention_mask, decoder_input_ids.shape[1])
    encoded: Tensor = inner.encoder(input_ids=input_ids, attention_mask=of_encoder).last_hidden_state
    hidden: Tensor = inner.decoder(
        input_ids=decoder_input_ids,
        attention_mask=of_decoder,
        encoder_hidden_states=encoded,
        encoder_attention_mask=between,
        use_cache=False,
    ).last_hidden_state
    return hidden * model.config.d_model**-0.5 if getattr(model.config, "scale_decoder_outputs", False) else hidden


def _masks(model: Any, attention_mask: Tensor, tgt_len: int) -> tuple[Tensor, Tensor | None, Tensor]:
    if attention_mask.device.type == "cuda" and model.config._attn_implementation == "sdpa":
        return ready_masks(attention_mask, tgt_len)
    return attention_mask, None, attention_mask


def ready_masks(attention_mask: Tensor, tgt_len: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the masks of the encoder, the decoder and the attention between them, each (batch or 1, 1, len, len) bool.

    transformers makes the same ones, but first looks whether a mask leaves anything out, three times a pass; each time it waits for
    all that a GPU still has to do.
    """
    real = attention_mask.bool()[:, None, None, :]
    seen = attention_mask.new_ones(tgt_len, tgt_len, dtype=torch.bool).tril()[None, None]
    return real.expand(-1, -1, real.shape[3], -1), seen, real.expand(-1, -1, tgt_len, -1)


def output_head(model: Any) -> Head:
    """Return a translation model's output head."""
    bias = getattr(model, "final_logits_bias", None)  # mBART and Marian have one, M2M-100 does not
    cap = getattr(model.config, "final_logit_softcapping", None)
    return Head(model.lm_head, None if bias is None else bias.reshape(-1), cap)


def masked_head(model: Any, hidden: Tensor) -> tuple[Head, Tensor]:
    """Return an encoder's head and its last layer's input, (positions, d). hidden: (positions, d), the encoder's output."""
    if hasattr(model, "lm_head"):  # RoBERTa and similar
        head = model.lm_head
        return Head(head.decoder), head.layer_norm(nn.functional.gelu(head.dense(hidden)))
    if hasattr(model, "cls"):  # BERT, DeBERTa
        return Head(model.cls.predictions.decoder), model.cls.predictions.transform(hidden)
    if hasattr(model, "lm_predictions"):  # DeBERTa with the newer head
        head = model.lm_predictions.lm_head
        words = model.deberta.embeddings.word_embeddings
        return Head(words, head.bias), head.LayerNorm(head.transform_act_fn(head.dense(hidden)))
    return Head(model.decoder), model.head(hidden)  # ModernBERT
