"""One GPU: adapters and LoRA inside the shapes of mBART-50 and NLLB-600M, decoding, and eight sites in turn.

    .venv/bin/python benchmarks/gpu.py [--dry] [--to results.json] [--repeats N]

Random weights of the published shapes, random text of everyday lengths, nothing is downloaded. Made for 8 minutes of a GPU of 80 GB.
Weights that are frozen are bf16, what trains and its Adam fp32, activations bf16 (of Seq2SeqTrainer by autocast), dropout 0.1.
Ways take turns in one process, after a turn that warms up, and are waited for until the GPU has done all.

- training: an epoch of ours by a budget of padded tokens, beside Seq2SeqTrainer on the same model with `group_by_length` and 128
  sentences a batch. It keeps all scores of a batch, as fp32 too: with 327 sentences the longest batch took more than 140 GB of an H200.
  Of ours also: steps, kernels that a step launches, and the share of an epoch in which the GPU is busy.
- decoding: beam 5, every translation as long as the others, beside `generate` on the same sentences sorted by length.
- sites: eight sites of 1,024 pairs in turn, 128 pairs a step, each with tensors written, an optimizer of its own and tensors read, over
  one site with all their text, whose time is the sum of their steps.

MFU is the model's FLOPs a second over what the GPU can do in bf16 without sparsity. FLOPs of a pair of s and t tokens, padding not counted:
each weight of a linear layer takes 2 a token forwards and 2 backwards, for the gradient of its input; a frozen weight needs no gradient of
its own, one that trains 2 more. Attention takes 4 d a pair of positions forwards, twice that backwards. The first encoder layer's attention
lies below all that trains and needs no way back; that it is counted makes the figure too good by less than 1 %.

`--dry` goes through all of it on the CPU with tiny shapes, in under a minute, and wants no figure.
"""

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import random_mbart
import torch
from decoding import Generate
from kept import keep, parser_of
from paired import figures, ratio, turn_about
from random_mbart import Shape, config_of
from torch.profiler import ProfilerActivity, profile
from trainer import plain_arguments
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    MBartConfig,
    MBartForConditionalGeneration,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from fedlingua.backbones.bottleneck import AdapterConfig, attach_adapters
from fedlingua.backbones.lora import LowRank, attach_lora
from fedlingua.backbones.precision import hold
from fedlingua.common.languages import Direction
from fedlingua.evaluation.decode import translate
from fedlingua.exchange.tensor_sets import read_tensors, tensor_set, write_tensors
from fedlingua.settings.config import Settings
from fedlingua.training.batches import pad
from fedlingua.training.loop import steps_of, train_locally
from fedlingua.training.translation import PairExample

WANTED = {"mfu": 0.35, "trainer_over_ours": 2.0, "sites_over_steps": 1.2}
"""Of adapters in mBART-50's shape, at least; of the sites, at most. Anything else ends the benchmark with an error, unless it is dry."""
BF16_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12}
"""By a part of the GPU's name: dense bf16 FLOPs a second, of NVIDIA's data sheets (SXM where there are several)."""
PAD, END, LANGUAGE, FIRST = 1, 2, 3, 10
SITES, RATE, SEED = 8, 1e-4, "benchmark"
DIRECTION = Direction("de", "en")


@dataclass(frozen=True)
class Size:
    """tokens: padded tokens of a batch of ours, on the longer side; batch: sentences of a step, of the peer and of eight sites; length,
    most: mean tokens of a sentence, and the longest."""

    vocabularies: Mapping[str, int]
    shape: Shape
    adapter_dim: int
    pairs: int
    tokens: int
    batch: int
    length: int
    most: int
    sentences: int
    new_tokens: int


PUBLISHED = Size({"mbart-50": 250054, "nllb-600m": 256206}, random_mbart.PUBLISHED, 64, 4096, 16384, 128, 25, 128, 512, 32)
DRY = Size({"mbart-50": 120, "nllb-600m": 130}, random_mbart.TINY, 4, 24, 64, 2, 6, 12, 6, 4)


