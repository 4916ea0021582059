"""The recipes of the demo's backbones, both trained from the phrasebook's base register.

The tiny M2M-100's weights ship in fedlingua_demo; `python -m fedlingua.desk.pretraining.demo DIRECTORY` makes them anew. The tiny
XLM-RoBERTa is trained once and cached by the hash of what made it.
"""

import json
import random
import shutil
import sys
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from itertools import permutations
from pathlib import Path

from fedlingua.common.cache import cache_dir, making
from fedlingua.common.files import json_hash
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.desk.pace import to_stderr
from fedlingua.desk.pretraining.settings import EncoderSettings, EncoderSize, ModelSize, PretrainSettings, decisive
from fedlingua_demo import phrasebook

SIZE = ModelSize(d_model=128, encoder_layers=2, decoder_layers=2, heads=4, ffn_dim=512, vocab_size=1500, dropout=0.0)
TRAINING = PretrainSettings(
    steps=1500, tokens_per_batch=2500, learning_rate=4e-3, warmup_steps=200, label_smoothing=0.1, max_tokens=64, threads=1
)
ENCODER_SIZE = EncoderSize(d_model=96, layers=2, heads=4, ffn_dim=192, vocab_size=1200, dropout=0.0)
ENCODER_TRAINING = EncoderSettings(
    steps=600, tokens_per_batch=2000, learning_rate=3e-3, warmup_steps=60, max_tokens=64, threads=2
)
SENTENCES, ENCODER_SENTENCES, DEV_SENTENCES, GRAMMAR_SEED = 6000, 3000, 40, 1
SPELT_WORDS, SPELLING_SEED = 50, 7


def base_register() -> tuple[dict[Direction, list[Pair]], dict[Direction, list[Pair]]]:
    """Return (train, dev) of the phrasebook's base register in all directions; each meaning is in only a few of them."""
    text = phrasebook.base_corpus(SENTENCES, GRAMMAR_SEED)
    directions = [Direction(source, target) for source, target in permutations(phrasebook.LANGUAGES, 2)]
    train: dict[Direction, list[Pair]] = {direction: [] for direction in directions}
    dev: dict[Direction, list[Pair]] = {direction: [] for direction in directions}
    for number in range(SENTENCES):
        # Twelve directions a meaning, rotating, keep an epoch short while every direction sees many meanings.
        places = [number * 5 + offset * 6 + number // 72 for offset in range(12)]
        trains = number < SENTENCES - DEV_SENTENCES
        for place in places if trains else [number * 7]:
            direction = directions[place % len(directions)]
            pair = Pair(text[direction.source][number], text[direction.target][number])
            (train if trains else dev)[direction].append(pair)
    return train, {direction: pairs for direction, pairs in dev.items() if pairs}


def alphabet() -> str:
    """Return the characters of the phrasebook's words in all registers, in both cases, and of the signs between them."""
    words = "".join(file.read_text(encoding="utf-8") for file in phrasebook.lexicon.FOLDER.glob("words_*.toml"))
    signs = "".join(line for lines in phrasebook.base_corpus(1000, GRAMMAR_SEED).values() for line in lines)
    text = "".join(filter(str.isalpha, words)) + signs
    return "".join(sorted({*text, *text.lower(), *text.upper()} - {" "}))


def spelling(directions: Iterable[Direction]) -> dict[Direction, list[Pair]]:
    """Return words of random letters for each direction, the same on both sides, as names are.

    Registers have letters that the base register lacks. Their pieces would stay untrained, and adapters could hardly write them: with
    these words, a twentieth of the pairs, the sites of `make demo` have 44.3 BLEU alone, without them 38.7 (one seed).
    """
    rng, letters = random.Random(SPELLING_SEED), [*filter(str.isalpha, alphabet())]
    drawn = {
        direction: ["".join(rng.choice(letters) for _ in range(rng.randint(2, 8))) for _ in range(SPELT_WORDS)]
        for direction in directions
    }
    return {direction: [Pair(word, word) for word in words] for direction, words in drawn.items()}


def train_demo(directory: Path) -> None:
    """Train the demo backbone (about seven minutes) and write it as shipped: half precision, compact JSON."""
    from safetensors.torch import load_file, save_file

    from fedlingua.desk.pretraining.loop import pretrain  # imports torch
    from fedlingua.desk.pretraining.material import translation_material

    train, dev = base_register()
    for direction, words in spelling(train).items():
        train[direction] += words
    make = partial(translation_material, train, dev, SIZE, TRAINING, alphabet=alphabet())
    pretrain(make, TRAINING, directory, note=to_stderr("demo backbone"))
    weights = directory / "model.safetensors"
    save_file({name: tensor.half() for name, tensor in load_file(weights).items()}, weights, metadata={"format": "pt"})
    for name in ("tokenizer_config.json", "added_tokens.json", "vocab.json"):
        text = json.dumps(json.loads((directory / name).read_text(encoding="utf-8")), ensure_ascii=False, separators=(",", ":"))
        (directory / name).write_text(text + "\n", encoding="utf-8")


def demo_encoder_hash() -> str:
    """Return the hash of everything that determines the encoder's weights: grammar, text, size, schedule, numerical libraries."""
    made_from = {
        "grammar": phrasebook.grammar_hash(),
        "text": [ENCODER_SENTENCES, DEV_SENTENCES, GRAMMAR_SEED],
        "size": asdict(ENCODER_SIZE),
        "training": decisive(ENCODER_TRAINING),
        "versions": {name: version(name) for name in ("torch", "transformers", "sentencepiece")},
    }
    return json_hash(made_from)[:16]


def demo_encoder() -> Path:
    """Return the demo encoder's directory; train it (a minute on two cores) if the cache has none of this recipe."""
    directory = cache_dir() / "backbones" / "demo-encoder"
    made_by = directory / "recipe.sha256"
    with making(directory):
        if not made_by.is_file() or made_by.read_text(encoding="utf-8") != demo_encoder_hash():
            from fedlingua.desk.pretraining.loop import pretrain  # a cached encoder is found without torch
            from fedlingua.desk.pretraining.material import masked_material

            shutil.rmtree(directory, ignore_errors=True)
            text = phrasebook.base_corpus(ENCODER_SENTENCES, GRAMMAR_SEED)
            pairs = {Direction(code, code): [*map(Pair, sentences, sentences)] for code, sentences in text.items()}
            train = {language: held[DEV_SENTENCES:] for language, held in pairs.items()}
            dev = {language: held[:DEV_SENTENCES] for language, held in pairs.items()}
            make = partial(masked_material, train, dev, ENCODER_SIZE, ENCODER_TRAINING)
            pretrain(make, ENCODER_TRAINING, directory, note=to_stderr("demo encoder"))
            made_by.write_text(demo_encoder_hash(), encoding="utf-8")
    return directory


def make_built_in(name: str) -> None:
    """Make the named backbone if it is built in but does not ship."""
    if name == "demo-encoder":
        demo_encoder()


if __name__ == "__main__":
    train_demo(Path(sys.argv[1]))
