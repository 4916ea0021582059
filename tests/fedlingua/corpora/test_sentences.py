"""Where sentences end, in several languages, and where a full stop does not end one."""

import random

import pytest

from fedlingua.corpora.sentences import split_sentences


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["He came.", "She left!", "Why?", "Nobody knows…", "So it was?!", "Yes"]),
        ("en", ["Take 3.5 mg of it.", "Then 2 ml more."]),
        ("en", ["See Fig. 3 and No. 4, approx. 5 cm.", "No.", "Not here."]),
        (
            "en",
            [
                "Dr. Smith and J. R. Jones, i.e. both, saw Mrs. May vs. Mr. June, e.g. at 5 p.m. in the U.S. again.",
                "Then they left.",
            ],
        ),
        ("en", ['"Why?" she asked.', '"Go!"', "He went (at last).", "[Then all went.]", "End."]),
        ("en", ["1. Aspirin daily.", "Creatinine was 1.2.", "It rose in 1995.", "Then it fell."]),
        ("es", ["El Dr. Pérez vio a la Sra. López.", "¿Qué tal?", "¡Bien!", "Tomó aprox. 3 mg.", "Se dio de alta."]),
        (
            "de",
            ["Am 3. Mai kam Dr. med. Huber bzw. Frau Maier.", "Er sagte: „Geh.“", "Z. B. heute.", "Es war 1995.", "Dann nicht."],
        ),
        ("de", ["Vgl. Abb. 3 und Kap. 2 dort.", "Er liegt auf der Abt. Chirurgie.", "Nimmt max. 3 mg ab 5. Feb. 2020.", "Max."]),
        ("en", ["Seen on Jan. 5 at Mt. Sinai by Sgt. May.", "Back in Jan.", "In May."]),
        (
            "es",
            [
                "Llegó de EE. UU. hasta Av. Mayor 100.",
                "Volvió a EE. UU.",
                "Pesa 8 kg.",
                "Sangró 100 cc.",
                "Vio a RR. HH.",
                "Hoy no.",
            ],
        ),
        ("pl", ["O godz. 20 w woj. Lubelskim był m.in. Jan.", "Spał do 5. godz.", "Wstał."]),
        ("fr", ["M. Dupont a dit : « Oui. »", "Puis Mme Petit partit.", "« Non ? » dit-il."]),
        ("ru", ["Проф. Иванов пришёл.", "Как дела?", "См. рис. 3."]),
        ("el", ["Τι κάνεις;", "Καλά."]),
        ("ka", ["ეს კარგია.", "ის მოვიდა."]),
        ("ar", ["هل لديك سيلان أنف؟", "نعم.", "لا!"]),
        ("ur", ["یہ ٹھیک ہے۔", "وہ آیا۔"]),
        ("hi", ["डॉ. शर्मा आए।", "क्या वह ठीक है?", "3.5 मिलीग्राम दें।"]),
        ("am", ["ሰላም።", "እንዴት ነህ?"]),
        ("sw", ["Una homa?", "Ndiyo.", "Kunywa maji 1.5 lita."]),
    ],
)
def test_sentences_end_where_their_readers_say(language: str, sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences), language) == sentences


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("zh", ["您好。", "您有流鼻涕吗？", "“是的！”", "“不。”", "附录 3.5 很长。", "好吗?", "我知道"]),
        ("ja", ["「行く。」", "彼は言った。", "元気ですか？！", "はい。"]),
        ("km", ["សួស្តី។", "អរគុណ៕"]),
        ("hi", ["वह आया।", "वह गया॥"]),
    ],
)
def test_marks_that_stand_for_nothing_else_need_no_space(language: str, sentences: list[str]) -> None:
    assert split_sentences("".join(sentences), language) == sentences


def test_a_newline_ends_a_sentence_and_other_white_space_becomes_a_space() -> None:
    assert split_sentences("\n Plan\r\n\ncontinue\tthe \u00a0 drug\nand rest. \n", "en") == [
        "Plan",
        "continue the drug",
        "and rest.",
    ]


@pytest.mark.parametrize("document", ["", " \n\t\r\n "])
def test_white_space_has_no_sentence(document: str) -> None:
    assert split_sentences(document, "en", 3) == []


def test_a_sentence_that_goes_on_in_small_letters_is_one() -> None:
    assert split_sentences("Was it E. coli? yes, etc. and so on.", "en") == ["Was it E. coli? yes, etc. and so on."]


def test_an_address_is_no_end() -> None:
    assert split_sentences("See www.example.org/a?b=C!d for more.", "en") == ["See www.example.org/a?b=C!d for more."]


def test_a_long_sentence_comes_in_even_pieces() -> None:
    assert split_sentences("a b c d e f ga. Short one.", "en", 3) == ["a b", "c d", "e f ga.", "Short one."]
    assert split_sentences("a b c d e f ga.", "en", 7) == ["a b c d e f ga."]
    assert split_sentences("a b c d e f ga.", "en", 0) == ["a b c d e f ga."]


def test_without_spaces_pieces_are_counted_in_characters() -> None:
    assert split_sentences("一二三四五六七", "zh", 3) == ["一二", "三四", "五六七"]
    assert split_sentences("一二 三四", "zh", 4) == ["一二 三四"]  # spaces do not count
    assert split_sentences("กี่กี่กี่กี่", "th", 6) == ["กี่กี่", "กี่กี่"]  # marks stay with their letter


def test_of_a_wrapped_sentence_nothing_is_lost() -> None:
    draw = random.Random(1)
    for _ in range(300):
        language, most = draw.choice(["th", "zh", "en"]), draw.randint(4, 12)
        sentence = " ".join("".join(draw.choice("กขค่ีabc一二 ") for _ in range(draw.randint(1, 60))).split())
        pieces = split_sentences(sentence, language, most)
        assert "".join(pieces).replace(" ", "") == sentence.replace(" ", "")
        assert all(pieces)
        if language == "en":
            assert all(len(piece.split()) <= most for piece in pieces)


def test_a_line_may_be_of_any_length() -> None:
    assert split_sentences("Llegó al hospital por dolor. " * 60_000, "es") == ["Llegó al hospital por dolor."] * 60_000
