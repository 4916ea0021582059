"""An ensemble of two models (as in Sutskever et al. 2014, §3.4): a next token's probability is the weighted mean of both models'."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from transformers import LogitsProcessor, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from fedlingua.backbones.codec import Codec
from fedlingua.common.languages import Direction
from fedlingua.evaluation.decode import padded_sources
from fedlingua.exchange.delivery import Second
from fedlingua.exchange.trainable import Trainable
from fedlingua.settings.config import Settings


@dataclass(frozen=True)
class Ensemble:
    """A guide of `decode.translate`: while a first model translates, a second one of the same backbone has a say in every token.

    Attributes:
        second: The second model, with the first one's codec. share: Its share of the mean, between 0 and 1.
        direction: What is translated. max_tokens: As given to `translate`.
    """

    second: PreTrainedModel
    share: float
    codec: Codec
    direction: Direction
    max_tokens: int

    @classmethod
    def of(cls, second: Second, trainable: Trainable, settings: Settings, direction: Direction) -> Self:
        """Load the second model beside a run's first one."""
        model = trainable.second(settings, second.tensors)
        return cls(model, second.share, trainable.backbone.codec, direction, settings.max_tokens)

    def over(self, sentences: Sequence[str], beam: int) -> LogitsProcessor:
        """Return the processor for one batch."""
        self.second.eval()
        sources = self.codec.encode_source(list(sentences), self.direction, self.max_tokens)
        return _Averaged(self.second, self.share, *padded_sources(sources, self.codec), self.codec.is_causal)


class _Averaged(LogitsProcessor):
    """Averages with the second model's probabilities. Like the first model it computes only the latest token of each row in a step.

    input_ids, mask: (sentences, len), the padded sources.
    """

    def __init__(self, second: PreTrainedModel, share: float, input_ids: Tensor, mask: Tensor, is_causal: bool) -> None:
        self.second, self.share, self.is_causal = second, share, is_causal
        self.input_ids, self.mask = input_ids.to(second.device), mask.to(second.device)
        self.encoded: BaseModelOutput | None = None
        self.past: Any = None
        self.last: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the log of the mean; a token that the first model may not take (-inf) stays forbidden.

        The second model's probabilities of the allowed tokens have the same sum as the first one's.

        Args:
            input_ids: (rows, len), those of a sentence together.
            scores: (rows, vocabulary), the first model's logits or log probabilities.
        """
        of_second = self._scores(input_ids).to(scores.dtype).masked_fill(scores == -math.inf, -math.inf)
        log_second = of_second.log_softmax(dim=1) + scores.logsumexp(dim=1, keepdim=True)
        return torch.logaddexp(scores + math.log1p(-self.share), log_second + math.log(self.share))

    def _scores(self, input_ids: Tensor) -> Tensor:
        """Return the second model's scores of the next token, (rows, vocabulary)."""
        rows = len(input_ids) // len(self.mask)
        mask, new = self.mask.repeat_interleave(rows, dim=0), input_ids
        if self.last is not None:
            self.past.reorder_cache(self._came_from(input_ids))
            new = input_ids[:, -1:]
        self.last = input_ids
        how: dict[str, Any] = {"past_key_values": self.past, "use_cache": True}
        if self.is_causal:
            mask = torch.cat([mask, mask.new_ones(len(mask), input_ids.shape[1] - mask.shape[1])], dim=1)
            places = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -new.shape[1] :]
            output = self.second(input_ids=new, attention_mask=mask, position_ids=places, logits_to_keep=1, **how)
        else:
            if self.encoded is None:
                encoder = self.second.get_encoder()
                hidden = encoder(input_ids=self.input_ids, attention_mask=self.mask).last_hidden_state
                self.encoded = BaseModelOutput(last_hidden_state=hidden.repeat_interleave(rows, dim=0))
            output = self.second(encoder_outputs=self.encoded, attention_mask=mask, decoder_input_ids=new, **how)
        self.past = output.past_key_values
        scores: Tensor = output.logits[:, -1]
        return scores

    def _came_from(self, input_ids: Tensor) -> Tensor:
        """Return which row of the step before each row continues, (rows,): beam search has reordered the rows of every sentence."""
        assert self.last is not None
        sentences, count = len(self.mask), len(input_ids) // len(self.mask)
        now, before = (ids.view(sentences, count, -1) for ids in (input_ids[:, :-1], self.last))
        same = (now[:, :, None] == before[:, None]).all(dim=3)  # (sentences, rows now, rows before)
        first = torch.arange(0, len(input_ids), count, device=input_ids.device)
        return (same.int().argmax(dim=2) + first[:, None]).flatten()
