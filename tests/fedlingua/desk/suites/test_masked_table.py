"""What a table tells of masked-language rows besides perplexity, by hand."""

from typing import Any

from fedlingua.desk.suites.masked_table import accuracy_rows, besides, csv_columns, parts_rows


def scores(**sites: tuple[float, float, float]) -> dict[str, Any]:
    """A scores.json. sites: name -> (accuracy, mean over the parts, their deviation)."""
    entries = {
        name: {"accuracy": accuracy, "perplexity_of_parts": mean, "perplexity_of_parts_sd": sd}
        for name, (accuracy, mean, sd) in sites.items()
    }
    return {"sites": entries, "macro_accuracy": sum(accuracy for accuracy, *_ in sites.values()) / len(sites)}


FED = [scores(es=(0.5, 6.0, 0.2), ru=(0.25, 8.0, 1.0)), scores(es=(0.75, 5.0, 0.4), ru=(0.25, 8.0, 2.0))]


def test_accuracy_is_in_percent_and_the_mean_over_seeds() -> None:
    assert accuracy_rows(besides({"fed": FED, "none": []}), ["es", "ru"]) == [
        ["method", "es", "ru", "macro"],
        ["fed", "62.50", "25.00", "43.75"],
        ["none", "–", "–", "–"],
    ]


def test_parts_have_mean_and_deviation_which_is_over_parts_and_not_over_seeds() -> None:
    assert parts_rows(besides({"fed": FED}), ["es", "ru"]) == [["method", "es", "ru"], ["fed", "5.50 ± 0.30", "8.00 ± 1.50"]]


def test_what_not_every_seed_tells_is_no_mean() -> None:
    older = scores(es=(0.5, 6.0, 0.2), ru=(0.5, 8.0, 1.0))
    older["sites"]["es"] = {"accuracy": 0.5}
    told = besides({"fed": [FED[0], older]})
    assert told.parts == {"fed": {"ru": 8.0}}
    assert parts_rows(told, ["es", "ru"])[1] == ["fed", "–", "8.00 ± 1.00"]
    assert list(csv_columns(told, ["es", "ru"])) == [
        *("accuracy of es", "accuracy of ru", "macro_accuracy", "parts of ru", "sd of parts of ru"),
    ]


def test_nothing_is_told_of_rows_that_have_nothing() -> None:
    told = besides({"fed": [], "base": []})
    assert (accuracy_rows(told, ["es"]), parts_rows(told, ["es"]), csv_columns(told, ["es"])) == ([], [], {})
