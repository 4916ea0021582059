"""kNN-MT: the mixture against a naive one, the search against every distance, and what a datastore of known sentences does."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedlingua.backbones.load import Backbone, load_backbone
from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.desk.translating import memory_making
from fedlingua.desk.translating import memory_store as memory_module
from fedlingua.desk.translating.memory_making import choose, choose_mixings, make_memory, principal_axes, quantized
from fedlingua.desk.translating.memory_store import Memory, Mixing, feed_forward_inputs, mixed
from fedlingua.evaluation.decode import translate
from fedlingua.evaluation.scores import bleu_score, score_sums
from fedlingua.training.translation import PairExample, encode_pairs
from tests.mbart import build_mbart50

DE_FR = Direction("de", "fr")


@pytest.fixture
def pairs(phrases: dict[str, list[str]]) -> list[Pair]:
    return [Pair(*both) for both in zip(phrases["de"][:24], phrases["fr"][:24], strict=True)]


@pytest.fixture
def known(backbone: Backbone, pairs: list[Pair]) -> Memory:
    """The datastore of 24 sentences, mixed in almost alone."""
    memory = make_memory(backbone.model, backbone.codec, examples_of(backbone, pairs), "model")
    return replace(memory, mixing=Mixing(0.99, 0.01, 4))


def examples_of(backbone: Backbone, pairs: list[Pair]) -> list[PairExample]:
    return encode_pairs(pairs, DE_FR, backbone.codec, 48)


def translated(backbone: Backbone, pairs: list[Pair], beam: int = 2, *guides: Memory, most: int = 0) -> list[str]:
    sources = [pair.source for pair in pairs]
    return translate(backbone.model, backbone.codec, sources, DE_FR, beam, 48, 32, most, guides)


def drawn(rows: int, n: int, dimensions: int) -> tuple[Memory, torch.Tensor]:
    """A memory of random keys whose states are the keys' own dimensions, and states to ask with."""
    generator = torch.Generator().manual_seed(4)
    keys = torch.randint(-127, 128, (n, dimensions), generator=generator, dtype=torch.int8)
    values = torch.randint(0, 9, (n,), generator=generator, dtype=torch.int32)
    scale = torch.rand(dimensions, generator=generator) / 64
    memory = Memory(keys, values, torch.full((dimensions,), 0.5), torch.eye(dimensions), scale, "model", Mixing(0.4, 2.0, 3))
    return memory, torch.randn(rows, dimensions, generator=generator)


def test_the_mixture_is_the_papers_eqs_2_and_3() -> None:
    """Rows by hand in float64: neighbours that agree add up, and what the model forbids stays forbidden."""
    generator = torch.Generator().manual_seed(1)
    log_model = torch.randn(5, 7, generator=generator).log_softmax(dim=1)
    log_model[0, 2] = -torch.inf
    squared = 9 * torch.rand(5, 4, generator=generator)
    tokens = torch.tensor([[2, 3, 3, 2], [1, 1, 1, 1], [0, 1, 2, 3], [6, 6, 0, 6], [4, 5, 5, 5]])
    found = mixed(log_model, squared, tokens, Mixing(0.3, 2.5, 4)).double().exp()
    for row in range(5):
        weights = [np.exp(-float(distance) / 2.5) for distance in squared[row]]
        for token in range(7):
            p_neighbours = sum(w for w, of in zip(weights, tokens[row].tolist(), strict=True) if of == token) / sum(weights)
            p_model = float(np.exp(np.float64(log_model[row, token])))
            wanted = 0.3 * p_neighbours + 0.7 * p_model if p_model else 0.0
            assert float(found[row, token]) == pytest.approx(wanted, rel=1e-5, abs=1e-9)
    assert found[1:].sum(dim=1).tolist() == pytest.approx([1.0] * 4, rel=1e-5)


@pytest.mark.parametrize(("n", "neighbours"), [(3, 8), (64, 8), (1000, 5), (1000, 64)])
@pytest.mark.parametrize("at_once", [64, 5000, 1 << 21])
def test_search_is_exact(monkeypatch: pytest.MonkeyPatch, n: int, neighbours: int, at_once: int) -> None:
    """However many keys are looked at together."""
    monkeypatch.setattr(memory_module, "SCORES_AT_ONCE", at_once)
    memory, states = drawn(6, n, 8)
    keys = memory.keys.numpy().astype(np.float64) * memory.scale.double().numpy()
    every = (((states.double().numpy() - 0.5)[:, None, :] - keys[None]) ** 2).sum(axis=2)
    order = every.argsort(axis=1)[:, :neighbours]
    squared, tokens = memory.nearest(states, neighbours)
    assert np.allclose(squared.numpy(), np.take_along_axis(every, order, axis=1), atol=1e-4)
    assert np.array_equal(tokens.numpy(), memory.values.numpy()[order])


