"""What each family's models compute last: the decoder's output, and the layers between it, or an encoder's, and the scores."""

from typing import Any

from torch import Tensor, nn

from fedlingua.training.head import Head


def decoder_output(model: Any, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Tensor:
    """What the output head of a model with encoder and decoder is given: (batch, tgt_len, d)."""
    inner = model.model if hasattr(model, "model") else model  # T5 has no module around its stacks
    encoded: Tensor = inner.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
    hidden: Tensor = inner.decoder(
        input_ids=decoder_input_ids, encoder_hidden_states=encoded, encoder_attention_mask=attention_mask, use_cache=False
    ).last_hidden_state
    return hidden * model.config.d_model**-0.5 if getattr(model.config, "scale_decoder_outputs", False) else hidden


def output_head(model: Any) -> Head:
    """A translation model's head."""
    bias = getattr(model, "final_logits_bias", None)  # mBART and Marian carry one, M2M-100 does not
    cap = getattr(model.config, "final_logit_softcapping", None)
    return Head(model.lm_head, None if bias is None else bias.reshape(-1), cap)


def masked_head(model: Any, hidden: Tensor) -> tuple[Head, Tensor]:
    """An encoder's head, and what its last layer is given. hidden: (positions, d), the encoder's output; the second is like it."""
    if hasattr(model, "lm_head"):  # RoBERTa and its kin
        head = model.lm_head
        return Head(head.decoder), head.layer_norm(nn.functional.gelu(head.dense(hidden)))
    if hasattr(model, "cls"):  # BERT, DeBERTa
        return Head(model.cls.predictions.decoder), model.cls.predictions.transform(hidden)
    if hasattr(model, "lm_predictions"):  # DeBERTa of the newer form
        head = model.lm_predictions.lm_head
        words = model.deberta.embeddings.word_embeddings
        return Head(words, head.bias), head.LayerNorm(head.transform_act_fn(head.dense(hidden)))
    return Head(model.decoder), model.head(hidden)  # ModernBERT
