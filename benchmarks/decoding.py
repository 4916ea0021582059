"""Translating, in sentences a second, against transformers' `generate` over the file sorted by length, and CTranslate2.

    .venv/bin/python benchmarks/decoding.py [--small] [--to results.json] [--repeats N] [--data DIR --backbone NAME]

We fill batches of like length up to a budget of tokens; `generate` is given 32 sentences after the other, the longest first, padded to the
longest of each batch. Both have the same model and beam, at most 128 new tokens (ours also at most four times a source's), and the
key-value cache, and stop early, in fp32 on one core, turn about in one process, timed by the core's time; both have to write the same text.
CTranslate2, where it is installed (the extra `ctranslate2`), translates a converted model in float32 on the same core; its figure stands
beside, with the number of sentences that it writes otherwise. With `--data`, which holds tatoeba/de-en.tsv.gz, real sentences are
translated, and `--backbone` should know them (tatoeba-half: `fedlingua pretrain experiments/backbones/tatoeba_half.toml`); without, the
phrasebook's by the demo backbone. Some minutes; `--small` takes fewer sentences.
"""

import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from kept import keep, parser_of
from paired import figures, ratio, turn_about
from text_pairs import text_pairs

from fedlingua.backbones.directories import backbone_directory
from fedlingua.backbones.load import Backbone, load_backbone
from fedlingua.common.languages import Direction
from fedlingua.evaluation.decode import translate

WANTED = {5: 1.3, 1: 1.3}
"""Sentences a second over generate's, by beam; less, or other text, ends the benchmark with an error."""
SENTENCES, SMALL, BATCH, MAX_TOKENS, MAX_NEW_TOKENS = 1000, 200, 32, 128, 128


class Ours:
    """The sentences of a test split."""

    def __init__(
        self, backbone: Backbone, sentences: list[str], direction: Direction, beam: int, batch: int = BATCH, new_tokens: int = 0
    ) -> None:
        self.backbone, self.sentences, self.direction, self.beam = backbone, sentences, direction, beam
        self.batch, self.new_tokens = batch, new_tokens or MAX_NEW_TOKENS
        self.written: list[str] = []

    def __call__(self) -> None:
        model, codec = self.backbone.model, self.backbone.codec
        self.written = translate(model, codec, self.sentences, self.direction, self.beam, MAX_TOKENS, self.new_tokens)


class Generate(Ours):
    """So many at a time, the longest first."""

    def __call__(self) -> None:
        encoded = self.backbone.codec.encode_source(self.sentences, self.direction, MAX_TOKENS)
        order = sorted(range(len(encoded)), key=lambda number: -len(encoded[number]))
        written = dict[int, str]()
        for first in range(0, len(order), self.batch):
            chosen = order[first : first + self.batch]
            written |= zip(chosen, self._batch([encoded[number] for number in chosen]), strict=True)
        self.written = [written[number] for number in range(len(order))]

    @torch.no_grad()
    def _batch(self, encoded: list[list[int]]) -> list[str]:
        model: Any = self.backbone.model
        codec = self.backbone.codec
        input_ids = torch.full((len(encoded), max(map(len, encoded))), codec.pad_id)
        for row, ids in enumerate(encoded):
            input_ids[row, : len(ids)] = torch.tensor(ids)
        output = model.generate(
            input_ids=input_ids.to(model.device),
            attention_mask=(input_ids != codec.pad_id).long().to(model.device),
            forced_bos_token_id=codec.first_id(self.direction),
            pad_token_id=codec.pad_id,
            num_beams=self.beam,
            do_sample=False,
            early_stopping=self.beam > 1,
            max_length=None,
            max_new_tokens=self.new_tokens,
        )
        return codec.decode(output.tolist())


