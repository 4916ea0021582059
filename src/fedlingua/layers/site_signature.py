"""A site's signatures for clustering: computed once, stored, and charged to the site's privacy budget.

A server that got the same signature with new noise again and again could average the noise away. A reply is therefore stored under
a hash of everything that determines it. Each new private reply is an entry in the site's ledger.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from secrets import token_hex
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from fedlingua.backbones.bottleneck import BottleneckAdapter
from fedlingua.common.errors import ExchangeError
from fedlingua.consent.ledger import Entry
from fedlingua.exchange.tensor_sets import write_tensors
from fedlingua.exchange.tensors import save_tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.layers.layer import Consent
from fedlingua.settings.config import Settings
from fedlingua.training.batches import Example
from fedlingua.training.signature import chosen_adapter, mean_gradient, num_weights, private_signature, random_projection

Signature = np.ndarray[Any, Any]


def signature(
    site: str, examples: Sequence[Example], trainable: Trainable, settings: Settings, folder: Path, consent: Consent
) -> dict[str, Signature]:
    """Return the run's signatures by name, each (dimensions,) float32: from `folder`, or computed now and stored there."""
    if settings.how.clustering != "gradients":
        raise ExchangeError(f"asked for a signature, and method {settings.method} has none; only adapter-gradients asks for it")
    file = folder / f"{_key(site, examples, trainable, settings)}.safetensors"
    private = settings.signature_form == "private"
    if not (private or consent.raw):
        raise ExchangeError(
            "this site sends no raw gradients, because text can be read from them; use signature.form = 'private', "
            "or allow them in the site's file: [node] raw-gradients = true"
        )
    if not file.is_file():
        if private:
            number = len(settings.signature_adapters)
            what = f"{number} private signature{'s' * (number > 1)} under signature.noise = {settings.signature_noise:g}"
            # Entered before the signature is made, so an interrupted request counts as answered.
            consent.ledger.enter(Entry(settings.signature_multiplier, key=token_hex(), what=what, run=""))
        arrays = _made(examples, trainable, settings, consent.noise)
        save_tensors(arrays, file)
    return dict(load_file(file))


def _made(examples: Sequence[Example], trainable: Trainable, settings: Settings, noise: Random) -> dict[str, Signature]:
    model, codec = trainable.model, trainable.backbone.codec
    write_tensors(model, trainable.initial)

    def of_adapter(adapter: BottleneckAdapter) -> Signature:
        if settings.signature_form == "raw":
            return mean_gradient(model, adapter, examples, codec)
        projection = random_projection(settings.signature_dim, num_weights(adapter), settings.seed)
        clip, deviation = settings.signature_clip, settings.signature_noise
        return private_signature(model, adapter, examples, codec, projection, clip, deviation, noise)

    return {name: of_adapter(chosen_adapter(model, adapter)) for name, adapter in settings.signature_adapters.items()}


def _key(site: str, examples: Sequence[Example], trainable: Trainable, settings: Settings) -> str:
    """Hash everything that determines a reply, except its noise."""
    flat = {name: value for name, value in settings.flat().items() if name.startswith("signature.")}
    decided = [site, flat, settings.seed, trainable.fingerprint, examples]
    if "," in settings.signature_adapter:
        decided.append(list(settings.signature_adapters))  # cluster.parts may exclude one of them
    return hashlib.sha256(json.dumps(decided).encode()).hexdigest()[:16]
