"""Norm clipping, and updates that are scaled down; how they are judged is in test_outliers.py and test_agreement.py."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.supercore.differential_privacy import compute_clip_model_update

from fedlingua.common.errors import ConfigError
from fedlingua.exchange.joined import EndToEnd, Joined, join
from fedlingua.exchange.measured_change import SPAN, Change
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.exchange.updates import Update, scaled
from fedlingua.layers.bounded_updates import norm_clip, shortened
from fedlingua.layers.layer import Training
from fedlingua.settings.checks import settings_from


def test_norms_are_clipped_to_m_or_to_the_median() -> None:
    assert norm_clip({"a": 1.0, "b": 2.0, "c": 8.0}, 4.0) == {"c": 0.5}
    assert norm_clip({"a": 1.0, "b": 2.0, "c": 8.0}, 0.0) == {"c": 0.25}
    assert norm_clip({}, 0.0) == norm_clip({"a": 0.0}, 0.0) == {}


def test_a_clipped_update_is_flowers() -> None:
    rng = np.random.default_rng(3)
    chosen = TensorSet("set", (TensorSpec("a", (3, 50), "encoder", 0), TensorSpec("b", (SPAN + 7,), "encoder", 1)))
    start, moved = ({spec.name: rng.standard_normal(spec.shape, np.float32) for spec in chosen.specs} for _ in range(2))
    theirs = [moved[name].copy() for name in chosen.names]
    norm = math.sqrt(sum(float(np.square(moved[name] - start[name]).sum()) for name in chosen.names))
    factors = np.full(2, norm_clip({"a": norm}, 5.0)["a"])
    clipped = scaled(
        Update("a", Joined(join(moved, chosen), chosen), 1), {"encoder": EndToEnd([start["a"].ravel(), start["b"]])}, factors
    )
    compute_clip_model_update(theirs, [start[name] for name in chosen.names], 5.0)
    for name, wanted in zip(chosen.names, theirs, strict=True):
        np.testing.assert_allclose(clipped.tensors[name], wanted, rtol=1e-4, atol=1e-5)


def test_an_update_that_was_scaled_down_already_is_clipped_by_the_norm_that_it_has_then() -> None:
    chosen = TensorSet("set", (TensorSpec("a", (1,), "encoder", 0), TensorSpec("b", (1,), "encoder", 1)))
    start = Joined({"encoder": np.zeros(2, np.float32)}, chosen)
    update = Update("a", Joined({"encoder": np.array([8.0, 6.0], np.float32)}, chosen), 1)
    record: dict[str, Any] = {}
    phases = SimpleNamespace(record=SimpleNamespace(of=lambda site: record))
    run: Any = SimpleNamespace(phases=phases, received_by=lambda site: start, tensor_set=chosen)
    training = Training(update, {}, Change(np.array([64.0, 36.0]), *[np.ones(2)] * 3), "")
    assert training.change.norm == 10.0
    once = shortened(run, training, np.array([0.5, 0.0]))
    assert (once.change.norm, record) == (4.0, {"scaled_to": 0.0})
    assert once.update.tensors["a"].tolist() == [4.0]


def test_updates_are_clipped_under_a_selection_too_but_not_where_none_leaves_a_site(run_config: dict[str, Any]) -> None:
    config = {**run_config, "aggregation": "norm-clip"}
    settings_from({**config, "method": "adapter-fed", "send.rule": "top-k"})
    settings_from({**config, "method": "adapter-fed", "server.optimizer": "adam"})
    with pytest.raises(ConfigError, match="nothing leaves a site"):
        settings_from({**config, "method": "adapter-local"})
