"""A private step of a site beside a plain one: same model, sentences, batches and optimizer, turn about in one process.

    .venv/bin/python benchmarks/private_steps.py [--small] [--to results.json] [--repeats N]

Both take one step of Adam on the same 512 sentence pairs, in batches of 32 of similar length, in fp32 on one core. The private one clips
each sentence's gradient and adds noise. The model is an M2M-100 of 7 million random numbers, of which adapters, LoRA or all train.
About two minutes; `--small` tries it with a narrow model and few sentences, where calls cost more than numbers.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import torch
from kept import keep, parser_of
from paired import figures, ratio, turn_about

from fedlingua.backbones.load import Backbone, load_backbone
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.desk.pretraining.build import build_model, build_tokenizer
from fedlingua.desk.pretraining.settings import ModelSize
from fedlingua.exchange.tensor_sets import TENSOR_SETS, tensor_set
from fedlingua.privacy.clipping import PrivateSteps
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings
from fedlingua.settings.experiment import default_run_config
from fedlingua.training.loop import train_locally
from fedlingua.training.translation import encode_pairs
from fedlingua_demo import phrasebook

WANTED_RATIO = 1.4
"""Seconds of a private step over those of a plain one; more ends the benchmark with an error."""
SETS = ("adapters", "lora", "full")
SIZE = ModelSize(d_model=256, encoder_layers=3, decoder_layers=3, heads=4, ffn_dim=1024, vocab_size=4000, max_positions=128)
SMALL = ModelSize(d_model=64, encoder_layers=1, decoder_layers=1, heads=2, ffn_dim=128, vocab_size=600, max_positions=128)
BATCH, MAX_TOKENS = 32, 64


def write_backbone(size: ModelSize, folder: Path) -> None:
    """An M2M-100 with random weights and a vocabulary of the phrasebook."""
    sentences = [sentence for text in phrasebook.base_corpus(2000, 5).values() for sentence in text]
    tokenizer = build_tokenizer(sentences, phrasebook.LANGUAGES, size.vocab_size, folder)
    build_model(size, tokenizer, seed=1).save_pretrained(folder)


def ways(name: str, folder: Path, sentences: int) -> tuple[Backbone, dict[str, Callable[[], object]]]:
    """A plain and a private step with a tensor set."""
    backbone, phrases = load_backbone(folder), phrasebook.base_corpus(sentences, 7)
    TENSOR_SETS[name].attach(backbone.model, settings_from({**default_run_config(), "method": "adapter-fed", "tensor-set": name}))
    pairs = [Pair(*both) for both in zip(phrases["de"], phrases["fr"], strict=True)]
    examples = encode_pairs(pairs, Direction("de", "fr"), backbone.codec, MAX_TOKENS)
    how = Settings(batch_size=BATCH, accumulation=-(-sentences // BATCH), learning_rate=1e-4, whole_steps=False)
    arguments = (backbone.model, tensor_set(backbone.model, name).names, [examples], backbone.codec, how, "benchmark")
    private = PrivateSteps(share=1.0, clip=0.1, noise=1.0)
    return backbone, {"plain": lambda: train_locally(*arguments), "private": lambda: train_locally(*arguments, private=private)}


def measured(size: ModelSize, sentences: int, repeats: int) -> dict[str, Any]:
    found: dict[str, Any] = {"sentences": sentences}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_backbone(size, folder)
        for name in SETS:
            backbone, both = ways(name, folder, sentences)
            times = turn_about(both, repeats, process_time)
            trained = sum(spec.size for spec in tensor_set(backbone.model, name).specs)
            about = {"parameters": backbone.num_parameters, "trained": trained}
            found[name] = {**about, **figures(times), "private_over_plain": ratio(times["private"], times["plain"])}
    return found


def main() -> None:
    parser = parser_of(__doc__, 5, "a narrow model and few sentences")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    result = measured(SMALL, 64, chosen.repeats) if chosen.small else measured(SIZE, 512, chosen.repeats)
    keep({**result, "wanted_ratio": WANTED_RATIO}, chosen.to, "torch", "transformers")
    for name in SETS:
        if (taken := result[name]["private_over_plain"]["of_medians"]) > WANTED_RATIO:
            raise SystemExit(
                f"a private step of {name} takes {taken} times as long as a plain one; wanted {WANTED_RATIO} at most"
            )


if __name__ == "__main__":
    main()
