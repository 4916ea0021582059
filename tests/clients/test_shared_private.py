"""The rest of the world by hand: what a site makes of the mean that it receives."""

import numpy as np
import pytest

from clients.shared_private import rest_of_world, rests
from fedlingua.exchange.tensors import TensorSet, TensorSpec


def test_of_equal_sites_it_is_n_times_the_mean_less_the_own_over_n_less_one() -> None:
    own = np.array([[1.0, 2.0], [4.0, 0.0], [7.0, -5.0]], np.float32)
    mean = own.mean(axis=0, dtype=np.float32)  # (4, -1)
    np.testing.assert_allclose(rest_of_world(mean, own[0], 1 / 3), [(3 * 4 - 1) / 2, (3 * -1 - 2) / 2], rtol=1e-6)
    np.testing.assert_allclose(rest_of_world(mean, own[0], 1 / 3), own[1:].mean(axis=0), rtol=1e-6)


def test_of_weighted_sites_it_is_the_weighted_mean_of_the_others() -> None:
    weights, own = np.array([0.2, 0.5, 0.3]), np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    got = rest_of_world((weights @ own).astype(np.float32), own[1], 0.5)
    np.testing.assert_allclose(got, (0.2 * own[0] + 0.3 * own[2]) / 0.5, rtol=0, atol=1e-6)
    assert got.dtype == np.float32


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_of_a_site_that_is_not_in_the_mean_or_alone_it_is_the_mean_itself(share: float) -> None:
    mean, own = np.array([0.1, 0.2], np.float32), np.array([3.0, 4.0], np.float32)
    assert rest_of_world(mean, own, share).tobytes() == mean.tobytes()


def test_each_part_has_a_share_of_its_own_and_what_is_no_projection_has_none_beside() -> None:
    names = {"encoder": "e.0.adapters.fc2.up.weight", "decoder": "d.0.q_proj.lora_A.default.weight"}
    specs = [TensorSpec(name, (1,), part, 0) for part, name in names.items()]  # type: ignore[arg-type]
    chosen = TensorSet("adapters", (*specs, TensorSpec("d.layer_norm.weight", (1,), "decoder", None)))
    received, own = ({name: np.array([number], np.float32) for name in chosen.names} for number in (4.0, 1.0))
    got = rests(received, own, chosen, (0.5, 0.25, 0.0))
    assert {name: float(array[0]) for name, array in got.items()} == {
        "e.0.adapters.fc2.beside.last.weight": 7.0,
        "d.0.q_proj.beside.first.weight": 5.0,
    }
    assert {float(array[0]) for array in rests(received, own, chosen, ()).values()} == {4.0}
