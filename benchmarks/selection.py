"""Time to decide what a site sends: all of M2M-100 418M (483,905,536 numbers in 509 tensors), against one pass over the numbers.

    .venv/bin/python benchmarks/selection.py [--small] [--to results.json] [--repeats N]

Deciding is what MetaSend does before it sends: every tensor's deviation from the previous round's, and the rule, here with the
median as threshold. The pass beside it adds up the numbers of both models with numpy, tensor after tensor; no comparison can do with
less. They take turns in one process, each on one core. What packing costs is told beside them. Needs 4 GB of memory, 5 while packing,
and a minute; `--small` tries it with 37,588,992 numbers.
"""

import json
import os
from importlib.metadata import version
from typing import Any

import numpy as np
from kept import parser_of, write
from paired import figures, ratio, turn_about

from fedlingua.backbones.parts import Part
from fedlingua.exchange.joined import Joined, Numbers, join
from fedlingua.exchange.selected import INDICES, MASK, Selection, pack_selected
from fedlingua.exchange.tensors import Tensors, TensorSet, TensorSpec
from fedlingua.selection.deviation import deviations
from fedlingua.selection.rules import by_threshold, fixed_threshold

WANTED_RATIO = 1.5
"""Deciding over one pass; more ends the benchmark with an error."""
LAYERS, WIDTH, FEED_FORWARD, VOCABULARY = 12, 1024, 4096, 128_112
ATTENTIONS: dict[Part, tuple[str, ...]] = {"encoder": ("self_attn",), "decoder": ("self_attn", "encoder_attn")}


def m2m_100(layers: int = LAYERS, vocabulary: int = VOCABULARY) -> TensorSet:
    """Names and shapes of M2M-100 418M's parameters, as its published configuration makes them; the embedding is shared by all."""
    specs = [TensorSpec("model.shared.weight", (vocabulary, WIDTH), "shared", None)]
    for part, attentions in ATTENTIONS.items():
        for layer in range(layers):
            shapes: dict[str, tuple[int, ...]] = {}
            for attention in attentions:
                for projection in ("k_proj", "v_proj", "q_proj", "out_proj"):
                    shapes |= {f"{attention}.{projection}.weight": (WIDTH, WIDTH), f"{attention}.{projection}.bias": (WIDTH,)}
                shapes |= {f"{attention}_layer_norm.weight": (WIDTH,), f"{attention}_layer_norm.bias": (WIDTH,)}
            shapes |= {"fc1.weight": (FEED_FORWARD, WIDTH), "fc1.bias": (FEED_FORWARD,)}
            shapes |= {"fc2.weight": (WIDTH, FEED_FORWARD), "fc2.bias": (WIDTH,)}
            shapes |= {"final_layer_norm.weight": (WIDTH,), "final_layer_norm.bias": (WIDTH,)}
            specs += [TensorSpec(f"model.{part}.layers.{layer}.{name}", shape, part, layer) for name, shape in shapes.items()]
        specs += [TensorSpec(f"model.{part}.layer_norm.{kind}", (WIDTH,), part, None) for kind in ("weight", "bias")]
    return TensorSet("full", tuple(specs))


class Site:
    """What a site holds after local training: the tensors as it received them, joined, and as training left them, each on its own."""

    def __init__(self, chosen: TensorSet) -> None:
        self.chosen = chosen
        rng = np.random.default_rng(2024)
        received: Tensors = {spec.name: np.float32(0.02) * rng.standard_normal(spec.shape, np.float32) for spec in chosen.specs}
        self.previous = Joined(join(received, chosen), chosen)
        self.new = received
        for tensor in received.values():
            tensor *= np.float32(1 + 10 ** rng.uniform(-5, -1))  # tensors deviate by 1e-5 to 1e-1

    def pass_over_both(self) -> float:
        return sum(float(self.new[name].sum()) + float(self.previous[name].sum()) for name in self.chosen.names)

    def decide(self) -> Selection:
        found = deviations(self.new, self.previous, self.chosen)
        return by_threshold(found, self.chosen, fixed_threshold(found, "median"), "g")

    def pack(self, selection: Selection) -> dict[str, Numbers]:
        return pack_selected(self.new, selection)


def measured(chosen: TensorSet, repeats: int) -> dict[str, Any]:
    site = Site(chosen)
    selection = site.decide()
    packed = site.pack(selection)
    kinds = {name: name.partition(".")[0] for name in packed}
    sent = {kind: sum(a.nbytes for name, a in packed.items() if kinds[name] == kind) for kind in (MASK, INDICES)}
    sent = {"payload": sum(a.nbytes for a in packed.values()) - sum(sent.values()), **sent}
    times = turn_about(
        {"pass_over_both": site.pass_over_both, "deciding": site.decide, "packing": lambda: site.pack(selection)}, repeats
    )
    return {
        "parameters": chosen.num_parameters,
        "tensors": len(chosen.specs),
        "share_of_tensors_sent": round(selection.share_of_tensors, 4),
        "share_of_numbers_sent": round(selection.share_of_numbers, 4),
        "bytes": sent,
        **figures(times),
        **{f"{way}_over_pass": ratio(times[way], times["pass_over_both"]) for way in ("deciding", "packing")},
    }


def main() -> None:
    parser = parser_of(__doc__, 11, "one layer a stack and 8,000 words, in 0.5 GB")
    options = parser.parse_args()
    chosen = m2m_100(1, 8_000) if options.small else m2m_100()
    assert options.small or (len(chosen.specs), chosen.num_parameters) == (509, 483_905_536)
    result = measured(chosen, options.repeats) | {"load": round(os.getloadavg()[0], 1), "versions": {"numpy": version("numpy")}}
    print(json.dumps(result, indent=2))
    if options.to:
        write(options.to, result)
    if (ratio := result["deciding_over_pass"]["of_medians"]) > WANTED_RATIO:
        raise SystemExit(
            f"deciding takes {ratio} x one pass over both models; wanted {WANTED_RATIO} x or less, on a machine with nothing else to do"
        )


if __name__ == "__main__":
    main()
