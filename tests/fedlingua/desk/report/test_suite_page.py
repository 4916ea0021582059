"""The page of a suite: what it reads, what it calls best, what it reckons, and where it lies."""

import csv
import json
import math
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.desk.report import write_suite_report
from fedlingua.desk.report.keep import write_kept_runs
from fedlingua.desk.report.suite_page import (
    best_values,
    convergence_curves,
    convergence_plot,
    gain_plot,
    macro_plot,
    row_traffic,
    saving_plot,
    saving_points,
    uplink_plot,
)
from fedlingua.desk.report.suite_result import read_suite
from fedlingua.settings.metrics import PERPLEXITY

EVIL = "<script>alert(1)</script>"
TABLE: list[dict[str, Any]] = [
    {"method": "base", "north": 30.0, EVIL: 10.0, "macro_bleu": 20.0, "macro_bleu_sd": "", "seeds": 1},
    {"method": "adapter-local", "north": 28.0, EVIL: 16.0, "macro_bleu": 22.0, "macro_bleu_sd": 0.5, "seeds": 2}
    | {"exchanged_parameters": 0, "uplink_bytes": 0, "downlink_bytes": 0},
    {"method": "adapter-fed", "north": 26.0, EVIL: 20.0, "macro_bleu": 23.0, "macro_bleu_sd": 1.0, "seeds": 1}
    | {"exchanged_parameters": 250_000, "uplink_bytes": 1_000_000, "downlink_bytes": 3_000_000, "micro_bleu": 24.5},
]
COLUMNS = ["method", "north", EVIL, "macro_bleu", "macro_bleu_sd", "micro_bleu", "pooled_bleu", "exchanged_parameters"]
COLUMNS += ["uplink_bytes", "downlink_bytes", "tensor_saving", "number_saving", "seeds"]
PAPER = {"table": "table 2", "by": "Liu et al. 2023", "rows": {"adapter-local": {"de-fr": 30.88, "macro": 26.28, "micro": 26.56}}}


def test_columns_of_seconds_are_no_sites(tmp_path: Path) -> None:
    result = write(tmp_path)
    head, *rows = (result / "table.csv").read_text().splitlines()
    (result / "table.csv").write_text(
        "\n".join([f"{head},train_seconds,theta_seconds", *(f"{row},1.5,0.001" for row in rows)]) + "\n"
    )
    assert read_suite(result).sites == ["north", EVIL]


def selecting(name: str, macro: float | str, saving: float | str, uplink: float | str) -> dict[str, Any]:
    return {"method": name, "macro_bleu": macro, "macro_bleu_sd": 0.5, "number_saving": saving, "uplink_bytes": uplink}


# dp-g saves as much as top-k and is worse; the base is none of them, and local sends nothing at all.
SELECTING = [
    selecting("base", 20.0, "", 0),
    selecting("adapter-local", 21.0, "", 0),
    selecting("pmfl", 24.0, "", 4_000_000),
    selecting("dp-g", 21.0, 0.5, 2_000_000),
    selecting(EVIL, 23.0, 0.5, 3_000_000),
    selecting("metasend-g", 22.0, 0.75, 1_000_000),
]


def run_entry(status: str = "completed", reason: str | None = None) -> dict[str, Any]:
    return {"status": status, "reason": reason, "seconds": 60.0, "train_seconds": 12.0, "num_sites": 2}


SUITE: dict[str, Any] = {
    "title": "A small suite",
    "settings": {"rounds": 5},
    "seconds": 3723.0,
    "versions": {"flwr": "1.39.0"},
    "runs": {
        "adapter-local-2022": run_entry(),
        "adapter-local-2023": run_entry(),
        "adapter-fed-2022": run_entry(),
        "adapter-fed-2023": run_entry("failed", f"site {EVIL} is gone"),
    },
}
SCORES = {"adapter-local-2022": 21.5, "adapter-local-2023": 22.5, "adapter-fed-2022": 23.0}


