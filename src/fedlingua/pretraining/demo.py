"""The demo backbone: a tiny M2M-100 trained once from the phrasebook's base register and cached by the hash of what made it."""

import hashlib
import json
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from itertools import permutations
from pathlib import Path

from fedlingua.backbones.sizes import ModelSize
from fedlingua.cache import cache_dir, making
from fedlingua.corpora import phrasebook
from fedlingua.corpora.read import Pair
from fedlingua.languages import Direction
from fedlingua.pace import Note, told
from fedlingua.pretraining.settings import PretrainSettings, decisive

SIZE = ModelSize(d_model=128, encoder_layers=2, decoder_layers=2, heads=4, ffn_dim=512, vocab_size=1200, dropout=0.0)
TRAINING = PretrainSettings(
    steps=1500, tokens_per_batch=2500, learning_rate=4e-3, warmup_steps=200, label_smoothing=0.1, max_tokens=64, threads=2
)
SENTENCES, DEV_SENTENCES, GRAMMAR_SEED = 6000, 40, 1


def base_register() -> tuple[dict[Direction, list[Pair]], dict[Direction, list[Pair]]]:
    """(train, dev) of the phrasebook's base register, all directions; every meaning stands in a few directions only."""
    text = phrasebook.base_corpus(SENTENCES, GRAMMAR_SEED)
    directions = [Direction(source, target) for source, target in permutations(phrasebook.LANGUAGES, 2)]
    train: dict[Direction, list[Pair]] = {direction: [] for direction in directions}
    dev: dict[Direction, list[Pair]] = {direction: [] for direction in directions}
    held_out = SENTENCES - DEV_SENTENCES
    for number in range(held_out):
        # Twelve directions a meaning, rotating, keep an epoch short while every direction sees many meanings.
        for offset in range(12):
            direction = directions[(number * 5 + offset * 6 + number // 72) % len(directions)]
            train[direction].append(Pair(text[direction.source][number], text[direction.target][number]))
    for number in range(held_out, SENTENCES):
        direction = directions[(number * 7) % len(directions)]
        dev[direction].append(Pair(text[direction.source][number], text[direction.target][number]))
    return train, {direction: pairs for direction, pairs in dev.items() if pairs}


def demo_hash() -> str:
    """Of what decides the demo's weights: grammar, size, schedule, and the libraries that compute."""
    made_from = {
        "grammar": phrasebook.grammar_hash(),
        "text": [SENTENCES, DEV_SENTENCES, GRAMMAR_SEED],
        "size": asdict(SIZE),
        "training": decisive(TRAINING),
        "versions": {name: version(name) for name in ("torch", "transformers", "sentencepiece")},
    }
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:16]


def demo_backbone(note: Note | None = None) -> Path:
    """Directory of the demo backbone; trains it (about four minutes on two cores) when the cache has none."""
    directory = cache_dir() / "backbones" / f"demo-{demo_hash()}"
    with making(directory):
        if not (directory / "model.safetensors").is_file():
            from fedlingua.pretraining.loop import ALONE, pretrain  # what is cached is found without torch
            from fedlingua.pretraining.material import translation_material

            train, dev = base_register()
            around = replace(ALONE, note=note or told("demo backbone"))
            pretrain(partial(translation_material, train, dev, SIZE, TRAINING), TRAINING, directory, around=around)
    return directory
