"""The page of a suite: what it reads, what it calls best, what it reckons, and where it lies."""

import json
import math
import re
from html import unescape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from fedlingua.common.errors import RunError
from fedlingua.desk.report.keep import write_kept_runs
from fedlingua.settings.metrics import PERPLEXITY
from fedlingua_lab.pages.suite_page import bytes_plot, convergence_plot, row_traffic, saving_plot, write_suite_report
from fedlingua_lab.suites.table import SuiteTable

EVIL = "<script>alert(1)</script>"
Rows = dict[str, list[dict[str, Any]]]
"""Row -> a scores.json a seed, from 2022 on."""


def scored(macro: float, north: float = 1.0, evil: float = 1.0, uplink: int = 0, **more: Any) -> dict[str, Any]:
    """A scores.json; the base had 30 and 10 at the sites."""
    sites = {
        "north": {"bleu": north, "base_bleu": 30.0, "direction": "de"},
        EVIL: {"bleu": evil, "base_bleu": 10.0, "direction": "es"},
    }
    averages = {"macro_bleu": macro, "micro_bleu": macro, "pooled_bleu": macro, "base_macro_bleu": 20.0}
    costs = {"exchanged_parameters": uplink // 4, "uplink_bytes_per_round": uplink, "downlink_bytes_per_round": 3 * uplink}
    return {"sites": sites, **averages, **costs, **more}


TABLE: Rows = {
    "base": [scored(20.0, 30.0, 10.0)],
    "adapter-local": [scored(21.5, 28.0, 16.0), scored(22.5, 28.0, 16.0)],
    "adapter-fed": [scored(23.0, 26.0, 20.0, 1_000_000)],
}
PAPER = {"table": "table 2", "by": "Liu et al. 2023", "rows": {"adapter-local": {"de-fr": 30.88, "macro": 26.28, "micro": 26.56}}}


def selecting(macro: float, uplink: int, saving: float | None = None) -> list[dict[str, Any]]:
    """Two seeds, with one standard deviation of 0.5."""
    savings = {} if saving is None else {"tensor_saving": saving, "number_saving": saving}
    return [scored(macro + side * math.sqrt(0.125), uplink=uplink, **savings) for side in (-1, 1)]


# dp-g saves as much as top-k and is worse; the base is none of them, and local sends nothing at all.
SELECTING: Rows = {
    "base": selecting(20.0, 0),
    "adapter-local": selecting(21.0, 0),
    "pmfl": selecting(24.0, 4_000_000),
    "dp-g": selecting(21.0, 2_000_000, 0.5),
    EVIL: selecting(23.0, 3_000_000, 0.5),
    "metasend-g": selecting(22.0, 1_000_000, 0.75),
}


def run_entry(status: str = "completed", reason: str | None = None) -> dict[str, Any]:
    return {"status": status, "reason": reason, "seconds": 60.0, "train_seconds": 12.0, "num_sites": 2}


SUITE: dict[str, Any] = {
    "title": "A small suite",
    "settings": {"rounds": 5},
    "seconds": 3723.0,
    "versions": {"flwr": "1.39.0"},
    "sites": ["north", EVIL],
}


def write(folder: Path, table: Rows = TABLE, failed: int = 0, **changes: Any) -> Path:
    """A suite's result. failed: seeds of adapter-fed without scores."""
    result = folder / "small"
    result.mkdir(exist_ok=True)
    seeds = {name: list(range(2022, 2022 + len(runs) + failed * (name == "adapter-fed"))) for name, runs in table.items()}
    rows = [{"name": name, "method": name, "trains": name != "base", "seeds": seeds[name]} for name in table]
    lines = [
        {"method": name, "seed": seed, "run": {"backbone": {"parameters": 5_000_000}}, "scores": scores}
        for name, runs in table.items()
        for seed, scores in zip(seeds[name], runs, strict=False)
    ]
    there = {f"{line['method']}-{line['seed']}" for line in lines}
    names = [f"{name}-{seed}" for name, of_row in seeds.items() for seed in of_row]
    runs = {name: run_entry() if name in there else run_entry("failed", f"site {EVIL} is gone") for name in names}
    (result / "suite.json").write_text(json.dumps(SUITE | {"rows": rows, "runs": runs} | changes))
    write_kept_runs(result, lines)
    return result


def markup(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def words(page: Path) -> str:
    body = markup(page).split("<body")[1].partition(">")[2].split("<script")[0]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def test_the_page_tells_the_suite(tmp_path: Path) -> None:
    seen = words(write_suite_report(write(tmp_path, failed=1), tmp_path / "runs"))
    verdict = "Best: adapter-fed, +3.0 BLEU over the base; 1 of 2 sites gain over the base Backbone demo"
    assert seen.startswith(f"A small suite {verdict} ✗ 1 of 5 runs did not complete")
    for expected in ("best macro BLEU 23.00 adapter-fed", "+3.00 base 20.00", "over adapter-local +1.00", "1 h 02 min"):
        assert expected in seen
    assert f"adapter-fed 2023 failed site {EVIL} is gone" in seen
    assert "paper" not in seen


def summed(macro: float) -> dict[str, Any]:
    """A scores.json under secure sums."""
    return {**scored(macro), "sites": {"all sites": {"bleu": macro, "base_bleu": 15.0, "direction": "mul"}}}


@pytest.mark.parametrize(("base", "fed"), [(scored(20.0), summed(23.0)), (summed(20.0), summed(23.0))])
def test_sums_over_all_sites_are_no_site_that_gains(tmp_path: Path, base: dict[str, Any], fed: dict[str, Any]) -> None:
    seen = words(write_suite_report(write(tmp_path, {"base": [base], "adapter-fed": [fed]}), tmp_path / "runs"))
    assert "Best: adapter-fed, +3.0 BLEU over the base Backbone demo rows 2 2 sites" in seen


def test_the_page_stands_alone_and_escapes_names(tmp_path: Path) -> None:
    text = markup(write_suite_report(write(tmp_path, paper=PAPER), tmp_path / "runs"))
    assert EVIL not in text
    assert "http:" not in text
    assert "https:" not in text


def test_the_page_lies_with_the_runs_and_not_with_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = write(tmp_path)
    before = sorted(result.rglob("*"))
    assert write_suite_report(result).resolve() == tmp_path / "runs" / "small" / "report.html"
    assert sorted(result.rglob("*")) == before


def test_rows_whose_sites_chose_say_what_joining_gains(tmp_path: Path) -> None:
    choice = {"base_macro_bleu": 20.0, "macro_alone_bleu": 21.0, "macro_federated_bleu": 22.0}
    table = TABLE | {"adapter-fed": [scored(23.0, uplink=1_000_000, **choice)]}
    assert "adapter-fed 20.00 21.00 22.00 23.00 +2.00" in words(write_suite_report(write(tmp_path, table), tmp_path / "runs"))


def test_of_one_seed_no_deviation_is_told(tmp_path: Path) -> None:
    page = words(write_suite_report(write(tmp_path, {name: runs[:1] for name, runs in TABLE.items()}), tmp_path / "runs"))
    assert "± sd" not in page
    assert "standard deviation" not in page
    assert "± " not in page


def test_the_base_is_never_best(tmp_path: Path) -> None:
    text = markup(write_suite_report(write(tmp_path), tmp_path))
    assert "<b>28.00</b>" in text  # of the methods; the base has 30
    assert "<b>30.00</b>" not in text
    assert "<b>20.00</b>" in text  # adapter-fed at the second site, which ties with the base's macro
    best = SuiteTable.of(write(tmp_path, TABLE | {"base": [scored(99.0)]})).best_line
    assert best is not None
    assert best.name == "adapter-fed"


WITHOUT_BASE = {name: runs for name, runs in TABLE.items() if name != "base"}


@pytest.mark.parametrize("table", [TABLE, WITHOUT_BASE], ids=["base in the table", "base from the runs"])
def test_gains_are_over_the_base_at_each_site(tmp_path: Path, table: Rows) -> None:
    result = SuiteTable.of(write(tmp_path, table))
    seen = words(write_suite_report(tmp_path / "small", tmp_path))
    assert f"by site method north {EVIL} adapter-local -2.00 +6.00 adapter-fed -4.00 +10.00" in seen
    assert result.base["macro"] == 20.0


def test_the_cost_of_a_row_is_that_of_all_its_sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # 2 sites x 1 MB up and 3 MB down at 16 Mbit/s: 1 s and 3 s, beside 12 s of training.
    monkeypatch.setattr("fedlingua_lab.pages.suite_page.BANDWIDTH_MBPS", 16.0)
    seen = words(write_suite_report(write(tmp_path), tmp_path))
    assert "adapter-fed 250,000 1.00 MB 3.00 MB 1.0 s 3.0 s 4.0 s 12.0 s 25.0 %" in seen
    assert "adapter-local 0 0 B 0 B 0 s 0 s 0 s 12.0 s 0 %" in seen
    assert "full model 5.00 M 20.00 MB 20.00 MB 20 s 20 s 40 s 12.0 s 76.9 %" in seen


def test_the_full_model_is_reckoned_only_where_no_row_sends_it(tmp_path: Path) -> None:
    assert list(row_traffic(SuiteTable.of(write(tmp_path)))) == ["adapter-local", "adapter-fed", "full model"]
    fed = {"model-fed": TABLE["adapter-fed"]}
    assert list(row_traffic(SuiteTable.of(write(tmp_path, fed)))) == ["model-fed"]


def test_the_papers_figures_stand_beside(tmp_path: Path) -> None:
    seen = words(write_suite_report(write(tmp_path, paper=PAPER), tmp_path))
    assert "Liu et al. 2023, table 2" in seen
    assert "adapter-local 26.28 26.56 30.88" in seen
    assert "adapter-local 2 22.00 0.71 +2.00 26.28" in seen


def test_a_folder_without_a_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no suite\.json"):
        write_suite_report(tmp_path, tmp_path)


def test_a_suite_of_which_every_run_failed_has_a_page(tmp_path: Path) -> None:
    seen = words(write_suite_report(write(tmp_path, {"adapter-fed": []}, failed=2, paper=PAPER), tmp_path))
    assert "best macro BLEU not yet" in seen
    assert "0 of 2 runs completed" in seen


def drawn(figure: go.Figure | None, name: str = "") -> list[tuple[float, float]]:
    """The points of the trace of that name, or of all."""
    assert figure is not None
    traces = [trace for trace in figure.data if name in ("", trace.name)]
    return sorted((round(x, 6), round(y, 6)) for trace in traces for x, y in zip(trace.x, trace.y, strict=True))


def test_rows_that_send_whole_updates_lie_at_nothing_saved(tmp_path: Path) -> None:
    figure = saving_plot(SuiteTable.of(write(tmp_path, SELECTING)))
    assert drawn(figure) == [(0.0, 24.0), (50.0, 21.0), (50.0, 23.0), (75.0, 22.0)]


def test_a_row_that_sends_sums_alone_saves_nothing_of_an_update(tmp_path: Path) -> None:
    local = [{**scores, "uplink_bytes_per_round": 1200} for scores in SELECTING["adapter-local"]]
    assert len(drawn(saving_plot(SuiteTable.of(write(tmp_path, {**SELECTING, "adapter-local": local}))))) == 4


def test_the_front_leaves_out_what_another_row_beats(tmp_path: Path) -> None:
    figure = saving_plot(SuiteTable.of(write(tmp_path, SELECTING)))
    assert figure is not None
    assert drawn(figure, "Pareto front") == [(0.0, 24.0), (50.0, 23.0), (75.0, 22.0)]
    assert drawn(figure, "beaten by another") == [(50.0, 21.0)]
    front = next(trace for trace in figure.data if trace.name == "Pareto front")
    assert list(front.error_y.array) == pytest.approx([0.5] * 3)
    assert sorted(note.text for note in figure.layout.annotations) == [
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "dp-g",
        "metasend-g",
        "pmfl",
    ]


def test_fewer_bytes_are_better(tmp_path: Path) -> None:
    # dp-g sends less than the row that beats it in the share of numbers, and more than metasend-g.
    figure = bytes_plot(SuiteTable.of(write(tmp_path, SELECTING)))
    assert drawn(figure, "Pareto front") == [(6.0, 22.0), (round(math.log10(3e6), 6), 23.0), (round(math.log10(4e6), 6), 24.0)]
    assert drawn(figure, "beaten by another") == [(round(math.log10(2e6), 6), 21.0)]
    assert "Macro BLEU, mean ± standard deviation over seeds, against bytes, uplink of a site and round:" in words(
        write_suite_report(tmp_path / "small", tmp_path)
    )


def test_all_bytes_of_a_run_lie_on_a_logarithmic_axis(tmp_path: Path) -> None:
    def counted(macro: float, up: int, down: int) -> list[dict[str, Any]]:
        return [scored(macro, uplink=up, total_bytes={"up": up, "down": down, "fp32": 10 * (up + down)})]

    rows = {"pmfl": counted(24.0, 6_000_000, 4_000_000), "dp-g": counted(25.0, 60_000, 40_000), "base": [scored(20.0)]}
    figure = bytes_plot(SuiteTable.of(write(tmp_path, rows)))
    assert drawn(figure, "Pareto front") == [(5.0, 25.0)]
    assert drawn(figure, "beaten by another") == [(7.0, 24.0)]
    assert figure is not None
    assert any("up 60.00 kB, down 40.00 kB" in said for trace in figure.data for said in trace.text)
    assert dict(zip(figure.layout.xaxis.tickvals, figure.layout.xaxis.ticktext, strict=True))[5.0] == "100 kB"


def test_the_base_is_a_line_as_far_as_it_leaves_the_rows_their_room(tmp_path: Path) -> None:
    page = write_suite_report(write(tmp_path, SELECTING), tmp_path)
    assert "Quality and what was not sent" in words(page)
    assert "beats in both. The dotted line is the base." in words(page)
    figure = saving_plot(SuiteTable.of(tmp_path / "small"))
    assert figure is not None
    (dotted,) = figure.layout.shapes
    assert dotted.y0 == 20.0
    far = write(tmp_path, SELECTING | {"base": selecting(2.0, 0)})
    assert "beats in both. The base is outside the plot, at 2.00." in words(write_suite_report(far, tmp_path))
    figure = saving_plot(SuiteTable.of(far))
    assert figure is not None
    assert not figure.layout.shapes


def test_a_suite_that_selects_nothing_has_no_such_part(tmp_path: Path) -> None:
    assert "Quality and what was not sent" not in words(write_suite_report(write(tmp_path), tmp_path))


def test_selecting_rows_without_scores_or_bytes(tmp_path: Path) -> None:
    empty: Rows = {"dp-g": [], "dp-l": []}
    assert "Quality and what was not sent" not in words(write_suite_report(write(tmp_path, empty), tmp_path))
    alone = write(tmp_path, {"dp-g": selecting(21.0, 1_000_000, 0.5)})
    page = write_suite_report(alone, tmp_path)
    assert 'id="plot-saving"' in markup(page)
    assert 'id="plot-bytes"' not in markup(page)


# --- Of runs that pre-train --------------------------------------------------------------------------------------------------------


@pytest.fixture
def perplexities(tmp_path: Path) -> Path:
    """The same table, whose figures are perplexities now: adapter-local is lower than adapter-fed."""
    result = write(tmp_path)
    file = result / "runs.jsonl"
    file.write_text(file.read_text().replace("bleu", "perplexity"))
    return result


def test_of_perplexities_the_lowest_is_the_best_and_a_fall_is_a_gain(perplexities: Path, tmp_path: Path) -> None:
    result = SuiteTable.of(perplexities)
    assert (result.metric, result.sites) == (PERPLEXITY, ["north", EVIL])
    assert result.best_line is not None
    assert result.best_line.name == "adapter-local"
    seen = words(write_suite_report(perplexities, tmp_path))
    assert f"by site method north {EVIL} adapter-local +2.00 -6.00 adapter-fed +4.00 -10.00" in seen


def test_the_page_of_perplexities_says_so(perplexities: Path, tmp_path: Path) -> None:
    seen = words(write_suite_report(perplexities, tmp_path / "runs"))
    assert "best macro perplexity 22.00 adapter-local" in seen
    assert "-2.00 base 20.00" in seen
    assert "BLEU" not in seen
    text = markup(write_suite_report(perplexities, tmp_path / "runs"))
    assert "<b>26.00</b>" in text  # adapter-fed at the first site
    assert "<b>16.00</b>" in text  # adapter-local at the second; the base's 10 is no method's
    assert "<b>10.00</b>" not in text


def test_rows_are_held_against_the_model_of_each_sites_own_text(tmp_path: Path) -> None:
    """Only the first site has one."""
    folder = write(tmp_path, TABLE | {"silo-north": [scored(14.0, 27.0, 1.0)]})
    result = SuiteTable.of(folder)
    assert result.own_models == {"north": 27.0}
    seen = words(write_suite_report(folder, tmp_path / "runs"))
    assert "gain over the site's own model" in seen
    assert f"method north {EVIL} base +3.00 – adapter-local +1.00 – adapter-fed -1.00 –" in seen
    assert "the site's own model" not in words(write_suite_report(write(tmp_path), tmp_path / "runs"))


def test_dev_perplexity_is_drawn_by_round_a_line_a_row_for_each_text(tmp_path: Path) -> None:
    """adapter-local-2023 measured round 2 as well; the other row pools the same text, and failed with one of its seeds."""
    nats = {4.0: math.log(4.0), 8.0: math.log(8.0), 16.0: math.log(16.0)}

    def alike(*values: float) -> dict[str, Any]:
        return {str(place): {"north": [nats[value], 1], EVIL: [nats[value], 1]} for place, value in enumerate(values)}

    own = {2022: alike(16.0, 4.0), 2023: alike(16.0, 8.0, 4.0)}
    runs = {f"adapter-local-{seed}": run_entry() | {"dev_losses": losses} for seed, losses in own.items()}
    pooled = {"0": {"all text": [2 * nats[16.0], 2]}, "1": {"all text": [2 * nats[8.0], 2]}}
    runs |= {"adapter-fed-2022": run_entry() | {"dev_losses": pooled}, "adapter-fed-2023": run_entry("failed", "gone")}
    folder = write(tmp_path, failed=1, runs=runs)
    result = SuiteTable.of(folder)
    figure = convergence_plot(result)
    assert figure is not None
    drawn = [(trace.name, list(trace.x), [round(value, 3) for value in trace.y], trace.visible) for trace in figure.data]
    assert drawn == [
        ("adapter-local", [0, 1], [16.0, 6.0], True),
        ("adapter-fed", [0, 1], [16.0, 8.0], True),
        ("adapter-local", [0, 1], [16.0, 6.0], False),
        ("adapter-local", [0, 1], [16.0, 6.0], False),
    ]
    (menu,) = figure.layout.updatemenus
    assert [button.label for button in menu.buttons] == ["all text", "north", "&lt;script&gt;a…/script&gt;"]
    assert list(menu.buttons[1].args[0]["visible"]) == [False, False, True, False]
    text = markup(write_suite_report(folder, tmp_path / "runs"))
    assert 'id="plot-convergence"' in text
    assert EVIL not in text


def test_a_suite_that_kept_no_dev_losses_has_no_such_part(perplexities: Path, tmp_path: Path) -> None:
    assert "convergence" not in markup(write_suite_report(perplexities, tmp_path / "runs"))


def test_accuracy_and_the_four_parts_of_each_text_are_shown_and_are_no_sites(perplexities: Path, tmp_path: Path) -> None:
    assert "guessed" not in words(write_suite_report(perplexities, tmp_path / "runs"))
    lines = [json.loads(line) for line in (perplexities / "runs.jsonl").read_text().splitlines()]
    for line in lines:
        if line["method"] != "base":
            accuracy, mean, sd = (0.25, 9.0, 0.5) if line["method"] == "adapter-local" else (0.625, 5.5, 0.25)
            told = {"accuracy": accuracy, "perplexity_of_parts": mean, "perplexity_of_parts_sd": sd}
            line["scores"]["sites"]["north"] |= told
            line["scores"]["macro_accuracy"] = accuracy / 2
    write_kept_runs(perplexities, lines)
    assert SuiteTable.of(perplexities).sites == ["north", EVIL]
    seen = words(write_suite_report(perplexities, tmp_path / "runs"))
    assert "Masked pieces guessed, %" in seen
    assert "adapter-local 12.50 25.00 – adapter-fed 31.25 62.50 –" in seen
    assert "adapter-local 9.00 ± 0.50 adapter-fed 5.50 ± 0.25" in seen


def test_the_verdict_says_what_joining_is_worth_beside_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = ["method", "base", "alone", "federation", "kept", "joined"]
    rows = [head, ["adapter-local", "20", "22", "22", "22", "+0.00"], ["adapter-fed", "20", "23.4", "22.5", "23", "-0.40"]]
    monkeypatch.setattr("fedlingua_lab.suites.table.SuiteTable.choice_rows", lambda _: rows)
    seen = words(write_suite_report(write(tmp_path), tmp_path / "runs"))
    assert "Best: adapter-fed, +3.0 BLEU over the base, 0.4 BLEU below alone; 1 of 2 sites gain over the base" in seen
