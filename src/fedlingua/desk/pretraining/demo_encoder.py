"""The demo encoder: a tiny XLM-RoBERTa trained once on the phrasebook's base register and cached by the hash of what made it."""

import hashlib
import json
import shutil
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

from fedlingua.backbones.sizes import EncoderSize
from fedlingua.common.cache import cache_dir, making
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.desk.pace import Note, to_stderr
from fedlingua.settings.pretraining import EncoderSettings, decisive
from fedlingua_demo import phrasebook

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
    """Directory of the demo encoder; trains it (about a minute on two cores) when the cache has none that this recipe made."""
    directory = cache_dir() / "backbones" / "demo-encoder"
    made_by = directory / "recipe.sha256"
    with making(directory):
        if not made_by.is_file() or made_by.read_text(encoding="utf-8") != demo_encoder_hash():
            from fedlingua.desk.pretraining.loop import ALONE, pretrain  # what is cached is found without torch
            from fedlingua.desk.pretraining.material import masked_material

            shutil.rmtree(directory, ignore_errors=True)
            text = phrasebook.base_corpus(SENTENCES, GRAMMAR_SEED)
            pairs = {
                Direction(code, code): [Pair(sentence, sentence) for sentence in sentences] for code, sentences in text.items()
            }
            train, dev = (
                {d: held[part] for d, held in pairs.items()} for part in (slice(DEV_SENTENCES, None), slice(DEV_SENTENCES))
            )
            around = replace(ALONE, note=note or to_stderr("demo encoder"))
            pretrain(partial(masked_material, train, dev, SIZE, TRAINING), TRAINING, directory, around=around)
            made_by.write_text(demo_encoder_hash(), encoding="utf-8")
    return directory


def make_built_in(name: str, note: Note | None = None) -> None:
    """Make what the named backbone needs, where it is one that is built in and does not ship."""
    if name == "demo-encoder":
        demo_encoder(note)
