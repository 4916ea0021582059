"""Sums that the server cannot take apart (`privacy.sum = "secure"`): Bonawitz et al. 2017 inside each cluster.

Before the first round of an attempt every site sends public keys for all sums (`query.keys`). Once it has the roster, it sends shares
of each sum's secrets, sealed for the other sites (`query.shares`). A round then has two requests:

1. `train`: each site trains as always and sends its change as whole numbers under masks. Pairs of masks cancel in a cluster's sum.
2. `train.unmask`: the survivors, whose updates have arrived, send their shares, and with these the server removes the masks that did
   not cancel. A site opens each round for one list of survivors only.

A rule that leaves tensors out (`send.rule`) is applied to the mean, so that all sites of a cluster leave out the same ones.

In `replies` the mean of a cluster's sum replaces each survivor's update. The sums of training are counters under masks of their own,
over all sites. So are, under `privacy.scores = "sum"`, those of dev losses and scores.
"""

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress, islice
from typing import Any, cast

import numpy as np
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from fedlingua.backbones.parts import PARTS, Part
from fedlingua.common.errors import ExchangeError, RunError
from fedlingua.evaluation.totals import Totals, score_counters, totals_of
from fedlingua.exchange import protocol
from fedlingua.exchange.checks import check_loss, check_records
from fedlingua.exchange.coding.coder import generator_of
from fedlingua.exchange.expected import Sums
from fedlingua.exchange.held import digest_of
from fedlingua.exchange.joined import Flat, Joined, Numbers, join
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.records import opened, to_record
from fedlingua.exchange.replies import Failure, RoundSkippedError
from fedlingua.exchange.state import State
from fedlingua.exchange.tensors import NamedTensors, TensorSet
from fedlingua.layers.agreed_selection import left_out_next
from fedlingua.layers.drawn_sites import draws
from fedlingua.layers.layer import Incoming, Layer, Outgoing, Records, Server, Site, Training, averaged_clusters
from fedlingua.layers.outliers import learning_rates
from fedlingua.layers.secure_site import secure_site
from fedlingua.layers.summed import best_before, length, too_long
from fedlingua.privacy.fixed_point import (
    COUNTERS_PART,
    DEV_LOSS,
    MOST_EXPONENT,
    SITES,
    TRAINING,
    UNSENT,
    Group,
    decode,
    in_sum,
    next_exponents,
    totals,
    unpack,
)
from fedlingua.privacy.masks import MODELS, WITHOUT, common_to_all, context, unmasked
from fedlingua.privacy.noise_shares import planned
from fedlingua.privacy.roster import KEY_BYTES, SCORES, Roster, dev_loss_sum, members_hash, num_sums, sum_name, training_sum
from fedlingua.privacy.secrets import SEALED_BYTES, SECRET_BYTES, check_public, fit_together, is_share, public_of, recovered
from fedlingua.settings.config import Phase
from fedlingua.training.steps import most_steps

OPENED = "secure-sums.json"
"""A run's file: number of a sum -> the sites over which it was opened; a resumed run may not change them."""
SKIPPED = "secure-skipped"
"""Key in a state's values of: part -> cluster -> for each tensor whether the next round's sum is without it."""
EXPONENTS = "secure-exponents"
"""Key in a state's values of: part -> cluster -> the exponents of its tensors' scales in the next round."""
LENGTHS = "secure-lengths"
"""Key in a state's values of: part -> cluster -> the lengths of the means of all tensors in the rounds up to it."""
OF_SCORES = (protocol.EVALUATE, protocol.FINISH)
Shares = Mapping[str, Mapping[str, bytes]]
"""holder -> owner of a secret -> the share of it that the holder gave"""


