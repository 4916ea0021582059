"""The benchmarks' own arithmetic, and the text that they make; they themselves run for minutes."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from fedlingua.corpora.sites import check_files, read_federation
from fedlingua.corpora.split import SPLITS
from fedlingua.corpora.texts import read_sites

ROOT = Path(__file__).parents[1]


def benchmark(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module(name)


@pytest.fixture
def paper_round(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return benchmark("paper_round", monkeypatch)


@pytest.fixture
def paired(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return benchmark("paired", monkeypatch)


def test_the_papers_transfer_times_come_out(paper_round: ModuleType) -> None:
    """§2.4: 2.44 GB / 1000 Mbit/s = 19.5 s, 234 s for 12 sites, 0.26 s for adapters, 98.7 % saved."""
    figures = paper_round.papers_figures()
    assert figures["model_seconds_a_site"] == pytest.approx(19.5, abs=0.1)
    assert figures["model_seconds_all_sites"] == pytest.approx(234, abs=1)
    assert figures["adapter_seconds_a_site"] == pytest.approx(0.26, abs=0.005)
    assert figures["saved_share"] == pytest.approx(0.987, abs=0.0005)
    assert paper_round.transfer_seconds(125_000_000) == 1.0


@pytest.mark.parametrize(("name", "sites"), [("ted2020_m2en", 8), ("europarl_m2m", 12)])
def test_the_round_has_the_papers_sites_with_text_where_prepare_leaves_it(
    paper_round: ModuleType, tmp_path: Path, name: str, sites: int
) -> None:
    paper = read_federation(ROOT / f"experiments/federations/{name}.toml", tmp_path)
    federation = read_federation(paper_round.write_federation(name, tmp_path, 16), tmp_path)
    check_files(paper)  # the same places
    assert [(site.name, site.direction, site.corpus) for site in federation.sites] == [
        (site.name, site.direction, site.corpus) for site in paper.sites
    ]
    assert (len(federation.sites), federation.families) == (sites, paper.families)
    for text in read_sites(federation, frozenset()).values():
        assert [len(text.splits[split]) for split in SPLITS] == [16, 2, 2]


def test_ways_take_turns_and_the_first_turn_is_not_counted(paired: ModuleType) -> None:
    done: list[str] = []
    times = paired.turn_about({"a": lambda: done.append("a"), "b": lambda: done.append("b")}, 2)
    assert "".join(done) == "ababab"
    assert {way: len(taken) for way, taken in times.items()} == {"a": 2, "b": 2}


def test_medians_and_ratios_by_hand(paired: ModuleType) -> None:
    times = {"slow": [6.0, 2.0, 4.0], "fast": [3.0, 2.0, 1.0]}
    assert paired.figures(times) == {
        "repeats": 3,
        "slow_s": {"median": 4.0, "quartiles": [2.0, 6.0], "least": 2.0},
        "fast_s": {"median": 2.0, "quartiles": [1.0, 3.0], "least": 1.0},
    }
    # The turns' pairs: 2, 1, 4.
    assert paired.ratio(times["slow"], times["fast"]) == {
        "of_medians": 2.0,
        "of_least": 2.0,
        "of_pairs_quartiles": [1.0, 2.0, 4.0],
    }
