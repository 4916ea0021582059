"""Who opposes the others: by hand, and by changes that share a direction."""

import numpy as np
import pytest

from fedlingua.common.cores import SPAN
from fedlingua.layers.agreement import LEAST, agreed_by, agreements, cosines_with_others, products

SIZE = 4000


def changes(sites: int, together: float, seed: int = 1) -> np.ndarray:
    """Of so many sites: each a direction of its own and so much of a common one, all about as long."""
    draws = np.random.default_rng(seed)
    return (draws.standard_normal((sites, SIZE)) + together * draws.standard_normal(SIZE)).astype(np.float32)


def opposing(sites: np.ndarray, already: int = 0) -> dict[int, float]:
    agreed = agreed_by((sites @ sites.T).astype(float), already)
    return {place: agreement for place, agreement in enumerate(agreed) if agreement < LEAST}


def test_inner_products_are_those_of_the_changes_in_whatever_pieces() -> None:
    draws = np.random.default_rng(1)
    starts = [draws.standard_normal(SPAN + 5).astype(np.float32)] * 3
    ends = [start + draws.standard_normal(len(start)).astype(np.float32) for start in starts]
    moved = np.stack(ends).astype(float) - starts[0]
    assert products(ends, starts) == pytest.approx(moved @ moved.T, rel=1e-5, abs=1.0)


def test_agreement_by_hand() -> None:
    """Of (1, 0), (0, 1) and (1, 1) / sqrt 2: the first with the sum of the others, (0.71, 1.71), 0.71 / 1.85."""
    directions = np.array([[1, 0], [0, 1], [0.5**0.5, 0.5**0.5]])
    sum_of_others = directions[1] + directions[2]
    assert cosines_with_others(directions @ directions.T)[0] == pytest.approx(sum_of_others[0] / np.linalg.norm(sum_of_others))


@pytest.mark.parametrize("length", [0.01, 1.0, 100.0])
def test_who_sends_the_signs_of_its_change_the_other_way_is_found_at_any_length(length: float) -> None:
    sites = changes(5, 0.5)
    sites[2] = -length * np.sign(sites[2])
    assert list(opposing(sites)) == [2]


def test_liars_that_oppose_the_mean_together_are_found_and_no_honest_site_is() -> None:
    """Before they are left out, honest sites seem to oppose the others, too."""
    sites = changes(8, 0.5)
    sites[[1, 6]] = -1.5 * sites.mean(axis=0) * np.linalg.norm(sites[0]) / np.linalg.norm(sites.mean(axis=0))
    assert max(cosines_with_others(np.corrcoef(sites))[[0, 2, 3, 4, 5, 7]]) < 0
    assert set(opposing(sites)) == {1, 6}


def test_nobody_opposes_sites_that_go_their_own_ways() -> None:
    sites = changes(5, 0.0)
    sites[2] = -sites[[0, 1, 3, 4]].sum(axis=0)
    assert agreed_by((sites @ sites.T).astype(float)) == [0.0] * 5


def test_of_three_sites_none_is_left_out_and_of_more_fewer_than_half() -> None:
    sites = changes(3, 1.0)
    sites[0] *= -1
    assert agreements(sites, np.zeros_like(sites)) == [0.0] * 3
    sites = changes(9, 1.0)
    sites[:3] *= -1
    assert set(opposing(sites)) == {0, 1, 2}
    assert len(opposing(sites, already=2)) == 2
