"""A backbone made ready for a run, built alike on both sides of the wire: the server for the first tensors, a site to train."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from transformers import PreTrainedModel

from fedlingua.backbones.bottleneck import AdapterConfig, adapters_bypassed, attach_adapters
from fedlingua.backbones.load import Backbone, load_backbone
from fedlingua.config import Settings
from fedlingua.exchange.tensor_sets import Tensors, TensorSet, read_tensors, tensor_set, write_tensors
from fedlingua.pretraining.demo import backbone_directory


@dataclass(frozen=True)
class Trainable:
    """A frozen backbone with its tensor set; `initial`: the tensors every site starts from, decided by the seed."""

    backbone: Backbone
    tensor_set: TensorSet
    initial: Tensors
    adapter: AdapterConfig | None

    @property
    def model(self) -> PreTrainedModel:
        return self.backbone.model

    @property
    def fingerprint(self) -> str:
        """sha256 of backbone, tokenizer and tensor set: two sides with equal fingerprints mean the same tensors by a name."""
        digest = hashlib.sha256(self.backbone.fingerprint.encode())
        for spec in self.tensor_set.specs:
            digest.update(f"{spec.name}:{spec.shape}\n".encode())
        return digest.hexdigest()

    @contextmanager
    def as_base(self) -> Iterator[PreTrainedModel]:
        """The backbone as it was published: first tensors, adapters bypassed."""
        write_tensors(self.model, self.initial)
        with adapters_bypassed(self.model):
            yield self.model


def build_trainable(settings: Settings) -> Trainable:
    """Load the run's backbone and attach what the run's method trains.

    Raises:
        BackboneError: the backbone cannot be loaded, or pruning leaves nothing of a stack.
    """
    directory = backbone_directory(settings.backbone, settings.backbone_revision)
    backbone = load_backbone(directory, settings.backbone, settings.precision, settings.device)
    adapter = None
    if settings.trained_set == "adapters":
        adapter = AdapterConfig(settings.adapter_dim, settings.adapter_init, settings.adapter_init_std, settings.adapter_layers)
        attach_adapters(backbone.model, adapter, settings.seed)
    chosen = tensor_set(backbone.model, settings.trained_set, settings.adapter_layers)
    return Trainable(backbone, chosen, read_tensors(backbone.model, chosen), adapter)
