"""Beam search over any number of sentences, in batches of like length, in the order they came."""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from fedlingua.backbones.codec import Codec
from fedlingua.languages import Direction

TOKENS_PER_BATCH = 4000
"""Padded source tokens times beams in one batch: what fits a small machine's caches."""


@torch.no_grad()
def translate(
    model: PreTrainedModel,
    codec: Codec,
    sentences: Sequence[str],
    direction: Direction,
    beam: int,
    max_tokens: int,
    max_new_tokens: int,
) -> list[str]:
    """One translation a sentence, same order; an empty sentence stays empty. Sources are cut at `max_tokens`."""
    model.eval()
    texts = [sentence.strip() for sentence in sentences]
    encoded = codec.encode(texts, direction.source, max_tokens)
    order = sorted((number for number, text in enumerate(texts) if text), key=lambda number: (-len(encoded[number]), number))
    translations = [""] * len(texts)
    start = 0
    while start < len(order):
        size = max(1, TOKENS_PER_BATCH // (len(encoded[order[start]]) * beam))
        chosen = order[start : start + size]
        start += size
        longest = len(encoded[chosen[0]])
        input_ids = torch.full((len(chosen), longest), codec.pad_id)
        for row, number in enumerate(chosen):
            input_ids[row, : len(encoded[number])] = torch.tensor(encoded[number])
        input_ids = input_ids.to(model.device)
        output = model.generate(  # type: ignore[operator]
            input_ids=input_ids,
            attention_mask=(input_ids != codec.pad_id).long(),
            forced_bos_token_id=codec.language_ids[direction.target],
            num_beams=beam,
            do_sample=False,
            early_stopping=beam > 1,
            max_length=None,
            # No sensible translation is four times as long as its source; the cap ends beams that run away.
            max_new_tokens=min(max_new_tokens, 4 * longest + 10),
        )
        for number, text in zip(chosen, codec.decode(output.tolist()), strict=True):
            translations[number] = text
    return translations
