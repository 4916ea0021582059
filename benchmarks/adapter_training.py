"""Adapter training of a site, in tokens a second, against transformers' Seq2SeqTrainer: same model, adapters, text and dtype.

    .venv/bin/python benchmarks/adapter_training.py [--size tiny|m2m-100] [--small] [--to results.json] [--repeats N] [--data DIR]

`identical_batches`: both are given the very same batches of 16 at random in one order, and come to the same loss; `ours` is a run's
defaults but for `group-by-length`, `ours_cut` takes each batch in pieces of like length (`memory.micro-tokens`). `own_batching`: 16
sentences of like length, the Trainer's `group_by_length` with padding to a batch's longest, against a run's defaults, and against a budget
of tokens as large (`tokens-per-batch`); losses differ by a few steps' order. Adam at a constant rate, no clipping, no dropout, fp32 on one
core, turn about in one process, timed by the core's time; the Trainer does not log, evaluate or save.

With `--data`, which holds tatoeba/de-en.tsv.gz, real sentences with their lengths, else the phrasebook's. The tiny model takes a minute,
M2M-100's size (random weights, 484 M parameters, a vocabulary of 128,112) half an hour and 5 GB. `--small` tries it with less text.
"""

import random
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from kept import keep, parser_of
from paired import figures, ratio, turn_about
from text_pairs import text_pairs
from trainer import plain_arguments
from transformers import (
    DataCollatorForSeq2Seq,
    M2M100ForConditionalGeneration,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from fedlingua.backbones.bottleneck import AdapterConfig, attach_adapters
from fedlingua.backbones.codec import Codec
from fedlingua.desk.pretraining.build import build_model, build_tokenizer
from fedlingua.desk.pretraining.settings import ModelSize
from fedlingua.exchange.tensor_sets import read_tensors, tensor_set, write_tensors
from fedlingua.settings.config import Settings
from fedlingua.training.batches import pad
from fedlingua.training.loop import steps_of, train_locally
from fedlingua.training.objective import examples_nll
from fedlingua.training.translation import PairExample, encode_pairs

WANTED = {
    "tiny": {"identical_batches": {"ours": 1.05, "ours_cut": 1.2}, "own_batching": {"ours": 0.7, "ours_budget": 1.2}},
    "m2m-100": {"identical_batches": {"ours": 2.0, "ours_cut": 2.0}, "own_batching": {"ours": 1.8, "ours_budget": 1.8}},
}
"""Tokens a second over the Trainer's, of each of our ways; less, or another loss, ends the benchmark with an error."""
LOSS_TOLERANCE = 1e-3
"""In nats a token, after an epoch from the same tensors."""
BATCH, RATE, MAX_TOKENS, SEED = 16, 1e-3, 128, "benchmark"
"""Sentences of a batch: a run's default."""
PIECES = 1200
"""Of the text's tokenizer."""


@dataclass(frozen=True)
class Size:
    """vocabulary: rows of the embeddings; 0: those of the text's tokenizer. pairs, fewer: sentences, and those of `--small`."""

    model: ModelSize
    vocabulary: int
    adapter_dim: int
    pairs: int
    fewer: int


SIZES = {
    "tiny": Size(ModelSize(128, 2, 2, 4, 512, PIECES, dropout=0.0, max_positions=1024), 0, 32, pairs=1600, fewer=320),
    "m2m-100": Size(ModelSize(1024, 12, 12, 16, 4096, PIECES, dropout=0.0, max_positions=1024), 128112, 64, pairs=64, fewer=32),
}


@dataclass(frozen=True)
class Site:
    """A model with adapters, always the same, and text as ids. pool: of which the examples are the first."""

    size: Size
    codec: Codec
    examples: list[PairExample]
    pool: list[PairExample]

    def model(self) -> M2M100ForConditionalGeneration:
        """Made anew: a copy's hooks would go on using the adapters that it was copied from."""
        model = build_model(self.size.model, self.codec.tokenizer, seed=0)
        if self.size.vocabulary:
            model.resize_token_embeddings(self.size.vocabulary, mean_resizing=False)
        model.requires_grad_(False)
        attach_adapters(model, AdapterConfig(self.size.adapter_dim), seed=1)
        return model

    @property
    def tokens(self) -> int:
        """Without padding, of both sides."""
        return sum(len(one.source) + len(one.target) for one in self.examples)


def site_of(size: Size, data: Path | None, number: int, folder: Path) -> Site:
    direction, pairs = text_pairs(data, max(number, 1000))
    sentences = [side for pair in pairs for side in pair]
    codec = Codec(build_tokenizer(sentences, sorted({direction.source, direction.target}), PIECES, folder))
    pool = encode_pairs(pairs, direction, codec, MAX_TOKENS)
    return Site(size, codec, pool[:number], pool)


class Way(ABC):
    """Something that trains an epoch, always from the same tensors, and keeps what came of it: ways share a model."""

    def __init__(self, site: Site, model: M2M100ForConditionalGeneration) -> None:
        self.site, self.model = site, model
        self.set = tensor_set(model, "adapters")
        self.initial = self.trained = read_tensors(model, self.set)
        self.steps = 0

    def __call__(self) -> None:
        write_tensors(self.model, self.initial)
        self.steps = self.train()
        self.trained = read_tensors(self.model, self.set)

    @abstractmethod
    def train(self) -> int:
        """One epoch; gives its steps."""

    def loss(self) -> float:
        """Nats a token of the text that was trained on, over the whole vocabulary; ends with the first tensors again."""
        write_tensors(self.model, self.trained)
        nll_sum, num_tokens = examples_nll(self.model, self.site.codec, self.site.examples, "fp32")
        write_tensors(self.model, self.initial)
        return nll_sum / num_tokens


class Ours(Way):
    """A round of one site."""

    def __init__(self, site: Site, model: M2M100ForConditionalGeneration, how: Settings) -> None:
        super().__init__(site, model)
        self.how = how

    def train(self) -> int:
        return train_locally(self.model, self.set.names, [self.site.examples], self.site.codec, self.how, SEED).steps


class Theirs(Way):
    """An epoch of the Trainer over rows that its collator makes batches of."""

    def __init__(
        self,
        site: Site,
        model: M2M100ForConditionalGeneration,
        rows: list[Any],
        collator: Callable[[list[Any]], dict[str, Any]],
        batch_size: int,
        order: str,
        folder: Path,
    ) -> None:
        super().__init__(site, model)
        plain = plain_arguments(folder, batch_size, RATE, weight_decay=0.0)
        self.arguments = Seq2SeqTrainingArguments(**plain, train_sampling_strategy=order, remove_unused_columns=False)
        self.rows, self.collator = rows, collator

    def train(self) -> int:
        wanted = set(self.set.names)
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in wanted)
        # A trainer keeps its optimizer from one call to the next.
        trainer = Seq2SeqTrainer(model=self.model, args=self.arguments, train_dataset=self.rows, data_collator=self.collator)
        trainer.train()
        self.model.requires_grad_(False)
        steps: int = trainer.state.global_step
        return steps