def write(folder: Path, table: list[dict[str, Any]] = TABLE, **changes: Any) -> Path:
    result = folder / "small"
    result.mkdir(exist_ok=True)
    with (result / "table.csv").open("w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, COLUMNS)
        writer.writeheader()
        writer.writerows(table)
    (result / "suite.json").write_text(json.dumps(SUITE | changes))
    sites = {
        "north": {"bleu": 1.0, "base_bleu": 30.0, "direction": "de"},
        EVIL: {"bleu": 1.0, "base_bleu": 10.0, "direction": "es"},
    }
    lines = []
    for name, macro in SCORES.items():
        method, _, seed = name.rpartition("-")
        scores = {"macro_bleu": macro, "base_macro_bleu": 20.0, "sites": sites}
        lines.append({"method": method, "seed": int(seed), "run": {"backbone": {"parameters": 5_000_000}}, "scores": scores})
    write_kept_runs(result, lines)
    return result


def markup(page: Path) -> str:
    return re.sub(r'<script id="plotly">.*?</script>', "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def words(page: Path) -> str:
    body = markup(page).split("<body")[1].partition(">")[2].split("<script")[0]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def test_the_page_tells_the_suite(tmp_path: Path) -> None:
    seen = words(write_suite_report(write(tmp_path), tmp_path / "runs"))
    assert seen.startswith("A small suite ✗ 1 of 4 runs did not complete")
    for expected in ("best macro BLEU 23.00 adapter-fed", "+3.00 base 20.00", "over adapter-local +1.00", "1 h 02 min"):
        assert expected in seen
    assert f"adapter-fed 2023 failed site {EVIL} is gone" in seen
    assert "paper" not in seen


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


def test_the_base_is_never_best(tmp_path: Path) -> None:
    text = markup(write_suite_report(write(tmp_path), tmp_path))
    assert "<b>28.00</b>" in text  # of the methods; the base has 30
    assert "<b>30.00</b>" not in text
    assert "<b>20.00</b>" in text  # adapter-fed at the second site, which ties with the base's macro
    high = [TABLE[0] | {"macro_bleu": 99.0}, *TABLE[1:]]
    best = read_suite(write(tmp_path, high)).best
    assert best is not None
    assert best.name == "adapter-fed"


def test_values_that_read_the_same_are_best_together() -> None:
    assert best_values([{"a": 1.001, "b": None}, {"a": 1.002, "b": 2.0}]) == {"a": "1.00", "b": "2.00"}


def test_every_seed_is_a_point_beside_mean_and_sd(tmp_path: Path) -> None:
    figure = macro_plot(read_suite(write(tmp_path, paper=PAPER)))
    traces = {trace.name: trace for trace in figure.data}
    assert list(traces["a seed"].x) == [21.5, 22.5, 23.0]
    assert [round(place) for place in traces["a seed"].y] == [1, 1, 2]
    assert list(traces["mean ± sd"].x) == [20.0, 22.0, 23.0]
    assert list(traces["mean ± sd"].error_x.array) == [0.0, 0.5, 1.0]
    assert list(traces["the paper's"].x) == [None, 26.28, None]


@pytest.mark.parametrize("table", [TABLE, TABLE[1:]], ids=["base in the table", "base from the runs"])
def test_gains_are_over_the_base_at_each_site(tmp_path: Path, table: list[dict[str, Any]]) -> None:
    result = read_suite(write(tmp_path, table))
    (heat,) = gain_plot(result, result.base_sites, "base").data
    assert [list(line) for line in heat.z] == [[-2.0, 6.0], [-4.0, 10.0]]
    assert result.base_macro == 20.0


def test_the_cost_of_a_row_is_that_of_all_its_sites(tmp_path: Path) -> None:
    # 2 sites x 1 MB up and 3 MB down at 16 Mbit/s: 1 s and 3 s, beside 12 s of training.
    seen = words(write_suite_report(write(tmp_path), tmp_path, bandwidth_mbps=16))
    assert "adapter-fed 250,000 1.00 MB 3.00 MB 1.0 s 3.0 s 4.0 s 12.0 s 25.0 %" in seen
    assert "adapter-local 0 0 B 0 B 0 s 0 s 0 s 12.0 s 0 %" in seen
    assert "full model 5.00 M 20.00 MB 20.00 MB 20 s 20 s 40 s 12.0 s 76.9 %" in seen


def test_the_full_model_is_reckoned_only_where_no_row_sends_it(tmp_path: Path) -> None:
    assert list(row_traffic(read_suite(write(tmp_path)))) == ["adapter-local", "adapter-fed", "full model"]
    fed = TABLE[2] | {"method": "model-fed"}
    assert list(row_traffic(read_suite(write(tmp_path, [fed])))) == ["model-fed"]


def test_the_papers_figures_stand_beside(tmp_path: Path) -> None:
    seen = words(write_suite_report(write(tmp_path, paper=PAPER), tmp_path))
    assert "Liu et al. 2023, table 2" in seen
    assert "adapter-local 26.28 26.56 30.88" in seen
    assert "adapter-local 2 22.00 0.50 +2.00 26.28" in seen


def test_a_table_alone_is_enough(tmp_path: Path) -> None:
    result = write(tmp_path)
    (result / "suite.json").unlink()
    seen = words(write_suite_report(result, tmp_path))
    assert "seeds 2 best macro" in seen
    assert "suite.json is not there." in seen
    (result / "suite.json").write_text("{")
    assert "suite.json cannot be read" in words(write_suite_report(result, tmp_path))


def test_values_of_another_type(tmp_path: Path) -> None:
    strange = [{"method": "x", "north": "nan", EVIL: "many", "macro_bleu": "", "seeds": ""}]
    write_suite_report(write(tmp_path, strange, settings=3, runs={"x": 1, "y": {}}, paper=[1], seconds="long"), tmp_path)


@pytest.mark.parametrize("content", [None, "", "a,b\n1,2\n"])
def test_a_folder_without_a_table_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "table.csv").write_text(content)
    with pytest.raises(RunError, match=r"(?s)table\.csv.*got:.*wanted:.*to do:"):
        write_suite_report(tmp_path, tmp_path)


def test_a_bandwidth_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="bandwidth"):
        write_suite_report(write(tmp_path), tmp_path, bandwidth_mbps=0)


