"""Statistics of a small corpus, by hand."""

import pytest

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.clean import CleaningRules
from fedlingua.corpora.read import Pair
from fedlingua.desk.corpora.statistics import as_json, corpus_statistics, summary

DE_ZH = Direction("de", "zh")
PAIRS = [
    Pair("ein Hund schläft", "狗在睡觉"),
    Pair(" ein Hund schläft", "狗在睡觉 "),
    Pair("ein Hund schläft", "狗睡 觉"),
    Pair("", "狗在"),
    Pair("", ""),
    Pair("Hund", "狗在睡觉"),
]


def test_what_is_read_adds_up_and_is_measured_and_sampled() -> None:
    found = corpus_statistics(PAIRS, DE_ZH, CleaningRules(strict=True), 1, "here")
    assert (found.account.read, found.account.kept) == (6, 2)
    assert found.account.dropped == {"duplicate": 1, "empty": 2, "too-short": 1}
    assert found.lengths == ({3: 3, 0: 2, 1: 1}, {4: 3, 3: 1, 2: 1, 0: 1})
    assert found.repeated == {"pairs": 1, "sources": 3, "targets": 2}
    assert found.samples == {
        "duplicate": [(2, Pair("ein Hund schläft", "狗在睡觉"))],
        "empty": [(4, Pair("", "狗在"))],
        "too-short": [(6, Pair("Hund", "狗在睡觉"))],
    }


def test_the_json_form_holds_every_figure() -> None:
    told = as_json(corpus_statistics(PAIRS, DE_ZH, CleaningRules(), 2, "here"), DE_ZH)
    assert told["read"] == told["kept"] + sum(told["dropped"].values())
    assert told["lengths"]["de"] == {"unit": "words", "least": 0, "median": 1, "mean": 1.67, "p95": 3, "most": 3}
    assert told["lengths"]["zh"]["unit"] == "characters"
    assert told["samples"]["empty"] == [{"pair": 4, "source": "", "target": "狗在"}, {"pair": 5, "source": "", "target": ""}]


def test_quantiles_by_hand() -> None:
    told = summary(dict.fromkeys(range(1, 101), 1), "de")
    assert told == {"unit": "words", "least": 1, "median": 50, "mean": 50.5, "p95": 95, "most": 100}
    assert summary({}, "th") == {"unit": "characters", "least": 0, "median": 0, "mean": 0.0, "p95": 0, "most": 0}


def test_swapped_sides_are_told_before_anything_is_counted() -> None:
    with pytest.raises(CorpusError, match="here: of the first 3 pairs 3 have"):
        corpus_statistics([Pair("狗在睡觉", "ein Hund schläft")] * 3, DE_ZH, CleaningRules(), 1, "here")
