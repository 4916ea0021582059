"""Translating, in sentences a second, against transformers' `generate` over the file as it stands: same model, beam and limits.

    .venv/bin/python benchmarks/decoding.py [--small] [--to results.json] [--repeats N] [--data DIR --backbone NAME]

We sort by length and fill batches up to a budget of tokens; the other way takes 32 sentences after the other, padded to their longest. Both
have the key-value cache and stop early, in fp32 on one core, turn about in one process, and have to write the same text. With `--data`,
which holds tatoeba/de-en.tsv.gz, real sentences are translated, and `--backbone` should know them (tatoeba-half: `fedlingua pretrain
experiments/backbones/tatoeba_half.toml`); without, the phrasebook's by the demo backbone. Some minutes; `--small` takes fewer sentences.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from kept import keep
from paired import figures, ratio, turn_about
from text_pairs import text_pairs

from fedlingua.backbones.directories import backbone_directory
from fedlingua.backbones.load import Backbone, load_backbone
from fedlingua.common.languages import Direction
from fedlingua.evaluation.decode import translate

WANTED_RATIO = 2.0
"""Sentences a second over generate's, with the beam of a run; less, or other text, ends the benchmark with an error."""
SENTENCES, SMALL, BATCH, BEAMS, MAX_TOKENS, MAX_NEW_TOKENS = 1000, 200, 32, (5, 1), 128, 128
"""Of the beams the first decides."""


class Ours:
    """The sentences of a test split."""

    def __init__(self, backbone: Backbone, sentences: list[str], direction: Direction, beam: int) -> None:
        self.backbone, self.sentences, self.direction, self.beam = backbone, sentences, direction, beam
        self.written: list[str] = []

    def __call__(self) -> None:
        model, codec = self.backbone.model, self.backbone.codec
        self.written = translate(model, codec, self.sentences, self.direction, self.beam, MAX_TOKENS, MAX_NEW_TOKENS)


class Generate(Ours):
    """In file order, 32 at a time."""

    def __call__(self) -> None:
        self.written = []
        for first in range(0, len(self.sentences), BATCH):
            self.written += self._batch(self.sentences[first : first + BATCH])

    @torch.no_grad()
    def _batch(self, sentences: list[str]) -> list[str]:
        codec = self.backbone.codec
        encoded = codec.encode(sentences, self.direction.source, MAX_TOKENS)
        input_ids = torch.full((len(encoded), max(map(len, encoded))), codec.pad_id)
        for row, ids in enumerate(encoded):
            input_ids[row, : len(ids)] = torch.tensor(ids)
        output = self.backbone.model.generate(
            input_ids=input_ids,
            attention_mask=(input_ids != codec.pad_id).long(),
            forced_bos_token_id=codec.language_ids[self.direction.target],
            num_beams=self.beam,
            do_sample=False,
            early_stopping=self.beam > 1,
            max_length=None,
            max_new_tokens=MAX_NEW_TOKENS,
        )
        return codec.decode(output.tolist())


def measured(backbone: Backbone, sentences: list[str], direction: Direction, beam: int, repeats: int) -> dict[str, Any]:
    ways = {"ours": Ours(backbone, sentences, direction, beam), "generate": Generate(backbone, sentences, direction, beam)}
    times = turn_about(ways, repeats)
    found = figures(times)
    return {
        **found,
        "sentences_a_second": {way: round(len(sentences) / found[f"{way}_s"]["median"], 1) for way in ways},
        "other_text": sum(one != other for one, other in zip(ways["ours"].written, ways["generate"].written, strict=True)),
        "generate_over_ours": ratio(times["generate"], times["ours"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help=f"{SMALL} sentences instead of {SENTENCES}")
    parser.add_argument("--to", type=Path, help="write the figures here as JSON")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data", type=Path, help="folder with tatoeba/de-en.tsv.gz")
    parser.add_argument("--backbone", default="demo", help="as in a run config")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    backbone = load_backbone(backbone_directory(chosen.backbone), chosen.backbone)
    direction, pairs = text_pairs(chosen.data, SMALL if chosen.small else SENTENCES)
    sentences = [pair.source for pair in pairs]
    lengths = sorted(map(len, backbone.codec.encode(sentences, direction.source, MAX_TOKENS)))
    result: dict[str, Any] = {
        "text": "phrasebook" if chosen.data is None else "tatoeba",
        "direction": str(direction),
        "backbone": chosen.backbone,
        "parameters": backbone.num_parameters,
        "sentences": len(sentences),
        "source_tokens": {
            "mean": round(sum(lengths) / len(lengths), 1),
            "median": lengths[len(lengths) // 2],
            "most": lengths[-1],
        },
    }
    for beam in BEAMS:
        result[f"beam_{beam}"] = measured(backbone, sentences, direction, beam, chosen.repeats)
    result |= {"wanted_ratio": WANTED_RATIO}
    keep(result, chosen.to, "torch", "transformers")
    deciding = result[f"beam_{BEAMS[0]}"]
    if deciding["generate_over_ours"]["of_medians"] < WANTED_RATIO:
        raise SystemExit(f"generate takes {deciding['generate_over_ours']['of_medians']} times as long; wanted {WANTED_RATIO}")
    if other := sum(result[f"beam_{beam}"]["other_text"] for beam in BEAMS):
        raise SystemExit(f"{other} sentences are translated otherwise; wanted the same text")


if __name__ == "__main__":
    main()