def batches_of(site: Site, how: Settings) -> list[dict[str, torch.Tensor]]:
    """Those that `train_locally` makes, in its order, as the Trainer's model takes them."""
    rng = random.Random(SEED)
    rng.getrandbits(63)  # torch's seed
    steps = steps_of(how, [site.examples], rng)
    return [pad([each.drawn(rng) for each in batch], site.codec).tensors() for step in steps for batch in step]


def compared(site: Site, ways: Mapping[str, Way], repeats: int) -> dict[str, Any]:
    """All with their losses after the same epoch; one of them is the trainer."""
    times = turn_about(ways, repeats, time.process_time)
    found = figures(times)
    return {
        **found,
        "steps": {name: way.steps for name, way in ways.items()},
        "tokens_a_second": {name: round(site.tokens / found[f"{name}_s"]["median"]) for name in ways},
        "loss": {name: round(way.loss(), 5) for name, way in ways.items()},
        **{f"trainer_over_{name}": ratio(times["trainer"], times[name]) for name in ways if name != "trainer"},
    }


def identical_batches(site: Site, model: M2M100ForConditionalGeneration, repeats: int, folder: Path) -> dict[str, Any]:
    """`ours_cut` takes each batch in two or more pieces of like length, which is the same step with less padding."""
    how = Settings(batch_size=BATCH, learning_rate=RATE, whole_steps=False, group_by_length=False)
    cut = replace(how, micro_tokens=round(mean_budget(site) / 2))
    theirs = Theirs(site, model, batches_of(site, how), lambda rows: rows[0], 1, "sequential", folder)
    return compared(site, {"ours": Ours(site, model, how), "ours_cut": Ours(site, model, cut), "trainer": theirs}, repeats)


