"""Beam search over any number of sentences, in batches of like length, in the order they came."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel, StoppingCriteria, StoppingCriteriaList

from fedlingua.backbones.codec import Codec
from fedlingua.common.languages import Direction

TOKENS_PER_BATCH = 4000
"""Padded source tokens times beams in one batch: what fits a small machine's caches."""


class Guide(Protocol):
    """What changes the scores of next tokens: a memory, a glossary."""

    def over(self, model: PreTrainedModel, sentences: Sequence[str], beam: int) -> AbstractContextManager[LogitsProcessor]:
        """For one batch: sentences in the order of its rows, `beam` rows each."""


@torch.no_grad()
def translate(
    model: PreTrainedModel,
    codec: Codec,
    sentences: Sequence[str],
    direction: Direction,
    beam: int,
    max_tokens: int,
    max_new_tokens: int,
    most: int = 0,
    guides: Sequence[Guide] = (),
    no_repeat_ngram: int = 0,
) -> list[str]:
    """One translation a sentence, same order; an empty sentence stays empty. Sources are cut at `max_tokens`.

    most: sentences of one batch; 0: as many as fit. no_repeat_ngram: no translation has the same so many tokens twice; 0: no such rule.
    Of a decoder-only model the source counts, too.

    No sentence's limit depends on those that it shares a batch with. Their number and padding change the order in which floats are
    summed, that is a logit's last bits; with most = 1 not even these.
    """
    model.eval()
    texts = [sentence.strip() for sentence in sentences]
    encoded = codec.encode_source(texts, direction, max_tokens)
    order = sorted((number for number, text in enumerate(texts) if text), key=lambda number: (-len(encoded[number]), number))
    translations = [""] * len(texts)
    start = 0
    while start < len(order):
        size = max(1, TOKENS_PER_BATCH // (len(encoded[order[start]]) * beam))
        chosen = order[start : start + (min(size, most) if most else size)]
        start += len(chosen)
        longest = len(encoded[chosen[0]])
        input_ids, mask = torch.full((len(chosen), longest), codec.pad_id), torch.zeros(len(chosen), longest, dtype=torch.long)
        for row, number in enumerate(chosen):
            # A decoder-only model goes on where the source ends: it is padded before it.
            first = longest - len(encoded[number]) if codec.is_causal else 0
            input_ids[row, first : first + len(encoded[number])] = torch.tensor(encoded[number])
            mask[row, first : first + len(encoded[number])] = 1
        # No sensible translation is four times as long as its source; the cap ends beams that run away.
        caps = [min(max_new_tokens, 4 * len(encoded[number]) + 10) for number in chosen]
        given = longest if codec.is_causal else 1  # tokens that stand before the translation: the source, or the start
        with ExitStack() as stack:
            guiding = [stack.enter_context(guide.over(model, [texts[number] for number in chosen], beam)) for guide in guides]
            output = model.generate(  # type: ignore[operator]
                input_ids=input_ids.to(model.device),
                attention_mask=mask.to(model.device),
                forced_bos_token_id=codec.first_id(direction),
                pad_token_id=codec.pad_id,
                num_beams=beam,
                do_sample=False,
                early_stopping=beam > 1,
                max_length=None,
                max_new_tokens=caps[0],
                logits_processor=LogitsProcessorList(guiding),
                no_repeat_ngram_size=no_repeat_ngram or None,
                stopping_criteria=StoppingCriteriaList([_AtItsOwnCap(caps, given)] if len(set(caps)) > 1 else []),
            )
        made = output[:, longest:] if codec.is_causal else output
        for number, text in zip(chosen, codec.decode(made.tolist()), strict=True):
            translations[number] = text
    return translations


class _AtItsOwnCap(StoppingCriteria):
    """Ends every sentence of a batch where it would end by itself, as `max_new_tokens` does for all alike. caps: tokens, for each;
    given: tokens that stand before them."""

    def __init__(self, caps: Sequence[int], given: int) -> None:
        self.caps, self.given = torch.tensor(caps), given

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        """input_ids: (sentences x candidates, len), the start token among them, a sentence's candidates together; so is the result."""
        candidates = len(input_ids) // len(self.caps)
        ended: Tensor = self.caps.repeat_interleave(candidates).to(input_ids.device) <= input_ids.shape[1] - self.given
        return ended
