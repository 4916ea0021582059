"""Sentences to ids and back: language first, end last, never longer than asked for."""

from random import Random

import pytest

from fedlingua.backbones.codec import Codec, TextCodec
from fedlingua.backbones.load import Backbone
from fedlingua.common.errors import BackboneError
from fedlingua.common.languages import Direction


@pytest.fixture
def codec(backbone: Backbone) -> Codec:
    return backbone.codec


def test_a_sentence_stands_between_its_language_and_the_end(codec: Codec, phrases: dict[str, list[str]]) -> None:
    sentence = phrases["de"][0]
    (ids,) = codec.encode_source([sentence], Direction("de", "de"), 64)
    assert ids[0] == codec.tokenizer.get_lang_id("de")
    assert ids[-1] == codec.end_id == 2
    assert ids[1:-1] == codec.tokenizer(sentence, add_special_tokens=False)["input_ids"]


def test_the_language_is_of_the_sentence_and_not_of_the_one_before(codec: Codec) -> None:
    first = [codec.encode_source(["a"], Direction(language, language), 8)[0][0] for language in ("de", "fr", "de")]
    assert first == [codec.language_ids["de"], codec.language_ids["fr"], codec.language_ids["de"]]
    assert first[0] != first[1]


def test_a_long_sentence_is_cut_to_exactly_max_tokens_and_keeps_its_end(codec: Codec, phrases: dict[str, list[str]]) -> None:
    sentence = " ".join(phrases["fr"][:3])
    (whole,), (cut,) = (
        codec.encode_source([sentence], Direction("fr", "fr"), 1000),
        codec.encode_source([sentence], Direction("fr", "fr"), 7),
    )
    assert len(whole) > 7
    assert cut == [*whole[:6], codec.end_id]


def test_what_was_encoded_decodes_to_itself_in_every_language(codec: Codec, phrases: dict[str, list[str]]) -> None:
    unknown = codec.tokenizer.unk_token_id
    for language, sentences in phrases.items():
        encoded = codec.encode_source(sentences, Direction(language, language), 200)
        # 300 pieces do not hold every letter of nine languages.
        whole = [number for number, ids in enumerate(encoded) if unknown not in ids]
        assert len(whole) > 200
        assert codec.decode([encoded[number] for number in whole]) == [sentences[number] for number in whole]


def test_padding_and_language_leave_no_trace_in_the_text(codec: Codec) -> None:
    pieces = codec.encode_source(["ja"], Direction("de", "de"), 8)[0]
    assert codec.decode([[codec.end_id, *pieces, codec.pad_id, codec.pad_id]]) == codec.decode([pieces]) == ["ja"]


def test_no_sentences_are_no_ids(codec: Codec) -> None:
    assert codec.encode_source([], Direction("de", "de"), 8) == []


def test_the_language_of_an_mbart_code_is_what_stands_before_the_underscore() -> None:
    class Tokenizer:
        lang_code_to_id = {"de_DE": 250003, "zh_CN": 250025}  # noqa: RUF012 - stands in for a tokenizer of mBART-50's
        pad_token_id, eos_token_id = 1, 2

    assert Codec(Tokenizer()).language_ids == {"de": 250003, "zh": 250025}  # type: ignore[arg-type]


def test_a_direction_without_a_language_token_is_refused_by_name(codec: Codec) -> None:
    codec.check([Direction("de", "fr"), Direction("pl", "zh")])
    with pytest.raises(BackboneError, match=r"direction de-qq: the backbone has no language 'qq'"):
        codec.check([Direction("de", "fr"), Direction("de", "qq")])


def test_a_code_with_script_or_country_takes_the_token_of_its_language(codec: Codec) -> None:
    codec.check([Direction("zh-Hant", "zh-Hans"), Direction("nb", "nso")])
    assert codec.language_id("zh-Hant") == codec.language_id("zh-Hans") == codec.language_ids["zh"]
    assert codec.language_id("nso") == codec.language_ids["nso"]
    assert codec.language_code("nso") == "ns"
    assert codec.language_code("nb") == "no"
    assert codec.encode_source(["a"], Direction("zh-Hant", "zh-Hant"), 8) == codec.encode_source(["a"], Direction("zh", "zh"), 8)


def test_a_language_without_a_token_is_answered_with_its_relatives(codec: Codec) -> None:
    with pytest.raises(
        BackboneError, match=r"direction hsb-de: the backbone has no language 'hsb'; of the same group \(Slavic\) are be, bg,"
    ):
        codec.check([Direction("hsb", "de")])
    with pytest.raises(BackboneError, match=r"no language 'yue'; of the same group \(Sinitic\) are zh; it has af,"):
        codec.check([Direction("de", "yue")])
    with pytest.raises(BackboneError, match=r"no language 'eo'.*it has af,"):
        codec.check([Direction("eo", "de")])


def test_any_piece_is_every_piece_but_a_special_one(encoder: Backbone) -> None:
    codec, rng = encoder.codec, Random(1)
    assert isinstance(codec, TextCodec)
    size = encoder.model.config.vocab_size
    drawn = {codec.any_piece(rng) for _ in range(20 * size)}
    assert drawn == set(range(size)) - {0, 1, 2, 3, codec.mask_id}


def test_text_that_spells_a_special_token_is_still_text(encoder: Backbone) -> None:
    codec = encoder.codec
    assert isinstance(codec, TextCodec)
    spelt = [f"die {token} Angst" for token in codec.tokenizer.all_special_tokens]
    special = codec.special_ids - {codec.tokenizer.unk_token_id}
    assert not any(special.intersection(ids) for ids in codec.pieces(spelt))


def test_text_may_be_of_any_language(encoder: Backbone) -> None:
    encoder.codec.check([Direction("yo", "yo")])


def test_the_ids_that_are_remembered_are_bounded(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    cut: list[str] = []
    monkeypatch.setattr(
        codec, "_cut", lambda sentences, written: cut.extend(sentences) or [[7] * len(each) for each in sentences]
    )
    monkeypatch.setattr(codec, "_free", 10)
    for _ in range(2):
        assert codec.pieces(["abcd", "abcdefghijk", "efghi", "x", "yz"]) == [[7] * size for size in (4, 11, 5, 1, 2)]
    assert cut == ["abcd", "abcdefghijk", "efghi", "x", "yz", "abcdefghijk", "yz"]


def test_what_is_one_unknown_id_is_remembered_by_its_length(codec: Codec) -> None:
    before, unknown = codec._free, "医" * 4000
    assert len(codec.pieces([unknown])[0]) < 10
    assert before - codec._free == 1000
