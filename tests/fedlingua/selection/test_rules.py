"""What each rule sends, by hand, and that the server has it from the wire's bytes alone."""

from typing import Any

import numpy as np
import pytest

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange.joined import join, runs
from fedlingua.exchange.records import from_record, to_record
from fedlingua.exchange.selected import Selection, pack_selected, unpack_selected
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.selection.deviation import deviations, differences, magnitudes
from fedlingua.selection.freezing import apf_start, apf_step
from fedlingua.selection.rules import by_threshold, dp, fixed_threshold, rand_send, random_threshold, top_k
from tests.selected import counted, mask_of

Array = np.ndarray[Any, Any]


def of_tensors(number: int) -> TensorSet:
    return TensorSet("toy", tuple(TensorSpec(f"t{place}", (3,), "shared", None) for place in range(number)))


def sent(selection: Selection) -> list[int]:
    assert selection.tensors is not None
    return np.flatnonzero(selection.tensors).tolist()


def devs(*numbers: float) -> Array:
    return np.array(numbers, np.float32)


@pytest.mark.parametrize(("tensors", "share", "wanted"), [(10, 0.5, 5), (5, 0.5, 3), (30, 0.1, 3), (4, 0, 0), (4, 1, 4)])
def test_rand_send_sends_exactly_its_share(tensors: int, share: float, wanted: int) -> None:
    assert len(sent(rand_send(of_tensors(tensors), np.random.default_rng(1), share))) == wanted


def test_rand_send_draws_from_all_tensors_by_the_generator_alone() -> None:
    rng = np.random.default_rng(7)
    drawn = [tuple(sent(rand_send(of_tensors(6), rng))) for _ in range(200)]
    assert len(set(drawn)) == 20  # each of the ways to take three of six
    rng = np.random.default_rng(7)
    assert [tuple(sent(rand_send(of_tensors(6), rng))) for _ in range(200)] == drawn


def test_dp_sends_the_half_that_moved_most_or_least() -> None:
    moved = np.array([3.0, 9, 1, 7])
    assert sent(dp(moved, of_tensors(4), "g")) == [1, 3]
    assert sent(dp(moved, of_tensors(4), "l")) == [0, 2]


def test_dp_halves_partition_the_set_and_ties_go_by_its_order() -> None:
    moved = np.array([2.0, 5, 2, 2, 0])
    assert sent(dp(moved, of_tensors(5), "g")) == [0, 1, 2]
    assert sent(dp(moved, of_tensors(5), "l")) == [3, 4]
    assert sent(dp(np.ones(100), of_tensors(100), "g")) == list(range(50))
    # Of 100 that moved by 0, 1, 2, 0, 1, 2, ... the 33 with 2, and the first 17 with 1.
    assert sent(dp(np.arange(100.0) % 3, of_tensors(100), "g")) == sorted([*range(2, 100, 3), *range(1, 52, 3)])


def test_the_threshold_itself_is_sent_by_g() -> None:
    """Eq. 3: g where dev >= theta, l where dev < theta."""
    found = devs(0.5, 0.25, 0.75, 0)
    assert sent(by_threshold(found, of_tensors(4), 0.5, "g")) == [0, 2]
    assert sent(by_threshold(found, of_tensors(4), 0.5, "l")) == [1, 3]


def test_the_threshold_is_compared_in_float64() -> None:
    """float32(0.1) is a little more than 0.1, and float32(0.3) a little more than 0.3; both would be equal in float32."""
    assert sent(by_threshold(devs(0.1, 0.3), of_tensors(2), 0.1, "l")) == []
    assert sent(by_threshold(devs(0.1, 0.3), of_tensors(2), 0.30000001, "l")) == [0]
    assert sent(by_threshold(devs(0.1, 0.3), of_tensors(2), 0.30000002, "l")) == [0, 1]


def test_tensors_without_a_deviation_are_sent_on_either_side() -> None:
    found = devs(np.inf, 0.2, 0.8, np.inf, 0)
    assert sent(by_threshold(found, of_tensors(5), 0.5, "g")) == [0, 2, 3]
    assert sent(by_threshold(found, of_tensors(5), 0.5, "l")) == [0, 1, 3, 4]
    assert sent(by_threshold(found, of_tensors(5), np.inf, "g")) == [0, 3]


@pytest.mark.parametrize("theta", [-1.0, 0.0, 1e-3, 0.5, 1.0, np.inf])
def test_g_and_l_partition_the_tensors_that_have_a_deviation(theta: float) -> None:
    found = np.random.default_rng(3).random(40, np.float32)
    found[5], found[6] = 0.5, np.inf
    more, less = (by_threshold(found, of_tensors(40), theta, keep) for keep in ("g", "l"))
    assert sorted(sent(more) + sent(less)) == sorted([*range(40), 6])


