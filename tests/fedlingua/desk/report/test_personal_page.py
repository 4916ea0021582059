"""The page and the table of personalization: what is best, what the mean is, and that the page stands alone."""

import csv
import io
import json
import re
from typing import Any

import pytest
from rich.console import Console

from fedlingua.desk.report.personal_page import (
    metrics_of_table,
    path_plot,
    personal_csv,
    personal_lines,
    personal_markdown,
    personal_table,
    render_personal_page,
    sweep_plot,
    write_personal_page,
)
from fedlingua.desk.report.publish import LIBRARY
from fedlingua.settings.metrics import ACCURACY, BLEU, PERPLEXITY

EVIL = "<script>alert(1)</script>"


def result(site: str = "clinic", accuracy: float = 0.6, **more: Any) -> dict[str, Any]:
    """What a personalization.json says, with round numbers."""
    test = {
        "federated": {"perplexity": 8.0, "accuracy": accuracy},
        "personal": {"perplexity": 7.0, "accuracy": accuracy + 0.01},
        "apfl": {"perplexity": 6.5, "accuracy": accuracy + 0.02},
        "chosen": {"perplexity": 6.0, "accuracy": accuracy + 0.02},
    }
    return {
        "site": site,
        "direction": "es",
        "run": "notes",
        "task": "masked-language",
        "round": 12,
        "seed": 3,
        "epochs": 2,
        "training": {"steps": 40},
        "apfl": {"alpha": 0.625, "dev_loss": 1.75, "path": [[0, 0.5], [20, 0.7], [40, 0.625]]},
        "sweep": [{"alpha": number / 20, "dev_loss": 2 - number / 40 + (number > 18)} for number in range(21)],
        "chosen_alpha": 0.9,
        "alpha_rate": 1.0,
        "test": test,
        "test_split": {"sentences": 1500, "masked": 9000, "masks": "00ff"},
        "versions": {"torch": "2"},
        "seconds": 61.0,
        **more,
    }


def test_the_macro_line_is_the_plain_mean_over_sites() -> None:
    *_, macro = personal_lines([result("a", 0.6), result("b", 0.7)])
    assert macro.name == "macro"
    assert macro.values["accuracy_personal"] == pytest.approx(0.66)
    assert (macro.values["alpha_apfl"], macro.values["alpha_chosen"]) == (0.625, 0.9)
    assert [line.name for line in personal_lines([result()])] == ["clinic"]


def test_what_reads_the_same_is_equally_good_and_less_perplexity_is_better() -> None:
    (line,) = personal_lines([result()])
    assert [best for _, best in line.cells([ACCURACY])] == [False, False, True, True]
    assert [best for _, best in line.cells([PERPLEXITY])] == [False, False, False, True]
    assert [shown for shown, _ in line.cells([ACCURACY])] == ["60.00", "61.00", "62.00", "62.00"]


def test_of_masked_text_accuracy_goes_first_as_in_table_6_and_of_translations_bleu() -> None:
    assert metrics_of_table([result()]) == (ACCURACY, PERPLEXITY)
    assert metrics_of_table([result(task="translation")])[0] is BLEU


def test_the_table_is_the_same_in_markdown_csv_and_at_a_terminal_of_80_characters() -> None:
    results = [result("clinic", 0.6), result("hospital-of-the-north", 0.7)]
    rows = [row for row in personal_markdown(results).splitlines() if row.startswith("|")]
    assert rows[2] == "| clinic | 0.62 | 0.90 | 60.00 | 61.00 | **62.00** | **62.00** | 8.00 | 7.00 | 6.50 | **6.00** |"
    numbers = list(csv.DictReader(io.StringIO(personal_csv(results))))
    assert (numbers[0]["accuracy_federated"], numbers[2]["accuracy_federated"]) == ("0.6", "0.65")
    console = Console(file=io.StringIO(), width=80)
    console.print(personal_table(results))
    shown = console.file.getvalue()
    assert "…" not in shown
    assert re.search(r"clinic +0\.62 +0\.90 +60\.00 +61\.00 +62\.00 +62\.00 +8\.00", shown)


def test_of_what_the_phase_chose_among_alone_and_kept_stand_beside_the_mixtures() -> None:
    test = {name: {"bleu": 20.0 + place, "chrf": 40.0} for place, name in enumerate([*result()["test"], "base", "kept", "alone"])}
    chosen = result(task="translation", test=test, test_split={"sentences": 5}, choice={"kept": "own"})
    row = next(row for row in personal_markdown([chosen]).splitlines() if row.startswith("| clinic"))
    assert row.startswith("| clinic | 0.62 | 0.90 | 20.00 | 21.00 | 22.00 | 23.00 | **26.00** | 25.00 |")
    console = Console(file=io.StringIO(), width=80)
    console.print(personal_table([chosen]))
    assert re.search(r"clinic +0\.62 +0\.90 +20\.00 +21\.00 +22\.00 +23\.00 +26\.00 +25\.00 *\n", console.file.getvalue())
    assert "keeps own" in render_personal_page(chosen)


def test_a_translations_table_carries_its_signature() -> None:
    test = {model: {"bleu": 20.0, "chrf": 40.0} for model in ("federated", "personal", "apfl", "chosen")}
    signed = result(task="translation", test=test, test_split={"sentences": 5, "signature": "nrefs:1|tok:13a"})
    assert "BLEU: `nrefs:1|tok:13a`" in personal_markdown([signed])


def test_the_figure_shows_21_values_both_alphas_and_four_models_on_test() -> None:
    about = result()
    (line,) = personal_lines([about])
    sweep, learned, chosen, *models = sweep_plot(about, line, ACCURACY).data
    assert len(sweep.x) == len(sweep.y) == 21
    assert (learned.x, learned.y) == ((0.625,), (1.75,))
    assert (chosen.x, chosen.y) == ((0.9,), (1.55,))
    assert [(model.x[0], round(model.y[0], 6)) for model in models] == [(0.0, 60.0), (1.0, 61.0), (0.625, 62.0), (0.9, 62.0)]
    assert path_plot(about).data[0].y == (0.5, 0.7, 0.625)


def test_the_page_stands_alone_and_a_name_in_it_starts_nothing(tmp_path) -> None:
    page = write_personal_page(result(EVIL), tmp_path).read_text()
    assert EVIL not in page
    assert re.findall(r'(?:src|href)="([^"#]*)"', page) == [LIBRARY]
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', page, re.DOTALL)[1])
    assert set(figures) == {"sweep", "path"}
    assert "personalized from round 12 of notes" in page


def test_the_page_says_what_was_gained_over_the_federations_model() -> None:
    page = render_personal_page(result())
    assert "+2.00 over the federation" in page
    assert "after 2 passes" in " ".join(page.split())
