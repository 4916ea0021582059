"""The page of a comparison: what its plot holds, in which settings runs differ, and what it says of them."""

import json
import re
from html import unescape
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.desk import units
from fedlingua.desk.cli.app import app
from fedlingua_lab.comparison.compare import Comparison, compare
from fedlingua_lab.comparison.runs import differing_settings, read_runs, variants
from fedlingua_lab.pages.comparison_page import check_page, difference_plot, render_comparison, write_comparison
from tests.translated_runs import make_run


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Each site's own model, and two federations."""
    return [
        make_run(tmp_path / "own", "adapter-local", {"a": 1, "b": 0}, seconds=10.0, rounds=0),
        make_run(tmp_path / "all", "adapter-fed", {"a": 0, "b": 2}, seconds=20.0),
        make_run(tmp_path / "some", "adapter-families", {"a": 0, "b": 1}, seconds=30.0),
    ]


@pytest.fixture
def found(folders: list[Path]) -> Comparison:
    return compare(read_runs(folders), "", 100, 2)


def seen(page: str) -> str:
    return " ".join(unescape(page).split())


def test_differences_stand_with_their_intervals_and_hollow_where_chance_explains_them(found: Comparison) -> None:
    first, second = difference_plot(found).data
    beside = found.beside[0]
    rows = [*beside.sites.values(), beside.macro, beside.pooled]
    assert first.name == "all"
    assert list(first.x) == pytest.approx([one.value for one in rows])
    assert [x + up for x, up in zip(first.x, first.error_x.array, strict=True)] == pytest.approx([one.high for one in rows])
    assert [x - down for x, down in zip(first.x, first.error_x.arrayminus, strict=True)] == pytest.approx(
        [one.low for one in rows]
    )
    assert [symbol.endswith("-open") for symbol in first.marker.symbol] == [one.low <= 0 <= one.high for one in rows]
    assert first.marker.color != second.marker.color
    assert all(abs(y - row) < 0.5 for trace in (first, second) for row, y in enumerate(trace.y))


def test_without_translations_a_difference_has_no_interval(tmp_path: Path) -> None:
    pair = [make_run(tmp_path / name, "adapter-fed", {"a": words, "b": 1}, texts=False) for name, words in (("x", 0), ("y", 1))]
    found = compare(read_runs(pair), "", 40, 3)
    (trace,) = difference_plot(found).data
    assert trace.error_x.array is None
    assert list(trace.marker.symbol) == ["diamond"] * 3  # two sites and their mean
    page = seen(render_comparison(found))
    assert "The translations are not at hand" in page
    assert "Sentences that differ most" not in page


def test_bytes_are_those_of_all_rounds(found: Comparison) -> None:
    assert [run.total_bytes for run in found.runs] == [0.0, 18000.0, 18000.0]


def test_text_in_one_place_has_no_bytes(tmp_path: Path) -> None:
    pooled = make_run(tmp_path / "pooled", "centralized-model", {"a": 0, "b": 0})
    assert [run.total_bytes for run in read_runs([pooled])] == [None]


def test_runs_that_stand_beside_own_models_have_each_sites_gain(found: Comparison) -> None:
    assert [sorted(fair.gains) for fair in found.fairness] == [[], ["a", "b"], ["a", "b"]]
    gains = " ".join(units.gain(found.fairness[1].gains[site]) for site in ("a", "b"))
    assert f"all {gains}" in " ".join(re.sub("<[^>]*>", " ", render_comparison(found)).split())


def test_a_metric_other_than_the_first_is_what_fairness_is_told_in(folders: list[Path]) -> None:
    found = compare(read_runs(folders), "chrf", 40, 0)
    assert [fair.worst for fair in found.fairness] == [1.0, 1.0, 1.0]
    assert found.fairness[1].gains == {"a": 0.0, "b": 0.0}


def test_settings_in_which_runs_differ_are_told(tmp_path: Path) -> None:
    settings = [{"send.rule": "dp-l"}, {"send.rule": "dp-l", "run-dir": "/elsewhere"}, {"send.rule": "top-k", "beam": 9}]
    runs = read_runs(
        [
            make_run(tmp_path / f"{seed}", "adapter-fed", {"a": seed % 2}, seed, config={"task": "translation", **each})
            for seed, each in enumerate(settings, start=1)
        ]
    )
    assert differing_settings(runs) == {"send.rule": ["dp-l", "dp-l", "top-k"], "beam": [5, 5, 9]}
    assert variants(runs) == ["adapter-fed+dp-l+beam 5"] * 2 + ["adapter-fed+top-k+beam 9"]
    found = compare(runs, "", 40, 0)
    assert [(one.method, one.seeds) for one in found.over_seeds] == [("adapter-fed+dp-l+beam 5", (1, 2))]
    page = seen(render_comparison(found))
    assert "Over seeds" in page
    assert "/elsewhere" not in page


def test_what_a_resumed_run_may_change_is_no_difference(tmp_path: Path) -> None:
    settings = [
        {},
        {"track": "tensorboard", "keep-translations": 2},
        {"track": "", "deadline.phase-s": 5.0, "task": "translation"},
    ]
    runs = read_runs(
        [
            make_run(tmp_path / f"{seed}", "adapter-fed", {"a": seed % 2}, seed, config=each)
            for seed, each in enumerate(settings, start=1)
        ]
    )
    assert differing_settings(runs) == {}
    assert [(one.method, one.seeds) for one in compare(runs, "", 40, 0).over_seeds] == [("adapter-fed", (1, 2, 3))]


def test_a_run_and_its_repetition_are_no_two_seeds(tmp_path: Path) -> None:
    runs = read_runs([make_run(tmp_path / name, "adapter-fed", {"a": 1}) for name in ("first", "again")])
    assert compare(runs, "", 40, 0).over_seeds == []


def test_the_page_tells_all_of_it(found: Comparison, tmp_path: Path) -> None:
    page = seen(write_comparison(found, tmp_path / "new" / "page.html").read_text())
    macro = found.beside[0].macro
    for told in (
        "adapter-local, adapter-fed and adapter-families, compared",
        f"{macro.value:+.2f} beside own, 95 % from {macro.low:+.2f} to {macro.high:+.2f}",
        *(
            "BLEU by site",
            "What it cost",
            "Who gains",
            "Does joining help?",
            "Sentences that differ most",
            "Signature of the metric",
        ),
        "and method adapter-local or, if there is none, from the run itself. Left behind",
        "None: all settings are the same.",
        found.sentences[0].source,
    ):
        assert told in page
    assert "default-src 'none'" in page


def test_what_is_no_page_is_refused_before_anything_is_worked_out(tmp_path: Path) -> None:
    for target in (tmp_path, tmp_path / "page", tmp_path / "page.json"):
        with pytest.raises(ConfigError, match="a page is one file; give its name, such as"):
            check_page(target)
    (tmp_path / "file").write_text("")
    runs = [make_run(tmp_path / name, "adapter-fed", {"a": 0}) for name in ("x", "y")]
    with pytest.raises(RunError, match="cannot be written"):
        write_comparison(compare(read_runs(runs), "", 40, 0), tmp_path / "file" / "page.html")


def test_the_command_writes_the_page_and_says_where(folders: list[Path], tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["compare", *map(str, folders), "--samples", "40", "--to", str(target), "--format", "json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["report"] == str(target)
    assert "BLEU by site" in target.read_text()
    refused = CliRunner().invoke(app, ["compare", *map(str, folders), "--to", str(tmp_path)])
    assert isinstance(refused.exception, ConfigError)
