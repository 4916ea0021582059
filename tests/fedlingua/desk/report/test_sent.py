"""What a run sent: what is read of it, which rounds are drawn, and what the page says, odd content included."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedlingua.desk.report.read import read_run
from fedlingua.desk.report.run_page import write_report
from fedlingua.desk.report.run_plots import loss_plot
from fedlingua.desk.report.sent import (
    Sent,
    Spread,
    bin_edges,
    deviation_plot,
    read_deviations,
    share_plot,
    shown_rounds,
    threshold_plot,
    what_was_sent,
)

EVIL = "<script>alert(1)</script>"
# (tensors, numbers) that the two sites sent.
SHARES = {1: ((0.5, 0.25), (1.0, 0.75)), 2: ((0.25, 0.125), (0.25, 0.375))}
THRESHOLD: dict[str, Any] = {"theta": 0.002, "mu": 0.002, "scale": 0.004, "tau": 0.0004, "stepped": True, "slope": -0.1}


def site_entry(tensors: float, numbers: float) -> dict[str, Any]:
    return {"dev_loss": 1.0, "seconds": {"train": 1.0}, "tensors_share": tensors, "numbers_share": numbers, "deviation": 0.003}


def round_entry(index: int, **changes: Any) -> dict[str, Any]:
    sites = {name: site_entry(*shares) for name, shares in zip(("north", EVIL), SHARES.get(index, ()), strict=False)}
    told = {"threshold": THRESHOLD | {"theta": 0.004 / index}} if index else {}
    return {"round": index, "dev_loss": 3.0 - index, "sites": sites, "failures": [], **told, **changes}


def lines(entries: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


DEVIATIONS = [
    {"round": 1, "site": "north", "deviations": [0.001, 0.01, None, 0.0]},
    {"round": 1, "site": EVIL, "deviations": [0.1, 0.1, None, 0.002]},
    {"round": 2, "site": "north", "deviations": [0.001, 0.001, 0.001, 0.0]},
]


def write(
    folder: Path, deviations: str | None = lines(DEVIATIONS), rounds: list[dict[str, Any]] | None = None, **scores: Any
) -> Path:
    (folder / "run.json").write_text(json.dumps({"method": "metasend-g", "status": "completed"}))
    (folder / "scores.json").write_text(json.dumps(scores))
    (folder / "rounds.jsonl").write_text(lines([round_entry(index) for index in range(3)] if rounds is None else rounds))
    if deviations is not None:
        (folder / "deviations.jsonl").write_text(deviations)
    return folder


def sent(folder: Path) -> Sent:
    found = what_was_sent(read_run(folder))
    assert found is not None
    return found


def section(folder: Path) -> str:
    _, here, rest = write_report(folder).read_text().partition('<section id="sent">')
    return " ".join(rest.split("</section>")[0].split()) if here else ""


def test_shares_are_means_over_the_sites_of_a_round(tmp_path: Path) -> None:
    found = sent(write(tmp_path))
    assert found.tensors == {1: Spread(0.75, 0.5, 1.0), 2: Spread(0.25, 0.25, 0.25)}
    assert found.numbers == {1: Spread(0.5, 0.25, 0.75), 2: Spread(0.25, 0.125, 0.375)}
    tensors, numbers = share_plot(found).data
    assert (list(tensors.x), list(tensors.y)) == ([1, 2], [75.0, 25.0])
    assert list(numbers.y) == [50.0, 25.0]
    assert tensors.customdata[0] == "75.0 %, by site 50.0 % to 100.0 %"


def test_the_scores_say_what_was_saved_and_else_the_rounds_so_far(tmp_path: Path) -> None:
    assert "Not sent: 50.0 % of the tensors, 62.5 % of the numbers" in section(write(tmp_path))
    assert "rounds so far" in section(tmp_path)
    told = section(write(tmp_path, tensor_saving=0.1, number_saving=0.2))
    assert "Not sent: 10.0 % of the tensors, 20.0 % of the numbers" in told
    assert "rounds so far" not in told


def test_the_threshold_stands_beside_its_scale_and_the_median(tmp_path: Path) -> None:
    figure = threshold_plot(sent(write(tmp_path)))
    traces = {trace.name: list(trace.y) for trace in figure.data}
    assert traces == {"median deviation": [0.003, 0.003], "the network's own": [0.002], "threshold": [0.004, 0.002]}
    (dotted,) = figure.layout.shapes
    assert (dotted.y0, dotted.line.dash) == (0.004, "dot")
    assert figure.layout.yaxis.type == "log"


def own(index: int, *thetas: float) -> dict[str, Any]:
    """A round in which every site had a threshold of its own."""
    entry = round_entry(index)
    del entry["threshold"]
    for site, theta in zip(entry["sites"].values(), thetas, strict=True):
        site["theta"] = theta
    return entry


def test_a_fixed_threshold_has_its_line_too(tmp_path: Path) -> None:
    found = sent(write(tmp_path, rounds=[own(1, 0.5, 0.5), own(2, 0.5, 0.5)]))
    traces = {trace.name: list(trace.y) for trace in threshold_plot(found).data}
    assert traces == {"median deviation": [0.003, 0.003], "threshold": [0.5, 0.5]}
    panels = deviation_plot(found)
    assert [note.text for note in panels.layout.annotations] == ["round 1, threshold 0.5", "round 2, threshold 0.5"]
    told = section(tmp_path)
    assert 'id="plot-threshold"' in told
    assert "Each site's own, not learned" in told
    assert "Learned" not in told


def test_random_thresholds_are_a_mean_between_the_least_and_the_greatest(tmp_path: Path) -> None:
    found = sent(write(tmp_path, rounds=[own(1, 0.25, 0.75), own(2, 0.5, 1.0)]))
    traces = {trace.name: list(trace.y) for trace in threshold_plot(found).data if trace.name[0] != "m"}
    assert traces == {"threshold": [0.5, 0.75], "least of the sites'": [0.25, 0.5], "greatest": [0.75, 1.0]}
    # Where each site cut elsewhere there is no one line through all sites' deviations.
    assert [note.text for note in deviation_plot(found).layout.annotations] == ["round 1", "round 2"]


def test_a_threshold_of_null_is_no_threshold(tmp_path: Path) -> None:
    rounds = [round_entry(1, threshold=THRESHOLD | {"theta": None}), round_entry(2, threshold=[1])]
    assert sent(write(tmp_path, rounds=rounds)).thresholds == {}
    assert "The threshold by round" not in section(tmp_path)


def test_tensors_that_moved_are_told_from_those_that_did_not_or_were_zero(tmp_path: Path) -> None:
    found = sent(write(tmp_path)).deviations
    assert found[1]["north"] == [0.001, 0.01, None, 0.0]
    assert found[2] == {"north": [0.001, 0.001, 0.001, 0.0]}
    assert "Not drawn: 2 tensors that did not move, and 2 that were zero before." in section(tmp_path)


def test_histograms_share_their_bins_and_count_every_tensor_that_moved(tmp_path: Path) -> None:
    figure = deviation_plot(sent(write(tmp_path)))
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert [(bar.name, sum(bar.y)) for bar in bars] == [
        *(("north", 2), ("&lt;script&gt;a…/script&gt;", 3)),
        *(("north", 3), ("&lt;script&gt;a…/script&gt;", 0)),
    ]
    assert all(list(bar.x) == list(bars[0].x) for bar in bars)
    assert figure.layout.xaxis.type == "log"
    assert [note.text for note in figure.layout.annotations] == ["round 1, threshold 0.004", "round 2, threshold 0.002"]


def test_sites_have_the_colours_of_the_loss_plot_whoever_replied_first(tmp_path: Path) -> None:
    folder = read_run(write(tmp_path, lines(DEVIATIONS[::-1])))
    bars = [trace for trace in deviation_plot(sent(tmp_path)).data if trace.type == "bar"]
    dev = next(trace for trace in loss_plot(folder).data if trace.name == "north")
    assert [bar.marker.color for bar in bars if bar.name == "north"] == [dev.line.color] * 2


def test_more_sites_than_colours_are_pooled(tmp_path: Path) -> None:
    many = [{"round": 1, "site": f"s{place}", "deviations": [0.1, 0.2]} for place in range(7)]
    (bar,) = [trace for trace in deviation_plot(sent(write(tmp_path, lines(many), []))).data if trace.type == "bar"]
    assert (bar.name, sum(bar.y)) == ("all sites", 14)


@pytest.mark.parametrize(
    ("told", "shown"), [([], []), ([4], [4]), ([1, 2], [1, 2]), ([1, 2, 3], [1, 2, 3]), ([1, 2, 5, 6, 9], [1, 5, 9])]
)
def test_the_first_the_middle_and_the_last_round_are_shown(told: list[int], shown: list[int]) -> None:
    moved = {index: {"a": [1.0]} for index in told}
    still = {99: {"a": [0.0, 0.0, 0.0]}, 100: {}}
    assert shown_rounds(moved | still) == shown


def test_bins_reach_from_the_least_to_the_greatest() -> None:
    for values in ([1.0, 2.0], [1e-6, 1.0], [1e-6, 3e38]):
        edges = bin_edges(values)
        assert (edges[0], edges[-1]) == (min(values), max(values))
    low, high = bin_edges([0.5])
    assert low < 0.5 < high


def test_a_site_that_tells_a_round_again_is_counted_once(tmp_path: Path) -> None:
    again = [{"round": 1, "site": "a", "deviations": [1.0]}, {"round": 1, "site": "a", "deviations": [2.0]}]
    (tmp_path / "deviations.jsonl").write_text(lines(again))
    assert read_deviations(tmp_path / "deviations.jsonl")[0][1]["a"] == [2.0]


def test_a_last_line_broken_off_is_ignored_and_one_before_it_is_told(tmp_path: Path) -> None:
    told = sent(write(tmp_path, lines(DEVIATIONS) + '{"round": 3, "si'))
    assert (list(told.deviations), told.deviations_note) == ([1, 2], "")
    assert "1 line(s) of deviations.jsonl cannot be read" in section(write(tmp_path, "{oh\n" + lines(DEVIATIONS)))


@pytest.mark.parametrize(
    "deviations",
    [
        '[1]\n3\nnull\n{"round": 1}\n{}',
        '{"round": 1, "site": 3, "deviations": [1]}',
        '{"round": 1, "site": "a", "deviations": null}',
        '{"round": 1, "site": "a", "deviations": [null, "x", -1, NaN, Infinity, {}]}',
        "",
    ],
)
def test_deviations_of_another_type(tmp_path: Path, deviations: str) -> None:
    write(tmp_path, deviations)
    assert shown_rounds(sent(tmp_path).deviations) == []
    assert "How far tensors moved" not in section(tmp_path) or "cannot be read" in section(tmp_path)


def test_rounds_of_another_type(tmp_path: Path) -> None:
    odd = {"tensors_share": "half", "numbers_share": 7, "deviation": None}
    told = {"theta": 0.0, "mu": "x", "scale": None, "stepped": 3}
    rounds = [round_entry(1, sites={"north": odd, "south": None}), round_entry(2, sites={}, threshold=told, dev_loss=None)]
    found = sent(write(tmp_path, None, rounds))
    assert (found.tensors, found.numbers, found.medians, found.number_saving) == ({}, {}, {}, None)
    assert "shares" not in section(tmp_path)
    assert 'id="plot-threshold"' in section(tmp_path)


def test_deviations_alone_are_drawn(tmp_path: Path) -> None:
    write(tmp_path).joinpath("rounds.jsonl").unlink()
    assert 'id="plot-deviations"' in section(tmp_path)


def test_a_run_that_sends_everything_has_no_such_part(tmp_path: Path) -> None:
    plain = {"round": 1, "dev_loss": 1.0, "sites": {"north": {"dev_loss": 1.0, "uplink_bytes": 3}}, "failures": []}
    assert what_was_sent(read_run(write(tmp_path, None, [plain]))) is None
    assert section(tmp_path) == ""


def test_names_are_escaped(tmp_path: Path) -> None:
    assert EVIL not in write_report(write(tmp_path)).read_text()
