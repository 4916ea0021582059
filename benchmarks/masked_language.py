"""Masked-language training of a site, in tokens a second, against transformers' Trainer: same model, text, batches and dtype.

    .venv/bin/python benchmarks/masked_language.py [--small] [--to results.json] [--repeats N]

Both train all of a small XLM-RoBERTa with AdamW on the same packed sequences, in shuffled batches of 32 padded to their longest, a sixth of
the pieces masked anew at each draw, in fp32 on one core, turn about in one process. The Trainer has its own collator and no evaluation,
logging or saving; its gradients are not clipped, as ours are not. What makes the difference is mostly the output head, which we ask for
masked positions alone. About five minutes; `--small` tries it with a model of two narrow layers.
"""

import copy
import tempfile
from pathlib import Path
from typing import Any

import torch
from kept import keep, parser_of
from paired import figures, ratio, turn_about
from trainer import plain_arguments
from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments, XLMRobertaForMaskedLM

from fedlingua.backbones.codec import TextCodec
from fedlingua.desk.pretraining.build import build_encoder, build_text_tokenizer
from fedlingua.desk.pretraining.settings import EncoderSize
from fedlingua.settings.config import Settings
from fedlingua.training.loop import train_locally
from fedlingua.training.masked_language import TextExample, encode_text
from fedlingua_demo import phrasebook

WANTED_RATIO = 1.1
"""Tokens a second over the Trainer's; less ends the benchmark with an error."""
SIZE = EncoderSize(d_model=256, layers=4, heads=4, ffn_dim=1024, vocab_size=2600, dropout=0.1, max_positions=130)
SMALL = EncoderSize(d_model=64, layers=2, heads=2, ffn_dim=128, vocab_size=1200, dropout=0.1, max_positions=130)
SEQUENCES, MAX_TOKENS, BATCH, MASK_SHARE, RATE = 320, 128, 32, 0.15, 1e-4


def text_and_model(size: EncoderSize, folder: Path) -> tuple[list[TextExample], XLMRobertaForMaskedLM, TextCodec]:
    """All nine languages of the phrasebook, packed, and a model with random weights and a vocabulary of that text."""
    sentences = [sentence for text in phrasebook.base_corpus(4000, 5).values() for sentence in text]
    codec = TextCodec(build_text_tokenizer(sentences, size.vocab_size, folder))
    examples = encode_text(sentences, codec, MAX_TOKENS, MASK_SHARE)[:SEQUENCES]
    return examples, build_encoder(size, codec.tokenizer, 1), codec


class Ours:
    """A round of one site."""

    def __init__(self, model: XLMRobertaForMaskedLM, examples: list[TextExample], codec: TextCodec) -> None:
        self.model, self.examples, self.codec = copy.deepcopy(model), examples, codec
        self.names = [name for name, _ in self.model.named_parameters()]
        self.how = Settings(batch_size=BATCH, learning_rate=RATE, whole_steps=False, optimizer="adamw", weight_decay=0.01)

    def __call__(self) -> None:
        train_locally(self.model, self.names, [self.examples], self.codec, self.how, "benchmark")


class Theirs:
    """An epoch of the Trainer."""

    def __init__(self, model: XLMRobertaForMaskedLM, examples: list[TextExample], codec: TextCodec, folder: Path) -> None:
        arguments = TrainingArguments(**plain_arguments(folder, BATCH, RATE, weight_decay=0.01))
        collator = DataCollatorForLanguageModeling(tokenizer=codec.tokenizer, mlm_probability=MASK_SHARE)
        dataset: Any = [{"input_ids": example.ids} for example in examples]
        self.model = copy.deepcopy(model).requires_grad_(True)
        self.trainer = Trainer(model=self.model, args=arguments, train_dataset=dataset, data_collator=collator)

    def __call__(self) -> None:
        self.trainer.train()


def measured(size: EncoderSize, repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        examples, model, codec = text_and_model(size, folder / "tokenizer")
        times = turn_about(
            {"ours": Ours(model, examples, codec), "trainer": Theirs(model, examples, codec, folder / "trainer")}, repeats
        )
    tokens = sum(len(example.ids) for example in examples)
    found = figures(times)
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "sequences": len(examples),
        "tokens": tokens,
        **found,
        "tokens_a_second": {way: round(tokens / found[f"{way}_s"]["median"]) for way in times},
        "trainer_over_ours": ratio(times["trainer"], times["ours"]),
    }


def main() -> None:
    parser = parser_of(__doc__, 7, "a model of two narrow layers")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    result = measured(SMALL if chosen.small else SIZE, chosen.repeats)
    result |= {"wanted_ratio": WANTED_RATIO}
    keep(result, chosen.to, "torch", "transformers")
    if result["trainer_over_ours"]["of_medians"] < WANTED_RATIO:
        raise SystemExit(f"the Trainer takes {result['trainer_over_ours']['of_medians']} times as long; wanted {WANTED_RATIO}")


if __name__ == "__main__":
    main()