class NumberCodec:
    """Sentences are numbers with spaces; everything else as a tokenizer's codec has it."""

    pad_id, start_id, is_causal = PAD, END, False

    def encode_source(self, sentences: Sequence[str], direction: Direction, max_tokens: int) -> list[list[int]]:
        return [[LANGUAGE, *map(int, sentence.split()[: max_tokens - 2]), END] for sentence in sentences]

    def pieces(self, sentences: Sequence[str]) -> list[list[int]]:
        return [[*map(int, sentence.split())] for sentence in sentences]

    def first_id(self, direction: Direction) -> int:
        return LANGUAGE

    def decode(self, ids: list[list[int]]) -> list[str]:
        return [" ".join(map(str, row)) for row in ids]


CODEC: Any = NumberCodec()


def text_of(size: Size, name: str, number: int) -> list[PairExample]:
    """Pairs whose lengths are spread as those of sentences are; both sides are about as long."""
    drawn = random.Random(1)

    def side(length: float) -> list[int]:
        pieces = min(size.most, max(4, round(length))) - 2
        return [LANGUAGE, *(drawn.randrange(FIRST, size.vocabularies[name]) for _ in range(pieces)), END]

    lengths = [size.length * drawn.lognormvariate(-0.18, 0.6) for _ in range(number)]
    return [PairExample(side(length), side(length * drawn.uniform(0.8, 1.25))) for length in lengths]


def model_of(size: Size, name: str, tensors: str, device: str) -> Any:
    """With what trains attached to it, and the rest frozen in half precision."""
    mbart = name == "mbart-50"
    shape = replace(size.shape, vocab_size=size.vocabularies[name])
    more = {"dropout": 0.1, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "decoder_start_token_id": END}
    config: Any = config_of(MBartConfig if mbart else M2M100Config, shape, **more)
    torch.manual_seed(0)
    with torch.device(device):
        model: Any = (MBartForConditionalGeneration if mbart else M2M100ForConditionalGeneration)(config)
    model.requires_grad_(False).eval()
    if tensors == "adapters":
        attach_adapters(model, AdapterConfig(size.adapter_dim), seed=1)
    else:
        attach_lora(model, LowRank(8, 16.0, "q_proj,v_proj"), seed=1)
    hold(model, tensor_set(model, tensors).names, "bf16", device)
    return model


def flops(model: Any, trained: Sequence[str], examples: Sequence[PairExample]) -> float:
    """Of one pass over the pairs, forwards and backwards; see above."""
    source, target = (sum(map(len, side)) for side in zip(*examples, strict=True))
    config, train = model.config, set(trained)
    total: float = 4.0 * config.vocab_size * config.d_model * target  # the head
    for name, weight in model.named_parameters():
        if weight.dim() == 2 and ".layers." in name:
            of_source = ".encoder." in name or "encoder_attn.k_proj" in name or "encoder_attn.v_proj" in name
            total += (6 if name in train else 4) * weight.numel() * (source if of_source else target)
    for s, t in ((len(pair.source), len(pair.target)) for pair in examples):
        total += 12.0 * config.d_model * (config.encoder_layers * s * s + config.decoder_layers * (t * t + s * t))
    return total


def waited_for(work: Callable[[], object], device: str) -> Callable[[], None]:
    """The same, until the GPU has done it."""

    def done() -> None:
        work()
        if device == "cuda":
            torch.cuda.synchronize()

    return done


