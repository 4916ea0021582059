"""Updates that no honest site can have sent are left out, too long ones are scaled down (`robust.max-ratio`, `robust.clip-norm`)."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedlingua.exchange.joined import Joined, Numbers, cuts, flat_parts
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.replies import Failure
from fedlingua.exchange.updates import Update, scaled
from fedlingua.layers.agreement import LEAST, MOST_OPPOSED, against, agreements
from fedlingua.layers.codes import stretch
from fedlingua.layers.layer import Layer, Outgoing, Server, Site, Training, averaged_clusters
from fedlingua.layers.outliers import Distance, Verdict, highest_rate_before, judge, learning_rates, out_of_reach


class JudgedUpdates(Layer):
    """Judges every update by its length and its direction beside the others' (outliers.py, agreement.py)."""

    def replies(self, number: int, trained: dict[str, Training]) -> dict[str, Training]:
        """A site whose update is left out still counts for the quorum and is not set aside."""
        counted = dict(trained)
        for site, verdict in self._judged(trained).items():
            if verdict.factors is None:
                del counted[site]
                failure = Failure(site, f"left out: {verdict.reason}")
            else:
                failure = Failure(site, f"scaled down: {verdict.reason}", "scaled")
                counted[site] = shortened(self.run, counted[site], verdict.factors)
            self.run.phases.record.fail(failure, self.run.update_phase)
        return counted

    def _judged(self, parsed: Mapping[str, Training]) -> dict[str, Verdict]:
        """Return site -> verdict for updates to leave out or scale down; store the lengths of the others for later rounds."""
        settings, names, furthest = self.settings, self.run.tensor_set.names, 1.0
        verdicts, distances = dict[str, Verdict](), dict[str, Distance]()
        for site, training in parsed.items():
            sums, change = training.sums, training.change
            steps = int(min(sums["steps"], sums.get("num_examples", math.inf)))  # a step has at least one example
            began = self.run.asked_in(site)
            rates = learning_rates(self.run.trains_under.get(site, settings), began, max(1, steps))
            before = (began - 1) * len(rates) if settings.optimizer_state == "kept" else 0
            highest = max(highest_rate_before(settings, began, len(rates)), self.run.progress.highest_rate)
            fall = highest / float(rates.mean())
            furthest = max(furthest, further := stretch(settings.code_up, began, fall))
            if reason := out_of_reach(change, further * rates, settings, names, before):
                verdicts[site] = Verdict(reason)
            elif change.sent.any():
                distances[site] = Distance(len(rates), float(rates.mean()), change.rms)
        agreed = self._agreements({site: parsed[site].update for site in distances})
        lengths = self.run.progress.lengths.values()
        earlier = [Distance(past["steps"], past["rate"], np.array(past["change"], float)) for past in lengths]
        adam, opposing = settings.optimizer != "sgd", {site for site, agreement in agreed.items() if agreement < 0}
        verdicts |= judge(distances, earlier, adam, settings.max_update_ratio, names, furthest, opposing)
        verdicts |= {site: against(agreement) for site, agreement in agreed.items() if agreement < LEAST}
        opposed = self.run.progress.opposed
        for site in distances:
            if site in opposing and site in verdicts and verdicts[site].factors is None:
                opposed[site] = opposed.get(site, 0) + 1
            elif opposed.get(site, 0) >= MOST_OPPOSED:
                verdicts[site] = Verdict(f"it was left out in {opposed[site]} rounds because it opposed the other sites")
        self.run.progress.lengths |= {site: own.values() for site, own in distances.items() if site not in verdicts}
        return verdicts

    def _agreements(self, updates: Mapping[str, Update]) -> dict[str, float]:
        """Return site -> its agreement with the others of a cluster, in the part in which it agrees least."""
        least = dict[str, float]()
        for part, _, members in averaged_clusters(self.run):
            sites = [site for site in members if site in updates]
            ends = [flat_parts(updates[site].tensors, self.run.tensor_set)[part] for site in sites]
            starts = [flat_parts(self.run.received_by(site), self.run.tensor_set)[part] for site in sites]
            already = sum(least.get(site, 0.0) < LEAST for site in sites)
            for site, agreement in zip(sites, agreements(ends, starts, already), strict=True):
                least[site] = min(least.get(site, agreement), agreement)
        return least


class NormClip(Layer):
    """Norm clipping (`aggregation = "norm-clip"`), Sun et al. 2019: no update is longer than a bound.

    Where the server sees no single update, each site shortens its own.
    """

    def update(self, site: Site, task: Task, going: Outgoing) -> Outgoing:
        """What is no finite number counts as unchanged, as it does under masks: an error would tell of this one site."""
        if not self.settings.clips_at_sites:
            return going
        chosen = site.trainable.tensor_set
        new, start = flat_parts(going.update, chosen), flat_parts(going.start, chosen)
        moved = (
            np.nan_to_num(new[part][cut] - start[part][cut], posinf=0, neginf=0) for part in new for cut in cuts(len(new[part]))
        )
        norm = math.sqrt(sum(float(np.square(each, dtype=np.float64).sum()) for each in moved))
        factor = norm_clip({site.site: norm}, self.settings.clip_update_norm).get(site.site, 1.0)
        update = scaled(Update(site.site, Joined(new, chosen), 1), start, np.full(len(chosen.specs), factor))
        return replace(going, update=update.tensors)

    def replies(self, number: int, trained: dict[str, Training]) -> dict[str, Training]:
        if self.settings.clips_at_sites:
            return trained
        factors = norm_clip({site: training.change.norm for site, training in trained.items()}, self.settings.clip_update_norm)
        whole = np.ones(len(self.run.tensor_set.specs))
        return trained | {site: shortened(self.run, trained[site], factor * whole) for site, factor in factors.items()}


def norm_clip(norms: Mapping[str, float], bound: float) -> dict[str, float]:
    """Return site -> 1 / max(1, |update| / M) where this shortens the update: norm clipping, Sun et al. 2019. bound: M; 0 takes
    the median of the round's norms.
    """
    most = bound or (float(np.median(list(norms.values()))) if norms else 0.0)
    return {site: most / norm for site, norm in norms.items() if norm > most}


def shortened(run: Server, training: Training, factors: Numbers) -> Training:
    """Return a training with the change of each tensor multiplied by its factor; the smallest one goes into the round's record."""
    site, record = training.update.site, run.phases.record.of(training.update.site)
    record["scaled_to"] = record.get("scaled_to", 1.0) * float(factors.min())
    update = scaled(training.update, flat_parts(run.received_by(site), run.tensor_set), factors)
    squares = np.square(factors, dtype=np.float64) * training.change.squares
    return replace(training, update=update, change=replace(training.change, squares=squares))