def too_slow(result: Mapping[str, Any], wanted: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Our ways by which the Trainer takes less than `wanted` times as long, in words."""
    ratios = {
        f"{what}, {way}": (result[what][f"trainer_over_{way}"]["of_medians"], least)
        for what, ways in wanted.items()
        for way, least in ways.items()
    }
    return [
        f"{way}: the Trainer takes {ratio} times as long; wanted {least}"
        for way, (ratio, least) in ratios.items()
        if ratio < least
    ]


def mean_budget(site: Site) -> float:
    """Padded tokens that a batch has if all its sentences are of mean length."""
    return BATCH * sum(one.length[0] for one in site.examples) / len(site.examples)


def grouped(examples: list[PairExample], number: int) -> list[PairExample]:
    """So many examples in whole batches of like length, which are drawn at random among all."""
    ordered = sorted(examples, key=lambda example: example.length)
    batches = [ordered[first : first + BATCH] for first in range(0, len(ordered), BATCH)]
    return [example for batch in random.Random(SEED).sample(batches, -(-number // BATCH)) for example in batch]


def own_batching(site: Site, model: M2M100ForConditionalGeneration, repeats: int, folder: Path) -> dict[str, Any]:
    """The budget is what a batch's sentences take if they are of mean length."""
    budget = round(mean_budget(site))
    how = Settings(batch_size=BATCH, learning_rate=RATE, whole_steps=False)
    by_budget = replace(how, tokens_per_batch=budget)
    order = "group_by_length"
    if len(site.examples) < 100 * BATCH:
        # Of four batches its sampler would sort nothing: both get the text of batches that it makes of much text, the Trainer as they are.
        order, site = "sequential", replace(site, examples=grouped(site.pool, len(site.examples)))
    rows = [{"input_ids": one.source, "attention_mask": [1] * len(one.source), "labels": one.target} for one in site.examples]
    collator = DataCollatorForSeq2Seq(site.codec.tokenizer)
    theirs = Theirs(site, model, rows, collator, BATCH, order, folder)
    ways = {"ours": Ours(site, model, how), "ours_budget": Ours(site, model, by_budget), "trainer": theirs}
    return {"tokens_per_batch": budget, **compared(site, ways, repeats)}


def main() -> None:
    parser = parser_of(__doc__, 5, "less text")
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--data", type=Path, help="folder with tatoeba/de-en.tsv.gz")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    size = SIZES[chosen.size]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        site = site_of(size, chosen.data, size.fewer if chosen.small else size.pairs, folder / "tokenizer")
        model = site.model()
        result: dict[str, Any] = {
            "size": chosen.size,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "text": "phrasebook" if chosen.data is None else "tatoeba",
            "sentences": len(site.examples),
            "tokens": site.tokens,
            "identical_batches": identical_batches(site, model, chosen.repeats, folder / "trainer"),
            "own_batching": own_batching(site, model, chosen.repeats, folder / "trainer"),
        }
    result |= {"wanted_ratios": WANTED[chosen.size]}
    keep(result, chosen.to, "torch", "transformers", "accelerate")
    losses = result["identical_batches"]["loss"]
    if max(losses.values()) - min(losses.values()) > LOSS_TOLERANCE:
        raise SystemExit(f"after the same batches the losses are {losses}; wanted them within {LOSS_TOLERANCE}")
    if slow := too_slow(result, WANTED[chosen.size]):
        raise SystemExit("\n".join(slow))


if __name__ == "__main__":
    main()
