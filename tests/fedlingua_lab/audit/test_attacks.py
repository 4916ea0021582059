"""Each attack on numbers made by hand, where what it must say is known."""

import math

import numpy as np
import pytest

from fedlingua_lab.audit.attacks import auc, auc_bound, cosine, exposure, recall_at, span_distances, step_of, word_scores


def test_a_gradient_is_told_from_others_by_its_own_step() -> None:
    gradients = np.random.default_rng(0).normal(size=(40, 200))
    trials = {}
    for optimizer in ("sgd", "adam"):
        update = step_of(gradients[:4].sum(axis=0), optimizer)
        scores = np.array([cosine(update, step_of(each, optimizer)) for each in gradients])
        trials[optimizer] = auc([(scores[:4], scores[4:])])[0]
    assert trials == pytest.approx({"sgd": 1.0, "adam": 1.0})
    assert cosine(np.zeros(3), np.ones(3)) == 0


def test_adam_keeps_the_sign_alone_and_sgd_the_gradient() -> None:
    gradient = np.array([3.0, 0.0, -0.5])
    assert step_of(gradient, "adam").tolist() == [-1, 0, 1]
    assert step_of(gradient, "sgd").tolist() == [-3, 0, 0.5]


def test_random_numbers_tell_nothing() -> None:
    rng = np.random.default_rng(1)
    value, low, high = auc([(rng.normal(size=50), rng.normal(size=50)) for _ in range(12)])
    assert abs(value - 0.5) < 0.05
    assert low < 0.5 < high


def test_the_interval_is_around_the_mean_of_the_trials() -> None:
    right, wrong = (np.array([2.0, 3.0]), np.array([0.0, 1.0])), (np.array([0.0, 1.0]), np.array([2.0, 3.0]))
    value, low, high = auc([right, wrong])
    assert (value, low, high) == (0.5, 0.0, 1.0)


def test_the_bound_is_the_auc_of_two_normal_distributions() -> None:
    rng = np.random.default_rng(2)
    noise, steps = 2.0, 4
    members, others = rng.normal(math.sqrt(steps) / noise, 1, 4000), rng.normal(0, 1, 4000)
    assert auc_bound(noise, steps) == pytest.approx(auc([(members, others)], samples=2)[0], abs=0.02)


def test_words_are_named_by_the_rows_that_moved_otherwise_than_most() -> None:
    change = np.tile(np.array([0.5, -0.5]), (10, 1))  # all rows move alike with the softmax
    change[[2, 7]] += np.array([[0.1, 0.1], [-0.2, 0.0]])
    present = np.zeros(10, bool)
    present[[2, 7]] = True
    assert recall_at(word_scores(change), present) == 1
    assert recall_at(-word_scores(change), present) == 0


def test_the_rows_of_a_linear_layers_gradient_span_its_inputs() -> None:
    rng = np.random.default_rng(3)
    inputs, slopes, others = rng.normal(size=(5, 16)), rng.normal(size=(5, 12)), rng.normal(size=(20, 16))
    gradient = slopes.T @ inputs
    assert span_distances(inputs, gradient, 5).max() < 1e-6
    assert span_distances(others, gradient, 5).min() > 0.2
    assert span_distances(inputs, np.sign(gradient), 5).min() > 0.05  # Adam's step is no multiple of it
    assert span_distances(np.zeros((1, 16)), gradient, 5).tolist() == [1]
    full = rng.normal(size=(16, 16))
    assert span_distances(others, full, 16).max() < 1e-6  # at full rank everything lies in it


def test_exposure_counts_bits_of_the_rank() -> None:
    alternatives = np.arange(63, dtype=float)
    assert exposure(100.0, alternatives) == 6
    assert exposure(-1.0, alternatives) == 0
    assert exposure(62.0, alternatives) == 5  # a draw counts against it
