"""Score a model on one split of a site's text by the task's two metrics, as sums."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
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
from fedlingua.evaluation.perplexity import PARTS, MaskedScores, SequenceScores, accuracy, perplexity
from fedlingua.evaluation.scores import ScoreSums, bleu_score, chrf_score, score_sums, signatures
from fedlingua.settings.config import Settings
from fedlingua.settings.metrics import ACCURACY, BLEU, CHRF, PERPLEXITY
from fedlingua.training.batches import IGNORED
from fedlingua.training.masked_language import MASKS_KEY, MaskedBatch, MaskedExample, TextExample, masks_hash
from fedlingua.training.objective import evaluation_groups, halved_to_fit
from fedlingua.training.site_examples import sequences_of


def scores_of_sequences(model: PreTrainedModel, codec: TextCodec, examples: Sequence[TextExample], key: str) -> SequenceScores:
    """Score each sequence of a text, with every piece masked once; text and key determine the masks."""
    forms = [example.fixed(key, len(example.ids)) for example in examples]
    places = {id(form): place for place, of_one in enumerate(forms) for form in of_one}
    nll, tokens, correct = [0.0] * len(forms), [0] * len(forms), [0] * len(forms)
    measured = halved_to_fit(
        evaluation_groups(model, [*chain.from_iterable(forms)]),
        lambda group: masked_results(model, MaskedExample.stack(group, codec).to(model.device)),
    )
    for group, results in measured:
        for form, (of_form, right) in zip(group, results, strict=True):
            place = places[id(form)]
            nll[place] += sum(of_form)
            tokens[place] += len(of_form)
            correct[place] += sum(right)
    by_part = (form for part in range(PARTS) for of_one in forms[part::PARTS] for form in of_one)
    return SequenceScores(nll, tokens, correct, masks_hash(by_part))


@torch.no_grad()
def masked_results(model: PreTrainedModel, batch: MaskedBatch) -> list[tuple[list[float], list[bool]]]:
    """Return for each example the nats of its masked pieces and whether each was guessed, without dropout."""
    model.eval()
    head, hidden, targets = batch.before_head(model)
    logits = head.scores(hidden)
    nll = nn.functional.cross_entropy(logits.float(), targets, reduction="none").double().cpu()
    right = (logits.argmax(dim=-1) == targets).cpu()
    counts: list[int] = (batch.labels != IGNORED).sum(dim=1).tolist()
    return [(each.tolist(), of_each.tolist()) for each, of_each in zip(nll.split(counts), right.split(counts), strict=True)]


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


def masked_scores(model: PreTrainedModel, codec: Codec, text: SiteText, split: Split, settings: Settings) -> SequenceScores:
    """Return the scores of each sequence of a split, with every piece masked once."""
    assert isinstance(codec, TextCodec), type(codec)  # check_backbone refuses others
    with autocast(model, settings.precision):
        return scores_of_sequences(model, codec, sequences_of(text, split, codec, settings), MASKS_KEY)


def masked_sums(model: PreTrainedModel, codec: Codec, text: SiteText, split: Split, settings: Settings) -> MaskedScores:
    """Return a split's sums for perplexity and accuracy, with every piece masked once."""
    return masked_scores(model, codec, text, split, settings).summed(len(text.splits[split]))


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
        masked_sums, lambda sums: {PERPLEXITY.key: perplexity(sums), ACCURACY.key: accuracy(sums)}, _about_masked
    ),
}
"""Value of `task` -> how a text is scored."""
