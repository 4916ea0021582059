"""Time to fold one round: 12 sites with mBART-50's adapter set (8,056,576 numbers in 364 tensors), ours beside Flower's FedAvg.

    .venv/bin/python benchmarks/aggregation.py [--to results.json] [--repeats N]

Both begin with what a reply's ArrayRecord holds and end with new tensors; they take turns in one process. Ours joins a site's tensors
into one array a part, and is timed with all checks of an update (form, finite numbers, norm of the change), and without them;
FedAvg checks none of that. Needs 1.5 GB of memory and half a minute.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from importlib.metadata import version
from random import Random
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords
from kept import parser_of, write
from paired import figures, ratio, turn_about

from fedlingua.backbones.parts import PARTS, Part
from fedlingua.clustering.clusters import no_clusters
from fedlingua.common.cores import CORES
from fedlingua.exchange.joined import Numbers, flat_parts
from fedlingua.exchange.measured_change import change_of
from fedlingua.exchange.records import pack, view
from fedlingua.exchange.selected import everything
from fedlingua.exchange.state import ClusterTensors
from fedlingua.exchange.tensors import NamedTensors, Tensors, TensorSet, TensorSpec
from fedlingua.exchange.updates import Update
from strategies.aggregation.mean import by_size, inner_cluster_aggregation, mean, start_everywhere

SITES = 12
WANTED_RATIO = 3
"""FedAvg's time over ours for the same work, from wire bytes to new tensors; less ends the benchmark with an error."""
LAYERS, WIDTH, BOTTLENECK = 12, 1024, 64
PLACES: dict[Part, tuple[str, ...]] = {"encoder": ("self_attn", "fc2"), "decoder": ("self_attn", "encoder_attn", "fc2")}
NORMS: dict[Part, tuple[str, ...]] = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


def mbart_50_adapters() -> TensorSet:
    """Names and shapes of mBART-50's adapters (bottleneck 64) and layer norms, in the model's order."""
    specs: list[TensorSpec] = []
    for part in ("encoder", "decoder"):
        for layer in range(LAYERS):
            shapes: dict[str, tuple[int, ...]] = {}
            for norm in NORMS[part]:
                shapes |= {f"{norm}.weight": (WIDTH,), f"{norm}.bias": (WIDTH,)}
            for place in PLACES[part]:
                shapes |= {f"adapters.{place}.down.weight": (BOTTLENECK, WIDTH), f"adapters.{place}.down.bias": (BOTTLENECK,)}
                shapes |= {f"adapters.{place}.up.weight": (WIDTH, BOTTLENECK), f"adapters.{place}.up.bias": (WIDTH,)}
            specs += [TensorSpec(f"model.{part}.layers.{layer}.{name}", shape, part, layer) for name, shape in shapes.items()]
        specs += [TensorSpec(f"model.{part}.layer_norm.{kind}", (WIDTH,), part, None) for kind in ("weight", "bias")]
    return TensorSet("adapters", tuple(specs))


def fed_avg(before: NamedTensors, updates: Sequence[Update]) -> NamedTensors:
    return mean(before, [update.sent(weight) for update, weight in zip(updates, by_size(updates), strict=True)])