def test_rows_that_send_whole_updates_lie_at_nothing_saved(tmp_path: Path) -> None:
    points = saving_points(read_suite(write(tmp_path, SELECTING)))
    assert [(point.name, point.x, point.score) for point in points] == [
        *(("pmfl", 0.0, 24.0), ("dp-g", 50.0, 21.0), (EVIL, 50.0, 23.0), ("metasend-g", 75.0, 22.0)),
    ]


def test_the_front_leaves_out_what_another_row_beats(tmp_path: Path) -> None:
    traces = {trace.name: trace for trace in saving_plot(read_suite(write(tmp_path, SELECTING))).data}
    assert (list(traces["Pareto front"].x), list(traces["Pareto front"].y)) == ([0.0, 50.0, 75.0], [24.0, 23.0, 22.0])
    assert (list(traces["beaten by another"].x), list(traces["beaten by another"].y)) == ([50.0], [21.0])
    assert list(traces["Pareto front"].error_y.array) == [0.5] * 3
    assert sorted(traces["names"].text) == ["&lt;script&gt;alert(1)&lt;/script&gt;", "dp-g", "metasend-g", "pmfl"]


def test_fewer_bytes_are_better(tmp_path: Path) -> None:
    # dp-g sends less than the row that beats it in the share of numbers, and more than metasend-g.
    figure = uplink_plot(read_suite(write(tmp_path, SELECTING)))
    traces = {trace.name: trace for trace in figure.data}
    assert (list(traces["Pareto front"].x), list(traces["Pareto front"].y)) == ([1.0, 3.0, 4.0], [22.0, 23.0, 24.0])
    assert list(traces["beaten by another"].x) == [2.0]
    assert figure.layout.xaxis.title.text == "uplink of a site and round, MB"


def test_the_base_is_a_line_as_far_as_it_leaves_the_rows_their_room(tmp_path: Path) -> None:
    page = write_suite_report(write(tmp_path, SELECTING), tmp_path)
    assert "Quality and what was not sent" in words(page)
    assert "beats in both. The dotted line is the base." in words(page)
    (dotted,) = saving_plot(read_suite(tmp_path / "small")).layout.shapes
    assert dotted.y0 == 20.0
    far = write(tmp_path, [selecting("base", 2.0, "", 0), *SELECTING[1:]])
    assert "beats in both. The base lies far off, at 2.00." in words(write_suite_report(far, tmp_path))
    assert not saving_plot(read_suite(far)).layout.shapes


def test_a_suite_that_selects_nothing_has_no_such_part(tmp_path: Path) -> None:
    assert "Quality and what was not sent" not in words(write_suite_report(write(tmp_path), tmp_path))


def test_selecting_rows_without_scores_or_bytes(tmp_path: Path) -> None:
    empty = [selecting("dp-g", "", 0.5, ""), selecting("dp-l", "", "much", "")]
    assert "Quality and what was not sent" not in words(write_suite_report(write(tmp_path, empty), tmp_path))
    alone = write(tmp_path, [selecting("dp-g", 21.0, 0.5, "") | {"macro_bleu_sd": ""}])
    page = write_suite_report(alone, tmp_path)
    assert 'id="plot-saving"' in markup(page)
    assert 'id="plot-uplink"' not in markup(page)


# --- Of runs that pre-train --------------------------------------------------------------------------------------------------------


@pytest.fixture
def perplexities(tmp_path: Path) -> Path:
    """The same table, whose figures are perplexities now: adapter-local is lower than adapter-fed."""
    result = write(tmp_path)
    for file in (result / "table.csv", result / "runs.jsonl"):
        file.write_text(file.read_text().replace("bleu", "perplexity"))
    return result


