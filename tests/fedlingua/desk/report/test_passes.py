"""The plot of passes: a run folder with choices of sites, by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedlingua.desk.report.passes import mean_of_least, passes_plot, site_curves
from fedlingua.desk.report.read import read_run

RUN: dict[str, Any] = {"status": "completed", "method": "adapter-fed", "best_round": 4}
CONFIG = {"method": "adapter-fed", "rounds": 8, "sample.share": 0.25, "sample.replacement": False}


def folder(place: Path, config: dict[str, Any], **choices: dict[str, Any]) -> Path:
    """Sites a and b, measured in every second round of six, of which the fourth was best."""
    (place / "run.json").write_text(json.dumps(RUN | {"config": config}))
    rounds = [
        {"round": number, "sites": {site: {"dev_loss": loss if number % 2 == 0 else None} for site in ("a", "b")}}
        for number, loss in enumerate((5.0, 0.0, 3.0, 0.0, 2.0, 0.0, 2.5))
    ]
    (place / "rounds.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rounds))
    for site, candidates in choices.items():
        (place / "sites" / site / "choice").mkdir(parents=True)
        (place / "sites" / site / "choice" / "choice.json").write_text(json.dumps({"candidates": candidates}))
    return place


ALONE, OWN = {"dev_losses": [5.1, 4.0, None, 3.5]}, {"dev_losses": [2.0, 2.2, 1.5]}


def test_four_rounds_are_a_pass_and_what_a_site_trains_on_comes_after_the_best_round(tmp_path: Path) -> None:
    curves = site_curves(read_run(folder(tmp_path, CONFIG, a={"alone": ALONE, "own": OWN}, b={"alone": ALONE})))
    alone, joined = curves["a"]
    assert alone == {0.0: 5.1, 1.0: 4.0, 3.0: 3.5}
    assert joined == {0.0: 5.0, 0.5: 3.0, 1.0: 2.0, 2.0: 2.2, 3.0: 1.5}
    assert curves["b"][1] == {0.0: 5.0, 0.5: 3.0, 1.0: 2.0}


def test_without_parts_a_round_is_a_pass(tmp_path: Path) -> None:
    (_, joined), *_ = site_curves(
        read_run(folder(tmp_path, CONFIG | {"sample.share": 0.0}, a={"alone": ALONE, "own": OWN}))
    ).values()
    assert list(joined) == [0.0, 2.0, 4.0, 5.0, 6.0]


def test_the_mean_is_of_the_least_so_far() -> None:
    assert mean_of_least([{0.0: 4.0, 1.0: 2.0, 2.0: 3.0}, {0.5: 2.0, 2.0: 1.0}]) == {0.5: 3.0, 1.0: 2.0, 2.0: 1.5}


def test_each_site_has_two_lines_and_so_have_the_means(tmp_path: Path) -> None:
    figure = passes_plot(read_run(folder(tmp_path, CONFIG, a={"alone": ALONE, "own": OWN})))
    assert figure is not None
    assert [trace.name for trace in figure.data] == ["a", "a", "mean, alone", "mean, joined"]
    assert figure.data[3].y == (5.0, 3.0, 2.0, 2.0, 1.5)


def test_sites_of_one_colour_have_marks_of_their_own(tmp_path: Path) -> None:
    place, sites = folder(tmp_path, CONFIG), [f"site-{number}" for number in range(9)]
    for site in sites:
        (place / "sites" / site / "choice").mkdir(parents=True)
        (place / "sites" / site / "choice" / "choice.json").write_text(json.dumps({"candidates": {"alone": ALONE, "own": OWN}}))
    losses = [{"round": number, "sites": {site: {"dev_loss": 5.0 - number} for site in sites}} for number in range(4)]
    (place / "rounds.jsonl").write_text("".join(json.dumps(each) + "\n" for each in losses))
    figure = passes_plot(read_run(place))
    assert figure is not None
    joined = [trace for trace in figure.data if trace.showlegend]
    assert [trace.name for trace in joined] == sites
    assert len({(trace.line.color, trace.mode, trace.marker.symbol) for trace in joined}) == len(sites)
    assert {trace.mode for trace in joined[:6]} == {"lines"}


@pytest.mark.parametrize("candidates", [{}, {"alone": 5}, {"alone": {"dev_losses": "none"}}])
def test_sites_of_a_deployment_and_broken_files_have_no_lines(tmp_path: Path, candidates: dict[str, Any]) -> None:
    assert passes_plot(read_run(folder(tmp_path, CONFIG, a=candidates))) is None


def test_a_run_of_unknown_settings_has_none(tmp_path: Path) -> None:
    assert site_curves(read_run(folder(tmp_path, CONFIG | {"method": "unheard-of"}, a={"alone": ALONE}))) == {}


def test_sums_over_all_sites_are_no_sites_curve(tmp_path: Path) -> None:
    """rounds.jsonl has the mean of all sites under the name of each, which would fall where the site's own losses begin."""
    secure = CONFIG | {"privacy.sum": "secure", "keep.choose": True}
    place = folder(tmp_path, secure, a={"alone": ALONE, "own": OWN})
    assert read_run(place).settings is not None
    assert site_curves(read_run(place)) == {}
    assert site_curves(read_run(folder(tmp_path, secure | {"privacy.scores": "sites"})))


def test_rounds_that_end_within_a_pass_are_not_stretched(tmp_path: Path) -> None:
    (_, joined), *_ = site_curves(read_run(folder(tmp_path, CONFIG | {"rounds": 10}, a={"alone": ALONE}))).values()
    assert list(joined) == [0.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("changes", "unit"), [({}, "passes over"), ({"sample.share": 0.0, "local-epochs": 4}, "a round's training")]
)
def test_the_axis_says_what_a_unit_is(tmp_path: Path, changes: dict[str, Any], unit: str) -> None:
    figure = passes_plot(read_run(folder(tmp_path, CONFIG | changes, a={"alone": ALONE})))
    assert figure is not None
    assert figure.layout.xaxis.title.text.startswith(unit)
