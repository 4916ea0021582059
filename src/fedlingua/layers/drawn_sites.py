"""Draw the sites that train in a round, if not all do (`sites-per-round`). A draw depends only on the seed and the sites' names.

Draws go through passes: each site trains once before any trains again. Sites that are still due in the pass are equally likely. If fewer
are due than a round needs, all of them train, and the next pass draws the rest from the other sites, which are equally likely. Over seeds
every site is in every round with the same probability, k of n, so the mean over the drawn sites needs no special weights.

A cluster gets its share of a round's draws, rounded down or up. Encoder and decoder clusters cross, so the draw is the rounding of a
bipartite graph: its vertices are clusters, each site is the edge between its two, and the sum at every vertex is rounded down or up.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, islice
from random import Random

from flwr.serverapp import Grid

from fedlingua.clustering.clusters import CLUSTERED, Clusters, cluster_of
from fedlingua.layers.layer import Layer, Server

Vertex = tuple[int, str | None]
"""(side, cluster): encoder clusters are on side 0, decoder clusters on side 1. None: a vertex that makes the other side's sums whole."""


class DrawnSites(Layer):
    """Rounds in which `sites-per-round` sites train. Those not drawn count in the mean bytes of a site, with none."""

    def begin(self, run: Server, grid: Grid) -> None:
        everybody = run.registry.expected
        number = self.settings.sites_drawn(len(everybody))
        self.asks_all = number >= len(everybody)
        self._draws, self._drawn = draws(everybody, run.clusters, number, self.settings.seed), list[set[str]]()

    def sites(self, number: int, sites: list[str]) -> list[str]:
        if self.asks_all:
            return sites
        self._drawn += islice(self._draws, max(0, number - len(self._drawn)))
        drawn, record = [site for site in sites if site in self._drawn[number - 1]], self.run.phases.record
        record.about["drawn"] = drawn
        for site in self.run.registry.expected:
            record.of(site)
        return drawn


def draws(sites: Iterable[str], clusters: Clusters, number: int, seed: int) -> Iterator[set[str]]:
    """Yield the sites of round 1, 2, ..., the same for any order of `sites`. number: Sites in a round, 1 to all of them."""
    everybody = sorted(sites)
    ends = {site: [cluster_of(clusters, part, site) for part in CLUSTERED] for site in everybody}
    due = everybody
    for round_number in count(1):
        rng = Random(f"{seed}/sites/{round_number}")
        if number < len(due):
            drawn = spread(due, ends, number, rng)
            due = [site for site in due if site not in drawn]
            yield drawn
        else:
            rest = [site for site in everybody if site not in due]
            drawn = spread(rest, ends, number - len(due), rng)
            yield drawn.union(due)
            due = [site for site in everybody if site not in drawn]


def spread(sites: Sequence[str], ends: Mapping[str, Sequence[str]], number: int, rng: Random) -> set[str]:
    """Draw `number` of the sites, each with the same probability; of every cluster its share, rounded down or up.

    Dependent rounding (Gandhi, Khuller, Parthasarathy & Srinivasan 2006, J. ACM 53(3)): along a cycle of edges that are neither 0 nor 1,
    weight moves from every second edge to the others until one is. The way is drawn so that no edge's expectation changes.
    Weights are whole numbers here, with `len(sites)` for 1.

    Args:
        ends: Site -> its encoder cluster and its decoder cluster.
    """
    one, order = len(sites), rng.sample(sites, len(sites))
    edges: list[tuple[Vertex, Vertex]] = [((0, ends[site][0]), (1, ends[site][1])) for site in order]
    weights = [number] * one
    for vertex, degree in Counter(chain.from_iterable(edges)).items():
        edges.append((vertex, (1 - vertex[0], None)))
        weights.append(-degree * number % one)
    at = defaultdict[Vertex, dict[int, None]](dict)
    """Vertex -> its edges that are neither 0 nor 1, in order; there are two or more, or none, since the sum is whole."""
    for edge, weight in enumerate(weights):
        if 0 < weight < one:
            for vertex in edges[edge]:
                at[vertex][edge] = None
    for start in range(len(edges)):
        while 0 < weights[start] < one:
            cycle = _cycle(start, edges, at)
            up = set(cycle[::2])
            rise = min(one - weights[edge] if edge in up else weights[edge] for edge in cycle)
            fall = min(weights[edge] if edge in up else one - weights[edge] for edge in cycle)
            change = rise if rng.randrange(rise + fall) < fall else -fall
            for edge in cycle:
                weights[edge] += change if edge in up else -change
                if weights[edge] in (0, one):
                    for vertex in edges[edge]:
                        del at[vertex][edge]
    return {site for site, weight in zip(order, weights, strict=False) if weight}


def _cycle(start: int, edges: Sequence[tuple[Vertex, Vertex]], at: Mapping[Vertex, Iterable[int]]) -> list[int]:
    """Walk along edges, `start` first, until a vertex repeats; return the edges from there on."""
    trail, seen, vertex = [start], {edges[start][0]: 0}, edges[start][1]
    while vertex not in seen:
        seen[vertex] = len(trail)
        trail.append(next(edge for edge in at[vertex] if edge != trail[-1]))
        first, second = edges[trail[-1]]
        vertex = first if vertex == second else second
    return trail[seen[vertex] :]
