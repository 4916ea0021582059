"""Thirds of a stack's layers, against the paper's 12 + 12, and what is refused."""

import numpy as np
import pytest

from fedlingua.backbones.bottleneck import AdapterConfig, BottleneckAdapter, attach_adapters
from fedlingua.backbones.load import Backbone
from fedlingua.backbones.pruning import THIRDS, third
from fedlingua.common.errors import BackboneError
from fedlingua.exchange.tensor_sets import tensor_set
from tests.mbart import mbart_50


def test_twelve_layers_make_the_papers_thirds() -> None:
    assert [list(third(12, which)) for which in THIRDS] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_thirds_share_every_layer_out_once_whatever_their_number() -> None:
    assert [list(third(3, which)) for which in THIRDS] == [[0], [1], [2]]
    assert [list(third(2, which)) for which in THIRDS] == [[0], [], [1]]
    assert [len(third(4, which)) for which in THIRDS] == [1, 2, 1]
    for num_layers in range(1, 30):
        assert [number for which in THIRDS for number in third(num_layers, which)] == list(third(num_layers, "all"))


@pytest.mark.parametrize(("which", "kept"), [("input-end", range(4)), ("middle", range(4, 8)), ("output-end", range(8, 12))])
def test_a_third_of_mbart_50s_adapters_and_norms_travels_with_the_final_norms(which: str, kept: range) -> None:
    model = mbart_50()
    attach_adapters(model, AdapterConfig(dim=64, layers=which), seed=1)
    assert sum(isinstance(module, BottleneckAdapter) for module in model.modules()) == 20
    chosen = tensor_set(model, "adapters", which)
    outside = [spec for spec in chosen.specs if spec.layer is None]
    assert {spec.name for spec in outside} == {
        f"model.{stack}.layer_norm.{which}" for stack in ("encoder", "decoder") for which in ("weight", "bias")
    }
    assert {(spec.part, spec.layer) for spec in chosen.specs if spec.layer is not None} == {
        (stack, number) for stack in ("encoder", "decoder") for number in kept
    }
    assert sum(int(np.prod(spec.shape)) for spec in outside) == 4096
    assert chosen.num_parameters == 2_684_160 + 4096
    assert 3 * 2_684_160 + 4096 == 8_056_576


def test_a_third_that_is_empty_is_refused_with_the_numbers(backbone: Backbone) -> None:
    with pytest.raises(
        BackboneError, match=r"keeps no layer of the encoder, which has 2 \(input-end 1, middle 0, output-end 1\)"
    ):
        attach_adapters(backbone.model, AdapterConfig(dim=4, layers="middle"), seed=1)


def test_a_third_of_an_encoder_keeps_its_layers_alone(encoder: Backbone) -> None:
    attach_adapters(encoder.model, AdapterConfig(dim=4, layers="output-end"), seed=1)
    chosen = tensor_set(encoder.model, "adapters", "output-end")
    assert {(spec.part, spec.layer) for spec in chosen.specs} == {("encoder", 1)}
    assert sum(isinstance(module, BottleneckAdapter) for module in encoder.model.modules()) == 2


def test_a_third_of_an_encoder_that_is_empty_is_refused(encoder: Backbone) -> None:
    with pytest.raises(BackboneError, match=r"keeps no layer of the encoder, which has 2"):
        attach_adapters(encoder.model, AdapterConfig(dim=4, layers="middle"), seed=1)
