"""Which adapter's gradient tells the phrasebook's sites apart, and what the private form costs: agreement of clusters, by noise.

    python benchmarks/signatures.py [--seeds 5] [--to experiments/results/benchmarks/kept.jsonl:signatures]

Every part is clustered by the signature of its own adapter, and a private release is of both. Agreement is the adjusted Rand index of two
partitions of the sites: 1 the same, about 0 for chance. No training, no test text.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from kept import KEPT, write
from sklearn.metrics import adjusted_rand_score

from fedlingua.backbones.parts import Part
from fedlingua.clustering.clusters import CLUSTERED, by_families
from fedlingua.clustering.signatures import group
from fedlingua.common.files import APP_DIR
from fedlingua.corpora.sites import Federation, read_federation
from fedlingua.corpora.texts import read_sites
from fedlingua.desk.experiment import read_experiment
from fedlingua.exchange.trainable import Trainable, build_trainable
from fedlingua.privacy.accounting import signature_epsilon
from fedlingua.runs.folder import library_versions
from fedlingua.settings.config import Settings
from fedlingua.training.signature import chosen_adapter, mean_gradient, num_weights, projected_gradients, random_projection
from fedlingua.training.translation import PairExample, encode_pairs

PLACES = [f"encoder.{n}.{place}" for n in (0, -1) for place in ("self_attn", "fc2")]
PLACES += [f"decoder.{n}.{place}" for n in (0, -1) for place in ("self_attn", "encoder_attn", "fc2")]
NOISES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
"""0: projected and clipped alone, which is not private."""
DRAWS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", type=Path, default=APP_DIR / "experiments/fed_mnmt/signatures_phrasebook.toml")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--to", type=Path, default=Path(f"{KEPT}:signatures"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    settings = read_experiment(given.experiment, {})
    federation = read_federation(settings.federation_path, Path())
    seeds = [settings.seed + n for n in range(given.seeds)]
    measured = [measure(replace(settings, seed=seed), federation) for seed in seeds]
    result = {
        "federation": federation.name,
        "sites": len(federation.sites),
        "seeds": seeds,
        "raw": [summary([one["raw"][n] for one in measured]) for n in range(len(PLACES))],
        "private": [summary([one["private"][n] for one in measured]) for n in range(len(NOISES) * len(CLUSTERED))],
        "norms": measured[0]["norms"],
        "versions": library_versions(),
    }
    write(given.to, result)
    print(json.dumps(result, indent=2))


def measure(settings: Settings, federation: Federation) -> dict[str, Any]:
    """Of one seed, which decides the adapters that the gradients are of: agreement for every place, and for every noise."""
    trainable = build_trainable(settings)
    codec = trainable.backbone.codec
    texts = read_sites(federation, frozenset())
    examples = [encode_pairs(text.splits["train"], text.direction, codec, settings.max_tokens) for text in texts.values()]
    families = by_families({s.name: [s.direction] for s in federation.sites}, federation.relatives("group"))
    labels = {
        part: [next(n for n, names in enumerate(families[part].values()) if s in names) for s in texts] for part in CLUSTERED
    }
    numbers = {part: len(families[part]) for part in CLUSTERED}
    raw = []
    for place in PLACES:
        adapter = chosen_adapter(trainable.model, place)
        gradients = [mean_gradient(trainable.model, adapter, own, codec) for own in examples]
        found = {part: group(gradients, numbers[part], settings.seed).labels for part in CLUSTERED}
        raw.append({"adapter": place, **{f"with_{part}_families": _alike(labels[part], found[part]) for part in CLUSTERED}})
    each = [private(settings, trainable, examples, part, numbers[part], labels[part]) for part in CLUSTERED]
    return {"raw": raw, "private": [row for one in each for row in one["private"]], "norms": [one["norms"] for one in each]}


def _alike(labels: Sequence[int], found: Sequence[int]) -> float:
    return float(adjusted_rand_score(labels, found))


def private(
    settings: Settings,
    trainable: Trainable,
    examples: Sequence[Sequence[PairExample]],
    part: Part,
    number: int,
    labels: Sequence[int],
) -> dict[str, Any]:
    """Agreement of a part's private clusters with the raw ones and with the families, mean over draws of the noise."""
    model, codec = trainable.model, trainable.backbone.codec
    adapters = settings.signature_adapters
    adapter = chosen_adapter(model, adapters.get(part) or adapters["signature"])

    def divide(signatures: Sequence[Any]) -> Sequence[int]:
        return group(signatures, number, settings.seed).labels

    wanted = divide([mean_gradient(model, adapter, own, codec) for own in examples])
    projection = random_projection(settings.signature_dim, num_weights(adapter), settings.seed)
    each = [np.stack(list(projected_gradients(model, adapter, own, codec, projection))) for own in examples]
    norms = np.concatenate([np.linalg.norm(own, axis=1) for own in each])
    rows = []
    for noise in NOISES:
        drawn = []
        for draw in range(DRAWS if noise else 1):
            random = Random(f"{settings.seed}/{part}/{noise}/{draw}")
            found = divide([_released(own, settings.signature_clip, noise, random) for own in each])
            drawn.append({"with_raw": _alike(wanted, found), "with_families": _alike(labels, found)})
        epsilon = signature_epsilon(noise, settings.signature_delta, len(adapters)) if noise else None
        means = {key: statistics.mean(one[key] for one in drawn) for key in drawn[0]}
        rows.append({"part": part, "noise": noise, "epsilon": epsilon, "delta": settings.signature_delta, **means})
    quartiles = np.quantile(norms, [0.05, 0.25, 0.5, 0.75, 0.95])
    return {
        "private": rows,
        "norms": {"of": f"projected gradients of the {part}'s adapter, a sentence", "quantiles": [float(q) for q in quartiles]},
    }


def _released(each: np.ndarray[Any, Any], clip: float, noise: float, random: Random) -> np.ndarray[Any, Any]:
    clipped = each * np.minimum(1.0, clip / np.linalg.norm(each, axis=1, keepdims=True))
    return np.asarray((clipped.sum(axis=0) + [random.gauss(0.0, noise * clip) for _ in range(each.shape[1])]) / len(each))


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Rows of one setting over the seeds as one: numbers become their means."""
    return {key: _mean([row[key] for row in rows]) if isinstance(value, float) else value for key, value in rows[0].items()}


def _mean(numbers: Sequence[float]) -> float:
    return float(f"{statistics.mean(numbers):.4g}")


if __name__ == "__main__":
    main()