class SecureSums(Layer):
    """The server never sees a single update (`privacy.sum = "secure"`)."""

    folders = ("rounding",)

    def begin(self, run: Server, grid: Grid) -> None:
        """Check the clusters, and exchange keys for all sums."""
        self._grid = grid
        parts = [part for part in PARTS if run.tensor_set.of_part(part)]
        self._sets: dict[str, TensorSet] = {part: run.tensor_set.in_part(part) for part in parts}
        self._summed = {part: run.clusters[part] for part in parts}
        least = self.settings.privacy_min_cluster
        for part, cluster, sites in averaged_clusters(run):
            Group.of(len(sites))
            if len(sites) < least:
                raise RunError(
                    f"the {part} cluster {cluster} has {len(sites)} sites ({', '.join(sites)}), and a secure sum needs "
                    f"{least} (privacy.min-cluster); give cluster.least = {least}, or method = 'adapter-fed'"
                )
        largest = max(int(about["train"]) for about in run.registry.about.values())
        self._noise = planned(self.settings, self._summed, run.tensor_set, largest) if self.settings.shares_noise else {}
        """Part -> its scale and noise, if sites make the noise in shares."""
        self._at_most_once: dict[str, list[str]] = run.folder.read(OPENED) or {}
        self._masked: dict[str, dict[str, Callable[[], Numbers]]] = {}
        """Site -> part -> what gives its masked numbers."""
        self._common: dict[int, str] = {}
        """Number of a sum -> what all sites are asked on, which its masks are bound to."""
        self._without: dict[int, list[str]] = {}
        """Number of a sum -> the sites whose masks are not in it."""
        self._exchange_keys(grid)

    def _exchange_keys(self, grid: Grid) -> None:
        ask = partial(self.run.ask_all, grid)
        need, count = "a secure sum needs the keys of every site", num_sums(self.settings.rounds)
        keys = ask(protocol.KEYS, partial(_keys, count), need, lambda _: 4096 + 2 * KEY_BYTES * count)
        names, (channels, public, signers, signatures) = tuple(keys), zip(*keys.values(), strict=True)
        if not all(signers):
            signers = signatures = ()
        by_size = self.settings.aggregation == "fed-avg"
        sizes = tuple(int(self.run.registry.about[site]["train"]) for site in names) if by_size else ()
        self.roster = Roster(names, channels, public, self._summed, signers, signatures, sizes, self.settings.hash_of_all())
        try:
            for _, _, sites in averaged_clusters(self.run):
                self.roster.check_weights(sites, self.settings.sampling_temperature)
        except ExchangeError as error:
            raise RunError(str(error)) from error
        self._check_draws()
        length = SEALED_BYTES * len(names) * count
        records = {protocol.SECURE: ConfigRecord(self.roster.record())}
        self._sealed = ask(protocol.SHARES, partial(_sealed, length), need, lambda _: 4096 + 2 * length, lambda _: records)
        self.run.note(_in_words(self.roster))

    def _check_draws(self) -> None:
        """Raise RunError unless the drawn sites of every round make a sum that they can open."""
        sites, least = len(self.roster.names), max(self.roster.threshold, self.settings.privacy_min_cluster)
        number = self.settings.sites_drawn(sites)
        here = f"privacy.sum = 'secure', and sites-per-round = {self.settings.sites_per_round:g} draws {number} of {sites} sites"
        if number < least:
            raise RunError(f"{here}, but {least} have to open a sum that they are in; give {least} or more, or 0 for all")
        each_round = draws(self.roster.names, self.run.clusters, number, self.settings.seed)
        for round_number, drawn in enumerate(islice(each_round, self.settings.rounds if number < sites else 0), 1):
            if why := self._too_small(drawn):
                raise RunError(f"{here}: in round {round_number} {why}; give more, 0 for all, or method = 'adapter-fed'")

    def requests(self, messages: dict[str, Message]) -> None:
        """Say what all sites have received, and how numbers are scaled; ask only the same sites again if a sum was opened before."""
        first = next(iter(messages.values()), None)
        kind = first.metadata.message_type if first else ""
        if not first or not (kind == protocol.TRAIN or (self.settings.sums_scores and kind in OF_SCORES)):
            return
        task = Task.of(first.content.config_records[protocol.TASK])
        number = task.round
        which = {protocol.TRAIN: training_sum, protocol.EVALUATE: dev_loss_sum}.get(kind, lambda _: SCORES)(number)
        if kind != protocol.FINISH:
            self._keep_the_same(which, messages)
        models = self._models(which, self.run.carried, task.measure, number)
        for site, message in messages.items():
            own = self.roster.clusters_of(site).items() if kind == protocol.TRAIN else ()
            scales = {str(part): self._asked(number, part, cluster) for part, (cluster, _) in own}
            message.content[protocol.SECURE] = ConfigRecord({**scales, **models})

    def _models(self, which: int, state: State, measure: int | None, number: int) -> dict[str, Any]:
        """Return what a request says that all sites have received, and whom the sum is without; remember what its masks are bound to."""
        models = {
            str(part): {cluster: digest_of(self._numbers_of(state, part, cluster)) for cluster in clusters}
            for part, clusters in (self._summed if number else {}).items()
        }
        here = self.run.phases.wanted("train" if which == training_sum(number) else "evaluate")
        self._without[which] = without = sorted({*self.roster.names}.difference(here))
        self._common[which] = common_to_all(models, measure, number, without)
        return {MODELS: json.dumps(models), **({WITHOUT: without} if without else {})}

    def _keep_the_same(self, number: int, messages: dict[str, Message]) -> None:
        """Drop the requests to sites over which a sum was not opened before the run was resumed."""
        before = self._at_most_once.get(str(number))
        if before is None:
            return
        if missing := [site for site in before if site not in messages and site not in self.run.phases.good]:
            self._fail_without(number, before, f"{', '.join(missing)} cannot be asked")
        for site in [site for site in messages if site not in before]:
            del messages[site]

    def records(self, wanted: set[str]) -> set[str]:
        return wanted - {protocol.METRICS, *([protocol.MEASURED] if self.settings.sums_scores else [])}

    def reply(self, incoming: Incoming) -> Incoming:
        """Check the form of a reply, since its masked numbers allow no other check, and store them."""
        site = incoming.expected.site
        arrays, own = opened(incoming.content.array_records[protocol.ARRAYS]), self.roster.clusters_of(site)
        if set(arrays) != {*own, COUNTERS_PART}:
            raise ExchangeError(f"sends {', '.join(arrays) or 'nothing'} under masks; wanted {', '.join([*own, COUNTERS_PART])}")
        for part, (cluster, members) in own.items():
            summed = [not skip for skip in self._skipped(part, cluster)]
            group = self._group(part, members)
            unpack(arrays[part], sum(compress(self.run.tensor_set.sizes_of(part), summed)) + group.checks, group)
        _check_counters(arrays[COUNTERS_PART], TRAINING)
        self._masked[site] = {name: self.run.update_files.keep(site, name, array) for name, array in arrays.items()}
        incoming.is_open = False
        return incoming

    def replies(self, number: int, trained: dict[str, Training]) -> dict[str, Training]:
        """Open the round's sums with the sites' shares; the update of each survivor is the mean of its clusters."""
        survivors = list(trained)
        self._check_enough(number, survivors)
        pending = self.run.progress.pending
        if self.settings.sums_scores:  # its dev loss may be known to the sites, even if the server learns nothing
            self.run.progress.pending = None
        opened_sum = self._open(training_sum(number), number, survivors, TRAINING)
        summed, summed_numbers = opened_sum.counters, 0
        self._check_training(number, summed, survivors)
        if self.settings.sums_scores and pending is not None:
            self.run.record_dev_losses(pending, self._measured_together(pending, survivors, summed))
        self._check_rise()
        means: dict[str, dict[str, Flat]] = {site: {} for site in survivors}
        exponents: dict[str, dict[str, list[int]]] = {part: {} for part in self._sets}
        skipped: dict[str, dict[str, list[bool]]] = {part: {} for part in self._sets}
        lengths: dict[str, dict[str, list[float]]] = {part: {} for part in self._sets}
        for part, cluster, sites in averaged_clusters(self.run):
            here = [site for site in sites if site in survivors]
            scales, left_out = self._exponents(number, part, cluster), self._skipped(part, cluster)
            lengths[part][cluster] = self.run.sent.values.get(LENGTHS, {}).get(part, {}).get(cluster, [])
            if here:
                change = self._mean_change(number, part, cluster, here, opened_sum)
                lengths[part][cluster] = self._with_length(number, part, cluster, change, lengths[part][cluster], any(left_out))
                start = self._numbers_of(self.run.sent, part, cluster)
                sizes, new = self.run.tensor_set.sizes_of(part), start + change
                summed_numbers += len(here) * (sum(sizes) - sum(compress(sizes, left_out)))
                if not self._noise:
                    scales = next_exponents(change, sizes, scales, self._most_exponent(number), summed["cut"] > 0)
                draws = generator_of(self.settings.seed, number, cluster, f"send {part}")
                left_out = left_out_next(self.settings, part, self._sets[part], left_out, new, start, draws)
                for site in here:
                    means[site][part] = new
            exponents[part][cluster], skipped[part][cluster] = scales, left_out
        self._masked.clear()
        self._next = {EXPONENTS: exponents, SKIPPED: skipped, LENGTHS: lengths}
        names = ("steps",) if self.settings.trains_privately else ("nll_sum", "num_tokens", "num_examples", "steps")
        share = summed["cut"] / max(1, summed_numbers)
        self.run.phases.record.about["secure_sum"] = {"sites": len(survivors), "cut": share}
        sums = {name: summed[name] / len(survivors) for name in names}
        loss = sums.get("nll_sum", 0.0) / max(1.0, sums.get("num_tokens", 0.0))
        sums["seconds"] = self.run.phases.record.phase_s.get("train", 0.0)
        return {
            site: replace(
                training, sums=sums, update=replace(training.update, tensors=Joined(means[site], self.run.tensor_set), loss=loss)
            )
            for site, training in trained.items()
        }

    def state(self, number: int, before: State, after: State) -> State:
        """Return the next state with the next round's scales."""
        return replace(after, values={**after.values, **self._next})

    # --- At a site ---------------------------------------------------------------------------------------------------------------

    def update(self, site: Site, task: Task, going: Outgoing) -> Outgoing:
        """Return the update and its sums as masked integers."""
        in_shares, files = self.settings.shares_noise, site.files["rounding"]
        # What is made up for would lengthen a change that is clipped.
        feeds_back = self.settings.least_level and self.settings.rule == "all" and not self.settings.clips_at_sites
        left = files.load(task.own) if feeds_back else None
        masked = secure_site(site.node, task).mask_update(
            going.update,
            going.start,
            site.trainable.tensor_set,
            sums=going.sums or {},
            dev=(going.dev or {}) if self.settings.sums_scores else {},
            asked=dict(going.asked.config_records[protocol.SECURE]),
            seed=self.settings.seed,
            size=sum(len(text.splits["train"]) for text in site.texts.values()),
            measured=going.start if task.measure else {},  # round 0 is the published backbone, whatever came
            plan=partial(planned, self.settings) if in_shares else None,
            left=left,
            stored=site.digest_of(task.own),
        )
        if left is not None:
            files.save(left, (task.round, task.attempt))
        return replace(going, sums=None, dev=None if self.settings.sums_scores else going.dev, arrays=masked)

    def measured(
        self, phase: Phase, site: Site, task: Task, asked: RecordDict, received: NamedTensors, result: Any, reply: Records
    ) -> Records:
        if not self.settings.sums_scores:
            return reply
        here = secure_site(site.node, task)
        about = received, site.trainable.tensor_set, dict(asked.config_records[protocol.SECURE])
        is_loss = phase == "evaluate"
        hidden = here.mask_dev_loss(result, *about) if is_loss else here.mask_scores(self.settings.task, result, *about)
        return {protocol.ARRAYS: to_record(hidden)}

    # --- Dev losses and scores ---------------------------------------------------------------------------------------------------

    def hides(self, phase: Phase, site: str, content: RecordDict) -> bool:
        if not self.settings.sums_scores:
            return False
        names = DEV_LOSS if phase == "evaluate" else score_counters(self.settings.task)
        check_records(content, {protocol.TASK, protocol.ARRAYS})
        arrays = opened(content.array_records[protocol.ARRAYS])
        if set(arrays) != {COUNTERS_PART}:
            raise ExchangeError(f"sends {', '.join(arrays) or 'nothing'} under masks; wanted {COUNTERS_PART}")
        _check_counters(arrays[COUNTERS_PART], names)
        self._masked[site] = {COUNTERS_PART: self.run.update_files.keep(site, COUNTERS_PART, arrays[COUNTERS_PART])}
        return True

    def evaluations(self, number: int, of: int, losses: dict[str, Sums]) -> dict[str, Sums]:
        if not self.settings.sums_scores:
            return losses
        self.run.phases.training_sites = self.run.registry.expected  # all of them are in this sum, and open it
        try:
            return self._measured_together(
                of, list(losses), self._open(dev_loss_sum(number), number, list(losses), DEV_LOSS).counters
            )
        except RoundSkippedError as unknown:  # the round itself stands
            self.run.note(str(unknown))
            return {}

    def _measured_together(self, number: int, sites: Sequence[str], summed: Mapping[str, float]) -> dict[str, Sums]:
        """Return a dev loss that is known of all sites together: each of them gets the mean of the sums."""
        examples, tokens, nll_sum, weighted = (summed[name] / len(sites) for name in DEV_LOSS)
        known = sum(int(self.run.registry.about[site]["dev"]) for site in sites)
        what = f"the dev loss of round {number}"
        if round(summed["dev_examples"]) != known:
            self._fail(f"{what} is over {examples * len(sites):.0f} sentences; the sites have {known} of dev")
        self._check_loss(what, nll_sum, tokens)
        self._check_loss(what, weighted, examples)
        if self.settings.best_by != "tokens":  # the mean over sentences, as if every site had this loss
            nll_sum = weighted / examples * tokens
        sums = {"nll_sum": nll_sum, "num_tokens": tokens, "num_examples": examples, "seconds": 0.0}
        return dict.fromkeys(sites, sums)

    def _check_rise(self) -> None:
        """Skip this round, and take back those after the best one, if the last dev loss rose as no honest sums make it."""
        losses = {number: self.run.progress.typical(number) for number in self.run.progress.dev_losses}
        best = best_before(losses) if self.settings.max_update_ratio else None
        if best is not None and best in self.run.folder.checkpoints.rounds():
            times = f"after round {max(losses)} the dev loss is {losses[max(losses)] / losses[best]:.2f} times that after round {best}"
            why = "a site adds what it has not trained, or the rate is too high (robust.max-ratio = 0 goes on all the same)"
            raise RoundSkippedError(f"{times}: {why}", best)

    def totals(self, here: Sequence[str]) -> Totals | None:
        """Return the sums of the sites' scores."""
        if not self.settings.sums_scores:
            return None
        names = score_counters(self.settings.task)
        before = self._at_most_once.get(str(SCORES), here)  # opened before the run was resumed
        survivors = [site for site in here if site in before]
        try:
            of_all = totals_of(self.settings.task, self._open(SCORES, self.run.progress.round, survivors, names).counters)
            self._check_scores(of_all, survivors)
        except RoundSkippedError as skipped:
            raise RunError(str(skipped)) from skipped
        return of_all

    # --- Opening a sum -----------------------------------------------------------------------------------------------------------

    def _open(self, number: int, round_number: int, survivors: Sequence[str], names: Sequence[str]) -> "_Opened":
        """Have the sites open a sum.

        Raises:
            RunError, RoundSkippedError: Too few sites, other sites than before the run was resumed, too few shares, or masks that did
                not cancel.
        """
        self._check_threshold(number, survivors)
        before = self._at_most_once.setdefault(str(number), list(survivors))
        if missing := [site for site in before if site not in survivors]:
            self._fail_without(number, before, f"{', '.join(missing)} sent none")
        self.run.folder.write(OPENED, self._at_most_once)
        ask = partial(self._unmask_requests, number, round_number, survivors)
        shares = {
            each.site: each.parsed
            for each in self.run.phases.exchange(self._grid, ask, "send", self._shares, least=self.roster.threshold)
        }
        seeds, keys = self._secrets(number, survivors, shares)
        counters = sum((self._masked[site][COUNTERS_PART]() for site in survivors), np.zeros(1 + len(names), np.uint64))
        bound = self._context(number, COUNTERS_PART, "", ())
        summed = totals(unmasked(counters, self.roster, self.roster.names, seeds, keys, number, bound), names)
        if summed[SITES] != len(survivors):
            for owner in (*seeds, *keys):
                if not fit_together(self._good_shares(number, owner, shares, owner in keys), self.roster):
                    self._go_on_without(number, owner, f"the shares that {owner} has sealed do not make one secret")
            self._fail_uncancelled(number, "the counters")
        return _Opened(seeds, keys, summed)

    def _unmask_requests(self, number: int, round_number: int, survivors: Sequence[str]) -> list[Message]:
        messages = []
        for site in self.run.phases.available(self._grid, "send"):
            if site in survivors:
                messages.append(self.run.request(protocol.UNMASK, site, round_number, round_number))
                sealed = b"".join(self._sealed_for(site, sender, number) for sender in self.roster.names)
                about: dict[str, Any] = {"sum": number, "survivors": list(survivors), "sealed": sealed}
                messages[-1].content[protocol.SECURE] = ConfigRecord(about)
        return messages

    def _shares(self, site: str, reply: Message) -> dict[str, bytes]:
        check_records(reply.content, {protocol.TASK, protocol.SECURE})
        given = _bytes(reply, "shares", SECRET_BYTES * len(self.roster.names))
        return {owner: given[SECRET_BYTES * at : SECRET_BYTES * (at + 1)] for at, owner in enumerate(self.roster.names)}

    def _sealed_for(self, holder: str, sender: str, number: int) -> bytes:
        at = SEALED_BYTES * (self.roster.names.index(holder) * self.roster.num_sums + number - 1)
        return self._sealed[sender][at : at + SEALED_BYTES]

    def _good_shares(self, number: int, owner: str, shares: Shares, of_key: bool) -> dict[str, bytes]:
        """Return holder -> its share of a secret, of those who gave the one that the owner has sealed for them."""
        given = {holder: held[owner] for holder, held in shares.items()}
        return {holder: each for holder, each in given.items() if is_share(self._sealed_for(holder, owner, number), each, of_key)}

    def _secrets(self, number: int, survivors: Sequence[str], shares: Shares) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """Return the survivors' seeds, and the private keys of the others, but for those whom the sum is without.

        Where a share is not the one that its owner has sealed, one of the two lies, and nobody else can say which: the secret is made of
        the others' shares. A site that so disagrees with more sites than may lie, and with two at least, is the one that lies.

        Raises:
            RoundSkippedError: A site has not sealed its secret as it should; the run goes on without it.
            RunError, RoundSkippedError: Too few shares.
        """
        secrets, against = dict[str, bytes](), dict[str, set[str]]()
        good, short = dict[str, dict[str, bytes]](), dict[str, str]()
        for owner in (name for name in self.roster.names if name not in self._without[number]):
            good[owner] = self._good_shares(number, owner, shares, owner not in survivors)
            for holder in shares.keys() - good[owner].keys():
                against.setdefault(holder, set()).add(owner)
                against.setdefault(owner, set()).add(holder)
        most = max(1, len(self.roster.names) - self.roster.threshold)
        liars = {site for site, others in against.items() if len(others) > most or site in others}
        for holder, others in sorted(against.items()):
            if holder in liars:
                both = f"it and {', '.join(sorted(others))} have of each other"
                reason = f"{sum_name(number)}: shares that {both} are wrong, and it is one of each two"
                self.run.phases.record.fail(Failure(holder, reason), "send")
            for owner in sorted(others - liars):
                if holder not in liars and holder < owner:
                    self.run.note(
                        f"{sum_name(number)}: a share that site {holder} and site {owner} have of each other is wrong; one of them lies"
                    )
        for owner, held in good.items():
            try:
                secrets[owner] = recovered(held, self.roster)
            except ExchangeError as error:
                if owner in liars:
                    self._go_on_without(
                        number, owner, f"{owner} has not sealed shares of its secret for {', '.join(sorted(against[owner]))}"
                    )
                short[owner] = str(error)
            if owner in secrets and owner not in survivors and public_of(secrets[owner]) != self.roster.public_key(owner, number):
                self._go_on_without(number, owner, f"the shares that {owner} has sealed of its key do not make it")
        for owner, why in short.items():
            apart = f"; {', '.join(sorted(against[owner]))} or {owner} gave a wrong one" if owner in against else ""
            self._fail(f"{sum_name(number)}: {why}{apart}")
        return {site: secrets[site] for site in survivors}, {
            site: each for site, each in secrets.items() if site not in survivors
        }

    def _go_on_without(self, number: int, site: str, why: str) -> None:
        """Skip a sum that a site's secret keeps from being opened, and have the coming ones without that site."""
        self.run.phases.left_out.add(site)
        self.run.phases.record.fail(Failure(site, f"left out from now on: {why}"), "send")
        raise RoundSkippedError(f"{sum_name(number)}: {why}, so nothing is known of the sum; the run goes on without site {site}")

    def _group(self, part: str, members: Sequence[str]) -> Group:
        """Return the integers in which a cluster's numbers are summed."""
        return self._noise[part].group if self._noise else Group.of(len(members), self.settings.least_level)

    def _mean_change(self, number: int, part: Part, cluster: str, here: Sequence[str], of: "_Opened") -> Numbers:
        """Return the mean change of a cluster's survivors: (n,) float32, 0 where tensors are left out."""
        members, scales = self.run.clusters[part][cluster], self._asked(number, part, cluster)
        taken, scales_sent, sizes_sent = in_sum(scales, self.run.tensor_set.sizes_of(part))
        group, count = self._group(part, members), int(taken.sum())
        total = np.zeros(count + group.checks, group.dtype)
        for site in here:
            total += unpack(self._masked[site][part](), count + group.checks, group)
        which = training_sum(number)
        bound = self._context(which, part, cluster, scales)
        total = group.reduced(unmasked(total, self.roster, members, of.seeds, of.keys, which, bound))
        if (total[count:] != len(here)).any():
            self._fail_uncancelled(which, f"the {part} cluster {cluster}")
        if not self._noise and (np.abs(group.signed(total[:count])) > len(here) * group.top).any():
            raise RoundSkippedError(
                f"round {number}: the sum of the {part} cluster {cluster} has numbers that {len(here)} sites cannot have sent; one of "
                f"{', '.join(here)} lies"
            )
        if self._noise:
            sentences = sum(int(self.run.registry.about[site]["train"]) for site in here)
            return self._noise[part].change(total[:count], float(learning_rates(self.settings, number, 1)[0]), sentences)
        factors = self.roster.factors(members, self.settings.sampling_temperature)
        change = np.zeros(len(taken), np.float32)
        change[taken] = decode(total[:count], scales_sent, sizes_sent, group)
        return change / np.float32(sum(factors[site] for site in here))

    def _with_length(
        self, number: int, part: Part, cluster: str, change: Numbers, earlier: list[float], is_partial: bool
    ) -> list[float]:
        """Return the lengths of a cluster's means, with this round's if it is comparable; skip the round if it is too long to be true."""
        steps = max(most_steps(self.settings, self.run.registry.about[site]) for site in self.run.clusters[part][cluster])
        rates = learning_rates(self.settings, number, steps)
        if self._noise or is_partial or not rates.sum():
            return earlier
        own = length(change, rates)
        if self.settings.max_update_ratio and (reason := too_long(own, steps, earlier)):
            raise RoundSkippedError(
                f"round {number}: the mean of the {part} cluster {cluster} is too long to be true: {reason}; one of "
                f"{', '.join(self.run.clusters[part][cluster])} adds what it has not trained (robust.max-ratio = 0 takes it all the same)"
            )
        return [*earlier, own]

    def _check_enough(self, number: int, survivors: Sequence[str]) -> None:
        """Skip a round with too few sites, or too few in a cluster, before its sum is opened."""
        self._check_threshold(training_sum(number), survivors)
        if why := self._too_small(survivors):
            self._fail(f"round {number}: {why}")

    def _too_small(self, survivors: Collection[str]) -> str:
        """Return why a cluster's sum over these sites would tell too much of one; "" if none would."""
        for part, cluster, sites in averaged_clusters(self.run):
            left, least = [site for site in sites if site in survivors], self.settings.privacy_min_cluster
            if 0 < len(left) < least:
                return f"{len(left)} sites of the {part} cluster {cluster} are left, and privacy.min-cluster = {least}"
            try:
                self.roster.check_weights(left, self.settings.sampling_temperature)
            except ExchangeError as error:
                return str(error)
        return ""

    def _check_threshold(self, number: int, survivors: Sequence[str]) -> None:
        if len(survivors) < (least := max(self.roster.threshold, self.settings.privacy_min_cluster)):
            sent = f"{len(survivors)} of {len(self.roster.names)} sites sent their part of the sum"
            self._fail(f"{sum_name(number)}: {sent}, and {least} have to open it")

    def _fail(self, why: str) -> None:
        """Skip the round or end the run, as `below-quorum` says."""
        if self.settings.below_quorum == "go-on":
            raise RoundSkippedError(why)
        raise RunError(why)

    def _fail_without(self, number: int, before: Sequence[str], who: str) -> None:
        """Fail as long as a site is missing from those over which a sum was opened: they open it for the same sites only."""
        self._fail(f"the sum of {sum_name(number)} was opened before over {', '.join(before)}, and {who}; resume with them")

    def _fail_uncancelled(self, number: int, what: str) -> None:
        self._fail(
            f"{sum_name(number)}: the masks of {what} did not cancel, so nothing is known of the sum; a site was sent other tensors, "
            "scales or keys than the others, or did not send what it should"
        )

    # --- What a sum can be, since a single site's part cannot be checked -------------------------------------------------------------

    def _check_training(self, number: int, summed: Mapping[str, float], survivors: Sequence[str]) -> None:
        most = sum(most_steps(self.settings, self.run.registry.about[site]) for site in survivors)
        if not len(survivors) <= summed["steps"] <= most:
            self._fail(f"round {number}: {summed['steps']:.0f} steps at all sites; wanted {len(survivors)} to {most}")
        if not self.settings.trains_privately:
            self._check_loss(f"round {number}, training", summed["nll_sum"], summed["num_tokens"])

    def _check_loss(self, what: str, nll_sum: float, size: float) -> None:
        try:
            check_loss(nll_sum, size, self.run.registry.most_loss)
        except (ExchangeError, ZeroDivisionError) as error:
            self._fail(f"{what}, summed over all sites: {error}")

    def _check_scores(self, of_all: Totals, survivors: Sequence[str]) -> None:
        scores = of_all.scores
        most = sum(int(self.run.registry.about[site][self.settings.score_split]) for site in survivors)
        try:
            for sums in (scores.result, scores.base, scores.alone, scores.federated):
                if sums is not None:
                    self.run.check_score_sums(MetricRecord(cast(Any, sums.record())), most)
        except ExchangeError as error:
            self._fail(f"the scores, summed over all sites: {error}")

    # --- Scales ------------------------------------------------------------------------------------------------------------------

    def _exponents(self, number: int, part: str, cluster: str) -> list[int]:
        """Return the exponents of a cluster's scales in a round: from the last aggregate, at first from the sum of the steps' rates."""
        if self._noise:  # scales follow from the settings
            return [0] * len(self._sets[part].specs)
        known, most = self.run.sent.values.get(EXPONENTS), self._most_exponent(number)
        return [min(each, most) for each in known[part][cluster]] if known else [most] * len(self._sets[part].specs)

    def _asked(self, number: int, part: str, cluster: str) -> list[int]:
        """Return what sites are asked for: each tensor's exponent, or that it is left out."""
        both = zip(self._skipped(part, cluster), self._exponents(number, part, cluster), strict=True)
        return [UNSENT if skip else scale for skip, scale in both]

    def _skipped(self, part: str, cluster: str) -> list[bool]:
        known = self.run.sent.values.get(SKIPPED)
        return list(known[part][cluster]) if known else [False] * len(self._sets[part].specs)

    def _most_exponent(self, number: int) -> int:
        steps = max(most_steps(self.settings, self.run.registry.about[site]) for site in self.roster.names)
        reach = float(learning_rates(self.settings, number, steps).sum())
        if self.settings.clips_at_sites:
            reach = min(reach, self.settings.clip_update_norm)
        return max(-MOST_EXPONENT, min(MOST_EXPONENT, math.ceil(math.log2(reach)))) if reach > 0 else 0

    # --- Known to both sides -----------------------------------------------------------------------------------------------------

    def _numbers_of(self, state: State, part: Part, cluster: str) -> Numbers:
        return join(state.tensors[part][cluster], self._sets[part])[part]

    def _context(self, number: int, part: str, cluster: str, exponents: Sequence[int]) -> bytes:
        return context(self.roster, self.run.id, self.run.attempt, number, part, cluster, exponents, self._common[number])