def test_a_threshold_that_is_no_number_is_refused() -> None:
    with pytest.raises(ExchangeError, match="theta is NaN"):
        by_threshold(devs(1), of_tensors(1), float("nan"), "l")


def test_a_fixed_threshold_is_a_number_or_the_median_of_finite_deviations() -> None:
    assert fixed_threshold(devs(1, 2), 0.5) == 0.5
    assert fixed_threshold(devs(0.5, np.inf, 0.25, 4, np.inf), "median") == 0.5
    assert fixed_threshold(devs(1, 2, 3, 8), "median") == 2.5
    assert fixed_threshold(devs(np.inf), "median") == 0


def test_a_random_threshold_lies_in_the_unit_interval_or_between_the_deviations() -> None:
    rng = np.random.default_rng(5)
    found = devs(0.001, 0.003, np.inf, 0.002)
    unit = [random_threshold(found, rng, "unit") for _ in range(100)]
    inside = [random_threshold(found, rng, "range") for _ in range(100)]
    assert 0 <= min(unit) < 0.1
    assert 0.9 < max(unit) < 1
    assert 0.001 <= min(inside) < 0.0012
    assert 0.0028 < max(inside) <= 0.0030001
    assert random_threshold(devs(np.inf), rng, "range") == 0


# Two parts, more numbers than a byte has bits, one tensor that was zeros.
SHAPES = {"e.w": (5, 7), "s.w": (9,), "e.b": (5,), "s.b": (3,)}
CHOSEN = TensorSet(
    "toy", tuple(TensorSpec(name, shape, "encoder" if name[0] == "e" else "shared", None) for name, shape in SHAPES.items())
)


def update(seed: int) -> tuple[dict[str, Array], dict[str, Array]]:
    rng = np.random.default_rng(seed)
    previous = {name: rng.standard_normal(shape, np.float32) for name, shape in SHAPES.items()}
    previous["s.b"] = np.zeros(3, np.float32)
    new = {name: tensor + rng.standard_normal(tensor.shape, np.float32) for name, tensor in previous.items()}
    return new, previous


def selections(new: dict[str, Array], previous: dict[str, Array]) -> dict[str, Selection]:
    rng, dev = np.random.default_rng(2024), deviations(new, previous, CHOSEN)
    median = fixed_threshold(dev, "median")
    found = {
        "rand-send": rand_send(CHOSEN, rng),
        "dp-g": dp(differences(new, previous, CHOSEN), CHOSEN, "g"),
        "dp-l": dp(differences(new, previous, CHOSEN), CHOSEN, "l"),
        "random-g": by_threshold(dev, CHOSEN, random_threshold(dev, rng, "range"), "g"),
        "top-k": top_k(new, CHOSEN),
        "top-k, few": top_k(new, CHOSEN, 0.02),
        "apf": apf_step(apf_start(CHOSEN), CHOSEN, new, previous)[0],
    }
    for keep in ("g", "l"):
        found[f"fixed-{keep}"] = by_threshold(dev, CHOSEN, median, keep)
    large = magnitudes(new, CHOSEN)
    found["second"] = Selection(CHOSEN, found["fixed-g"].tensors & (large >= np.median(large)))
    frozen = apf_step(apf_start(CHOSEN), CHOSEN, {**new, "e.w": previous["e.w"]}, previous)[1]
    found["apf, frozen"] = apf_step(frozen, CHOSEN, new, previous)[0]
    return found


@pytest.mark.parametrize("rule", selections(*update(1)))
def test_under_every_rule_the_server_has_the_update_from_the_counted_bytes_alone(rule: str) -> None:
    new, previous = update(1)
    selection = selections(new, previous)[rule]
    packed = pack_selected(new, selection)
    # Each array's bytes are all that is taken over, and they are what is counted.
    wire = {name: (array.dtype.str, array.tobytes()) for name, array in packed.items()}
    assert sum(len(data) for _, data in wire.values()) == sum(counted(packed).values())
    arrays = from_record(to_record({name: np.frombuffer(data, dtype) for name, (dtype, data) in wire.items()}))
    rebuilt, found = unpack_selected(arrays, CHOSEN, runs(previous, CHOSEN))
    ours, received = join(new, CHOSEN), join(previous, CHOSEN)
    for part in ours:
        wanted = np.where(mask_of(selection, part), ours[part], received[part])
        assert np.asarray(rebuilt.parts[part][:]).tobytes() == wanted.tobytes()
    assert found.share_of_numbers == selection.share_of_numbers
    assert counted(packed)["payload"] == 4 * round(selection.share_of_numbers * CHOSEN.num_parameters)


def test_the_rules_tried_send_neither_all_nor_nothing_but_for_the_first_round_of_freezing() -> None:
    whole = {rule for rule, selection in selections(*update(1)).items() if selection.share_of_numbers in (0, 1)}
    assert whole == {"apf"}
