"""The table's figures, by hand, from the scores of runs."""

import csv
import io
from typing import Any

import pytest

from fedlingua.settings.metrics import OF_TEXT
from fedlingua_lab.suites.table import Figure, SuiteTable
from tests.recorded import scores

SIZES = {"hospital": 1, "court": 3}


def row(name: str, seeds: list[int], trains: bool = True, **keys: Any) -> dict[str, Any]:
    return {"name": name, "method": name, "trains": trains, "keys": {"method": name, **keys}, "seeds": seeds}


def ran(status: str = "completed", reason: str | None = None) -> dict[str, Any]:
    return {"status": status, "reason": reason, "rounds": 2, "dev_loss": 1.25 if status == "completed" else None}


@pytest.fixture
def suite() -> dict[str, Any]:
    return {
        "title": "Two sites",
        "file": "experiments/x/two.toml",
        "settings": {"rounds": 2},
        "overrides": {},
        "rows": [row("base", [1], trains=False), row("adapter-fed", [1, 2]), row("adapter-families", [1, 2])],
        "sites": ["hospital", "court"],
        "paper": None,
        "versions": {"flwr": "1.39.0"},
        "seconds": 61.0,
        "notes": [],
        "runs": {
            "base-1": ran(),
            "adapter-fed-1": ran(),
            "adapter-fed-2": ran(),
            "adapter-families-1": ran(),
            "adapter-families-2": ran("failed", "site court:\nno <reply>"),
        },
    }


@pytest.fixture
def found() -> dict[str, Any]:
    """adapter-fed has 10 and 14 at the hospital, 20 and 20 at the court; adapter-families-2 failed."""
    return {
        "base-1": scores({"hospital": 50.0, "court": 1.0}, SIZES, exchanged_parameters=0),
        "adapter-fed-1": scores({"hospital": 10.0, "court": 20.0}, SIZES, uplink_bytes_per_round=100),
        "adapter-fed-2": scores({"hospital": 14.0, "court": 20.0}, SIZES, uplink_bytes_per_round=104),
        "adapter-families-1": scores({"hospital": 13.0, "court": 19.996}, SIZES),
    }


def test_mean_and_sample_deviation_over_seeds() -> None:
    assert Figure.of([10.0, 14.0]) == Figure(12.0, pytest.approx(8**0.5))
    assert Figure.of([1.0, 2.0, 6.0]) == Figure(3.0, pytest.approx(7**0.5))
    assert Figure.of([10.0]) == Figure(10.0, None)
    assert Figure.of([10.0, None]) is None


def test_a_row_is_the_mean_of_its_runs(suite: dict[str, Any], found: dict[str, Any]) -> None:
    line = SuiteTable(suite, found).lines[1]
    assert list(line.runs) == [1, 2]
    assert {name: value.mean for name, value in line.scores.items()} == {
        "hospital": 12.0,
        "court": 20.0,
        "macro": 16.0,  # of 15 and 17
        "micro": 18.0,  # of (10 + 3 x 20) / 4 and (14 + 3 x 20) / 4
        "pooled": 17.0,
    }
    assert line.scores["macro"].sd == pytest.approx(2**0.5)
    assert line.costs == {"exchanged_parameters": 7, "uplink_bytes": 102, "downlink_bytes": 90}


def test_the_csv_has_plain_numbers_and_how_many_seeds_are_there(suite: dict[str, Any], found: dict[str, Any]) -> None:
    assert SuiteTable(suite, found).csv() == (
        "method,hospital,court,macro_bleu,macro_bleu_sd,micro_bleu,pooled_bleu,"
        "exchanged_parameters,uplink_bytes,downlink_bytes,seeds\n"
        "base,50.0,1.0,25.5,0.0,13.25,26.5,0,100,90,1\n"
        "adapter-fed,12.0,20.0,16.0,1.414214,18.0,17.0,7,102,90,2\n"
        "adapter-families,13.0,19.996,16.498,0.0,18.247,17.498,7,100,90,1\n"
    )


