"""A backbone with the tensors that a run trains. The server builds it for the initial tensors, each site to train them."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from fedlingua.backbones.directories import backbone_directory, check_fits
from fedlingua.backbones.load import Backbone, load_backbone
from fedlingua.backbones.precision import allow_tf32, hold
from fedlingua.backbones.quantized import replace_linear
from fedlingua.common.devices import check_bits
from fedlingua.exchange.tensor_sets import TENSOR_SETS, read_tensors, tensor_set, travelling, write_tensors
from fedlingua.exchange.tensors import Tensors, TensorSet
from fedlingua.settings.config import Settings


@dataclass(frozen=True)
class Trainable:
    """A frozen backbone with its two tensor sets.

    trained: the tensors that train. tensor_set: those that travel. initial: the trained tensors that
    every site starts from, drawn with the seed. adapter: configuration of the attached modules, None if the whole model is
    the result.
    """

    backbone: Backbone
    trained: TensorSet
    tensor_set: TensorSet
    initial: Tensors
    adapter: Mapping[str, Any] | None

    @property
    def model(self) -> PreTrainedModel:
        return self.backbone.model

    @property
    def sent_first(self) -> Tensors:
        """The tensors that every cluster starts from: those of `initial` that travel."""
        return {name: self.initial[name] for name in self.tensor_set.names}

    @property
    def published(self) -> Tensors:
        """The trained tensors that make the model the published backbone: `initial`, with adapters' up-projections of 0."""
        up = ".up." if self.trained.name == "adapters" else None
        return {name: np.zeros_like(array) if up and up in name else array for name, array in self.initial.items()}

    @property
    def fingerprint(self) -> str:
        """sha256 of backbone, tokenizer and both tensor sets; if it is equal on both sides, a name means the same tensor."""
        digest = hashlib.sha256(self.backbone.fingerprint.encode())
        for chosen in (self.trained, self.tensor_set):
            for spec in chosen.specs:
                digest.update(f"{spec.name}:{spec.shape}\n".encode())
            digest.update(b"\n")
        return digest.hexdigest()

    def second(self, settings: Settings, tensors: Tensors) -> PreTrainedModel:
        """Load the run's model once more, with other tensors: an ensemble needs two at a time. They share the frozen tensors."""
        other, differ = build_trainable(settings), set(self.trained.names)
        own = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        for name, tensor in (*other.model.named_parameters(), *other.model.named_buffers()):
            if name not in differ:
                tensor.data = own[name].data
                if hasattr(tensor, "CB"):  # bitsandbytes has 8-bit weights under a second name
                    tensor.CB = tensor.data
        write_tensors(other.model, tensors)
        return other.model

    @contextmanager
    def as_base(self) -> Iterator[PreTrainedModel]:
        """Make the model the published backbone: write the initial tensors, which stay afterwards, and bypass attached modules."""
        write_tensors(self.model, self.initial)
        with TENSOR_SETS[self.trained.name].bypassed(self.model):
            yield self.model


def build_trainable(settings: Settings, computes: bool = True) -> Trainable:
    """Load the run's backbone and attach the modules that the run's method trains.

    computes: False where only the tensors are needed, as at the server: the model then stays in main memory as it is stored.

    Raises:
        ConfigError: `frozen-bits` needs a package that is missing.
        BackboneError: the backbone cannot be loaded, has fewer positions than `max-tokens` or lacks the `lora.targets`; or pruning
            leaves no layer of a stack.
    """
    directory = backbone_directory(settings.backbone, settings.backbone_revision)
    drawn = settings.seed if settings.backbone_weights == "random" else None
    all_trains = TENSOR_SETS[settings.trained_set].trains("any name")
    precision = "fp32" if all_trains else settings.precision  # of the frozen tensors
    bits, device = (settings.frozen_bits, settings.device) if computes else (0, "cpu")
    check_bits(bits)
    as_stored = drawn is None and (bits > 0 or not computes)
    backbone = load_backbone(directory, settings.backbone, precision, device, drawn, as_stored)
    check_fits(backbone.model.config, settings)
    if bits:
        replace_linear(backbone.model, bits)
    adapter = TENSOR_SETS[settings.trained_set].attach(backbone.model, settings)
    trained = tensor_set(backbone.model, settings.trained_set, settings.adapter_layers)
    if computes:
        hold(backbone.model, trained.names, precision, device)
        allow_tf32(settings.precision, device)
    return Trainable(backbone, trained, travelling(trained), read_tensors(backbone.model, trained), adapter)
