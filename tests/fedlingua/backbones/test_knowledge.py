"""Signs that a backbone knows nothing of a text, on the demo's: nine invented vocabularies, and no English."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fedlingua.backbones.directories import backbone_directory
from fedlingua.backbones.knowledge import doubts, known_languages, near_chance, unknown_characters
from fedlingua.backbones.load import Backbone, load_backbone
from fedlingua.common.languages import parse_direction
from fedlingua_demo import phrasebook

ES_EN = parse_direction("es-en")


@pytest.fixture(scope="module")
def demo() -> Backbone:
    return load_backbone(backbone_directory("demo"), "demo")


def test_the_demo_knows_the_phrasebooks_languages_though_its_tokenizer_has_a_hundred(demo: Backbone) -> None:
    assert known_languages(demo) == (set(phrasebook.LANGUAGES), set(phrasebook.LANGUAGES))
    assert "en" in demo.codec.language_ids
    assert list(doubts(demo, parse_direction("de-fr"))) == []
    (text,) = doubts(demo, ES_EN)
    assert text.startswith("direction es-en: backbone 'demo' was never trained to write English, only cs, de, es")


def test_a_recipe_says_what_is_read_and_what_is_written(demo: Backbone, tmp_path: Path) -> None:
    shutil.copytree(demo.directory, tmp_path / "own")
    own = replace(demo, name="own", directory=tmp_path / "own")
    assert known_languages(own)[0] >= {"en", "de", "zh"}  # nothing but its tokenizer says so
    card = tmp_path / "own" / "pretraining.json"
    card.write_text(json.dumps({"dev_loss": 4.2}))  # as little as this one
    assert known_languages(own)[0] >= {"en", "de", "zh"}
    card.write_text(json.dumps({"recipe": {"corpora": ["de-en", "es-en"]}}))
    assert known_languages(own) == ({"de", "es"}, {"en"})
    assert list(doubts(own, ES_EN)) == []
    assert "never trained to read English" in next(doubts(own, ES_EN.reverse))
    card.write_text(json.dumps({"recipe": {"corpora": ["de-en", "es-en"], "both_ways": True}}))
    assert known_languages(own) == ({"de", "es", "en"}, {"de", "es", "en"})


def test_nothing_of_the_demos_own_text_and_no_letter_is_unknown_to_it(demo: Backbone) -> None:
    text = phrasebook.register_corpus("hospital", 20, 5)
    assert list(doubts(demo, parse_direction("de-fr"), [*zip(text["de"], text["fr"], strict=True)])) == []
    told = list(doubts(demo, parse_direction("ru-fr"), [("Врач осматривает больного.", "le médecin")]))
    assert [each.partition(":")[0] for each in told] == ["direction ru-fr"]


def test_letters_that_a_tokenizer_lacks_are_told_with_the_number_of_sentences(backbone: Backbone) -> None:
    pairs = [("das Taxi", "le taxi"), ("der Mann", "l'homme\u200b"), ("die Taxe", "北京"), ("das Kind", "l'enfant")]
    told = list(doubts(backbone, parse_direction("de-fr"), pairs))
    words = "sentences have characters that the tokenizer of backbone 'tiny' lacks, so that they are lost:"
    assert [each.partition("; ")[0] for each in told] == [f"de: 2 of 4 {words} x", f"fr: 2 of 4 {words} x 京 北"]
    many = "".join(map(chr, range(0x4E00, 0x4E00 + 40)))
    assert f"{' '.join(many[:12])} and 28 more; choose" in next(unknown_characters(backbone, "zh", [many], written=True))


def test_text_without_unknown_letters_is_not_tokenized_for_the_warning(
    backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = list[str]()
    pieces = backbone.codec.pieces
    monkeypatch.setattr(backbone.codec, "pieces", lambda some, written=False: [cut.extend(some), *pieces(some, written)][1:])
    assert not list(unknown_characters(backbone, "de", ["der Mann", "das Kind"] * 9, written=False))
    assert {len(each) for each in cut} == {1}


def test_real_text_in_a_language_of_the_phrasebooks_is_told_by_its_words(demo: Backbone) -> None:
    real = "Die Stadtverwaltung hat gestern beschlossen, die alte Brücke über den Fluss im Frühjahr zu sanieren."
    told = list(doubts(demo, parse_direction("de-fr"), [(real, phrasebook.register_corpus("hospital", 1, 5)["fr"][0])]))
    assert [each.partition(",")[0] for each in told] == ["de: backbone 'demo' knows the phrasebook's words alone"]


def test_random_weights_know_nothing_and_nobody_expects_it(demo: Backbone) -> None:
    assert list(doubts(replace(demo, drawn_with=1), ES_EN)) == []


def test_a_loss_like_guessing_is_told_with_both_numbers() -> None:
    assert list(near_chance({"clinic": 5.5}, 1311)) == []  # the demo on a register that is new to it
    (text,) = near_chance({"farm": 5.5, "clinic": 8.07}, 1311)  # on Spanish and English
    assert text.startswith("site clinic: ")


def test_a_warning_of_many_sites_is_one_line() -> None:
    losses = {f"site-{number}": 5.0 + number for number in range(6)}
    (text,) = near_chance(losses, 1311)
    assert text.startswith(
        "4 of 6 sites (site-2, site-3, site-4, ...): the backbone's dev loss is 7.0 to 10.0 nats a token, where"
    )
    (text,) = near_chance({"clinic": 8.07, "court": 8.08}, 1311)
    assert text.startswith("2 of 2 sites (clinic, court): the backbone's dev loss is 8.1 nats a token")
    (text,) = near_chance({"clinic": 8.07}, 1311)
    assert text.startswith(f"site clinic: the backbone's dev loss is 8.1 nats a token, where guessing has {math.log(1311):.1f}")