class CTranslate2(Ours):
    """A converted model, with batches of its own choice up to the tokens that 32 sentences of 32 have."""

    def __init__(self, backbone: Backbone, sentences: list[str], direction: Direction, beam: int, converted: Path) -> None:
        super().__init__(backbone, sentences, direction, beam)
        from ctranslate2 import Translator

        self.translator = Translator(str(converted), inter_threads=1, intra_threads=1, compute_type="float32")

    def __call__(self) -> None:
        codec = self.backbone.codec
        encoded = codec.encode_source(self.sentences, self.direction, MAX_TOKENS)
        first = codec.tokenizer.convert_ids_to_tokens([codec.first_id(self.direction)])
        results = self.translator.translate_batch(
            [codec.tokenizer.convert_ids_to_tokens(ids) for ids in encoded],
            target_prefix=[first] * len(encoded),
            beam_size=self.beam,
            max_decoding_length=MAX_NEW_TOKENS,
            max_batch_size=BATCH * 32,
            batch_type="tokens",
        )
        self.written = codec.decode([codec.tokenizer.convert_tokens_to_ids(each.hypotheses[0]) for each in results])


def converted(backbone: Backbone, folder: Path) -> Path | None:
    """The backbone in CTranslate2's format; None where that is not installed."""
    if find_spec("ctranslate2") is None:
        return None
    from ctranslate2.converters import TransformersConverter

    TransformersConverter(str(backbone.directory)).convert(str(folder / "converted"), quantization="float32")
    return folder / "converted"


def measured(
    backbone: Backbone, sentences: list[str], direction: Direction, beam: int, repeats: int, other: Path | None = None
) -> dict[str, Any]:
    """other: the model in CTranslate2's format."""
    ways = {"ours": Ours(backbone, sentences, direction, beam), "generate": Generate(backbone, sentences, direction, beam)}
    if other:
        ways["ctranslate2"] = CTranslate2(backbone, sentences, direction, beam, other)
    times = turn_about(ways, repeats, time.process_time)
    found = figures(times)
    others = {way: sum(map(str.__ne__, ways["ours"].written, each.written)) for way, each in ways.items() if way != "ours"}
    return {
        **found,
        "sentences_a_second": {way: round(len(sentences) / found[f"{way}_s"]["median"], 1) for way in ways},
        "other_text": others["generate"],
        "generate_over_ours": ratio(times["generate"], times["ours"]),
        "ctranslate2": {"other_text": others["ctranslate2"], "over_ours": ratio(times["ctranslate2"], times["ours"])}
        if other
        else "not installed",
    }


def main() -> None:
    parser = parser_of(__doc__, 5, f"{SMALL} sentences instead of {SENTENCES}")
    parser.add_argument("--data", type=Path, help="folder with tatoeba/de-en.tsv.gz")
    parser.add_argument("--backbone", default="demo", help="as in a run config")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    backbone = load_backbone(backbone_directory(chosen.backbone), chosen.backbone)
    direction, pairs = text_pairs(chosen.data, SMALL if chosen.small else SENTENCES)
    sentences = [pair.source for pair in pairs]
    lengths = sorted(map(len, backbone.codec.encode_source(sentences, direction, MAX_TOKENS)))
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
    with tempfile.TemporaryDirectory() as temporary:
        other = converted(backbone, Path(temporary))
        for beam in WANTED:
            result[f"beam_{beam}"] = measured(backbone, sentences, direction, beam, chosen.repeats, other)
    result |= {"wanted_ratios": WANTED}
    keep(result, chosen.to, "torch", "transformers", *(["ctranslate2"] if other else []))
    if differing := sum(result[f"beam_{beam}"]["other_text"] for beam in WANTED):
        raise SystemExit(f"{differing} sentences are translated otherwise; wanted the same text")
    for beam, wanted in WANTED.items():
        if (times := result[f"beam_{beam}"]["generate_over_ours"]["of_medians"]) < wanted:
            raise SystemExit(f"with a beam of {beam} generate takes {times} times as long; wanted {wanted}")


if __name__ == "__main__":
    main()