def test_seconds_are_means_over_seeds_in_columns_and_tables_of_their_own(suite: dict[str, Any], found: dict[str, Any]) -> None:
    for seed, train in ((1, 10.0), (2, 20.0)):
        suite["runs"][f"adapter-fed-{seed}"]["seconds_by_part"] = {"train": train, "round": 40.0}
    suite["runs"]["adapter-families-1"]["seconds_by_part"] = {
        "train": 5.0,
        "send": 0.25,
        "meta": 2.125,
        "theta": 0.000125,
        "batches": 2.124875,
    }
    head, base, fed, families = (line.split(",") for line in SuiteTable(suite, found).csv().splitlines())
    columns = ["train_seconds", "send_seconds", "meta_seconds", "round_seconds", "theta_seconds", "batches_seconds"]
    assert head[-7:] == [*columns, "seeds"]
    assert base[-7:] == ["", "", "", "", "", "", "1"]
    assert fed[-7:] == ["15.0", "", "", "40.0", "", "", "2"]
    assert families[-7:] == ["5.0", "0.25", "2.125", "", "0.000125", "2.124875", "1"]
    markdown = SuiteTable(suite, found).markdown()
    assert "| seconds of a round | train | send | meta | round |\n" in markdown
    assert "| adapter-fed | 15.0 | – | – | 40.0 |\n| adapter-families | 5.00 | 0.250 | 2.12 | – |\n" in markdown
    assert "| seconds of a round | theta | batches |\n| --- | ---: | ---: |\n| adapter-fed | – | – |\n" in markdown
    assert "| adapter-families | 0.000125 | 2.12 |\n" in markdown


def test_what_one_seed_alone_tells_is_no_mean(suite: dict[str, Any], found: dict[str, Any]) -> None:
    suite["runs"]["adapter-fed-1"]["seconds_by_part"] = {"train": 10.0}
    assert "seconds" not in SuiteTable(suite, found).csv()
    assert "seconds of a round" not in SuiteTable(suite, found).markdown()


def test_a_row_without_any_run_is_there_and_empty(suite: dict[str, Any]) -> None:
    assert SuiteTable(suite, {}).csv().splitlines()[1:] == [
        "base,0",
        "adapter-fed,0",
        "adapter-families,0",
    ]
    assert "| adapter-fed | – | – | – | – | – |" in SuiteTable(suite, {}).markdown()


def test_the_best_is_a_row_that_trains_and_what_reads_the_same_is_as_good(suite: dict[str, Any], found: dict[str, Any]) -> None:
    top = SuiteTable(suite, found).best
    assert top == {"hospital": 13.0, "court": 20.0, "macro": 16.5, "micro": 18.25, "pooled": 17.5}
    markdown = SuiteTable(suite, found).markdown()
    assert "| base | 50.00 | 1.00 | 25.50 | 13.25 | 26.50 |" in markdown
    assert "| adapter-fed | 12.00 ± 2.83 | **20.00 ± 0.00** | 16.00 ± 1.41 | 18.00 ± 0.71 | 17.00 ± 1.41 |" in markdown
    assert "| adapter-families | **13.00** | **20.00** | **16.50** | **18.25** | **17.50** |" in markdown


def test_failed_runs_and_notes_stand_below_the_table(suite: dict[str, Any], found: dict[str, Any]) -> None:
    suite["notes"] = ["base trains nothing."]
    markdown = SuiteTable(suite, found).markdown()
    assert "- Failed: adapter-families-2: failed, site court: no &lt;reply>\n- base trains nothing.\n" in markdown
    assert "| adapter-families | 7 | 100 B | 90 B | 2 | 1.250 | 1 |" in markdown


def test_the_papers_figures_stand_below_their_rows(suite: dict[str, Any], found: dict[str, Any]) -> None:
    suite["paper"] = {"table": "table 2", "by": "Liu et al. 2023", "rows": {"adapter-fed": {"court": 19.5, "macro": 99.0}}}
    markdown = SuiteTable(suite, found).markdown()
    ours, papers = markdown.split("\n")[5:7]
    assert ours.startswith("| adapter-fed |")
    assert papers == "| adapter-fed (paper) | – | 19.50 | 99.00 | – | – |"
    assert "(paper): Liu et al. 2023, table 2; – where it gives none. They are of decoded" in markdown


