"""The start of a small backbone's training: tokenizer, model with random weights, examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TypeVar

from transformers import PreTrainedModel

from fedlingua.backbones.codec import Codec, TextCodec
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.desk.pretraining.build import build_encoder, build_model, build_text_tokenizer, build_tokenizer
from fedlingua.desk.pretraining.settings import EncoderSettings, EncoderSize, ModelSize, PretrainSettings
from fedlingua.training.batches import Example, TrainingExample
from fedlingua.training.masked_language import encode_text
from fedlingua.training.sampling import tempered
from fedlingua.training.translation import encode_pairs

Corpora = Mapping[Direction, Sequence[Pair]]
EVALUATION_KEY = "pretraining"
"""The key that decides the masks of the dev text."""
T = TypeVar("T")


@dataclass(frozen=True)
class Material:
    """A model with random weights, its training examples, text by text, and its dev examples."""

    model: PreTrainedModel
    codec: Codec
    train: Sequence[Sequence[TrainingExample]]
    dev: Sequence[Example]


def translation_material(
    train: Corpora, dev: Corpora, size: ModelSize, settings: PretrainSettings, directory: Path, alphabet: str = ""
) -> Material:
    """Make an M2M-100 and its examples; save the tokenizer in `directory`. alphabet: see `build_tokenizer`."""
    sides = sorted({side for d, pairs in train.items() for p in pairs for side in zip(d.sides, p, strict=True)})
    languages = sorted({language for language, _ in sides})
    tokenizer = build_tokenizer((sentence for _, sentence in sides), languages, size.vocab_size, directory, alphabet)
    codec = Codec(tokenizer)
    examples, dev_examples = (
        [encode_pairs(pairs, direction, codec, settings.max_tokens) for direction, pairs in corpora.items()]
        for corpora in (train, dev)
    )
    all_dev = [example for of_direction in dev_examples for example in of_direction]
    return Material(build_model(size, tokenizer, settings.seed), codec, examples, all_dev)


def masked_material(train: Corpora, dev: Corpora, size: EncoderSize, settings: EncoderSettings, directory: Path) -> Material:
    """Make an XLM-RoBERTa and its examples, language by language; save the tokenizer in `directory`."""
    sentences = sorted({pair.source for pairs in train.values() for pair in pairs})
    tokenizer = build_text_tokenizer(sentences, size.vocab_size, directory)
    codec = TextCodec(tokenizer)
    examples, dev_examples = (
        [
            encode_text([pair.source for pair in pairs], codec, settings.max_tokens, settings.mask_share)
            for pairs in corpora.values()
        ]
        for corpora in (train, dev)
    )
    all_dev = [masked for of_language in dev_examples for example in of_language for masked in example.fixed(EVALUATION_KEY)]
    return Material(build_encoder(size, tokenizer, settings.seed), codec, examples, all_dev)


def epoch(texts: Sequence[Sequence[T]], temperature: float, rng: Random) -> list[T]:
    """Draw about as many examples as there are, a share p_i ~ n_i^(1/temperature) of them from text i (Arivazhagan et al. 2019, §4.2).

    At temperature 1 every example comes once. Above it, a small text is repeated whole as often as its share allows, and the
    remainder of any text is drawn without replacement: the counts of two examples of a text differ by at most one.
    """
    if temperature == 1:
        return [example for text in texts for example in text]
    texts = [text for text in texts if text]
    seen: list[T] = []
    for text, number in zip(texts, epoch_sizes([len(text) for text in texts], temperature), strict=True):
        whole, rest = divmod(number, len(text))
        seen += [*text] * whole + rng.sample(text, rest)
    return seen


def epoch_sizes(sizes: Sequence[int], temperature: float) -> list[int]:
    """Return how many examples of each text an epoch has: its share of the total, rounded, and at least one."""
    return [max(1, round(share * sum(sizes))) for share in tempered(sizes, temperature)]