class Training:
    """Ways to train an epoch on one model, always from the same tensors."""

    def __init__(self, size: Size, name: str, tensors: str, device: str, folder: Path) -> None:
        self.size, self.name, self.device, self.folder = size, name, device, folder
        self.examples = text_of(size, name, size.pairs)
        self.model, self.codec = model_of(size, name, tensors, device), CODEC
        self.set = tensor_set(self.model, tensors)
        self.initial = read_tensors(self.model, self.set)
        self.how = Settings(learning_rate=RATE, whole_steps=False, precision="bf16", tokens_per_batch=size.tokens)

    def ours(self, how: Settings, texts: Sequence[Sequence[PairExample]]) -> None:
        """One site after the other, each from the first tensors."""
        for text in texts:
            write_tensors(self.model, self.initial)
            train_locally(self.model, self.set.names, [text], self.codec, how, SEED)
            read_tensors(self.model, self.set)

    def theirs(self) -> None:
        write_tensors(self.model, self.initial)
        wanted = set(self.set.names)
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in wanted)
        plain = plain_arguments(self.folder, self.size.batch, RATE, weight_decay=0.0)
        gpu = {"use_cpu": self.device == "cpu", "dataloader_pin_memory": self.device == "cuda", "bf16": self.device == "cuda"}
        arguments = Seq2SeqTrainingArguments(
            **{**plain, **gpu}, train_sampling_strategy="group_by_length", remove_unused_columns=False
        )
        rows: Any = [{"input_ids": each.source, "example": each} for each in self.examples]
        trainer = Seq2SeqTrainer(model=self.model, args=arguments, train_dataset=rows, data_collator=self._collated)
        trainer.train()
        self.model.requires_grad_(False)

    def _collated(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        return pad([row["example"] for row in rows], self.codec).tensors()

    def measured(self, repeats: int) -> dict[str, Any]:
        ways: dict[str, Callable[[], object]] = {"ours": lambda: self.ours(self.how, [self.examples]), "trainer": self.theirs}
        peaks = {way: self._peak(work) for way, work in ways.items()}
        times = turn_about({way: waited_for(work, self.device) for way, work in ways.items()}, repeats)
        found = figures(times)
        medians = {way: found[f"{way}_s"]["median"] for way in ways}
        each = flops(self.model, self.set.names, self.examples)
        able = peak_flops(self.device)
        tokens = sum(len(pair.source) + len(pair.target) for pair in self.examples)
        return {
            "trained": self.set.num_parameters,
            **found,
            "pairs_a_second": {way: round(len(self.examples) / taken, 1) for way, taken in medians.items()},
            "tokens_a_second": {way: round(tokens / taken) for way, taken in medians.items()},
            "mfu": {way: round(each / taken / able, 4) if able else None for way, taken in medians.items()},
            "peak_gib": peaks,
            **(self._launches() if self.device == "cuda" else {}),
            "trainer_over_ours": ratio(times["trainer"], times["ours"]),
        }

    def _launches(self) -> dict[str, float]:
        """Of an epoch of ours, by torch's profiler."""
        steps = len(steps_of(self.how, [self.examples], random.Random(1)))
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            began = time.perf_counter()
            waited_for(lambda: self.ours(self.how, [self.examples]), self.device)()
            taken = time.perf_counter() - began
        kernels = [event for event in seen.events() if event.device_type.name == "CUDA"]
        busy = sum(event.device_time for event in kernels) / 1e6
        return {"steps": steps, "kernels_a_step": round(len(kernels) / steps), "busy": round(busy / taken, 3)}

    def _peak(self, work: Callable[[], object]) -> float | None:
        """GiB of the GPU that torch holds at most, the model included; None on a CPU."""
        if self.device == "cpu":
            work()
            return None
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        work()
        return round(torch.cuda.max_memory_allocated() / 2**30, 2)

    def sites(self, repeats: int) -> dict[str, Any]:
        """By sentences, so that the sites' steps are the very number that one site with all their text takes."""
        how = replace(self.how, tokens_per_batch=0, batch_size=self.size.batch)
        each = 8 * how.batch_size
        together = text_of(self.size, self.name, SITES * each)
        texts = [together[first * each : (first + 1) * each] for first in range(SITES)]
        ways = {"sites": lambda: self.ours(how, texts), "steps": lambda: self.ours(how, [together])}
        times = turn_about({way: waited_for(work, self.device) for way, work in ways.items()}, repeats)
        return {"sites": SITES, **figures(times), "sites_over_steps": ratio(times["sites"], times["steps"])}


def peak_flops(device: str) -> float | None:
    """What this GPU can do; None where it is not known."""
    name = torch.cuda.get_device_name() if device == "cuda" else "a CPU"
    return next((able for part, able in BF16_FLOPS.items() if part in name), None)


def decoding(size: Size, name: str, device: str, repeats: int) -> dict[str, Any]:
    """A random model never ends a translation by itself: all are `new_tokens` long."""
    model = model_of(size, name, "adapters", device)
    sentences = [" ".join(map(str, pair.source[1:-1])) for pair in text_of(size, name, size.sentences)]
    written: dict[str, list[str]] = {}
    backbone: Any = SimpleNamespace(model=model, codec=CODEC)
    peer = Generate(backbone, sentences, DIRECTION, 5, batch=128, new_tokens=size.new_tokens)

    def ours() -> None:
        written["ours"] = translate(model, CODEC, sentences, DIRECTION, 5, size.most, size.new_tokens)

    times = turn_about({"ours": waited_for(ours, device), "generate": waited_for(peer, device)}, repeats)
    found = figures(times)
    return {
        **found,
        "sentences_a_second": {way: round(len(sentences) / found[f"{way}_s"]["median"], 1) for way in times},
        "other_text": sum(map(str.__ne__, written["ours"], peer.written)),
        "generate_over_ours": ratio(times["generate"], times["ours"]),
    }


def measured(size: Size, device: str, repeats: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "pairs": size.pairs,
        "tokens_per_batch": size.tokens,
    }

    def found(part: str, figures_of: Mapping[str, Any]) -> None:
        result[part] = figures_of
        print(part, json.dumps(figures_of), file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as temporary:
        for name in size.vocabularies:
            for tensors in ("adapters", "lora"):
                training = Training(size, name, tensors, device, Path(temporary))
                found(f"{name}, {tensors}", training.measured(repeats))
                if (name, tensors) == ("mbart-50", "adapters"):
                    found("sites", training.sites(repeats))
            del training
            found(f"{name}, decoding", decoding(size, name, device, repeats))
    return result


def short_of(result: Mapping[str, Any]) -> list[str]:
    """What does not come up to what is wanted, in words."""
    adapters = result["mbart-50, adapters"]
    seen = {"mfu": adapters["mfu"]["ours"], "trainer_over_ours": adapters["trainer_over_ours"]["of_medians"]}
    least = [f"{what} is {value}; wanted at least {WANTED[what]}" for what, value in seen.items() if (value or 0) < WANTED[what]]
    over = result["sites"]["sites_over_steps"]["of_medians"]
    most = WANTED["sites_over_steps"]
    return [*least, *([f"sites_over_steps is {over}; wanted at most {most}"] if over > most else [])]


def main() -> None:
    parser = parser_of(__doc__, 3)
    parser.add_argument("--dry", action="store_true", help="tiny shapes on the CPU")
    chosen = parser.parse_args()
    if not chosen.dry and not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU here; give --dry to go through the benchmark on a CPU")
    if chosen.dry:
        torch.set_num_threads(1)
    size, device, repeats = (DRY, "cpu", 2) if chosen.dry else (PUBLISHED, "cuda", chosen.repeats)
    result = measured(size, device, repeats) | {"wanted": WANTED, "dry": chosen.dry}
    keep(result, chosen.to, "torch", "transformers", "accelerate", "peft")
    if not chosen.dry and (short := short_of(result)):
        raise SystemExit("\n".join(short))


if __name__ == "__main__":
    main()
