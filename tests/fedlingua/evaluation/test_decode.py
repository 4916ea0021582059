"""Decoding: order kept, empty lines kept empty, the target's language first, and no sentence sees its neighbours."""

from typing import Any

import pytest
import torch
from torch import nn

from fedlingua.backbones.load import Backbone
from fedlingua.common.errors import RunError
from fedlingua.common.languages import Direction
from fedlingua.evaluation import decode
from fedlingua.evaluation.decode import translate

DE_FR = Direction("de", "fr")


@pytest.fixture
def talker(backbone: Backbone) -> Backbone:
    """A model that says something else to each sentence: tied random embeddings only repeat the last token for ever."""
    codec, generator = backbone.codec, torch.Generator().manual_seed(3)
    head = torch.randn(backbone.model.lm_head.weight.shape, generator=generator)
    # It says pieces, or ends, but neither pads nor names a language.
    head[[0, codec.pad_id, 3]] = 0
    head[303:] = 0
    head[codec.end_id] *= 1.5
    backbone.model.lm_head.weight = nn.Parameter(head, requires_grad=False)
    with torch.no_grad():
        for name, parameter in backbone.model.named_parameters():
            if parameter.dim() > 1 and "encoder_attn" in name:
                parameter.mul_(12)
            elif parameter.dim() > 1 and ".layers." in name:
                parameter.mul_(4)
    return backbone


@pytest.fixture
def sentences(phrases: dict[str, list[str]]) -> list[str]:
    return phrases["de"][:12]


def translated(talker: Backbone, sentences: list[str], direction: Direction = DE_FR, beam: int = 1) -> list[str]:
    return translate(talker.model, talker.codec, sentences, direction, beam, 32, 8)


@torch.no_grad()
def greedy(talker: Backbone, sentence: str, direction: Direction, most: int) -> list[int]:
    """End token, language, then the likeliest piece again and again, one forward pass each."""
    codec = talker.codec
    source = torch.tensor(codec.encode_source([sentence], Direction(direction.source, direction.source), 32))
    ids = [codec.end_id, codec.language_ids[direction.target]]
    while len(ids) <= most and ids[-1] != codec.end_id:
        logits = talker.model(input_ids=source, decoder_input_ids=torch.tensor([ids])).logits
        ids.append(int(logits[0, -1].argmax()))
    return ids


@pytest.mark.parametrize("direction", [DE_FR, Direction("de", "pl")], ids=str)
def test_a_translation_is_greedy_search_after_the_targets_language(
    talker: Backbone, sentences: list[str], direction: Direction
) -> None:
    wanted = [talker.codec.decode([greedy(talker, sentence, direction, 8)])[0] for sentence in sentences]
    assert translated(talker, sentences, direction) == wanted
    assert len(set(wanted)) > 2


def test_the_forced_language_decides_the_output(talker: Backbone, sentences: list[str]) -> None:
    seen: list[int] = []
    hook = talker.model.get_submodule("model.decoder").register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(int(kwargs["input_ids"][0, -1])), with_kwargs=True
    )
    translated(talker, sentences[:1], Direction("de", "cs"))
    hook.remove()
    assert seen[:2] == [talker.codec.end_id, talker.codec.language_ids["cs"]]


@pytest.mark.parametrize("beam", [1, 3])
def test_order_is_kept_and_no_sentence_sees_its_neighbours(talker: Backbone, sentences: list[str], beam: int) -> None:
    alone = [translated(talker, [sentence], beam=beam)[0] for sentence in sentences]
    assert translated(talker, sentences, beam=beam) == alone
    assert translated(talker, sentences[::-1], beam=beam) == alone[::-1]


@torch.no_grad()
def generated(talker: Backbone, sentences: list[str], beam: int, without_cache: bool) -> list[str]:
    """transformers' own generate, all sentences in one batch, in their own order."""
    codec = talker.codec
    encoded = codec.encode_source(sentences, Direction("de", "de"), 32)
    input_ids = torch.full((len(encoded), max(map(len, encoded))), codec.pad_id)
    for row, ids in enumerate(encoded):
        input_ids[row, : len(ids)] = torch.tensor(ids)
    output = talker.model.generate(
        input_ids=input_ids,
        attention_mask=(input_ids != codec.pad_id).long(),
        forced_bos_token_id=codec.language_ids["fr"],
        num_beams=beam,
        early_stopping=beam > 1,
        do_sample=False,
        max_length=None,
        max_new_tokens=8,
        use_cache=not without_cache,
    )
    return codec.decode(output.tolist())


