"""Clusters from signatures, on vectors whose groups can be seen."""

import numpy as np
import pytest

from fedlingua.clustering.signatures import group

# Three directions in the plane of a 4-dimensional space, two sites each; lengths differ a lot.
SIGNATURES = [
    np.array(v, np.float32) for v in ([1, 0, 0, 0], [9, 1, 0, 0], [0, 1, 0, 0], [0.5, 8, 0, 0], [0, 0, 1, 0], [0, 0, 7, 1])
]
PAIRS = {frozenset({0, 1}), frozenset({2, 3}), frozenset({4, 5})}


def partition(labels):
    return {frozenset(n for n, own in enumerate(labels) if own == label) for label in labels}


def test_sites_whose_gradients_point_the_same_way_are_together_whatever_their_length():
    assert partition(group(SIGNATURES, 3, 1).labels) == PAIRS


def test_the_cosine_distance_is_one_less_the_cosine():
    distances = group([np.array([1.0, 0.0]), np.array([1.0, 1.0]), np.array([-1.0, 0.0])], 2, 1).distances
    assert distances[0, 1] == pytest.approx(1 - 1 / np.sqrt(2))
    assert distances[0, 2] == pytest.approx(2.0)
    assert np.array_equal(distances, distances.T)
    assert not distances.diagonal().any()


def test_the_silhouette_finds_three_clusters_and_tells_what_it_tried():
    found = group(SIGNATURES, -1, 1)
    assert partition(found.labels) == PAIRS
    assert sorted(found.silhouettes) == [2, 3, 4, 5]
    assert max(found.silhouettes, key=found.silhouettes.__getitem__) == 3


def test_of_equal_silhouettes_the_fewest_clusters_are_taken():
    found = group([*np.eye(4)], -1, 1)
    assert found.silhouettes == {2: 0.0, 3: 0.0}
    assert len(set(found.labels)) == 2


def test_two_sites_by_silhouette_are_one_cluster():
    assert group(SIGNATURES[:2], -1, 1).labels == (0, 0)


def test_one_site_is_one_cluster_without_a_tree():
    found = group(SIGNATURES[:1], 1, 1)
    assert found.labels == (0,)
    assert len(found.merges) == 0


def test_shuffled_sites_fall_into_the_same_clusters():
    order = [3, 0, 5, 1, 4, 2]
    shuffled = group([SIGNATURES[n] for n in order], 3, 1).labels
    assert {frozenset(order[n] for n in members) for members in partition(shuffled)} == PAIRS


def test_the_tree_merges_the_nearest_first_and_holds_all_sites_at_the_end():
    found = group(SIGNATURES, 3, 1)
    nearest = min(found.distances[a, b] for a in range(6) for b in range(a))
    assert found.merges[0, 2] == pytest.approx(nearest)
    assert found.merges[-1, 3] == 6


def test_sites_that_are_all_alike_are_one_cluster_by_silhouette():
    alike = [np.array([1.0, 2.0])] * 4
    assert len(set(group(alike, -1, 1).labels)) <= 3


@pytest.mark.parametrize("number", [2, 8])
def test_the_best_clusters_of_twelve_sites_are_found_whatever_the_seed(number):
    signatures = [*np.random.default_rng(number).normal(size=(12, 16))]
    assert len({frozenset(partition(group(signatures, 4, seed).labels)) for seed in range(5)}) == 1
