"""What all sites of a secure sum leave out of the next one: a rule of `send.rule`, applied to the mean of this one.

What a site selects by itself would tell of its update. The mean is known to all, and so is what follows from it.
"""

from collections.abc import Sequence
from itertools import compress

import numpy as np

from fedlingua.backbones.parts import Part
from fedlingua.exchange.joined import Joined, Numbers
from fedlingua.exchange.tensors import TensorSet
from fedlingua.selection import rules
from fedlingua.selection.deviation import deviations, differences
from fedlingua.settings.config import Settings


def left_out_next(
    settings: Settings,
    part: Part,
    whole: TensorSet,
    left_out: Sequence[bool],
    new: Numbers,
    start: Numbers,
    draws: np.random.Generator,
) -> list[bool]:
    """Return for each tensor of a part whether the next sum is without it.

    Only tensors that were in this sum are judged. One that was left out is sent next, since nobody knows how it would deviate.

    Args:
        whole: The part's tensors.
        left_out: For each of them whether this sum was without it.
        new: (n,) float32, the cluster's mean after the round, the tensors end to end; start: the one before.
    """
    if settings.rule == "all":
        return list(left_out)
    after, before = Joined({part: new}, whole), Joined({part: start}, whole)
    unknown = set(compress(whole.names, left_out)) if settings.rule != "rand-send" else set()
    chosen = whole.where(lambda spec: spec.name not in unknown)
    if settings.rule == "rand-send":
        sent = rules.rand_send(chosen, draws, settings.send_share)
    elif settings.rule in ("dp-g", "dp-l"):
        sent = rules.dp(differences(after, before, chosen), chosen, settings.side)
    else:
        measured = deviations(after, before, chosen)
        theta = rules.unlearned_threshold(settings.rule, measured, draws, settings.fixed_threshold, settings.random_threshold)
        sent = rules.by_threshold(measured, chosen, theta, settings.side)
    assert sent.tensors is not None, settings.rule
    next_out = set(compress(chosen.names, ~sent.tensors))
    return [name in next_out for name in whole.names]
