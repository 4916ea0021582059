"""Who is averaged with whom by gradients: every site is asked once for its signature, and those that are alike are grouped."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid

from fedlingua import protocol
from fedlingua.cluster_plan import number_by_gradients
from fedlingua.clustering import Clusters, by_labels, only
from fedlingua.config import Settings
from fedlingua.errors import ExchangeError
from fedlingua.exchange.records import from_record
from fedlingua.exchange.trainable import Trainable
from fedlingua.privacy import signature_epsilon
from fedlingua.runs import RunFolder
from fedlingua.training.signature import chosen_adapter, num_weights
from strategies.checks import WITHOUT_TENSORS, check_records, check_size
from strategies.question import ask_everybody
from strategies.roll_call import Roll

if TYPE_CHECKING:
    from fedlingua.signatures import Grouping

FILE = "signatures.json"
Array = np.ndarray[Any, Any]


def clusters_by_gradients(grid: Grid, settings: Settings, roll: Roll, trainable: Trainable, folder: RunFolder) -> Clusters:
    """The clusters that the sites' gradients make; a resumed run keeps those it began with.

    Raises:
        ConfigError: an adapter that is not there. RunError: a site that gave no signature.
    """
    known = folder.read(FILE) if settings.resume else None
    if known is None:
        known = _ask_and_group(grid, settings, roll, trainable, folder)
        folder.write(FILE, known)
    names = list(known["clusters"].values())
    labels = [names.index(known["clusters"][site]) for site in roll.expected]
    return only(by_labels("gradients", labels, roll.expected), settings.cluster_parts)


def _ask_and_group(grid: Grid, settings: Settings, roll: Roll, trainable: Trainable, folder: RunFolder) -> dict[str, Any]:
    """What signatures.json says."""
    # A second of import (scikit-learn) that only this method needs.
    from fedlingua.signatures import group

    private = settings.signature_form == "private"
    size = settings.signature_dim if private else num_weights(chosen_adapter(trainable.model, settings.signature_adapter))
    epsilon = signature_epsilon(settings.signature_noise, settings.signature_delta) if private else None
    folder.event("note", text=_said_before(size, epsilon, settings))
    signatures, sent = _signatures(grid, settings, roll, folder, size)
    number = number_by_gradients(settings, roll.federation)
    grouping = group(list(signatures.values()), number, settings.signature_distance, settings.signature_algorithm, settings.seed)
    return {
        "form": settings.signature_form,
        "adapter": settings.signature_adapter,
        "dimensions": size,
        "examples": {site: _num_examples(settings, roll, site) for site in roll.expected},
        "distance": settings.signature_distance,
        "algorithm": settings.signature_algorithm,
        **_found(grouping, roll, settings),
        "uplink_bytes": round(sum(sent.values()) / len(sent)),
        "epsilon": epsilon,
        "delta": settings.signature_delta if private else None,
        "noise": settings.signature_noise if private else None,
        "clip": settings.signature_clip if private else None,
    }


def _found(grouping: "Grouping", roll: Roll, settings: Settings) -> dict[str, Any]:
    clusters = by_labels("gradients", grouping.labels, roll.expected)["encoder"]
    chosen_by = {0: "families", -1: "silhouette"}.get(settings.num_clusters, "setting")
    return {
        "sites": roll.expected,
        "distances": grouping.distances.tolist(),
        "merges": grouping.merges.tolist(),
        "num_clusters": len(clusters),
        "chosen_by": chosen_by,
        "silhouettes": {str(number): value for number, value in grouping.silhouettes.items()},
        "clusters": {site: name for name, members in clusters.items() for site in members},
    }


def _said_before(size: int, epsilon: float | None, settings: Settings) -> str:
    if epsilon is None:
        return (
            f"warning: every site sends a raw gradient of {size} numbers, once; text it was trained on can be read out of it by whoever "
            "gets it; signature-form = 'private' sends a noised projection instead"
        )
    price = f"({epsilon:.3g}, {settings.signature_delta:g})-differentially private for each sentence"
    return f"every site sends {size} noised numbers, once: {price}"


def _signatures(
    grid: Grid, settings: Settings, roll: Roll, folder: RunFolder, size: int
) -> tuple[dict[str, Array], dict[str, int]]:
    """(site -> its signature, site -> bytes of its reply), in federation order."""
    sent: dict[str, int] = {}

    def read(site: str, reply: Message, num_bytes: int) -> Array:
        sent[site] = num_bytes
        return read_signature(reply, num_bytes, size)

    need = "clusters by gradients need every site's signature"
    return ask_everybody(grid, settings, roll, folder, protocol.SIGNATURE, read, need), sent


def read_signature(reply: Message, num_bytes: int, size: int) -> Array:
    """The signature in a reply: (size,) float32.

    Raises:
        ExchangeError: anything else.
    """
    check_size(num_bytes, WITHOUT_TENSORS + 5 * size)
    check_records(reply, {protocol.TASK, protocol.ARRAYS})
    arrays: Mapping[str, Array] = from_record(reply.content.array_records[protocol.ARRAYS])
    if set(arrays) != {protocol.SIGNATURE_ARRAY}:
        raise ExchangeError(f"the reply has the arrays {', '.join(sorted(arrays)) or 'none'}; wanted {protocol.SIGNATURE_ARRAY}")
    signature = arrays[protocol.SIGNATURE_ARRAY]
    if signature.shape != (size,) or signature.dtype != np.float32 or not np.isfinite(signature).all():
        raise ExchangeError(f"the signature is {signature.dtype} {signature.shape}; wanted {size} finite float32 numbers")
    if not signature.any():
        raise ExchangeError("the signature is zero everywhere, so it points nowhere")
    return signature


def _num_examples(settings: Settings, roll: Roll, site: str) -> int:
    there = int(roll.about[site]["train"])
    return min(there, settings.signature_examples) if settings.signature_examples else there