def _in_words(roster: Roster) -> str:
    """Describe the sites of secure sums; where they have node keys, with the beginning of the hash that `site approve` shows."""
    signers = dict(zip(roster.names, roster.signers, strict=False))
    approved = f"; roster {members_hash(signers)[:16]}" if signers else ""
    return f"secure sums over {len(roster.names)} sites, {roster.threshold} of them open one{approved}"


@dataclass(frozen=True)
class _Opened:
    """An opened sum: each survivor's seed, each lost site's private key, and the sums of the counters by name."""

    seeds: Mapping[str, bytes]
    keys: Mapping[str, bytes]
    counters: Mapping[str, float]


def _check_counters(counters: Numbers, names: Sequence[str]) -> None:
    if counters.dtype != np.uint64 or counters.shape != (1 + len(names),):
        raise ExchangeError(f"its counters are {counters.dtype} {counters.shape}; wanted {1 + len(names)} of uint64")


def _keys(count: int, site: str, reply: Message) -> tuple[bytes, bytes, str, bytes]:
    check_records(reply.content, {protocol.TASK, protocol.SECURE})
    record = reply.content.config_records[protocol.SECURE]
    signer, signature = record.get("signer", ""), record.get("signature", b"")
    if not isinstance(signer, str) or not isinstance(signature, bytes):
        raise ExchangeError("signer and signature are not text and bytes")
    channel, keys = _bytes(reply, "channel", KEY_BYTES), _bytes(reply, "keys", KEY_BYTES * count)
    check_public(channel + keys)
    return channel, keys, signer, signature


def _sealed(length: int, site: str, reply: Message) -> bytes:
    check_records(reply.content, {protocol.TASK, protocol.SECURE})
    return _bytes(reply, "sealed", length)


def _bytes(reply: Message, key: str, length: int) -> bytes:
    """Return the bytes under a key of a reply's record; raise ExchangeError unless they are `length` bytes."""
    given = reply.content.config_records[protocol.SECURE].get(key)
    if not isinstance(given, bytes) or len(given) != length:
        got = f"{len(given)} bytes" if isinstance(given, bytes) else type(given).__name__
        raise ExchangeError(f"{key} is {got}; wanted {length} bytes")
    return given
