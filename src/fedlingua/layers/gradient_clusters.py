"""Clusters by gradients: each site sends one signature per part, and each part's clusters are made by these signatures."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedlingua.clustering.clusters import named, no_clusters, only
from fedlingua.common.errors import ExchangeError
from fedlingua.exchange import protocol
from fedlingua.exchange.checks import WITHOUT_TENSORS, check_records
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.records import from_record, message_bytes, to_record
from fedlingua.layers.layer import Answer, Joining, Layer, Node, Records
from fedlingua.privacy.accounting import signature_epsilon
from fedlingua.runs.plan import numbers_by_gradients

FILE = "signatures.json"


class GradientClusters(Layer):
    """The clusters of sites with similar gradients (method adapter-gradients); a resumed run keeps those that it began with."""

    def join(self, run: Joining, grid: Grid, trainable: Any) -> None:
        known = run.folder.read(FILE) if self.settings.resume else None
        if known is None:
            known = _ask_and_group(run, grid, trainable)
            run.folder.write(FILE, known)
        sites, parts = run.registry.expected, known["parts"].items()
        by_part = {part: named("gradients", [result["clusters"][site] for site in sites], sites) for part, result in parts}
        run.clusters = only({**no_clusters(sites), **by_part}, self.settings.cluster_parts)


def give_signature(node: Node, task: Task, asked: RecordDict, client: Callable[[], Any]) -> Records:
    """Return a site's signatures for clustering."""
    from fedlingua.layers.site_signature import signature

    here, of = client(), (task.site, task.run)
    about = here.examples("train"), here.trainable, here.settings, node.signatures(*of), node.consent(*of)
    return {protocol.ARRAYS: to_record(signature(task.site, *about))}


MESSAGES: Mapping[str, Answer] = {protocol.SIGNATURE: give_signature}


def _ask_and_group(run: Joining, grid: Grid, trainable: Any) -> dict[str, Any]:
    """Ask every site for its signatures and group them; return the content of signatures.json.

    Raises:
        ConfigError: There is no such adapter. RunError: A site sent no usable signature.
    """
    # A second of import (scikit-learn), and torch, that only this method needs.
    from fedlingua.clustering.signatures import group
    from fedlingua.training.signature import chosen_adapter, num_weights

    settings, registry = run.settings, run.registry
    private, adapters, clustered = settings.signs_privately, settings.signature_adapters, settings.cluster_parts
    chosen = {name: chosen_adapter(trainable.model, adapter) for name, adapter in adapters.items()}
    sizes = {name: settings.signature_dim if private else num_weights(adapter) for name, adapter in chosen.items()}
    noise, delta = settings.signature_noise, settings.signature_delta
    epsilon = signature_epsilon(noise, delta, len(sizes)) if private else None
    run.folder.event("note", text=_announcement(sum(sizes.values()), epsilon, delta, " and ".join(adapters.values())))
    sent: dict[str, int] = {}

    def parse(site: str, reply: Message) -> Mapping[str, Numbers]:
        sent[site] = message_bytes(reply)
        return parse_signatures(reply, sizes)

    need, most = "clusters by gradients need every site's signature", WITHOUT_TENSORS + 5 * sum(sizes.values())
    signatures = run.ask_all(grid, protocol.SIGNATURE, parse, need, lambda _: most)
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
