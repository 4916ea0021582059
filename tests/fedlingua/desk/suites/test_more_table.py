"""Tables of what runs measure besides BLEU and chrF, worked out by hand."""

from typing import Any

from fedlingua.desk.suites.more_table import csv_columns, metric_rows, more_metrics, signatures
from fedlingua.settings.metrics import OF_TEXT


def scores(comet: float, macro: float | None = None) -> dict[str, Any]:
    entry = {"comet": comet, "signatures": {"comet": "Comet2.2.7|fp16|x|r1"}}
    return {
        "sites": {"a": entry, "b": {"comet": 0.5, "signatures": {"comet": "Comet2.2.7|fp16|x|r1"}}},
        "macro_comet": macro or (comet + 0.5) / 2,
    }


PLAIN: dict[str, Any] = {"sites": {"a": {"bleu": 1.0}, "b": {"bleu": 2.0}}}
RUNS = {"base": [PLAIN], "fed": [scores(0.7), scores(0.9)], "one": [scores(0.8)]}
COMET = OF_TEXT["comet"]


def test_only_what_was_measured_has_a_table() -> None:
    assert more_metrics(RUNS) == [COMET]
    assert more_metrics({"base": [PLAIN]}) == []
    assert csv_columns({"base": [PLAIN]}) == {}


def test_a_row_has_means_and_deviations_over_seeds() -> None:
    assert metric_rows(RUNS, COMET, ["a", "b"]) == [
        ["method", "a", "b", "macro"],
        ["base", "–", "–", "–"],
        ["fed", "80.00 ± 14.14", "50.00 ± 0.00", "65.00 ± 7.07"],
        ["one", "80.00", "50.00", "65.00"],
    ]
    assert signatures(RUNS, COMET) == ["Comet2.2.7|fp16|x|r1"]


def test_the_plain_table_has_numbers_as_they_are() -> None:
    columns = csv_columns(RUNS)
    assert list(columns) == ["macro_comet", "macro_comet_sd"]
    (mean, name), (deviation, other) = columns.values()
    assert mean["base"] == {}
    assert round(mean["fed"][name], 6) == 0.65
    assert round(deviation["fed"][other], 6) == 0.070711
    assert deviation["one"] == {}
