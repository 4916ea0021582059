"""Check the direction of an update against that of the others: a site whose change opposes theirs undoes what they learn, at any length.

The agreement of a site is the cosine between its change and the sum of the others' changes, each taken at length 1, so that no site has
more say by length. What an update takes away from what the others gain is its agreement times its length. So one whose agreement is
below LEAST, while the others agree with each other, is left out; and one below 0 may be as long as honest updates are, but no longer
(`outliers.OPPOSING`).

The site that opposes most is judged first, and the others are measured again without it, because a liar that sends the opposite of their
sum makes honest sites look as if they opposed it, too. No more can be said of honest sites: once they have learned what they share they go
their own ways, and a language unlike the others may oppose them from the start.

Measured in each part and round of the demo's nine sites together, the medical demo, MetaSend's phrasebook and eight sites of Tatoeba: the
agreement of an honest site was -0.14 at least. The signs of a site's own change the other way have -0.05 to -0.3, more where the sites
agree more, and the opposite of the others' mean -0.6.
"""

from collections.abc import Sequence

import numpy as np

from fedlingua.common.cores import BLOCK, SPAN, on_cores
from fedlingua.exchange.joined import Flat, Numbers
from fedlingua.layers.outliers import Verdict

LEAST = -0.2
"""Least agreement of an update that counts."""
TOGETHER = 0.1
"""Least median agreement of the others with each other at which one can oppose them."""
MOST_OPPOSED = 2
"""Rounds in which the update of a site is left out while it opposes the others, before all its later ones are."""
FEWEST = 4
"""Fewest sites that are compared: of three, two may happen to go one way."""


def agreements(updates: Sequence[Flat], starts: Sequence[Flat], already: int = 0) -> list[float]:
    """Return the agreement of each site of a cluster, 0 where nothing can be said.

    starts: What each site started from. already: How many of the sites are left out already; fewer than half of all ever are.
    """
    return agreed_by(products(updates, starts), already) if len(updates) >= FEWEST else [0.0] * len(updates)


def against(agreement: float) -> Verdict:
    """Return the verdict on an update that opposes the others."""
    return Verdict(
        f"it opposes the changes of the other sites, which agree (cosine {agreement:.2f}; wanted {LEAST:g} or more); "
        "robust.max-ratio = 0 takes it all the same"
    )


def products(updates: Sequence[Flat], starts: Sequence[Flat]) -> Numbers:
    """Return the inner products of the sites' changes, (sites, sites) float64."""

    def of_span(first: int) -> Numbers:
        total = np.zeros((len(updates), len(updates)))
        for cut in (slice(at, at + BLOCK) for at in range(first, min(first + SPAN, len(starts[0])), BLOCK)):
            changes = np.stack([update[cut] - start[cut] for update, start in zip(updates, starts, strict=True)])
            total += changes @ changes.T
        return total

    inner: Numbers = sum(on_cores(of_span, range(0, len(starts[0]), SPAN)), np.zeros((len(updates), len(updates))))
    return inner


def agreed_by(inner: Numbers, already: int = 0) -> list[float]:
    """Return the agreement of each site, by the inner products of their changes; see `agreements`."""
    lengths, agreement = np.sqrt(np.diag(inner)), np.zeros(len(inner))
    left = np.flatnonzero(lengths)
    while len(left) >= FEWEST:
        cosines = inner[np.ix_(left, left)] / np.outer(lengths[left], lengths[left])
        agreed = cosines_with_others(cosines)
        worst = int(agreed.argmin())
        others = np.delete(np.arange(len(left)), worst)
        together = float(np.median(cosines_with_others(cosines[np.ix_(others, others)])))
        agreement[left] = np.maximum(agreed, LEAST) if together >= TOGETHER else 0.0
        out = len(inner) - len(left) + already + 1
        if agreed[worst] >= LEAST or together < TOGETHER or 2 * out >= len(inner):
            break
        agreement[left[worst]], left = agreed[worst], left[others]
    return [float(each) for each in agreement]


def cosines_with_others(cosines: Numbers) -> Numbers:
    """Return the cosine of each site's direction with the sum of the others', (sites,). cosines: (sites, sites), of their changes."""
    with_others = cosines.sum(axis=1) - 1
    others = cosines.sum() - 2 * with_others - 1  # squared length of that sum
    agreed: Numbers = with_others / np.sqrt(np.maximum(others, np.finfo(float).tiny))
    return agreed
