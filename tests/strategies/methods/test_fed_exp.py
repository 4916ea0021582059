"""FedExP's step, held to its formula number by number, and in whole runs."""

import numpy as np
import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.settings.checks import settings_from
from strategies.methods.fed_exp import squared_distance, step_size
from tests.faults.test_resume import begin, final_bytes, losses, resume
from tests.in_process import checkpoint_bytes, rounds, run

EXTRAPOLATED = {"server.extrapolation": True}


def test_sites_that_agree_move_as_far_as_their_mean_and_sites_at_right_angles_half_as_many_times() -> None:
    same = np.tile([3.0, 4.0], (3, 1))
    assert size_of(same, [1 / 3] * 3) == 1.0
    assert size_of(np.diag([2.0] * 8), [1 / 8] * 8) == pytest.approx(8 / 2)


def test_the_step_is_the_papers_formula() -> None:
    changes = np.random.default_rng(1).standard_normal((5, 40))
    mean = changes.mean(axis=0)
    paper = max(1.0, sum(change @ change for change in changes) / (2 * 5 * (mean @ mean + 0.25)))
    assert paper > 1
    assert size_of(changes, [1 / 5] * 5, 0.25) == pytest.approx(paper)
    weights = [0.5, 0.2, 0.1, 0.1, 0.1]
    middle = np.average(changes, axis=0, weights=weights)
    wanted = np.average((changes**2).sum(axis=1), weights=weights) / (2 * (middle @ middle + 0.25))
    assert size_of(changes, weights, 0.25) == pytest.approx(max(1.0, wanted))


def size_of(changes: np.ndarray, weights: list[float], epsilon: float = 1e-12) -> float:
    start = np.random.default_rng(2).standard_normal(changes.shape[1])
    halves = [{"a": (start + change)[:1], "b": (start + change)[1:]} for change in changes]
    before, mean = {"a": start[:1], "b": start[1:]}, start + np.average(changes, axis=0, weights=weights)
    squares = [squared_distance(half, before) for half in halves]
    return step_size(squares, weights, squared_distance({"a": mean[:1], "b": mean[1:]}, before), epsilon)


@pytest.mark.parametrize("kind", ["adapters", "lora"])
def test_a_cluster_goes_on_through_the_mean_of_its_sites(four_sites, tmp_path, kind):
    config = {**four_sites, "method": "adapter-families", "tensor-set": kind, "rounds": 1}
    plain, _ = run(config, tmp_path / "plain")
    folder, _ = run({**config, **EXTRAPOLATED}, tmp_path / "fed-exp")
    start, mean, got = (of.checkpoints.load(number).tensors for of, number in ((plain, 0), (plain, 1), (folder, 1)))
    sizes = [about["step_size"] for about in rounds(folder)[1]["extrapolation"]]
    assert len(sizes) == sum(len(clusters) for part, clusters in got.items() if part != "shared")
    found = iter(sizes)
    for part in ("encoder", "decoder"):
        for cluster in plain.read("clusters.json")[part]:
            size = next(found)
            for name, begun in start[part][cluster].items():
                wanted = begun + size * (mean[part][cluster][name] - begun)
                np.testing.assert_allclose(got[part][cluster][name], wanted, rtol=0, atol=1e-6)
    assert max(sizes) >= 1.0


def test_a_killed_run_ends_in_the_same_bytes_with_a_server_optimizer_too(four_sites, tmp_path):
    more = {"server.optimizer": "sgd", "server.learning-rate": 1.0, "server.momentum": 0.7, "optimizer-state": "kept"}
    config = {**four_sites, **EXTRAPOLATED, **more, "method": "adapter-fed", "rounds": 3}
    whole, _ = run(config, tmp_path / "whole")
    folder = resume(config, begin(config, tmp_path / "killed", number=3), shuffle_seed=3)
    assert final_bytes(folder) == final_bytes(whole)
    assert losses(folder) == losses(whole)
    plain, _ = run({**config, "server.extrapolation": False}, tmp_path / "plain")
    assert checkpoint_bytes(plain) != checkpoint_bytes(whole)


@pytest.mark.parametrize(
    "changes",
    [{"method": "adapter-local"}, {"aggregation": "norm-clip"}, {"send.rule": "metasend-g"}, {"own-model": "mr-mtl"}],
)
def test_without_a_mean_of_changes_it_is_refused(run_config, changes):
    with pytest.raises(ConfigError, match=r"server.extrapolation = true works on the mean|nothing leaves a site"):
        settings_from({**run_config, **EXTRAPOLATED, **changes})