class Round:
    """Twelve sites' replies to one round's tensors, in both forms."""

    def __init__(self, chosen: TensorSet) -> None:
        self.chosen = chosen
        self.sites = [f"site{number:02d}" for number in range(SITES)]
        self.clusters = no_clusters(self.sites)
        rng = np.random.default_rng(2022)
        first: Tensors = {spec.name: np.float32(0.02) * rng.standard_normal(spec.shape, np.float32) for spec in chosen.specs}
        start = start_everywhere(first, chosen, self.clusters)
        # As after any round but the first: what is sent is what a fold has made.
        self.state: ClusterTensors = inner_cluster_aggregation(
            start, {"site00": Update("site00", view(pack(first, chosen), chosen), 1)}, chosen, self.clusters, fed_avg
        )
        self.starts = flat_parts(first | {n: a for part in PARTS for n, a in self.state[part]["all"].items()}, chosen)
        self.ours: dict[str, ArrayRecord] = {}
        self.theirs: list[RecordDict] = []
        self.sizes = {site: 100 + 7 * number for number, site in enumerate(self.sites)}
        for site in self.sites:
            tensors = {
                name: array + np.float32(1e-3) * rng.standard_normal(array.shape, np.float32) for name, array in first.items()
            }
            self.ours[site] = pack(tensors, chosen)
            named = ArrayRecord({name: Array(array) for name, array in tensors.items()})
            self.theirs.append(RecordDict({"arrays": named, "metrics": MetricRecord({"num-examples": self.sizes[site]})}))

    def aggregate_ours(self, order: Sequence[str], checked: bool) -> ClusterTensors:
        updates = {}
        for site in order:
            tensors = view(self.ours[site], self.chosen)
            if checked:
                change_of(tensors, self.starts, everything(self.chosen))
            updates[site] = Update(site, tensors, self.sizes[site])
        return inner_cluster_aggregation(self.state, updates, self.chosen, self.clusters, fed_avg)

    def aggregate_theirs(self, order: Sequence[int]) -> ArrayRecord:
        return aggregate_arrayrecords([self.theirs[number] for number in order], "num-examples")


def hash_of(arrays: Sequence[Numbers]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array.tobytes())
    return digest.hexdigest()


def measured(repeats: int) -> dict[str, Any]:
    chosen = mbart_50_adapters()
    assert (len(chosen.specs), chosen.num_parameters) == (364, 8_056_576)
    replies, numbers = Round(chosen), list(range(SITES))
    times = turn_about(
        {
            "fedavg": lambda: replies.aggregate_theirs(numbers),
            "ours": lambda: replies.aggregate_ours(replies.sites, checked=True),
            "ours_without_checks": lambda: replies.aggregate_ours(replies.sites, checked=False),
        },
        repeats,
    )
    return {
        **figures(times),
        **{f"fedavg_over_{way}": ratio(times["fedavg"], times[way]) for way in ("ours", "ours_without_checks")},
        **order_independence(replies),
        "sites": SITES,
        "parameters": chosen.num_parameters,
        "tensors": 364,
    }


def order_independence(replies: Round) -> dict[str, Any]:
    """Whether five orders of replies give the same bytes, ours and theirs, and what the result's dtype is."""
    random, ours, theirs, dtypes = Random(1), set(), set(), set()
    largest = 0.0
    for _ in range(5):
        state = replies.aggregate_ours(random.sample(replies.sites, SITES), checked=True)
        flat: Tensors = {name: array for part in PARTS for name, array in state[part]["all"].items()}
        ours.add(hash_of(list(flat.values())))
        dtypes |= {str(array.dtype) for array in flat.values()}
        peer = {name: array.numpy() for name, array in replies.aggregate_theirs(random.sample(range(SITES), SITES)).items()}
        theirs.add(hash_of(list(peer.values())))
        largest = max(largest, *(float(np.abs(peer[name] - array).max()) for name, array in flat.items()))
    return {
        "same_bytes_in_any_order": len(ours) == 1,
        "fedavg_same_bytes_in_any_order": len(theirs) == 1,
        "dtypes": sorted(dtypes),
        "largest_difference": largest,
    }


def main() -> None:
    parser = parser_of(__doc__, 21)
    options = parser.parse_args()
    versions = {name: version(name) for name in ("flwr", "numpy")}
    result = measured(options.repeats) | {"cores": CORES, "load": round(os.getloadavg()[0], 1), "versions": versions}
    print(json.dumps(result, indent=2))
    if options.to:
        write(options.to, result)
    if not result["same_bytes_in_any_order"]:
        raise SystemExit("the bytes of the new tensors depend on the order of the replies")
    if (ratio := result["fedavg_over_ours_without_checks"]["of_medians"]) < WANTED_RATIO:
        raise SystemExit(
            f"FedAvg takes {ratio} x our time; wanted {WANTED_RATIO} x or more, on a machine with nothing else to do"
        )


if __name__ == "__main__":
    main()
