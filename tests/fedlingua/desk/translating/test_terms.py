"""Terms come out, by the least bonus that brings them; a sentence without any is translated as ever."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fedlingua.backbones.load import Backbone, load_backbone
from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.languages import Direction
from fedlingua.desk.translating.terms import Terms, _begun, _Bonus
from fedlingua.evaluation.decode import translate

DE_FR = Direction("de", "fr")
SENTENCES = ["Der Arzt liest das Buch.", "Hat der Tourist das Haus gesehen?", "Ja."]


@pytest.fixture
def terms(backbone: Backbone, tmp_path: Path) -> Terms:
    (tmp_path / "terms.tsv").write_text("Arzt\tle médecin\nBuch\tun livre\nHaus\tla maison\nTouristin\tla dame\n")
    return Terms.read(tmp_path / "terms.tsv", DE_FR, backbone.codec)


def translated(backbone: Backbone, sentences: list[str], guides: object = (), beam: int = 3) -> list[str]:
    return translate(backbone.model, backbone.codec, sentences, DE_FR, beam, 48, 24, 0, guides)  # type: ignore[arg-type]


@pytest.mark.parametrize("beam", [1, 3])
def test_the_terms_of_a_sentence_come_out_and_are_counted(backbone: Backbone, terms: Terms, beam: int) -> None:
    language = backbone.codec.language_id("fr")  # of what is no piece only this may be said
    no_pieces = [number for number in (0, 1, 3, *range(303, backbone.model.config.vocab_size)) if number != language]
    backbone.model.generation_config.suppress_tokens = no_pieces
    plain = translated(backbone, SENTENCES, beam=beam)
    found = terms.translate(SENTENCES, lambda some, guides: translated(backbone, some, guides, beam))
    assert vars(terms.count) == {"asked": 3, "without": 0, "right": 3}
    assert ("le médecin" in found[0], "un livre" in found[0], "la maison" in found[1]) == (True, True, True)
    assert not any(term in plain[0] + plain[1] for term in ("le médecin", "un livre", "la maison"))
    assert found[2] == plain[2]


def test_what_comes_out_by_itself_is_not_translated_again(terms: Terms) -> None:
    asked: list[tuple[list[str], float]] = []

    def fake(some: list[str], guides: object) -> list[str]:
        bonus = guides[0].bonus if guides else 0.0  # type: ignore[index]
        asked.append((some, bonus))
        return ["Un livre, LE MÉDECIN." if bonus or number == 0 else "la maisonnette" for number in range(len(some))]

    assert terms.translate(SENTENCES, fake)[1] == "la maisonnette"
    assert asked == [(SENTENCES, 0.0), *[([SENTENCES[1]], bonus) for bonus in (3.0, 6.0, 12.0)]]
    assert vars(terms.count) == {"asked": 3, "without": 2, "right": 2}


def test_a_bonus_is_given_back_by_what_breaks_a_term_off() -> None:
    """Terms 5 6 7 and 8 of one sentence, two beams; by hand."""
    bonus = _Bonus([[[5, 6, 7], [8]]], beam=2, bonus=4.0, continuing=torch.tensor([4, 9]), before=2)
    scores = torch.full((2, 10), math.log(0.1))
    scores[:, 3] = -1.0
    begun, complete = bonus(torch.tensor([[2, 9, 1, 5, 6], [2, 9, 5, 6, 7]]), scores).tolist()
    low = math.log(0.1)
    assert begun == pytest.approx([low - 4] * 3 + [-5.0, low - 4, low, low - 4, -1.0, low, low - 4])
    assert complete == pytest.approx([low] * 3 + [-1.0, low - 4] + [low] * 3 + [low + 4, low - 4])
    assert bonus(torch.tensor([[2], [2]]), scores).tolist() == scores.tolist()


@pytest.mark.parametrize(("name", "before"), [("nllb", 2), ("marian", 1), ("t5", 1)])
def test_a_term_can_begin_a_translation(name: str, before: int, family_folder: Callable[[str], Path], tmp_path: Path) -> None:
    """After the language where the model has one, else after the start token."""
    (tmp_path / "terms.tsv").write_text("Arzt\tle médecin\n")
    terms = Terms.read(tmp_path / "terms.tsv", DE_FR, load_backbone(family_folder(name), name).codec)
    assert terms.before == before
    bonus = _Bonus([[[5, 6]]], beam=1, bonus=4.0, continuing=torch.tensor([9]), before=before)
    for tokens in (1, 2):
        gained = bonus(torch.full((1, tokens), 3), torch.zeros(1, 10))[0, 5].item()
        assert gained == (4.0 if tokens >= before else 0.0)


def test_how_much_of_a_term_stands_at_the_end() -> None:
    assert [_begun(ids, [5, 5, 6]) for ids in ([1, 5], [5, 5], [5, 5, 6], [5, 6], [])] == [1, 2, 0, 0, 0]


def test_a_translation_that_the_tokenizer_cannot_write_is_left_out_by_its_line(backbone: Backbone, tmp_path: Path) -> None:
    file = tmp_path / "terms.tsv"
    file.write_text("Arzt\t医生\nBuch\tun livre\n")
    terms = Terms.read(file, DE_FR, backbone.codec)
    assert list(terms.pieces) == ["buch"]
    assert terms.remarks == [f"{file}, line 1: the backbone's tokenizer cannot write the translation; it is left out"]
    file.write_text("Arzt\t医生\n")
    with pytest.raises(CorpusError, match="can write none of 1 translations"):
        Terms.read(file, DE_FR, backbone.codec)


def test_a_decoder_only_model_is_refused(family_folder: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("Arzt\tle médecin\n")
    codec = load_backbone(family_folder("qwen3"), "qwen3").codec
    with pytest.raises(ConfigError, match=r"terms\.tsv: the run's backbone is a decoder-only model; .*; leave --terms out"):
        Terms.read(tmp_path / "terms.tsv", DE_FR, codec)


def test_a_term_has_the_pieces_of_the_target_side(family_folder: Callable[[str], Path], tmp_path: Path) -> None:
    """Marian has a SentencePiece model a side, and only the target side's pieces are those that the decoder writes."""
    codec = load_backbone(family_folder("marian"), "marian").codec
    (source,), (target,) = (codec.pieces(["maison"], written=written) for written in (False, True))
    assert source != target
    (tmp_path / "terms.tsv").write_text("Haus\tmaison\n")
    assert Terms.read(tmp_path / "terms.tsv", DE_FR, codec).pieces == {"haus": target}
