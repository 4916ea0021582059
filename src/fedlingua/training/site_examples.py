"""Examples from a site's text, sentence pairs or masked sequences; used wherever its model is trained or measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedlingua.backbones.codec import Codec, TextCodec
from fedlingua.common.errors import BackboneError
from fedlingua.common.languages import language_name
from fedlingua.corpora.split import Split
from fedlingua.corpora.texts import SiteText
from fedlingua.settings.config import Settings
from fedlingua.training.batches import Example, TrainingExample
from fedlingua.training.masked_language import MASKS_KEY, MaskedExample, TextExample, encode_text
from fedlingua.training.translation import PairExample, encode_pairs


@dataclass(frozen=True)
class ExampleMaker:
    """How a task makes examples of a split of a text. trained: makes those to train on; measured: makes those to measure on."""

    trained: Callable[[SiteText, Split, Codec, Settings], Sequence[TrainingExample]]
    measured: Callable[[SiteText, Split, Codec, Settings], Sequence[Example]]


def pairs_of(text: SiteText, split: Split, codec: Codec, settings: Settings) -> list[PairExample]:
    """Make an example of each sentence pair."""
    return encode_pairs(text.splits[split], text.direction, codec, settings.max_tokens)


def sequences_of(text: SiteText, split: Split, codec: Codec, settings: Settings) -> list[TextExample]:
    """Pack the source sentences into sequences that are not masked yet.

    Raises:
        BackboneError: The tokenizer knows no piece of the text.
    """
    assert isinstance(codec, TextCodec), type(codec)  # check_backbone refuses others
    sequences = encode_text([pair.source for pair in text.splits[split]], codec, settings.max_tokens, settings.mask_share)
    if text.splits[split] and not sequences:
        raise BackboneError(
            f"the backbone's tokenizer knows nothing of {len(text.splits[split])} {split} sentences in "
            f"{language_name(text.direction.source)}; give a backbone that reads this language"
        )
    return sequences


def masked_sequences_of(text: SiteText, split: Split, codec: Codec, settings: Settings) -> list[MaskedExample]:
    """Pack the source sentences, and mask each sequence once, as its own text decides."""
    return [masked for sequence in sequences_of(text, split, codec, settings) for masked in sequence.fixed(MASKS_KEY)]


EXAMPLE_MAKERS: dict[str, ExampleMaker] = {
    "translation": ExampleMaker(pairs_of, pairs_of),
    "masked-language": ExampleMaker(sequences_of, masked_sequences_of),
}
"""`task` -> how its examples are made; one line for each task."""
