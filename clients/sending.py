"""What a site sends of its update, and what it keeps to be able to say so in the next round.

The rules themselves are in fedlingua.selection; here stands what each is given: the tensors after this round's training, those that the
site was given, and those that it had itself after its last good round.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from clients.stage_files import StageFiles
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.protocol import Stage, Task
from fedlingua.exchange.tensors import Tensors, TensorSet
from fedlingua.selection import rules
from fedlingua.selection.deviation import deviations, differences, magnitudes
from fedlingua.selection.freezing import apf_start, apf_step, from_arrays, to_arrays
from fedlingua.selection.masks import Selection, pack_selected
from fedlingua.selection.second_filter import keep_probability
from fedlingua.selection.top_k import top_k
from fedlingua.settings.config import Settings

DEVIATIONS, CAME = "deviations", "came."
"""Names in the file of an update that waits."""


@dataclass(frozen=True)
class Sent:
    """arrays: as they travel, by name. Where the rule goes by them, deviations: every tensor's (eq. 2 of Chu et al. 2024); theta: the
    threshold."""

    arrays: Mapping[str, Numbers]
    deviations: Numbers | None = None
    theta: float | None = None


class Sending:
    """One site's side of the run's selection; `folder` is the site's own."""

    def __init__(self, site: str, settings: Settings, chosen: TensorSet, folder: Path) -> None:
        self.site, self.settings, self.chosen = site, settings, chosen
        self._files = StageFiles(folder / "selection")

    def select(self, new: Tensors, came: Tensors, previous: Tensors, task: Task) -> Sent:
        """Go by the run's rule, which needs no word of the server's.

        new: after training; came: what training began with; previous: the site's own after its last good round, where the rule compares.
        """
        rule, chosen = self.settings.selected_by, self.chosen
        if rule == "rand-send":
            return Sent(pack_selected(new, rules.rand_send(chosen, self._random(task.round), self.settings.send_share)))
        if rule == "top-k":
            return Sent(pack_selected(new, top_k(new, chosen, self.settings.send_share)))
        if rule == "apf":
            return Sent(pack_selected(new, self._unfrozen(new, came, task)))
        if rule in ("dp-g", "dp-l"):
            return Sent(pack_selected(new, rules.dp(differences(new, previous, chosen), chosen, self.settings.keep)))
        measured = deviations(new, previous, chosen)
        return self.above_or_below(new, measured, self._threshold(measured, task.round))

    def above_or_below(self, new: Tensors, measured: Numbers, theta: float, network: Numbers | None = None) -> Sent:
        """Eq. 3, with the threshold as it is. measured: (tensors,), the deviations. network: of the second filter, where there is one."""
        selection = self.by_threshold(measured, theta)
        if network is not None:
            selection = rules.second_filter(selection, magnitudes(new, self.chosen), partial(keep_probability, network))
        return Sent(pack_selected(new, selection), measured, theta)

    def by_threshold(self, measured: Numbers, theta: float) -> Selection:
        """Eq. 3 alone."""
        zero_norm: rules.ZeroNorm = "send" if self.settings.zero_norm == "send" else "stay"
        return rules.by_threshold(measured, self.chosen, theta, self.settings.keep, zero_norm)

    def passes_filter(self, new: Tensors, network: Numbers | None) -> set[str]:
        """Names of the tensors that the second filter would leave in, whatever theta says of them; all, where there is none."""
        if network is None:
            return set(self.chosen.names)
        kept = keep_probability(network, magnitudes(new, self.chosen)) >= rules.KEPT_FROM
        return {name for name, is_kept in zip(self.chosen.names, kept, strict=True) if is_kept}

    def keep(self, measured: Numbers, came: Tensors, stage: Stage) -> None:
        """Keep an update's deviations, and what its training began with where that will be asked for, until the round is over."""
        self._files.save({DEVIATIONS: measured, **{f"{CAME}{name}": tensor for name, tensor in came.items()}}, stage)

    def kept(self, stage: Stage) -> tuple[Numbers, Tensors]:
        """What `keep` kept."""
        found = self._files.load(stage)
        return found.pop(DEVIATIONS), {name.removeprefix(CAME): tensor for name, tensor in found.items()}

    def forget(self, keep: Collection[Stage]) -> None:
        """Remove what belongs to stages that will not be asked for any more."""
        self._files.forget(keep)

    def _threshold(self, measured: Numbers, number: int) -> float:
        if self.settings.selected_by.startswith("fixed-"):
            value = self.settings.fixed_threshold
            return rules.fixed_threshold(measured, "median" if value == "median" else float(value))
        over: Literal["unit", "range"] = "unit" if self.settings.random_threshold == "unit" else "range"
        return rules.random_threshold(measured, self._random(number), over)

    def _unfrozen(self, new: Tensors, came: Tensors, task: Task) -> Selection:
        begins = task.own == (0, 0)
        state = (
            apf_start(self.chosen, self.settings.apf_window, self.settings.apf_threshold)
            if begins
            else from_arrays(self._files.load(task.own), self.chosen)
        )
        selection, after = apf_step(state, new, came)
        self._files.save(to_arrays(after), (task.round, task.attempt))
        return selection

    def _random(self, number: int) -> np.random.Generator:
        """Of one round: a killed one draws again what it drew."""
        return np.random.default_rng(np.frombuffer(f"{self.settings.seed}/{self.site}/{number}/send".encode(), np.uint8))