def test_what_was_run_is_told_with_what_differs_between_rows(suite: dict[str, Any], found: dict[str, Any]) -> None:
    suite["overrides"] = {"rounds": 1}
    suite["rows"].append(row("adapter-fed", [1], aggregation="fed-avg") | {"name": "adapter-fed+fedavg"})
    markdown = SuiteTable(suite, found).markdown()
    assert (
        "- What was run: `experiments/x/two.toml` with `--set rounds=1`; rounds = 1; the rest as in pyproject.toml.\n" in markdown
    )
    assert "- adapter-fed+fedavg: method = adapter-fed, aggregation = fed-avg.\n" in markdown
    assert "- 4 runs, 1 min 01 s of run time, added up; flwr 1.39.0." in markdown
    assert "Signature: `tok:13a`." in markdown


def test_signatures_that_differ_name_their_sites(suite: dict[str, Any], found: dict[str, Any]) -> None:
    for run in found.values():
        run["sites"]["court"]["signature"] = "tok:zh"
    assert "Signature: `tok:13a` (hospital); `tok:zh` (court)." in SuiteTable(suite, found).markdown()


def test_columns_are_the_scores_own_names_in_the_federations_order(suite: dict[str, Any]) -> None:
    mixed = scores({"court:de-fr": 1.0, "court:pl-es": 2.0, "hospital": 3.0}, {"court:de-fr": 1, "court:pl-es": 1, "hospital": 1})
    assert SuiteTable(suite, {"base-1": mixed}).sites == ["hospital", "court:de-fr", "court:pl-es"]
    assert SuiteTable(suite, {}).sites == ["hospital", "court"]


# --- Of runs that pre-train --------------------------------------------------------------------------------------------------------


def masked(perplexity: dict[str, float], masks: str = "ab") -> dict[str, Any]:
    """A scores.json with these perplexities; micro and pooled are made up."""
    sites = {
        name: {"direction": "de", "perplexity": value, "accuracy": 0.5, "sentences": 1, "masked": 2, "masks": masks}
        | {"perplexity_of_parts": value + 1, "perplexity_of_parts_sd": 0.25}
        for name, value in perplexity.items()
    }
    macro = sum(perplexity.values()) / len(perplexity)
    averages = {"macro_perplexity": macro, "micro_perplexity": macro + 1, "pooled_perplexity": macro - 1, "macro_accuracy": 0.5}
    costs = {"uplink_bytes_per_round": 100, "downlink_bytes_per_round": 90, "exchanged_parameters": 7}
    return {"sites": sites, **averages, **costs}


@pytest.fixture
def perplexities() -> dict[str, Any]:
    """adapter-fed has 10 and 14 at the hospital, 6 and 6 at the court; the base is lower than any at the hospital."""
    return {
        "base-1": masked({"hospital": 2.0, "court": 50.0}),
        "adapter-fed-1": masked({"hospital": 10.0, "court": 6.0}),
        "adapter-fed-2": masked({"hospital": 14.0, "court": 6.0}),
        "adapter-families-1": masked({"hospital": 13.0, "court": 5.0}),
    }


def test_the_csv_of_perplexities_has_columns_of_their_name(suite: dict[str, Any], perplexities: dict[str, Any]) -> None:
    assert SuiteTable(suite, perplexities).csv() == (
        "method,hospital,court,macro_perplexity,macro_perplexity_sd,micro_perplexity,pooled_perplexity,"
        "exchanged_parameters,uplink_bytes,downlink_bytes,accuracy of hospital,accuracy of court,macro_accuracy,"
        "parts of hospital,sd of parts of hospital,parts of court,sd of parts of court,seeds\n"
        "base,2.0,50.0,26.0,0.0,27.0,25.0,7,100,90,50.0,50.0,50.0,3.0,0.25,51.0,0.25,1\n"
        "adapter-fed,12.0,6.0,9.0,1.414214,10.0,8.0,7,100,90,50.0,50.0,50.0,13.0,0.25,7.0,0.25,2\n"
        "adapter-families,13.0,5.0,9.0,0.0,10.0,8.0,7,100,90,50.0,50.0,50.0,14.0,0.25,6.0,0.25,1\n"
    )


def test_accuracy_and_the_parts_of_each_text_have_tables_of_their_own(
    suite: dict[str, Any], found: dict[str, Any], perplexities: dict[str, Any]
) -> None:
    markdown = SuiteTable(suite, perplexities).markdown()
    assert "Masked pieces that were guessed, in %, mean over seeds:\n\n| method | hospital | court | macro |\n" in markdown
    assert "| adapter-fed | 50.00 | 50.00 | 50.00 |\n" in markdown
    assert "over the parts, both mean over seeds:\n\n| method | hospital | court |\n" in markdown
    assert "| adapter-fed | 13.00 ± 0.25 | 7.00 ± 0.25 |\n" in markdown
    assert "guessed" not in SuiteTable(suite, found).markdown()
    assert "parts of each" not in SuiteTable(suite, found).markdown()


