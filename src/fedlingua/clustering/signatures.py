"""Clusters from signatures: sites whose gradients point the same way train together (Liu et al. 2023, §2.3, "Gradients").

The paper names neither the adapter, which `signature.adapter` sets, nor the distance or the algorithm: here the cosine distance, as
lengths of gradients differ with the text, and k-means on unit vectors, as it leaves fewer sites alone than average linkage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances, silhouette_score

Array = np.ndarray[Any, Any]
STARTS = 200
"""Of k-means, whose best is kept: of 12 sites in four clusters ten starts missed the optimum in about every second trial, 200 in none."""


@dataclass(frozen=True)
class Grouping:
    """Clusters of sites by their signatures.

    Attributes:
        labels: (sites,), each site's cluster.
        distances: (sites, sites).
        merges: (sites - 1, 4), the average-linkage tree as scipy's linkage matrix.
        silhouettes: Number of clusters -> mean silhouette, -1 to 1, for every number tried.
    """

    labels: tuple[int, ...]
    distances: Array
    merges: Array
    silhouettes: Mapping[int, float]


def group(signatures: Sequence[Array], num_clusters: int, seed: int) -> Grouping:
    """Group sites by their signatures, (dimensions,) each. num_clusters: -1 takes the number with the highest mean silhouette."""
    vectors = np.stack(signatures).astype(np.float64)
    distances = pairwise_distances(vectors, metric="cosine")
    distances = (distances + distances.T) / 2
    np.fill_diagonal(distances, 0.0)
    vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    vectors = np.linalg.qr(vectors.T)[1].T  # the same lengths and angles in as many coordinates as there are sites

    def divide(number: int) -> Array:
        if number == 1 or len(vectors) == 1:
            return np.zeros(len(vectors), dtype=int)
        labels: Array = KMeans(number, n_init=STARTS, random_state=seed % 2**32).fit_predict(vectors)
        return labels

    silhouettes: dict[int, float] = {}
    if num_clusters == -1:
        tried = {number: divide(number) for number in range(2, len(vectors))}
        # Equal signatures give fewer clusters than requested, and a single cluster has no silhouette.
        tried = {number: labels for number, labels in tried.items() if len(set(labels)) > 1}
        silhouettes = {n: float(silhouette_score(distances, labels, metric="precomputed")) for n, labels in tried.items()}
        # On a tie take the fewest clusters, so that more sites share tensors.
        num_clusters = max(silhouettes, key=lambda number: (silhouettes[number], -number), default=1)
    tree = linkage(squareform(distances, checks=False), "average") if len(vectors) > 1 else np.zeros((0, 4))
    return Grouping(tuple(int(label) for label in divide(num_clusters)), distances, tree, silhouettes)