def test_faiss_finds_the_same_among_few_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setattr(memory_module, "CELLS_A_ROOT", 0.5)
    memory, states = drawn(6, 3000, 8)
    looked_up = replace(memory, index=memory_module.faiss_index(memory.keys.numpy(), memory.scale.numpy()))
    (exact, _), (near, _) = memory.nearest(states, 4), looked_up.nearest(states, 4)
    assert torch.allclose(near, exact, atol=0.1)


def test_a_large_memory_is_given_to_faiss_and_stored_with_it(
    monkeypatch: pytest.MonkeyPatch, backbone: Backbone, pairs: list[Pair], tmp_path: Path
) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setattr(memory_making, "FAISS_FROM", 50)
    memory = make_memory(backbone.model, backbone.codec, examples_of(backbone, pairs), "model")
    replace(memory, mixing=Mixing(0.99, 0.01, 4)).save(tmp_path / "memory")
    loaded = Memory.load(tmp_path / "memory", "model")
    assert loaded.index is not None
    assert bleu(translated(backbone, pairs, 1, loaded), pairs) > 15


def test_without_faiss_a_large_memory_is_refused(monkeypatch: pytest.MonkeyPatch, backbone: Backbone, pairs: list[Pair]) -> None:
    monkeypatch.setattr(memory_making, "FAISS_FROM", 50)
    monkeypatch.setattr(memory_module, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs faiss, an extra; install it with pip install 'fedlingua\[memory\]'"):
        make_memory(backbone.model, backbone.codec, examples_of(backbone, pairs), "model")


def test_axes_are_those_of_most_variance_and_keep_distances() -> None:
    generator = np.random.default_rng(2)
    turned, _ = np.linalg.qr(generator.normal(size=(6, 6)))
    states = (generator.normal(size=(400, 3)) * [9, 3, 1]) @ turned[:3] + 5
    mean, axes = principal_axes(states.astype(np.float32), 3)
    assert np.allclose(np.abs((turned[:3] * axes.T).sum(axis=1)), 1, atol=0.02)
    reduced = (states - mean) @ axes
    assert np.linalg.norm(reduced[0] - reduced[1]) == pytest.approx(np.linalg.norm(states[0] - states[1]), rel=1e-4)


def test_eight_bits_by_hand() -> None:
    reduced, scale = np.array([[1.27, -4.0, 0.004], [0.006, 2.0, 9.0]]), np.array([0.01, 2.0, 0.01])
    assert quantized(reduced, scale).tolist() == [[127, -2, 0], [1, 1, 127]]


@torch.no_grad()
def test_a_key_is_what_enters_the_last_feed_forward_network_and_its_value_what_followed(
    backbone: Backbone, pairs: list[Pair], known: Memory
) -> None:
    example = examples_of(backbone, pairs)[5]
    entered: list[torch.Tensor] = []
    hook = backbone.model.model.decoder.layers[-1].fc1.register_forward_pre_hook(lambda module, args: entered.append(args[0]))
    batch = PairExample.stack([example], backbone.codec)
    with feed_forward_inputs(backbone.model) as held:
        backbone.model.eval()(input_ids=batch.input_ids, decoder_input_ids=batch.decoder_input_ids)
    hook.remove()
    assert torch.equal(held[0], entered[0])
    squared, tokens = known.nearest(held[0][0, 1:], 1)
    assert tokens[:, 0].tolist() == example.target[1:]
    assert float(squared.max()) < 0.01 * float(((held[0][0] - known.mean) @ known.axes).square().sum(dim=1).mean())


def test_every_target_token_but_the_language_is_a_key(backbone: Backbone, pairs: list[Pair], known: Memory) -> None:
    wanted = Counter(token for example in examples_of(backbone, pairs) for token in example.target[1:])
    assert Counter(known.values.tolist()) == wanted
    assert (known.keys.dtype, known.keys.shape[1]) == (torch.int8, 32)
    few = make_memory(backbone.model, backbone.codec, examples_of(backbone, pairs), "model", most_keys=40)
    assert 20 < len(few.keys) <= 40


def bleu(hypotheses: list[str], pairs: list[Pair]) -> float:
    return bleu_score(score_sums(hypotheses, [pair.target for pair in pairs], "fr"))


@pytest.mark.parametrize(("beam", "least"), [(1, 45), (2, 18)])
def test_a_datastore_of_the_very_sentences_translates_them(
    backbone: Backbone, pairs: list[Pair], known: Memory, beam: int, least: float
) -> None:
    """Though the model's weights are random."""
    plain, looked_up = translated(backbone, pairs, beam), translated(backbone, pairs, beam, known)
    assert bleu(plain, pairs) < 5
    assert bleu(looked_up, pairs) > least
    assert looked_up == translated(backbone, pairs, beam, known)
    assert looked_up == translated(backbone, pairs, beam, known, most=5)
    assert translated(backbone, pairs, beam) == plain


def test_mbart_has_a_memory_too(tmp_path: Path, pairs: list[Pair], phrases: dict[str, list[str]]) -> None:
    lines = [line for lines in phrases.values() for line in lines]
    backbone = load_backbone(build_mbart50(tmp_path / "mbart", lines), "mbart")
    memory = make_memory(backbone.model, backbone.codec, examples_of(backbone, pairs), "model")
    known = replace(memory, mixing=Mixing(0.99, 0.01, 4))
    assert bleu(translated(backbone, pairs, 2, known), pairs) > bleu(translated(backbone, pairs), pairs) + 5


def test_dev_tokens_choose_k_and_t(backbone: Backbone, pairs: list[Pair], known: Memory) -> None:
    """Of a text that the datastore holds the sharpest mixture is best."""
    chosen = choose_mixings(backbone.model, backbone.codec, known, examples_of(backbone, pairs))
    assert sorted(chosen) == list(memory_making.WEIGHTS[1:])
    temperatures = {mixing.temperature for mixing in chosen.values()}
    assert len(temperatures) == 1
    nll = {}
    for temperature in (*temperatures, 10 * max(temperatures)):
        squared, tokens, right, log_model = (
            torch.cat(parts)
            for parts in zip(
                *memory_making._dev_tokens(backbone.model, backbone.codec, known, examples_of(backbone, pairs)), strict=True
            )
        )
        rows = torch.full((len(right), 400), -30.0).scatter(1, right[:, None], log_model[:, None])
        k = chosen[0.5].neighbours
        out = mixed(rows, squared[:, :k], tokens[:, :k], Mixing(0.5, temperature, k))
        nll[temperature] = -float(out.gather(1, right[:, None]).mean())
    assert nll[min(nll)] < nll[max(nll)]


def test_the_best_translations_of_dev_choose_lambda_and_of_equal_ones_the_least() -> None:
    memory, _ = drawn(1, 3, 8)
    mixings = {weight: Mixing(weight, 1.0, 4) for weight in (0.3, 0.6)}

    def chosen(scores: dict[float, float]) -> float:
        return choose(memory, mixings, lambda tried: scores[tried.mixing.weight if tried else 0.0]).mixing.weight

    assert chosen({0.0: 1.0, 0.3: 2.0, 0.6: 3.0}) == 0.6
    assert chosen({0.0: 1.0, 0.3: 3.0, 0.6: 3.0}) == 0.3
    memory = replace(memory, mixing=Mixing(0.0, 1.0, 1))
    assert chosen({0.0: 3.0, 0.3: 3.0, 0.6: 1.0}) == 0.0


def test_what_is_stored_is_read_again_by_its_own_model_alone(known: Memory, tmp_path: Path) -> None:
    file = tmp_path / "site" / "memory.safetensors"
    replace(known, about={"sentences": 24}).save(file)
    loaded = Memory.load(file, "model")
    assert (loaded.mixing, loaded.about) == (known.mixing, {"sentences": 24})
    assert all(torch.equal(getattr(loaded, name), getattr(known, name)) for name in ("keys", "values", "mean", "axes", "scale"))
    with pytest.raises(
        RunError, match=r"was built with another model \(model\) than the one that translates \(other\); build it again"
    ):
        Memory.load(file, "other")
    content = file.read_bytes()
    for damaged in (content[:-7], b"", content.replace(b'\\"mixing\\"', b'\\"mixed!\\"')):
        file.write_bytes(damaged)
        with pytest.raises(RunError, match="the memory is damaged"):
            Memory.load(file, "model")


def test_a_file_tells_people_what_it_is(known: Memory, tmp_path: Path) -> None:
    from safetensors import safe_open

    known.save(tmp_path / "memory.safetensors")
    with safe_open(tmp_path / "memory.safetensors", "pt") as stored:
        about = json.loads(stored.metadata()["memory"])
    assert about == {
        "sentences": 24,
        "fingerprint": "model",
        "mixing": {"weight": 0.99, "temperature": 0.01, "neighbours": 4},
    }


def test_what_bypasses_the_head_is_no_state(backbone: Backbone, pairs: list[Pair]) -> None:
    """Another output head changes no key."""
    before = make_memory(backbone.model, backbone.codec, examples_of(backbone, pairs), "model")
    backbone.model.lm_head.weight = nn.Parameter(torch.randn_like(backbone.model.lm_head.weight))
    after = make_memory(backbone.model, backbone.codec, examples_of(backbone, pairs), "model")
    assert torch.equal(before.keys, after.keys)