def test_of_perplexities_the_lowest_is_the_best_and_a_fall_is_a_gain(perplexities: Path) -> None:
    result = read_suite(perplexities)
    assert (result.metric, result.sites) == (PERPLEXITY, ["north", EVIL])
    assert result.best is not None
    assert result.best.name == "adapter-local"
    assert result.gain(22.0, 30.0) == 8.0
    (heat,) = gain_plot(result, result.base_sites, "base").data
    assert [list(line) for line in heat.z] == [[2.0, -6.0], [4.0, -10.0]]


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
    result = read_suite(write(tmp_path, [*TABLE, TABLE[1] | {"method": "silo-north", "north": 27.0, EVIL: 1.0}]))
    assert result.own_models == {"north": 27.0}
    (heat,) = gain_plot(result, result.own_models, "silo-").data
    assert [list(line) for line in heat.z] == [[3.0, None], [1.0, None], [-1.0, None]]
    assert "better than the site's own model" in words(write_suite_report(result.path, tmp_path / "runs"))
    assert "the site's own model" not in words(write_suite_report(write(tmp_path), tmp_path / "runs"))


def test_the_lowest_of_a_column_is_best() -> None:
    assert best_values([{"a": 3.0}, {"a": 2.001, "b": None}, {"a": 2.002, "b": 5.0}], PERPLEXITY) == {"a": "2.00", "b": "5.00"}


def test_dev_perplexity_is_drawn_by_round_a_line_a_row_for_each_text(tmp_path: Path) -> None:
    """adapter-local-2023 measured round 2 as well; the other row pools the same text, and failed with one of its seeds."""
    nats = {4.0: math.log(4.0), 8.0: math.log(8.0), 16.0: math.log(16.0)}

    def alike(*values: float) -> dict[str, Any]:
        return {str(place): {"north": [nats[value], 1], EVIL: [nats[value], 1]} for place, value in enumerate(values)}

    own = {2022: alike(16.0, 4.0), 2023: alike(16.0, 8.0, 4.0)}
    runs = {f"adapter-local-{seed}": run_entry() | {"dev_losses": losses} for seed, losses in own.items()}
    pooled = {"0": {"all text": [2 * nats[16.0], 2]}, "1": {"all text": [2 * nats[8.0], 2]}}
    runs |= {"adapter-fed-2022": run_entry() | {"dev_losses": pooled}, "adapter-fed-2023": run_entry("failed", "gone")}
    result = read_suite(write(tmp_path, runs=runs))
    figure = convergence_plot(result, convergence_curves(result))
    drawn = [(trace.name, list(trace.x), [round(value, 3) for value in trace.y], trace.visible) for trace in figure.data]
    assert drawn == [
        ("adapter-local", [0, 1], [16.0, 6.0], True),
        ("adapter-fed", [0, 1], [16.0, 8.0], True),
        ("adapter-local", [0, 1], [16.0, 6.0], False),
        ("adapter-local", [0, 1], [16.0, 6.0], False),
    ]
    (menu,) = figure.layout.updatemenus
    assert [button.label for button in menu.buttons] == ["all text", "north", "&lt;script&gt;alert(1)&lt;…"]
    assert list(menu.buttons[1].args[0]["visible"]) == [False, False, True, False]
    text = markup(write_suite_report(result.path, tmp_path / "runs"))
    assert 'id="plot-convergence"' in text
    assert EVIL not in text


def test_a_suite_that_kept_no_dev_losses_has_no_such_part(perplexities: Path, tmp_path: Path) -> None:
    assert "convergence" not in markup(write_suite_report(perplexities, tmp_path / "runs"))


def test_accuracy_and_the_four_parts_of_each_text_are_shown_and_are_no_sites(perplexities: Path, tmp_path: Path) -> None:
    assert "guessed" not in words(write_suite_report(perplexities, tmp_path / "runs"))
    told = {"accuracy of north": ["", 25.0, 62.5], "macro_accuracy": [1.0, 2.0, 3.0], "parts of north": ["", 9.0, 5.5]}
    columns = {**told, "sd of parts of north": ["", 0.5, 0.25]}
    head, *rows = (perplexities / "table.csv").read_text().splitlines()
    lines = [",".join([row, *(str(values[place]) for values in columns.values())]) for place, row in enumerate(rows)]
    (perplexities / "table.csv").write_text("\n".join([",".join([head, *columns]), *lines]) + "\n")
    assert read_suite(perplexities).sites == ["north", EVIL]
    seen = words(write_suite_report(perplexities, tmp_path / "runs"))
    assert "Masked pieces guessed, %" in seen
    assert "adapter-local 2.00 25.00 – adapter-fed 3.00 62.50 –" in seen
    assert "adapter-local 9.00 ± 0.50 adapter-fed 5.50 ± 0.25" in seen