@pytest.mark.parametrize("without_cache", [False, True])
@pytest.mark.parametrize("beam", [1, 3, 5])
@pytest.mark.parametrize("budget", [40, 4000])
def test_batches_by_length_give_what_generate_gives_of_all_at_once(
    talker: Backbone, phrases: dict[str, list[str]], beam: int, budget: int, without_cache: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With generate's cache, and without one, which is a whole forward pass for every token."""
    monkeypatch.setattr(decode, "TOKENS_PER_BATCH", budget)
    sentences = phrases["de"][40:70]
    assert translated(talker, sentences, beam=beam) == generated(talker, sentences, beam, without_cache)


def test_many_small_batches_give_what_one_large_gives(
    talker: Backbone, sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    large = translated(talker, sentences)
    monkeypatch.setattr(decode, "TOKENS_PER_BATCH", 1)
    assert translated(talker, sentences) == large


def test_a_long_sentence_does_not_pad_short_ones(
    talker: Backbone, phrases: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    short, generate, lengths = phrases["de"][:6], talker.model.generate, list[int]()

    def watched(input_ids: torch.Tensor, **asked: Any) -> torch.Tensor:
        lengths.append(input_ids.shape[1])
        return generate(input_ids=input_ids, **asked)

    monkeypatch.setattr(talker.model, "generate", watched)
    alone = translated(talker, short)
    of_short, long = max(lengths), " ".join(short)
    assert translated(talker, [*short[:3], long, *short[3:]])[4:] == alone[3:]
    assert [length for length in lengths[-2:] if length > of_short] == [32]  # cut at that many, and by itself


def test_a_batch_that_does_not_fit_into_memory_is_halved(
    talker: Backbone, sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, generate, rows = translated(talker, sentences), talker.model.generate, list[int]()

    def small(input_ids: torch.Tensor, **asked: Any) -> torch.Tensor:
        rows.append(len(input_ids))
        if len(input_ids) > 2:
            raise torch.OutOfMemoryError
        return generate(input_ids=input_ids, **asked)

    monkeypatch.setattr(talker.model, "generate", small)
    assert translated(talker, sentences) == at_once
    assert rows[0] > 2
    assert rows[-1] in (1, 2)
    assert sum(size for size in rows if size <= 2) == len(sentences)


def test_one_sentence_that_does_not_fit_into_memory_is_an_error_that_says_what_to_do(
    talker: Backbone, sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**asked: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(talker.model, "generate", full)
    with pytest.raises(RunError, match=r"one sentence of \d+ tokens runs out of memory; give a smaller beam"):
        translated(talker, sentences[:2])


def test_a_line_without_a_visible_character_is_empty_and_no_invention(
    talker: Backbone, sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = ["\u200b", "\ufeff", "\u200e", "\u3164", "\u2800\xad", "\u0301", "\ufe0f", "\x07", "\xa0\u3000"]
    assert translated(talker, [sentences[0], *nothing]) == [*translated(talker, sentences[:1]), *[""] * len(nothing)]
    # Some tokenizers keep nothing of what can be seen.
    cut = talker.codec._cut
    monkeypatch.setattr(
        talker.codec, "_cut", lambda some, written: [[] if one == "♥" else cut([one], written)[0] for one in some]
    )
    assert translated(talker, ["♥", sentences[0]]) == ["", *translated(talker, sentences[:1])]


def test_an_empty_line_stays_empty_in_its_place(talker: Backbone, sentences: list[str]) -> None:
    first, second = translated(talker, sentences[:2])
    assert translated(talker, ["", sentences[0], "  ", sentences[1], ""]) == ["", first, "", second, ""]
    assert translated(talker, []) == []
    assert translated(talker, [""]) == [""]


def test_what_stands_beyond_max_tokens_is_not_read(talker: Backbone, sentences: list[str]) -> None:
    def cut_at(max_tokens: int, end: str) -> list[str]:
        return translate(talker.model, talker.codec, [sentence + end for sentence in sentences], DE_FR, 1, max_tokens, 8)

    assert min(map(len, talker.codec.encode_source(sentences, Direction("de", "de"), 100))) > 8
    assert cut_at(8, "") == cut_at(8, " Hat der reiche Tourist das gesehen?")
    assert cut_at(8, "") != cut_at(60, "")


def test_a_translation_has_at_most_max_new_tokens(talker: Backbone, sentences: list[str]) -> None:
    # The language is the first of them.
    wanted = talker.codec.decode([greedy(talker, sentence, DE_FR, 4) for sentence in sentences])
    assert translate(talker.model, talker.codec, sentences, DE_FR, 1, 32, 4) == wanted
    assert wanted != translated(talker, sentences)


@pytest.mark.parametrize("beam", [1, 3])
def test_a_short_sentences_limit_is_its_own_beside_a_long_one(talker: Backbone, phrases: dict[str, list[str]], beam: int) -> None:
    """None of them ever ends by itself, so that each is as long as it may be."""
    with torch.no_grad():
        talker.model.lm_head.weight[talker.codec.end_id] = 0
        talker.model.lm_head.weight[talker.codec.end_id] -= 1e3 * talker.model.lm_head.weight[5:300].mean(dim=0)
    texts = ["Ja", "Der Arzt liest.", " ".join(phrases["de"][:3])]
    lengths = [len(ids) for ids in talker.codec.encode_source(texts, Direction("de", "de"), 60)]
    assert lengths == sorted(set(lengths))
    together = translate(talker.model, talker.codec, texts, DE_FR, beam, 60, 60)
    alone = [translate(talker.model, talker.codec, [text], DE_FR, beam, 60, 60)[0] for text in texts]
    assert together == alone
    assert translate(talker.model, talker.codec, texts, DE_FR, beam, 60, 60, most=1) == alone


def test_most_bounds_the_batches(talker: Backbone, sentences: list[str]) -> None:
    seen: list[int] = []
    hook = talker.model.get_submodule("model.encoder").register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    found = translate(talker.model, talker.codec, sentences, DE_FR, 2, 32, 8, most=5)
    hook.remove()
    assert seen == [5, 5, 2]
    assert found == translated(talker, sentences, beam=2)


@torch.no_grad()
def greedy_without_repeats(talker: Backbone, sentence: str, size: int, most: int) -> list[int]:
    """As `greedy`, but of pieces that would make the last `size` tokens stand there twice the next likeliest is taken."""
    codec = talker.codec
    source = torch.tensor(codec.encode_source([sentence], Direction("de", "de"), 32))
    ids = [codec.end_id, codec.language_ids["fr"]]
    while len(ids) <= most and ids[-1] != codec.end_id:
        order = talker.model(input_ids=source, decoder_input_ids=torch.tensor([ids])).logits[0, -1].argsort(descending=True)
        there = {tuple(ids[at : at + size]) for at in range(len(ids) - size + 1)}
        ids.append(next(int(token) for token in order if (*ids[len(ids) - size + 1 :], int(token)) not in there))
    return ids


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_tokens_come_twice_where_that_is_asked_for(backbone: Backbone, sentences: list[str], size: int) -> None:
    plain = translate(backbone.model, backbone.codec, sentences, DE_FR, 1, 32, 8)
    bound = translate(backbone.model, backbone.codec, sentences, DE_FR, 1, 32, 8, no_repeat_ngram=size)
    wanted = [backbone.codec.decode([greedy_without_repeats(backbone, sentence, size, 8)])[0] for sentence in sentences]
    assert bound == wanted
    assert (bound != plain) == (
        size < 3
    )  # random embeddings only repeat the last token for ever, and end before they do so thrice


def test_a_translation_is_one_line_without_tabs(talker: Backbone, sentences: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(talker.codec), "decode", lambda self, ids: ["one\ttwo\r\nthree\u2028 four\n"] * len(ids))
    assert translated(talker, sentences[:2]) == ["one two three  four"] * 2


@pytest.mark.parametrize("beam", [1, 3])
def test_a_last_token_that_a_model_forces_comes_at_the_limit_of_each_sentence(
    talker: Backbone, phrases: dict[str, list[str]], beam: int
) -> None:
    """Limits that follow from the sources, which the model would pass."""
    codec, sentences = talker.codec, ["Ja.", "Nein, ja.", phrases["de"][0]]
    with torch.no_grad():
        talker.model.lm_head.weight[codec.end_id] = 0
    how = (DE_FR, beam, 32, 60)
    free = translate(talker.model, codec, sentences, *how)
    talker.model.generation_config.forced_eos_token_id = codec.end_id
    alone = [translate(talker.model, codec, [sentence], *how)[0] for sentence in sentences]
    assert translate(talker.model, codec, sentences, *how) == alone
    assert all(len(codec.pieces([a])[0]) < len(codec.pieces([b])[0]) for a, b in zip(alone, free, strict=True))