def test_the_lowest_perplexity_of_a_row_that_trains_is_the_best(suite: dict[str, Any], perplexities: dict[str, Any]) -> None:
    assert SuiteTable(suite, perplexities).best == {
        "hospital": 12.0,
        "court": 5.0,
        "macro": 9.0,
        "micro": 10.0,
        "pooled": 8.0,
    }
    markdown = SuiteTable(suite, perplexities).markdown()
    assert "| base | 2.00 | 50.00 | 26.00 | 27.00 | 25.00 |" in markdown
    assert "| adapter-fed | **12.00 ± 2.83** | 6.00 ± 0.00 | **9.00 ± 1.41** |" in markdown
    assert "| adapter-families | 13.00 | **5.00** | **9.00** | **10.00** | **8.00** |" in markdown
    assert "\n\nPerplexity, mean ± sample standard deviation over seeds; bold: the best of a column" in markdown
    assert "Signature" not in markdown


def test_perplexities_are_compared_on_the_same_masks_or_it_is_said(suite: dict[str, Any], perplexities: dict[str, Any]) -> None:
    assert "Every run was measured on the same text with the same masks" in SuiteTable(suite, perplexities).markdown()
    perplexities["adapter-fed-2"]["sites"]["court"]["masks"] = "cd"
    markdown = SuiteTable(suite, perplexities).markdown()
    assert "Not measured on the same masks, so not to be compared: court." in markdown
    assert "same text with the same masks" not in markdown


def test_rows_are_held_against_the_model_of_each_sites_own_text(suite: dict[str, Any], perplexities: dict[str, Any]) -> None:
    """No row was trained on the court's text alone."""
    assert SuiteTable(suite, perplexities).over_own_models() == []
    suite["rows"].append(row("silo-hospital", [1]))
    suite["runs"]["silo-hospital-1"] = ran()
    perplexities["silo-hospital-1"] = masked({"hospital": 11.0, "court": 99.0})
    assert SuiteTable(suite, perplexities).over_own_models() == [
        ["method", "hospital"],
        ["base", "+9.00"],
        ["adapter-fed", "-1.00"],
        ["adapter-families", "-2.00"],
    ]
    assert "Better than the site's own model" in SuiteTable(suite, perplexities).markdown()


def with_scores(suite: dict[str, Any], **runs: list[dict[str, Any]]) -> SuiteTable:
    """A table of rows by these names; runs: the scores.json of each row's seeds."""
    suite["rows"] = [row(name, list(range(len(scores)))) for name, scores in runs.items()]
    found = {f"{name}-{seed}": each for name, scores in runs.items() for seed, each in enumerate(scores)}
    suite["runs"] = {name: ran() for name in found}
    return SuiteTable(suite, found)


def test_accuracy_is_in_percent_and_the_mean_over_seeds_and_parts_deviate_over_parts(suite: dict[str, Any]) -> None:
    runs = [masked({"hospital": 5.0, "court": 7.0}), masked({"hospital": 4.0, "court": 7.0})]
    runs[1]["sites"]["hospital"] |= {"accuracy": 0.75, "perplexity_of_parts_sd": 0.75}
    runs[1]["macro_accuracy"] = 0.625
    table = with_scores(suite, fed=runs, none=[])
    assert table.accuracy_rows() == [
        ["method", "hospital", "court", "macro"],
        ["fed", "62.50", "50.00", "56.25"],
        ["none", "–", "–", "–"],
    ]
    assert table.parts_rows()[1:] == [["fed", "5.50 ± 0.50", "8.00 ± 0.25"], ["none", "–", "–"]]


def test_what_not_every_seed_tells_is_no_mean(suite: dict[str, Any]) -> None:
    older = masked({"hospital": 5.0, "court": 7.0})
    del older["sites"]["hospital"]["perplexity_of_parts"], older["sites"]["hospital"]["perplexity_of_parts_sd"]
    table = with_scores(suite, fed=[masked({"hospital": 5.0, "court": 7.0}), older])
    assert table.parts_rows()[1] == ["fed", "–", "8.00 ± 0.25"]
    assert [column for column in table.columns if "accuracy" in column or "parts" in column] == [
        *("accuracy of hospital", "accuracy of court", "macro_accuracy", "parts of court", "sd of parts of court"),
    ]


