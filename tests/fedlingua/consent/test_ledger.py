"""What a site has given away, over all runs: on disk first, and refused at its budget."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedlingua.common.errors import ExchangeError
from fedlingua.consent.ledger import Entry, Ledger
from fedlingua.privacy.accounting import Release, epsilon_of, noise_for
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings


@pytest.fixture
def settings(run_config: dict[str, Any]) -> Settings:
    return settings_from({**run_config, "method": "adapter-fed", "rounds": 4, "local-epochs": 3, "dp.epsilon": 8.0})


def spend(ledger: Ledger, settings: Settings, run: str, number: int, key: str) -> None:
    """As a site's client does."""
    entry = ledger.of_round(settings, run, number)
    if key not in {each.key for each in ledger.entries()}:
        ledger.check_round(entry, settings)
    entry = replace(entry, key=key)
    ledger.enter(entry, lambda entry: ledger.check_round(entry, settings))


def test_a_whole_run_costs_what_it_asked_for_and_not_more(settings: Settings, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "clinic.json")
    for number in range(1, 5):
        spend(ledger, settings, "run", number, f"key {number}")
        (noise,) = {each.noise for each in ledger.entries()}
        assert ledger.spent == pytest.approx(epsilon_of([Release(noise, 1.0, 3 * number)], 1e-5), abs=1e-9)
    assert 7.99 < ledger.spent <= 8.0
    stored = json.loads((tmp_path / "clinic.json").read_text())
    assert [each["what"] for each in stored["entries"]] == [f"training, round {number}" for number in range(1, 5)]
    assert stored["delta"] == 1e-5


def test_a_round_that_is_trained_again_costs_again_and_never_more_than_the_run_asked_for(
    settings: Settings, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "clinic.json")
    for number in range(1, 4):
        spend(ledger, settings, "run", number, f"key {number}")
    spend(ledger, settings, "run", 3, "key 3")  # the same tensors again are free
    assert len(ledger.entries()) == 3
    spend(ledger, settings, "run", 3, "from other tensors")
    with pytest.raises(
        ExchangeError, match=r"training, round 4, would bring this run's training to epsilon = 9\.\d+ .* dp.epsilon = 8"
    ):
        spend(ledger, settings, "run", 4, "key 4")
    assert ledger.spent <= 8.0


def test_the_sum_of_all_runs_and_signatures_is_bounded_by_the_sites_own_budget(settings: Settings, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "clinic.json", max_epsilon=10.0)
    ledger.enter(Entry(2.0, key="signature", what="a signature", run=""))
    for number in range(1, 5):
        spend(ledger, settings, "one", number, f"one {number}")
    noise = ledger.entries()[-1].noise
    assert ledger.spent == pytest.approx(epsilon_of([Release(2.0), Release(noise, 1.0, 12)], 1e-5), abs=1e-9)
    spend(ledger, settings, "two", 1, "two 1")
    assert 9 < ledger.spent <= 10
    with pytest.raises(
        ExchangeError, match=r"training, round 2: brings .* from epsilon = 9\.\d+ to 10\.\d .* gives away 10 in all"
    ):
        spend(ledger, settings, "two", 2, "two 2")
    assert len(ledger.entries()) == 6
    ledger.enter(Entry(2.0, key="signature", what="a signature", run=""))  # given already


def test_the_budget_is_counted_at_the_sites_delta_whatever_the_run_says(settings: Settings, tmp_path: Path) -> None:
    lax = replace(settings, dp_delta=0.01)
    ledger = Ledger(tmp_path / "clinic.json", max_epsilon=8.0, delta=1e-6)
    spend(ledger, lax, "run", 1, "key 1")
    with pytest.raises(ExchangeError, match=r"epsilon = 6\.16 to 9\.25 at delta = 1e-06; it gives away 8 in all"):
        spend(ledger, lax, "run", 2, "key 2")
    assert 5 < ledger.spent <= 8.0


def test_an_entry_is_on_disk_before_enter_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr("os.fsync", lambda descriptor: order.append("on disk"))
    Ledger(tmp_path / "clinic.json").enter(Entry(2.0, key="key", what="a signature", run=""))
    order.append("returned")
    assert order == ["on disk", "returned"]


def test_sampled_steps_are_charged_as_sampled(settings: Settings, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "clinic.json")
    sampled = replace(settings, sample_share=0.2, dp_epsilon=3.0, rounds=2)
    for number in (1, 2):
        spend(ledger, sampled, "run", number, f"key {number}")
    assert {(each.share, each.steps) for each in ledger.entries()} == {(0.2, 3)}
    assert 2.9 < ledger.spent <= 3.0
    assert (
        ledger.entries()[0].noise < Ledger(tmp_path / "other.json").of_round(replace(sampled, sample_share=1.0), "run", 1).noise
    )


def test_rounds_whose_noise_is_made_in_shares_are_accounted_by_moments_beside_older_entries(
    settings: Settings, tmp_path: Path
) -> None:
    shared = replace(settings, dp_noise="shares", local_epochs=1)
    older = {"noise": 5.0, "share": 1.0, "steps": 1, "key": "older", "what": "training, round 1", "run": "before"}
    (tmp_path / "clinic.json").write_text(json.dumps({"epsilon": 0.8, "delta": 1e-5, "entries": [older]}))
    ledger = Ledger(tmp_path / "clinic.json")
    assert ledger.entries() == [Entry(5.0, key="older", what="training, round 1", run="before")]
    for number in range(1, 5):
        spend(ledger, shared, "run", number, f"key {number}")
    noise = noise_for(8.0, 1e-5, 1.0, 4, moments=True)
    assert [(each.noise, each.moments) for each in ledger.entries()] == [(5.0, False), *[(noise, True)] * 4]
    assert ledger.spent == pytest.approx(epsilon_of([Release(5.0), Release(noise, 1.0, 4, True)], 1e-5))
    with pytest.raises(ExchangeError, match=r"would bring this run's training to epsilon = 9\.\d+"):
        spend(ledger, shared, "run", 4, "from other tensors")
