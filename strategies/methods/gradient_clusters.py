"""Clusters by gradients: each site sends one signature per part, and each part's clusters are made by these signatures."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid

from fedlingua.clustering.clusters import Clusters, named, no_clusters, only
from fedlingua.common.errors import ExchangeError
from fedlingua.exchange import protocol
from fedlingua.exchange.checks import WITHOUT_TENSORS, check_records
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.records import from_record, message_bytes
from fedlingua.exchange.trainable import Trainable
from fedlingua.privacy.accounting import signature_epsilon
from fedlingua.runs.folder import RunFolder
from fedlingua.runs.plan import numbers_by_gradients
from fedlingua.settings.config import Settings
from fedlingua.training.signature import chosen_adapter, num_weights
from strategies.rounds.phases import ask_every_site
from strategies.rounds.registration import Registry

FILE = "signatures.json"


def clusters_by_gradients(
    grid: Grid, settings: Settings, registry: Registry, trainable: Trainable, folder: RunFolder
) -> Clusters:
    """Return the clusters of sites with similar gradients; a resumed run keeps those that it began with.

    Raises:
        ConfigError: There is no such adapter. RunError: A site sent no usable signature.
    """
    known = folder.read(FILE) if settings.resume else None
    if known is None:
        known = _ask_and_group(grid, settings, registry, trainable, folder)
        folder.write(FILE, known)
    sites, parts = registry.expected, known["parts"].items()
    by_part = {part: named("gradients", [result["clusters"][site] for site in sites], sites) for part, result in parts}
    return only({**no_clusters(sites), **by_part}, settings.cluster_parts)


def _ask_and_group(grid: Grid, settings: Settings, registry: Registry, trainable: Trainable, folder: RunFolder) -> dict[str, Any]:
    """Ask every site for its signatures and group them; return the content of signatures.json."""
    # A second of import (scikit-learn) that only this method needs.
    from fedlingua.clustering.signatures import group

    private, adapters, clustered = settings.signs_privately, settings.signature_adapters, settings.cluster_parts
    chosen = {name: chosen_adapter(trainable.model, adapter) for name, adapter in adapters.items()}
    sizes = {name: settings.signature_dim if private else num_weights(adapter) for name, adapter in chosen.items()}
    noise, delta = settings.signature_noise, settings.signature_delta
    epsilon = signature_epsilon(noise, delta, len(sizes)) if private else None
    folder.event("note", text=_announcement(sum(sizes.values()), epsilon, delta, " and ".join(adapters.values())))
    sent: dict[str, int] = {}

    def parse(site: str, reply: Message) -> Mapping[str, Numbers]:
        sent[site] = message_bytes(reply)
        return parse_signatures(reply, sizes)

    need, most = "clusters by gradients need every site's signature", WITHOUT_TENSORS + 5 * sum(sizes.values())
    signatures = ask_every_site(grid, settings, registry, folder, protocol.SIGNATURE, parse, need, lambda _: most)
    examples = {site: int(registry.about[site]["train"]) for site in registry.expected}
    parts = {}
    for part, number in numbers_by_gradients(settings, registry.federation).items():
        if clustered in ("both", part):
            name = part if part in adapters else "signature"
            grouping = group([own[name] for own in signatures.values()], number, settings.seed)
            clusters = named("gradients", grouping.labels, registry.expected)
            parts[part] = {
                "adapter": adapters[name],
                "dimensions": sizes[name],
                "distances": grouping.distances.tolist(),
                "merges": grouping.merges.tolist(),
                "num_clusters": len(clusters),
                "silhouettes": {str(number): value for number, value in grouping.silhouettes.items()},
                "clusters": {site: name for name, members in clusters.items() for site in members},
            }
    return {
        "form": "private" if private else "raw",
        "examples": examples,
        "distance": "cosine",
        "algorithm": "k-means",
        "sites": registry.expected,
        "chosen_by": {0: "families", -1: "silhouette"}.get(settings.num_clusters, "setting"),
        "parts": parts,
        "signatures": len(sizes),
        "uplink_bytes": round(sum(sent.values()) / len(sent)),
        "epsilon": epsilon,
        "delta": delta if private else None,
        "noise": noise if private else None,
        "clip": settings.signature_clip if private else None,
    }


def _announcement(size: int, epsilon: float | None, delta: float, of: str) -> str:
    """Say what every site will send. size: How many numbers; epsilon, delta: Their price; of: Adapters."""
    if epsilon is None:
        return (
            f"warning: every site sends the raw gradient of {of}, {size} numbers, once; text it was trained on can be read out "
            "of it by whoever gets it; signature.form = 'private' sends a noised projection instead"
        )
    price = f"({epsilon:.3g}, {delta:g})-differentially private for each sentence"
    return f"every site sends {size} noised numbers made of the gradient of {of}, once: together {price}"


def parse_signatures(reply: Message, sizes: Mapping[str, int]) -> Mapping[str, Numbers]:
    """Return the signatures in a reply, by name: (sizes[name],) float32 each; raise ExchangeError for anything else."""
    check_records(reply.content, {protocol.TASK, protocol.ARRAYS})
    arrays: Mapping[str, Numbers] = from_record(reply.content.array_records[protocol.ARRAYS])
    if set(arrays) != set(sizes):
        raise ExchangeError(f"the reply has the arrays {', '.join(sorted(arrays)) or 'none'}; wanted {', '.join(sizes)}")
    for name, size in sizes.items():
        signature = arrays[name]
        if signature.shape != (size,) or signature.dtype != np.float32 or not np.isfinite(signature).all():
            got = f"{signature.dtype} {signature.shape}"
            raise ExchangeError(f"{name}: the signature is {got}; wanted {size} finite float32 numbers")
        if not signature.any():
            raise ExchangeError(f"{name}: the signature is zero everywhere, so it points nowhere")
    return arrays
