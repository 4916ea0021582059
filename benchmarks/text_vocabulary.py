"""A head that spreads probability over the text's own pieces alone (`head-vocabulary = "text"`): what it costs in loss, and saves in time.

    .venv/bin/python benchmarks/text_vocabulary.py [--small] [--to results.json] [--repeats N] [--data DIR --backbone NAME]

Adapters of a trained backbone learn from one site's text for some epochs, from the same tensors, in the same batches, once with the whole
vocabulary and once with the pieces that occur in the text; then both are measured over the whole vocabulary, on text that they have not
seen. With `--data`, which holds tatoeba/de-en.tsv.gz, and `--backbone tatoeba-half`, on real text; without, the demo backbone on the
phrasebook. Timed in fp32 on one core, turn about in one process. A minute or two.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from kept import keep, parser_of
from paired import figures, ratio, turn_about
from text_pairs import text_pairs

from fedlingua.backbones.bottleneck import AdapterConfig, attach_adapters
from fedlingua.backbones.directories import backbone_directory
from fedlingua.backbones.load import Backbone, load_backbone
from fedlingua.exchange.tensor_sets import read_tensors, tensor_set, write_tensors
from fedlingua.settings.config import Settings
from fedlingua.training.loop import train_locally
from fedlingua.training.objective import examples_nll
from fedlingua.training.translation import PairExample, encode_pairs

TRAIN, DEV, SMALL, MAX_TOKENS = 800, 400, 200, 128
HOW = Settings(batch_size=16, accumulation=1, local_epochs=3, learning_rate=1e-3, whole_steps=False)


class Training:
    """Of adapters that begin as an identity."""

    def __init__(self, backbone: Backbone, examples: list[PairExample], how: Settings) -> None:
        self.backbone, self.examples, self.how = backbone, examples, how
        self.set = tensor_set(backbone.model, "adapters")
        self.initial = self.trained = read_tensors(backbone.model, self.set)

    def __call__(self) -> None:
        write_tensors(self.backbone.model, self.initial)
        train_locally(self.backbone.model, self.set.names, [self.examples], self.backbone.codec, self.how, "benchmark")
        self.trained = read_tensors(self.backbone.model, self.set)
        write_tensors(self.backbone.model, self.initial)

    def loss(self, dev: list[PairExample]) -> float:
        """Nats a token over the whole vocabulary, of what was trained."""
        write_tensors(self.backbone.model, self.trained)
        nll_sum, num_tokens = examples_nll(self.backbone.model, self.backbone.codec, dev, "fp32")
        write_tensors(self.backbone.model, self.initial)
        return nll_sum / num_tokens


def measured(backbone: Backbone, train: list[PairExample], dev: list[PairExample], repeats: int) -> dict[str, Any]:
    attach_adapters(backbone.model, AdapterConfig(32, "zero"), seed=1)
    ways = {name: Training(backbone, train, replace(HOW, head_vocabulary=name)) for name in ("all", "text")}
    base = ways["all"].loss(dev)
    times = turn_about(ways, repeats)
    losses = {name: way.loss(dev) for name, way in ways.items()}
    return {
        "rows": {"all": backbone.model.config.vocab_size, "text": len({number for one in train for number in one.target})},
        "dev_loss": {"base": round(base, 4), **{name: round(loss, 4) for name, loss in losses.items()}},
        "loss_difference": round(losses["text"] - losses["all"], 4),
        **figures(times),
        "all_over_text": ratio(times["all"], times["text"]),
    }


def main() -> None:
    parser = parser_of(__doc__, 3, f"{SMALL} pairs to train on instead of {TRAIN}")
    parser.add_argument("--data", type=Path, help="folder with tatoeba/de-en.tsv.gz")
    parser.add_argument("--backbone", default="demo", help="as in a run config")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    backbone = load_backbone(backbone_directory(chosen.backbone), chosen.backbone)
    direction, pairs = text_pairs(chosen.data, TRAIN + DEV)
    train, dev = pairs[: SMALL if chosen.small else TRAIN], pairs[TRAIN:]
    of_train, of_dev = (encode_pairs(part, direction, backbone.codec, MAX_TOKENS) for part in (train, dev))
    result: dict[str, Any] = {
        "text": "phrasebook" if chosen.data is None else "tatoeba",
        "backbone": chosen.backbone,
        "train_sentences": len(train),
        "dev_sentences": len(dev),
        "epochs": HOW.local_epochs,
        **measured(backbone, of_train, of_dev, chosen.repeats),
    }
    keep(result, chosen.to, "torch", "transformers")


if __name__ == "__main__":
    main()
