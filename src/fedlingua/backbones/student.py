"""Marian's small students (Kim et al. 2019, *From Research to Production and Back*), as Firefox and Bergamot translate with: a transformer
whose decoder has simple recurrent units (SSRU) in the place of self-attention.

The decoder's state is one vector a layer, not keys and values of all tokens, so a step of translation costs the same however long the
sentence. In training the recurrence is a scan in log2(length) levels of the whole batch, not a loop over time.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSeq2SeqLM, MarianConfig, MarianMTModel
from transformers.models.marian.modeling_marian import MarianModel

MODEL_TYPE = "marian-ssru"


def scan(decay: Tensor, inputs: Tensor) -> Tensor:
    """Return c with c[t] = decay[t] * c[t - 1] + inputs[t] and c[-1] = 0, all (batch, time, width), by halving (Blelloch 1990).

    Two steps of the recurrence are one of the same form, so that the states of every second token are a scan of half the length.
    """
    state = inputs.clone()
    if state.shape[1] > 1:
        pairs = torch.addcmul(inputs[:, 1::2], decay[:, 1::2], inputs[:, :-1:2])
        state[:, 1::2] = scan(decay[:, 1::2] * decay[:, :-1:2], pairs)
        state[:, 2::2].addcmul_(decay[:, 2::2], state[:, 1:-1:2])
    return state


class _Recurrence(torch.autograd.Function):
    """`scan` with its gradient, which is the same recurrence backwards in time; autograd would keep every level of the scan."""

    @staticmethod
    def forward(ctx: Any, decay: Tensor, inputs: Tensor) -> Tensor:
        state = scan(decay, inputs)
        ctx.save_for_backward(decay, state)
        return state

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        decay, state = ctx.saved_tensors
        # d loss / d c[t] sums what c[t] does itself and, through decay[t + 1], what c[t + 1] does; decay[0] meets no state.
        of_inputs = scan(decay.flip(1).roll(1, 1), gradients[0].flip(1)).flip(1)
        return nn.functional.pad(of_inputs[:, 1:] * state[:, :-1], (0, 0, 1, 0)), of_inputs


class SSRU(nn.Module):
    """f = sigmoid(W_f x + b_f); c[t] = f[t] c[t - 1] + (1 - f[t]) W x[t]; output relu(c). Stands where self-attention stands.

    The states of all tokens so far lie in the cache where keys would, so that a beam's rows are reordered with it.
    """

    def __init__(self, width: int, layer: int) -> None:
        super().__init__()
        self.input, self.forget, self.layer = nn.Linear(width, width, bias=False), nn.Linear(width, width), layer

    def forward(self, hidden_states: Tensor, past_key_values: Any = None, **_: Any) -> tuple[Tensor, None]:
        """Return the output, (batch, time, width), and no attention weights. past_key_values: the states before the first token, if any."""
        forget = torch.sigmoid(self.forget(hidden_states))
        inputs = (1 - forget) * self.input(hidden_states)
        if past_key_values is None:
            return torch.relu(_Recurrence.apply(forget, inputs)), None  # type: ignore[no-untyped-call]
        cache = getattr(past_key_values, "self_attention_cache", past_key_values)
        if cache.get_seq_length(self.layer):
            inputs = torch.cat([inputs[:, :1] + forget[:, :1] * cache.layers[self.layer].keys[:, 0, -1:], inputs[:, 1:]], dim=1)
        state: Tensor = _Recurrence.apply(forget, inputs)  # type: ignore[no-untyped-call]
        cache.update(state[:, None], state[:, None, :, :0], self.layer)
        return torch.relu(state), None


class _Positions(nn.Module):
    """Marian's own positions, whose exponents are i / (width / 2 - 1), without parameters: sines, then cosines."""

    def __init__(self, width: int, like: nn.Embedding) -> None:
        super().__init__()
        self.width, self._like = width, (like,)  # in a tuple, so that its weights are not this module's, too

    @torch.no_grad()
    def forward(self, shape: torch.Size, past: int = 0, position_ids: Tensor | None = None) -> Tensor:
        """Return (time, width) in the dtype and on the device of the embedding. shape: (batch, time)."""
        weight = self._like[0].weight
        positions = torch.arange(past, past + shape[1], device=weight.device) if position_ids is None else position_ids
        exponents = torch.arange(self.width // 2, device=weight.device, dtype=torch.float32) / (self.width // 2 - 1)
        angles = positions[..., None].float() / 10000**exponents
        return torch.cat([angles.sin(), angles.cos()], dim=-1).to(weight.dtype)


class StudentConfig(MarianConfig):
    """The configuration of a student; keys as Marian's."""

    model_type = MODEL_TYPE


class StudentModel(MarianMTModel):
    """A student with its head. Its start token's embedding is zero, as Marian begins a translation."""

    config_class = StudentConfig

    def __init__(self, config: StudentConfig) -> None:
        super().__init__(config)
        body: MarianModel = self.model
        for number, layer in enumerate(body.decoder.layers):
            layer.self_attn = SSRU(config.d_model, number)
        for stack in (body.encoder, body.decoder):
            stack.embed_positions = _Positions(config.d_model, stack.embed_tokens)  # type: ignore[assignment]
        self.post_init()  # type: ignore[no-untyped-call]


AutoConfig.register(MODEL_TYPE, StudentConfig)
AutoModelForSeq2SeqLM.register(StudentConfig, StudentModel)
# What is saved has this file beside it, so that transformers alone loads it, with trust_remote_code=True.
StudentConfig.register_for_auto_class()  # type: ignore[no-untyped-call]
StudentModel.register_for_auto_class("AutoModelForSeq2SeqLM")  # type: ignore[no-untyped-call]
