"""An ensemble of two models beside greedy search by hand; in every family what it caches and reorders must not matter."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from fedlingua.backbones.load import Backbone, load_backbone
from fedlingua.common.languages import Direction
from fedlingua.evaluation import ensemble
from fedlingua.evaluation.decode import translate
from fedlingua.evaluation.ensemble import Ensemble
from tests.families import TRANSLATING

DE_FR = Direction("de", "fr")
MOST = 12


@pytest.fixture
def load(family_folder: Callable[[str], Path]) -> Callable[[str, int], Backbone]:
    """A family's model that says something: its weights are drawn with `seed`, wide enough for every token to depend on those before."""

    def loaded(name: str, seed: int) -> Backbone:
        backbone = load_backbone(family_folder(name), name)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in backbone.model.parameters():
                if parameter.dim() > 1:
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * 2 / math.sqrt(parameter.shape[-1]))
        return backbone

    return loaded


def made(first: Backbone, sentences: Sequence[str], beam: int, *guides: Ensemble) -> list[str]:
    return translate(first.model, first.codec, sentences, DE_FR, beam, 64, MOST, guides=guides)


def of(second: Backbone, share: float) -> Ensemble:
    return Ensemble(second.model, share, second.codec, DE_FR, 64)


@torch.no_grad()
def next_token(model: PreTrainedModel, backbone: Backbone, source: list[int], ids: list[int]) -> torch.Tensor:
    """Log probabilities of the next token, without a cache."""
    if backbone.codec.is_causal:
        logits = model(input_ids=torch.tensor([source + ids])).logits
    else:
        logits = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([ids])).logits
    scores: torch.Tensor = logits[0, -1].log_softmax(dim=0)
    return scores


@pytest.mark.parametrize("name", TRANSLATING)
def test_each_token_is_the_likeliest_by_the_weighted_mean_of_both_probabilities(
    name: str, load: Callable[[str, int], Backbone], phrases: dict[str, list[str]]
) -> None:
    first, second = load(name, 1), load(name, 2)
    codec, sentences = first.codec, phrases["de"][:5]
    barred = [codec.pad_id] if name.startswith("marian") else []
    for sentence, translation in zip(sentences, made(first, sentences, 1, of(second, 0.3)), strict=True):
        (source,) = codec.encode_source([sentence], DE_FR, 64)
        start = [] if codec.is_causal else [codec.start_id]
        forced = codec.first_id(DE_FR)
        ids = [*start, *([] if forced is None else [forced])]
        while len(ids) - len(start) < min(MOST, 4 * len(source) + 10) and (len(ids) <= len(start) or ids[-1] != codec.end_id):
            p, q = (next_token(each.model, first, source, ids).exp() for each in (first, second))
            mean = 0.7 * p + 0.3 * q
            mean[barred] = 0
            ids.append(int(mean.argmax()))
        assert translation == codec.decode([ids[len(start) :]])[0]


@pytest.mark.parametrize("name", TRANSLATING)
def test_beams_that_are_reordered_give_what_every_step_from_scratch_gives(
    name: str, load: Callable[[str, int], Backbone], phrases: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = load(name, 1), load(name, 2)
    sentences = phrases["de"][:6]
    together = made(first, sentences, 4, of(second, 0.5))
    assert together == [made(first, [sentence], 4, of(second, 0.5))[0] for sentence in sentences]
    assert together != made(first, sentences, 4)
    latest = ensemble._Averaged._scores

    def from_scratch(self: ensemble._Averaged, input_ids: torch.Tensor) -> torch.Tensor:
        self.past = self.last = None
        return latest(self, input_ids)

    monkeypatch.setattr(ensemble._Averaged, "_scores", from_scratch)
    assert together == made(first, sentences, 4, of(second, 0.5))


@pytest.mark.parametrize("beam", [1, 3])
def test_two_equal_models_translate_as_one_and_what_is_forbidden_stays_so(
    beam: int, load: Callable[[str, int], Backbone], phrases: dict[str, list[str]]
) -> None:
    first, sentences = load("nllb", 1), phrases["de"][:6]
    how = (first.model, first.codec, sentences, DE_FR, beam, 64, MOST)
    alone = translate(*how, no_repeat_ngram=2)
    assert translate(*how, guides=[of(load("nllb", 1), 0.4)], no_repeat_ngram=2) == alone


def test_what_the_first_model_may_not_say_stays_forbidden_and_the_sum_stays_the_same(
    load: Callable[[str, int], Backbone],
) -> None:
    first, second = load("nllb", 1), load("nllb", 2)
    scores = torch.randn(2, first.model.config.vocab_size, generator=torch.Generator().manual_seed(4))
    scores[:, ::2] = -math.inf
    mixed = of(second, 0.9).over(["Guten Tag.", "Danke."], 1)(torch.full((2, 1), first.codec.start_id), scores)
    assert bool((mixed[:, ::2] == -math.inf).all())
    assert mixed.logsumexp(dim=1).tolist() == pytest.approx(scores.logsumexp(dim=1).tolist())
    assert not torch.equal(mixed[:, 1::2], scores[:, 1::2])


@pytest.mark.parametrize("name", ["qwen2", "gemma3"])
def test_a_decoder_only_models_head_scores_the_latest_token_alone(
    name: str, load: Callable[[str, int], Backbone], phrases: dict[str, list[str]]
) -> None:
    second, shapes = load(name, 2), list[int]()
    second.model.get_output_embeddings().register_forward_hook(lambda module, given, made: shapes.append(made.shape[1]))
    made(load(name, 1), phrases["de"][:5], 1, of(second, 0.5))
    assert set(shapes) == {1}
