"""The demo encoder: a tiny XLM-RoBERTa trained once on the phrasebook's base register and cached by the hash of what made it."""

import hashlib
import json
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

from fedlingua.backbones.sizes import EncoderSize
from fedlingua.cache import cache_dir, making
from fedlingua.corpora import phrasebook
from fedlingua.corpora.read import Pair
from fedlingua.languages import Direction
from fedlingua.pace import Note, told
from fedlingua.pretraining.settings import EncoderSettings, decisive

SIZE = EncoderSize(d_model=96, layers=2, heads=4, ffn_dim=192, vocab_size=1200, dropout=0.0)
TRAINING = EncoderSettings(steps=600, tokens_per_batch=2000, learning_rate=3e-3, warmup_steps=60, max_tokens=64, threads=2)
SENTENCES, DEV_SENTENCES, GRAMMAR_SEED = 3000, 40, 1


def demo_encoder_hash() -> str:
    """Of what decides the demo's weights: grammar, size, schedule, and the libraries that compute."""
    made_from = {
        "grammar": phrasebook.grammar_hash(),
        "text": [SENTENCES, DEV_SENTENCES, GRAMMAR_SEED],
        "size": asdict(SIZE),
        "training": decisive(TRAINING),
        "versions": {name: version(name) for name in ("torch", "transformers", "sentencepiece")},
    }
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:16]


def demo_encoder(note: Note | None = None) -> Path:
    """Directory of the demo encoder; trains it (about a minute on two cores) when the cache has none."""
    directory = cache_dir() / "backbones" / f"demo-encoder-{demo_encoder_hash()}"
    with making(directory):
        if not (directory / "model.safetensors").is_file():
            from fedlingua.pretraining.loop import ALONE, pretrain  # what is cached is found without torch
            from fedlingua.pretraining.material import masked_material

            text = phrasebook.base_corpus(SENTENCES, GRAMMAR_SEED)
            pairs = {Direction(code, code): [Pair(one, one) for one in sentences] for code, sentences in text.items()}
            train, dev = (
                {d: held[part] for d, held in pairs.items()} for part in (slice(DEV_SENTENCES, None), slice(DEV_SENTENCES))
            )
            around = replace(ALONE, note=note or told("demo encoder"))
            pretrain(partial(masked_material, train, dev, SIZE, TRAINING), TRAINING, directory, around=around)
    return directory
