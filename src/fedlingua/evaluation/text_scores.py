"""Score a model on one split of a site's text by the task's two metrics, as sums."""

from collections.abc import Sequence
from itertools import chain

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
from fedlingua.evaluation.perplexity import PARTS, SequenceScores
from fedlingua.settings.config import Settings
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


def masked_scores(model: PreTrainedModel, codec: Codec, text: SiteText, split: Split, settings: Settings) -> SequenceScores:
    """Return the scores of each sequence of a split, with every piece masked once."""
    assert isinstance(codec, TextCodec), type(codec)  # check_backbone refuses others
    with autocast(model, settings.precision):
        return scores_of_sequences(model, codec, sequences_of(text, split, codec, settings), MASKS_KEY)
