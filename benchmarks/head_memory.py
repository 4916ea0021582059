"""Peak memory of one adapter step at M2M-100's size: what the output head and its loss add to the rest, whole and in chunks.

    .venv/bin/python benchmarks/head_memory.py [--small] [--to results.json]

Every way is a process of its own with the same random model and batch (16 pairs of 32 tokens, fp32, one core): a step with all scores at
once (`memory.head-chunk` 0), one in chunks, and one whose loss is the sum of the head's input, which says what all the rest takes.
A peak is the most that was resident during a second step, as Linux counts it (VmHWM).
Some minutes and 6 GB; `--small` takes two layers a stack.
"""

import argparse
import multiprocessing
from pathlib import Path
from typing import Any

import torch
from kept import keep
from torch import Tensor
from transformers import M2M100Config, M2M100ForConditionalGeneration

from fedlingua.backbones.bottleneck import AdapterConfig, attach_adapters
from fedlingua.backbones.parts import is_adapter_set
from fedlingua.training.head import HeadUse
from fedlingua.training.translation import PairBatch

WANTED_SHARE = 1 / 3
"""Of what head and loss add in chunks, by what they add whole; more ends the benchmark with an error."""
PAIRS, TOKENS, VOCABULARY, CHUNK = 16, 32, 128112, 64
MIB = 1 << 20


def batch() -> PairBatch:
    drawn = torch.Generator().manual_seed(1)
    source, given, target = (torch.randint(4, VOCABULARY, (PAIRS, TOKENS), generator=drawn) for _ in range(3))
    return PairBatch(source, torch.ones_like(source), target, given)


def adapted(layers: int) -> M2M100ForConditionalGeneration:
    """M2M-100 418M but for its layers, which are as many as asked for, with adapters that train."""
    config = M2M100Config(
        vocab_size=VOCABULARY,
        encoder_layers=layers,
        decoder_layers=layers,
        dropout=0.0,
        attention_dropout=0.0,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
    )
    torch.manual_seed(0)
    model = M2M100ForConditionalGeneration(config).requires_grad_(False)
    attach_adapters(model, AdapterConfig(64), seed=1)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(is_adapter_set(name))
    return model


def step(model: M2M100ForConditionalGeneration, use: HeadUse | None) -> float:
    """use None: without head and loss."""
    pairs = batch()
    loss: Tensor
    if use is None:
        inputs = (pairs.input_ids, pairs.attention_mask, pairs.decoder_input_ids)
        names = ("input_ids", "attention_mask", "decoder_input_ids")
        loss = model.model(**dict(zip(names, inputs, strict=True)), use_cache=False).last_hidden_state.sum()
    else:
        nll, tokens = pairs.nll(model, use=use)
        loss = nll / tokens
    loss.backward()
    model.zero_grad(set_to_none=True)
    return float(loss.detach())


def resident(what: str) -> int:
    """Bytes: VmRSS now, VmHWM at most."""
    (line,) = (line for line in Path("/proc/self/status").read_text().split("\n") if line.startswith(f"{what}:"))
    return int(line.split()[1]) * 1024


def measure(layers: int, use: HeadUse | None, found: Any) -> None:
    """In a process of its own."""
    torch.set_num_threads(1)
    model = adapted(layers)
    step(model, use)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # begins VmHWM anew
    loss = step(model, use)
    found.put({"before_mib": before // MIB, "peak_mib": resident("VmHWM") // MIB, "loss": loss})


def measured(layers: int, use: HeadUse | None) -> dict[str, Any]:
    spawn = multiprocessing.get_context("spawn")
    found: Any = spawn.Queue()
    process = spawn.Process(target=measure, args=(layers, use, found))
    process.start()
    result: dict[str, Any] = found.get()
    process.join()
    return result


def added(ways: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What head and loss add to the peak, in MiB, and the share of it that is left in chunks."""
    whole, chunks = (ways[way]["peak_mib"] - ways["without_head"]["peak_mib"] for way in ("whole", "in_chunks"))
    return {"whole_adds_mib": whole, "in_chunks_adds_mib": chunks, "share": round(chunks / whole, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="two layers a stack")
    parser.add_argument("--to", type=Path, help="write the figures here as JSON")
    chosen = parser.parse_args()
    layers = 2 if chosen.small else 12
    ways = {"without_head": None, "whole": HeadUse(-1), "in_chunks": HeadUse(chunk=CHUNK)}
    found = {way: measured(layers, use) for way, use in ways.items()}
    result: dict[str, Any] = {
        "layers": [layers, layers],
        "vocabulary": VOCABULARY,
        "predicted_tokens": PAIRS * TOKENS,
        "chunk": CHUNK,
        **found,
        **added(found),
        "loss_difference": abs(found["whole"]["loss"] - found["in_chunks"]["loss"]),
        "wanted_share": round(WANTED_SHARE, 3),
    }
    keep(result, chosen.to, "torch", "transformers")
    if result["share"] > WANTED_SHARE:
        raise SystemExit(
            f"in chunks head and loss add {result['share']} of what they add whole; wanted {WANTED_SHARE:.2f} at most"
        )


if __name__ == "__main__":
    main()