# --- Of what runs measure besides BLEU and chrF ------------------------------------------------------------------------------------


def measured(comet: float) -> dict[str, Any]:
    """A scores.json with COMET too, of 0.5 at the court."""
    run = scores({"hospital": 10.0, "court": 20.0}, SIZES)
    for site, value in (("hospital", comet), ("court", 0.5)):
        run["sites"][site] |= {"comet": value, "signatures": {"comet": "Comet2.2.7|fp16|x|r1"}}
    return run | {"macro_comet": (comet + 0.5) / 2}


def test_only_what_was_measured_has_a_table(suite: dict[str, Any], found: dict[str, Any]) -> None:
    assert SuiteTable(suite, found).more_metrics == []
    assert "comet" not in SuiteTable(suite, found).csv()


def test_another_metric_has_means_and_deviations_over_seeds(suite: dict[str, Any], found: dict[str, Any]) -> None:
    table = with_scores(suite, base=[found["base-1"]], fed=[measured(0.7), measured(0.9)], one=[measured(0.8)])
    (comet,) = table.more_metrics
    assert comet is OF_TEXT["comet"]
    assert table.metric_rows(comet) == [
        ["method", "hospital", "court", "macro"],
        ["base", "–", "–", "–"],
        ["fed", "80.00 ± 14.14", "50.00 ± 0.00", "65.00 ± 7.07"],
        ["one", "80.00", "50.00", "65.00"],
    ]
    assert table.signatures(comet) == ["Comet2.2.7|fp16|x|r1"]
    head, *rows = (line.split(",") for line in table.csv().splitlines())
    assert head[-3:] == ["macro_comet", "macro_comet_sd", "seeds"]
    assert [line[-3:] for line in rows] == [["", "", "1"], ["0.65", "0.070711", "2"], ["0.65", "", "1"]]
    assert "over seeds (Comet2.2.7|fp16|x|r1):\n\n| method | hospital |" in table.markdown()


def test_metrics_of_every_table_have_no_second_one(suite: dict[str, Any], found: dict[str, Any]) -> None:
    """As after `fedlingua score --run`, which signs all that it measures."""
    scored = {
        **found["base-1"],
        "sites": {name: {**of, "signatures": {"bleu": "b", "chrf": "c"}} for name, of in found["base-1"]["sites"].items()},
    }
    assert SuiteTable(suite, {**found, "base-1": scored}).more_metrics == []


def test_of_another_metric_too_what_not_every_seed_tells_is_no_mean(suite: dict[str, Any]) -> None:
    older = measured(0.9)
    del older["sites"]["hospital"]["comet"], older["macro_comet"]
    table = with_scores(suite, fed=[measured(0.7), measured(0.8), older])
    assert table.metric_rows(OF_TEXT["comet"])[1] == ["fed", "–", "50.00 ± 0.00", "–"]
    assert not [column for column in table.columns if "comet" in column]


def test_where_sites_chose_the_table_has_alone_and_federated_and_elsewhere_no_such_column(
    suite: dict[str, Any], found: dict[str, Any]
) -> None:
    assert "macro_alone" not in SuiteTable(suite, found).csv()
    for seed, alone in ((1, 12.0), (2, 14.0)):
        found[f"adapter-fed-{seed}"] |= {"macro_alone_bleu": alone, "macro_federated_bleu": 11.0}
    rows = list(csv.DictReader(io.StringIO(SuiteTable(suite, found).csv())))
    assert [row["macro_alone"] for row in rows] == ["", "13.0", ""]
    assert [row["macro_federated"] for row in rows] == ["", "11.0", ""]
    written = SuiteTable(suite, found).markdown()
    assert "| adapter-fed | – | 13.00 | 11.00 | 16.00 | +3.00 |" in written
    for seed, reference in ((1, 14.0), (2, 15.0)):
        found[f"adapter-fed-{seed}"] |= {"macro_reference_bleu": reference}
    assert "| adapter-fed | – | 13.00 | 14.50 | 11.00 | 16.00 | +1.50 |" in SuiteTable(suite, found).markdown()
