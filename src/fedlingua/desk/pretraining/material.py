"""What a small backbone is made of: a tokenizer of its text, a model with random weights, and the text as examples."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedlingua.backbones.codec import Codec, TextCodec
from fedlingua.backbones.sizes import EncoderSize, ModelSize
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.desk.pretraining.build import build_model, build_tokenizer
from fedlingua.desk.pretraining.build_encoder import build_encoder, build_text_tokenizer
from fedlingua.desk.pretraining.loop import Material
from fedlingua.settings.pretraining import EncoderSettings, PretrainSettings
from fedlingua.training.masked_language import encode_text
from fedlingua.training.translation import encode_pairs

Corpora = Mapping[Direction, Sequence[Pair]]
EVALUATION_KEY = "pretraining"
"""Decides the masks of the text that watches."""


def translation_material(train: Corpora, dev: Corpora, size: ModelSize, settings: PretrainSettings, directory: Path) -> Material:
    """An M2M-100 and its pairs; the tokenizer is left in `directory`."""
    sides = sorted({side for d, pairs in train.items() for p in pairs for side in ((d.source, p.source), (d.target, p.target))})
    languages = sorted({language for language, _ in sides})
    tokenizer = build_tokenizer((sentence for _, sentence in sides), languages, size.vocab_size, directory)
    codec = Codec(tokenizer)
    examples, dev_examples = (
        [encode_pairs(pairs, direction, codec, settings.max_tokens) for direction, pairs in corpora.items()]
        for corpora in (train, dev)
    )
    watching = [one for of_direction in dev_examples for one in of_direction]
    return Material(build_model(size, tokenizer, settings.seed), codec, examples, watching)


def masked_material(train: Corpora, dev: Corpora, size: EncoderSize, settings: EncoderSettings, directory: Path) -> Material:
    """An XLM-RoBERTa and its text, language by language; the tokenizer is left in `directory`."""
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
    watching = [masked for of_language in dev_examples for one in of_language for masked in one.fixed(EVALUATION_KEY)]
    return Material(build_encoder(size, tokenizer, settings.seed), codec, examples, watching)
