"""Score a model on one split of a site's text by the task's two metrics, as sums."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from fedlingua.backbones.codec import Codec, TextCodec
from fedlingua.backbones.precision import autocast
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.corpora.split import Split
from fedlingua.corpora.texts import SiteText
from fedlingua.evaluation.decode import Guide, translate
from fedlingua.evaluation.perplexity import PARTS, MaskedScores, accuracy, perplexity
from fedlingua.evaluation.scores import ScoreSums, bleu_score, chrf_score, score_sums, signatures
from fedlingua.settings.config import Settings
from fedlingua.settings.metrics import ACCURACY, BLEU, CHRF, PERPLEXITY
from fedlingua.training.masked_language import MASKS_KEY, MaskedBatch, MaskedExample, TextExample, masks_hash
from fedlingua.training.objective import evaluation_groups, halved_to_fit
from fedlingua.training.site_examples import sequences_of


def masked_scores(
    model: PreTrainedModel, codec: TextCodec, sentences: int, examples: Sequence[TextExample], key: str
) -> MaskedScores:
    """Score a text, with every piece masked once; text and key determine the masks.

    Sequence i belongs to part i mod 4, so that each part is spread over the text.
    """
    parts = [[masked for text in examples[part::PARTS] for masked in text.fixed(key, len(text.ids))] for part in range(PARTS)]
    sums = []
    for part in parts:
        measured = halved_to_fit(
            evaluation_groups(model, part),
            lambda group: masked_sums(model, [MaskedExample.stack(group, codec).to(model.device)]),
        )
        sums.append([sum(column) for column in zip(*(each for _, each in measured), strict=True)] or [0.0, 0, 0])
    nll, tokens, correct = zip(*sums, strict=True)
    return MaskedScores(sentences, nll, tokens, correct, masks_hash(masked for part in parts for masked in part))


@torch.no_grad()
def masked_sums(model: PreTrainedModel, batches: Iterable[MaskedBatch]) -> tuple[float, int, int]:
    """Return (nll in nats, number of masked pieces, number of correct guesses), without dropout."""
    model.eval()
    nll_sum, num_tokens, correct = 0.0, 0, 0
    for batch in batches:
        head, hidden, targets = batch.before_head(model)
        logits = head.scores(hidden)
        nll_sum += float(nn.functional.cross_entropy(logits.float(), targets, reduction="sum"))
        num_tokens += int(targets.numel())
        correct += int((logits.argmax(dim=-1) == targets).sum())
    return nll_sum, num_tokens, correct


Sums = Any
"""The task's sums: evaluation.scores.ScoreSums or evaluation.perplexity.MaskedScores."""


@dataclass(frozen=True)
class TextScorer:
    """A task's scoring. sums: scores a model on a split; values: computes the metrics from the sums, by their keys; about: returns
    how much was measured and by which metrics or masks, which shows whether two values can be compared.
    """

    sums: Callable[[PreTrainedModel, Codec, SiteText, Split, Settings], Sums]
    values: Callable[[Sums], dict[str, float]]
    about: Callable[[Sums, Direction], dict[str, Any]]


def translations(
    model: PreTrainedModel,
    codec: Codec,
    pairs: Sequence[Pair],
    direction: Direction,
    settings: Settings,
    guides: Sequence[Guide] = (),
) -> list[str]:
    """Translate the sources, with the run's beam and length limits."""
    sources = [pair.source for pair in pairs]
    lengths, no_repeat = (settings.max_tokens, settings.max_decode_tokens), settings.no_repeat_ngram
    return translate(model, codec, sources, direction, settings.beam, *lengths, guides=guides, no_repeat_ngram=no_repeat)


def translation_sums(
    model: PreTrainedModel, codec: Codec, text: SiteText, split: Split, settings: Settings, guides: Sequence[Guide] = ()
) -> ScoreSums:
    """Translate a split and return its BLEU and chrF counts."""
    pairs = text.splits[split]
    hypotheses = translations(model, codec, pairs, text.direction, settings, guides)
    return score_sums(hypotheses, [pair.target for pair in pairs], text.direction.target)


def masked_sums_of(model: PreTrainedModel, codec: Codec, text: SiteText, split: Split, settings: Settings) -> MaskedScores:
    """Return a split's sums for perplexity and accuracy, with every piece masked once."""
    assert isinstance(codec, TextCodec), type(codec)  # check_backbone refuses others
    examples = sequences_of(text, split, codec, settings)
    with autocast(model, settings.precision):
        return masked_scores(model, codec, len(text.splits[split]), examples, MASKS_KEY)


def _about_translation(sums: ScoreSums, direction: Direction) -> dict[str, Any]:
    bleu_signature, chrf_signature = signatures(direction.target)
    return {"sentences": sums.sentences, "signature": bleu_signature, "chrf_signature": chrf_signature}


def _about_masked(sums: MaskedScores, direction: Direction) -> dict[str, Any]:
    return {"sentences": sums.sentences, "masked": sum(sums.tokens), "masks": f"{sums.masks:012x}"}


TEXT_SCORERS: dict[str, TextScorer] = {
    "translation": TextScorer(
        translation_sums, lambda sums: {BLEU.key: bleu_score(sums), CHRF.key: chrf_score(sums)}, _about_translation
    ),
    "masked-language": TextScorer(
        masked_sums_of, lambda sums: {PERPLEXITY.key: perplexity(sums), ACCURACY.key: accuracy(sums)}, _about_masked
    ),
}
"""Value of `task` -> how a text is scored."""
