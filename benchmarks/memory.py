"""What a site's memory costs: translating with kNN-MT over translating plainly, same model, beam and sentences.

    .venv/bin/python benchmarks/memory.py [--small] [--to results.json] [--repeats N] [--data DIR --backbone NAME]

Of so many pairs of a text all but the last are the memory, the last are translated, turn about in one process, in fp32 on one core, in
seconds of that process. Each way writes its own text, whose tokens are counted. With `--data`, which holds tatoeba/de-en.tsv.gz, real
sentences are taken, and `--backbone` should know them; without, the phrasebook's by the demo backbone. Some minutes.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from kept import keep, parser_of
from paired import figures, ratio, turn_about
from text_pairs import text_pairs

from fedlingua.backbones.directories import backbone_directory
from fedlingua.backbones.load import load_backbone
from fedlingua.desk.translating.memory_making import NEIGHBOURS, make_memory
from fedlingua.desk.translating.memory_store import Memory, Mixing
from fedlingua.evaluation.decode import translate
from fedlingua.training.translation import encode_pairs

WANTED_RATIO = 2.0
"""Time over that of plain decoding; more ends the benchmark with an error."""
SENTENCES, SMALL, TRANSLATED, BEAM, MAX_TOKENS = 2000, 400, 100, 5, 128


def main() -> None:
    parser = parser_of(__doc__, 3, f"{SMALL} sentences instead of {SENTENCES}")
    parser.add_argument("--data", type=Path, help="folder with tatoeba/de-en.tsv.gz")
    parser.add_argument("--backbone", default="demo", help="as in a run config")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    backbone = load_backbone(backbone_directory(chosen.backbone), chosen.backbone)
    direction, pairs = text_pairs(chosen.data, (SMALL if chosen.small else SENTENCES) + TRANSLATED)
    sources, known = [pair.source for pair in pairs[-TRANSLATED:]], pairs[:-TRANSLATED]
    memory = make_memory(backbone.model, backbone.codec, encode_pairs(known, direction, backbone.codec, MAX_TOKENS), "")
    distances, _ = memory.nearest(torch.zeros(1, len(memory.mean)), 1)
    memory = replace(memory, mixing=Mixing(0.5, float(distances), max(NEIGHBOURS)))
    written: dict[str, list[str]] = {}

    def ours(way: str, *guides: Memory) -> None:
        model, codec = backbone.model, backbone.codec
        written[way] = translate(model, codec, sources, direction, BEAM, MAX_TOKENS, MAX_TOKENS, 0, guides)

    times = turn_about(
        {"plain": lambda: ours("plain"), "memory": lambda: ours("memory", memory)}, chosen.repeats, time.process_time
    )
    result: dict[str, Any] = {
        "text": "phrasebook" if chosen.data is None else "tatoeba",
        "backbone": chosen.backbone,
        "parameters": backbone.num_parameters,
        "keys": len(memory.keys),
        "sentences": len(sources),
        "beam": BEAM,
        **figures(times),
        "memory_over_plain": ratio(times["memory"], times["plain"]),
        "tokens": {way: sum(map(len, backbone.codec.pieces(texts))) for way, texts in written.items()},
        "wanted_ratio": WANTED_RATIO,
    }
    keep(result, chosen.to, "torch", "transformers")
    if result["memory_over_plain"]["of_medians"] > WANTED_RATIO:
        raise SystemExit(
            f"with a memory it takes {result['memory_over_plain']['of_medians']} times as long; wanted {WANTED_RATIO}"
        )


if __name__ == "__main__":
    main()
