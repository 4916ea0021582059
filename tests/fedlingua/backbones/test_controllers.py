"""Controllers in M2M-100 and mBART: an identity at start, in their place once trained, and the same with a cache as without."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from fedlingua.backbones.controllers import Controllers, attach_controllers, controllers_bypassed
from fedlingua.backbones.load import Backbone
from fedlingua.backbones.pruning import controller_places
from fedlingua.common.errors import BackboneError
from fedlingua.desk.export.merging import merge_controllers
from fedlingua.exchange.tensor_sets import tensor_set, travelling
from tests.mbart import mbart_50, tiny_mbart


@pytest.fixture(params=["m2m_100", "mbart"])
def model(request: pytest.FixtureRequest, backbone: Backbone) -> PreTrainedModel:
    return backbone.model if request.param == "m2m_100" else tiny_mbart(layers=2)


def shake(model: PreTrainedModel) -> None:
    """Every parameter away from where it starts, the added layers' zeros too."""
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))


def test_controllers_stand_evenly() -> None:
    assert controller_places(12, 4) == [3, 6, 9, 12]
    assert controller_places(12, 5) == [2, 5, 7, 10, 12]
    assert controller_places(3, 1) == [3]
    assert controller_places(2, 4) == [1, 1, 2, 2]  # 0.5 and 1.5 are rounded up
    assert controller_places(1, 4) == [1, 1, 1, 1]


def test_four_and_four_of_mbart_50_are_eight_of_its_layers() -> None:
    model = mbart_50()
    backbone = tensor_set(model, "full")
    attach_controllers(model, 4)
    trained = tensor_set(model, "controllers")
    attention, norm, feed_forward = 4 * (1024 * 1024 + 1024), 2 * 1024, 1024 * 4096 + 4096 + 4096 * 1024 + 1024
    encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
    assert travelling(trained).num_parameters == 4 * encoder + 4 * decoder == 117_571_584
    assert trained.num_parameters == 610_879_488 + 117_571_584
    assert {(spec.part, spec.layer) for spec in travelling(trained).specs} == {
        (stack, layer) for stack in ("encoder", "decoder") for layer in (2, 5, 8, 11)
    }
    # The backbone's names stay, in their order.
    assert [name for name in trained.names if ".controllers." not in name] == backbone.names


@torch.no_grad()
def test_at_start_the_model_is_the_backbone(model: PreTrainedModel, tokens: dict[str, Tensor]) -> None:
    base = model(**tokens).logits
    attach_controllers(model, 4)
    assert torch.equal(model(**tokens).logits, base)
    assert sum(len(module) for module in model.modules() if isinstance(module, Controllers)) == 8


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@torch.no_grad()
def test_a_layers_output_goes_through_its_controllers_in_order(model: PreTrainedModel, stack: str) -> None:
    attach_controllers(model, 4)
    shake(model)
    layer: Any = model.get_submodule(f"model.{stack}.layers.1")
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(2, 3, model.config.d_model, generator=generator)
    more: dict[str, Any] = {"attention_mask": None}
    if stack == "decoder":
        more = {"encoder_hidden_states": torch.randn(2, 5, model.config.d_model, generator=generator), "use_cache": False}
    got = layer(hidden, **more)
    with controllers_bypassed(model):
        wanted = layer(hidden, **more)
    assert not torch.allclose(got, wanted)
    first, second = layer.controllers
    torch.testing.assert_close(got, second(first(wanted, **more), **more))


@torch.no_grad()
def test_bypassed_controllers_leave_the_base_and_come_back(model: PreTrainedModel, tokens: dict[str, Tensor]) -> None:
    attach_controllers(model, 3)
    shake(model)
    added = model(**tokens).logits
    with controllers_bypassed(model):
        base = model(**tokens).logits
    assert torch.equal(model(**tokens).logits, added)
    with pytest.raises(LookupError), controllers_bypassed(model):
        raise LookupError
    assert torch.equal(model(**tokens).logits, added)
    assert not torch.allclose(added, base)


@pytest.mark.parametrize("num_controllers", [1, 2, 5])
@torch.no_grad()
def test_beam_search_gives_the_same_with_a_cache_as_without(
    model: PreTrainedModel, tokens: dict[str, Tensor], num_controllers: int
) -> None:
    attach_controllers(model, num_controllers)
    shake(model)

    def search(use_cache: bool) -> Any:
        return model.generate(  # type: ignore[operator]
            input_ids=tokens["input_ids"],
            attention_mask=tokens["attention_mask"],
            decoder_start_token_id=2,
            num_beams=3,
            min_new_tokens=10,
            max_new_tokens=10,
            max_length=None,
            use_cache=use_cache,
            output_scores=True,
            return_dict_in_generate=True,
        )

    cached, anew = search(use_cache=True), search(use_cache=False)
    assert torch.equal(cached.sequences, anew.sequences)
    torch.testing.assert_close(cached.sequences_scores, anew.sequences_scores)
    # The cache holds as much of an added layer as of the stack's own.
    lengths = [layer.get_seq_length() for layer in cached.past_key_values.self_attention_cache.layers]
    assert lengths == [10] * (2 + num_controllers)
    with controllers_bypassed(model):
        base = search(use_cache=True)
    assert not torch.allclose(base.sequences_scores, cached.sequences_scores)
    assert len(base.past_key_values.self_attention_cache.layers) == 2


def test_attaching_twice_is_refused(backbone: Backbone) -> None:
    attach_controllers(backbone.model, 1)
    with pytest.raises(BackboneError, match="already has controllers"):
        attach_controllers(backbone.model, 1)


def test_an_encoder_takes_no_controllers(encoder: Backbone) -> None:
    with pytest.raises(BackboneError, match=r"layers of an M2M-100 or mBART, and this backbone is a xlm-roberta"):
        attach_controllers(encoder.model, 1)


@torch.no_grad()
def test_merged_they_are_layers_of_a_plain_deeper_model(model: PreTrainedModel, tokens: dict[str, Tensor]) -> None:
    attach_controllers(model, 3)
    shake(model)
    wanted = model(**tokens).logits
    plain = merge_controllers(model)
    assert type(plain) is type(model)
    assert (plain.config.encoder_layers, plain.config.decoder_layers, plain.config.num_hidden_layers) == (5, 5, 5)
    assert not any(isinstance(module, Controllers) for module in plain.modules())
    torch.testing.assert_close(plain(**tokens).logits, wanted)
    generated = [
        one.generate(input_ids=tokens["input_ids"], num_beams=2, max_new_tokens=8, do_sample=False)  # type: ignore[operator]
        for one in (plain, model)
    ]
    assert torch.equal(*generated)
