"""Dev perplexity by round, from sums, by hand."""

import math

import pytest

from fedlingua.desk.report.read import Round, SiteRound
from fedlingua_lab.suites.convergence import ALL, dev_losses, mean_curve, perplexities, thinned

SITES = ["es", "ru"]
# 30 of 40 pieces are Spanish: ln 4 and ln 16 are ln 4 ** 1.25 of all, which is no mean of the two.
MEASURED = {"es": (math.log(4), 30), "ru": (math.log(16), 10)}


def measured(number: int, **sites: tuple[float | None, int | None]) -> Round:
    entries = {name: SiteRound(None, loss, {}, 0.0, 0.0, dev_tokens=tokens) for name, (loss, tokens) in sites.items()}
    return Round(number, None, None, entries, [])


def test_perplexity_of_all_text_is_that_of_its_pieces_at_once() -> None:
    losses = dev_losses([measured(0, **MEASURED), measured(1, es=(None, None)), measured(2, **MEASURED)])
    assert list(losses) == [0, 2]
    assert perplexities(losses, ALL, SITES) == {0: pytest.approx(4**1.25, rel=1e-4), 2: pytest.approx(4**1.25, rel=1e-4)}
    assert perplexities(losses, "ru", SITES)[2] == pytest.approx(16.0, rel=1e-3)


def test_a_round_that_not_all_sites_measured_says_nothing_of_all_text() -> None:
    losses = dev_losses([measured(0, **MEASURED), measured(1, es=MEASURED["es"])])
    assert list(perplexities(losses, ALL, SITES)) == [0]
    assert list(perplexities(losses, "es", SITES)) == [0, 1]


def test_what_is_pooled_is_all_text_or_one_sites_and_never_both() -> None:
    rounds = [measured(1, pooled=(math.log(9), 40))]
    everybody, silo, public = (dev_losses(rounds, of) for of in (ALL, "es", "public text"))
    assert perplexities(everybody, ALL, SITES) == {1: pytest.approx(9.0, rel=1e-3)}
    assert perplexities(everybody, "es", SITES) == {}
    assert perplexities(silo, "es", SITES) == {1: pytest.approx(9.0, rel=1e-3)}
    assert perplexities(silo, ALL, SITES) == {}
    assert [perplexities(public, text, SITES) for text in (ALL, *SITES)] == [{}, {}, {}]


def test_they_are_kept_as_sums() -> None:
    losses = dev_losses([measured(0, **MEASURED)])
    assert losses == {0: {"es": (41.589, 30), "ru": (27.726, 10)}}


def test_of_many_rounds_every_second_or_fourth_is_kept_and_the_last() -> None:
    kept = {number: list(thinned(dev_losses([measured(5 * n, **MEASURED) for n in range(number)]))) for number in (64, 100, 181)}
    assert kept[64] == [5 * n for n in range(64)]
    assert kept[100] == [*(10 * n for n in range(50)), 495]
    assert kept[181] == [20 * n for n in range(46)]
    assert set(kept[181]) & set(range(490)) <= set(kept[100])
    assert thinned({}) == {}


def test_the_mean_over_seeds_is_of_rounds_that_all_measured() -> None:
    assert mean_curve([{0: 10.0, 5: 4.0, 10: 3.0}, {0: 12.0, 5: 6.0}]) == {0: 11.0, 5: 5.0}
    assert mean_curve([{0: 10.0}, {}]) == {0: 10.0}
    assert mean_curve([]) == {}


def test_a_loss_that_no_float_can_be_made_of_has_no_perplexity() -> None:
    losses = {0: {"es": (2 * math.log(3), 2)}, 1: {"es": (1e6, 1)}}
    assert perplexities(losses, "es", SITES) == {0: pytest.approx(3.0)}
