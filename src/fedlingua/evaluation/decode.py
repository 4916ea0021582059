"""Translate any number of sentences by beam search, in batches of similar length."""

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel, StoppingCriteria, StoppingCriteriaList

from fedlingua.backbones.codec import Codec
from fedlingua.common.errors import MemoryRunsOutError
from fedlingua.common.languages import Direction
from fedlingua.common.visible import trimmed
from fedlingua.training.pieces import tokens_at_once

TOKENS_PER_BATCH = 2000
"""Padded source tokens times beams in one batch on a CPU: as many as fit a small machine's caches, and few enough that those that end early
seldom wait long for the last one."""
LEAST_SHARE = 0.5
"""Least length of a source in a batch as a share of the longest, so that one long sentence does not pad all others to its length."""


class Guide(Protocol):
    """Changes the scores of next tokens, as the second model of an ensemble or a glossary does."""

    def over(self, sentences: Sequence[str], beam: int) -> LogitsProcessor:
        """Return the processor for one batch. sentences: in row order, `beam` rows each."""


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
    """Return one translation for each sentence, each on one line, in order. Sources are cut at `max_tokens`.

    A sentence without a visible character, or of which the tokenizer keeps nothing, has an empty line: a model would invent one.

    most: largest number of sentences in a batch; 0: as many as fit. guides: change the scores of next tokens. no_repeat_ngram: no
    run of this many tokens occurs twice in a translation (of a decoder-only model, in source and translation); 0: no such rule.

    A sentence's length limit does not depend on the others in its batch. Their number and padding change the order in which floats
    are summed, and thus a logit's last bits; with most = 1 nothing depends on other sentences. A batch that a GPU's memory does not
    hold is halved; MemoryRunsOutError if it is a single sentence.
    """
    model.eval()
    texts = [*map(trimmed, sentences)]
    encoded = codec.encode_source(texts, direction, max_tokens)
    full = [number for number, (text, pieces) in enumerate(zip(texts, codec.pieces(texts), strict=True)) if text and pieces]
    order = sorted(full, key=lambda number: (-len(encoded[number]), number))
    translations = [""] * len(texts)
    budget = tokens_at_once(TOKENS_PER_BATCH, model.device.type, 0)
    start = 0
    while start < len(order):
        size = max(1, budget // (len(encoded[order[start]]) * beam))
        fitting = order[start : start + (min(size, most) if most else size)]
        chosen = [number for number in fitting if len(encoded[number]) >= LEAST_SHARE * len(encoded[fitting[0]])]
        # No sensible translation is four times as long as its source; the cap ends beams that never stop.
        caps = [min(max_new_tokens, 4 * len(encoded[number]) + 10) for number in chosen]
        sources = [encoded[number] for number in chosen]
        guiding = [guide.over([texts[number] for number in chosen], beam) for guide in guides]
        made = _generated(model, codec, sources, direction, beam, caps, guiding, no_repeat_ngram)
        if made is None:
            if len(chosen) == 1:
                raise MemoryRunsOutError(
                    f"translating one sentence of {len(sources[0])} tokens runs out of memory; give a smaller beam or max-tokens, "
                    "or a device with more memory"
                )
            torch.cuda.empty_cache()
            budget = (len(chosen) + 1) // 2 * len(sources[0]) * beam
            continue
        start += len(chosen)
        for number, text in zip(chosen, codec.decode(made), strict=True):
            # A tokenizer can have pieces that are tabs or line breaks.
            translations[number] = " ".join(text.replace("\t", " ").splitlines())
    return translations


def _generated(
    model: PreTrainedModel,
    codec: Codec,
    sources: Sequence[Sequence[int]],
    direction: Direction,
    beam: int,
    caps: Sequence[int],
    guiding: Sequence[LogitsProcessor],
    no_repeat_ngram: int,
) -> list[list[int]] | None:
    """Translate one batch, longest source first; return each sentence's new ids, or None if a GPU's memory does not hold the batch."""
    input_ids, mask = padded_sources(sources, codec)
    longest = len(sources[0])
    given = longest if codec.is_causal else 1  # number of tokens before the translation: the source, or the start token
    last = getattr(model.generation_config, "forced_eos_token_id", None)
    processors = [*guiding, _LastAtItsOwnCap(caps, given, last)] if isinstance(last, int) else guiding
    try:
        output = model.generate(  # type: ignore[operator]
            input_ids=input_ids.to(model.device),
            attention_mask=mask.to(model.device),
            forced_bos_token_id=codec.first_id(direction),
            pad_token_id=codec.pad_id,
            num_beams=beam,
            do_sample=False,
            repetition_penalty=1.0,  # one that a chat model publishes would also penalize the names and numbers of the source
            length_penalty=1.0,
            early_stopping=beam > 1,
            max_length=None,
            max_new_tokens=caps[0],
            logits_processor=LogitsProcessorList(processors),
            no_repeat_ngram_size=no_repeat_ngram or None,
            stopping_criteria=StoppingCriteriaList([_AtItsOwnCap(caps, given)] if len(set(caps)) > 1 else []),
        )
    except torch.OutOfMemoryError:
        return None
    made: list[list[int]] = (output[:, longest:] if codec.is_causal else output).tolist()
    return made


def padded_sources(sources: Sequence[Sequence[int]], codec: Codec) -> tuple[Tensor, Tensor]:
    """Return encoded sources as one tensor with its mask, both (sentences, longest) int64.

    Padding comes after a source, but before it for a decoder-only model, which continues where the source ends.
    """
    longest = max(map(len, sources))
    input_ids, mask = torch.full((len(sources), longest), codec.pad_id), torch.zeros(len(sources), longest, dtype=torch.long)
    for row, source in enumerate(sources):
        first = longest - len(source) if codec.is_causal else 0
        input_ids[row, first : first + len(source)] = torch.tensor(source)
        mask[row, first : first + len(source)] = 1
    return input_ids, mask


class _LastAtItsOwnCap(LogitsProcessor):
    """Forces the token that a model wants as the last one, such as mBART-50's end, at the cap of every sentence of a batch; `generate` does
    so at the largest only. caps, given: as in _AtItsOwnCap; last: the token."""

    def __init__(self, caps: Sequence[int], given: int, last: int) -> None:
        self.caps, self.given, self.last = torch.tensor(caps), given, last

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the changed scores, (rows, vocabulary). input_ids: (rows, len)."""
        candidates = len(input_ids) // len(self.caps)
        at_cap = self.caps.repeat_interleave(candidates).to(scores.device) == input_ids.shape[1] - self.given + 1
        only = torch.full_like(scores[:1], -math.inf)
        only[:, self.last] = 0.0
        return torch.where(at_cap[:, None], only, scores)


class _AtItsOwnCap(StoppingCriteria):
    """Ends every sentence of a batch at its own cap; `max_new_tokens` is the same for all. caps: new tokens of each sentence;
    given: number of tokens before them."""

    def __init__(self, caps: Sequence[int], given: int) -> None:
        self.caps, self.given = torch.tensor(caps), given

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        """Return which rows end, (rows,). input_ids: (rows, len), a row for each candidate, those of a sentence together."""
        candidates = len(input_ids) // len(self.caps)
        ended: Tensor = self.caps.repeat_interleave(candidates).to(input_ids.device) <= input_ids.shape[1] - self.given
        return ended
