"""A site's side of secure sums: keys before round 0, masked numbers in each round, shares to open its sum (docs/guides/privacy.md)."""

import json
import os
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from fedlingua.clustering.clusters import Clusters
from fedlingua.common.errors import ExchangeError
from fedlingua.common.files import json_hash, written_once
from fedlingua.consent.keys import is_signed, public_line, sign
from fedlingua.evaluation.sums import Scores
from fedlingua.evaluation.totals import counted_scores, score_counters
from fedlingua.exchange import protocol
from fedlingua.exchange.coding.coder import generator_of
from fedlingua.exchange.held import digest_of, digests_of
from fedlingua.exchange.joined import Numbers, join
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.tensors import NamedTensors, Tensors, TensorSet
from fedlingua.layers.layer import Answer, Node, Records
from fedlingua.privacy.fixed_point import (
    COUNTERS_PART,
    DEV_LOSS,
    MOST_EXPONENT,
    TRAINING,
    UNSENT,
    Group,
    counted,
    decode,
    encode,
    in_sum,
    pack,
)
from fedlingua.privacy.masks import MODELS, WITHOUT, common_to_all, context, masked
from fedlingua.privacy.noise_shares import SEED, PartNoise
from fedlingua.privacy.roster import SCORES, Roster, dev_loss_sum, members_hash, num_sums, signed_message, sum_name, training_sum
from fedlingua.privacy.secrets import SEALED_BYTES, SECRET_BYTES, Secrets, derived


@dataclass(frozen=True)
class Trust:
    """The sites that a deployed site trusts. key: File of its own node key. approved: Hashes that its owner approved; None: any sites."""

    key: Path
    approved: Set[str] | None


class SecureSite:
    """A site's secrets and its refusals, for one run and attempt.

    Args:
        folder: The site's private folder for the run.
        task: The request's task.
        least: The smallest cluster, in sites, in which this site takes part.
        trust: The sites that this site trusts; None in a simulation, where sites sign nothing.
        temperature: `sampling-temperature`, which evens out weights by size.
        level: The magnitude that levels have to reach, under a code of few bits.
        settings: Hash of the settings that this site was asked to run with.
    """

    def __init__(
        self,
        folder: Path,
        task: Task,
        least: int,
        trust: Trust | None = None,
        temperature: float = 1.0,
        level: int = 0,
        settings: str = "",
    ) -> None:
        self.folder, self.task, self.site, self.least = folder / "secure", task, task.site, least
        self.trust, self.temperature, self.level, self.settings = trust, temperature, level, settings

    def public_keys(self, num_rounds: int) -> dict[str, Any]:
        """Return this site's public keys as the content of a reply's ConfigRecord."""
        secrets = self._secrets()
        channel, keys = secrets.channel.public_key().public_bytes_raw(), secrets.public_keys(num_sums(num_rounds))
        if self.trust is None:
            return {"channel": channel, "keys": keys}
        signature = sign(self.trust.key, signed_message(self.task.run, self.task.attempt, self.site, channel, keys))
        return {"channel": channel, "keys": keys, "signer": public_line(self.trust.key), "signature": signature}

    def accept_roster(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Accept a roster and return the sealed shares of this site's secrets.

        Raises:
            ExchangeError: The roster lacks this site with its own keys, one of the site's clusters is too small or one site has most of
                its weight, it is of a run with other settings, another roster was accepted in this attempt, or the sites are not approved
                or their keys not signed.
        """
        roster, secrets = Roster.of(record), self._secrets()
        own = {name: keys for name, *keys in zip(roster.names, roster.channels, roster.keys, strict=True)}.get(self.site)
        if own != [secrets.channel.public_key().public_bytes_raw(), secrets.public_keys(roster.num_sums)]:
            raise ExchangeError(f"the roster does not have site {self.site} with the keys that it sent")
        if roster.settings != self.settings:
            raise ExchangeError(
                "the roster is of a run with other settings than this site was asked to run with; a sum of sites that train otherwise "
                "could be that of one"
            )
        for part, (cluster, sites) in roster.clusters_of(self.site).items():
            if len(sites) < self.least:
                raise ExchangeError(
                    f"the {part} cluster {cluster} has {len(sites)} sites; this site takes part in sums of {self.least} or more "
                    "([limits] min-cluster)"
                )
            roster.check_weights(sites, self.temperature)
        if self.trust and self.trust.approved is not None:
            self._check_signed(roster, self.trust.approved)
        said = json.dumps(record, sort_keys=True, default=bytes.hex)
        if written_once(self.folder / f"roster-{self.task.attempt}.json", said) != said:
            raise ExchangeError(f"got another roster in attempt {self.task.attempt}; a site takes part under one")
        return {"sealed": secrets.sealed_shares(roster, self.site)}

    def mask_update(
        self,
        update: NamedTensors,
        received: NamedTensors,
        chosen: TensorSet,
        sums: Mapping[str, Any],
        dev: Mapping[str, float],
        asked: Mapping[str, Any],
        seed: int,
        size: int,
        measured: NamedTensors,
        plan: Callable[[Clusters, TensorSet, int], Mapping[str, PartNoise]] | None = None,
        left: Tensors | None = None,
        stored: str = "",
    ) -> dict[str, Numbers]:
        """Return the update and its sums as a reply's arrays of masked integers.

        Args:
            update: The trained tensors; with a `plan`, the sums of clipped gradients and the seed of this site's share of noise.
            sums: The sums of training.
            dev: The sums of the dev loss of `measured`; empty: it was not measured, or is sent apart.
            asked: Part -> the exponents of its tensors' scales, UNSENT for those that are left out; under MODELS what all sites have
                received; and under WITHOUT the sites that the sum is without.
            seed: The run's seed, which determines the random rounding.
            size: The site's training sentences.
            measured: The tensors that `dev` is of; empty: the published backbone.
            plan: Where noise is made in shares, returns part -> its scale and noise.
            left: Part -> what rounding left out of the last change, which is added to this one (Karimireddy et al. 2019, algorithm 2);
                updated in place. None: no part has any.
            stored: Hash of what the site stored in an earlier round and trained on from.

        Raises:
            ExchangeError: The roster does not fit the round, or the round or its masks were used before for something else.
        """
        if self.task.round < 1:
            raise ExchangeError(f"asked for masks of round {self.task.round}; sites train in rounds from 1 on")
        number = training_sum(self.task.round)
        roster, secrets = self._roster_for(number), self._secrets()
        if roster.sizes and (said := roster.sizes[roster.names.index(self.site)]) != size:
            raise ExchangeError(f"the roster weighs site {self.site} by {said} sentences; it has {size}")
        here, started, arrays, cuts = self._taking_part(roster, asked), join(received, chosen), dict[str, Numbers](), 0
        own, common = roster.clusters_of(self.site), self._common(roster, asked, received, chosen)
        scales = {part: _exponents(asked.get(part), len(chosen.sizes_of(part)), part) for part in started}
        if left is not None and any(UNSENT in each for each in scales.values()):
            raise ExchangeError("asked to leave tensors out of a sum; in this run all are sent")
        for_what = json_hash([roster.clusters, roster.sizes, scales, asked[MODELS], stored])
        if written_once(self.folder / f"asked-{number}", for_what) != for_what:
            raise ExchangeError(
                f"asked for {sum_name(number)} again, now for other clusters, sizes, scales or tensors; two such sums tell of single sites"
            )
        noise = plan(roster.clusters, chosen, max(roster.sizes, default=1)) if plan else {}
        for part, trained in join(update, chosen).items():
            (cluster, members), exponents = own[part], scales[part]
            group = noise[part].group if noise else Group.of(len(members), self.level)
            if noise:  # it does not cover how many numbers were cut
                levels, cut = noise[part].levels(trained, derived(update[SEED].tobytes(), part)), 0
            else:
                draws = generator_of(seed, self.task.round, self.site, f"secure {part}")
                change = (trained - started[part]) * roster.factors(members, self.temperature)[self.site]
                taken, scales_sent, sizes_sent = in_sum(exponents, chosen.sizes_of(part))
                if left is not None:
                    change += left.get(part, np.float32(0))
                levels, cut = encode(change[taken], scales_sent, sizes_sent, group, draws)
                if left is not None:  # no tensor is left out
                    left[part] = np.nan_to_num(change - decode(levels, scales_sent, sizes_sent, group), posinf=0, neginf=0)
            numbers = np.concatenate([levels, np.ones(group.checks, levels.dtype)])
            bound = self._context(roster, number, part, cluster, exponents, common)
            hidden = masked(numbers, secrets, roster, self.site, [site for site in members if site in here], number, bound)
            arrays[part], cuts = pack(group.reduced(hidden), group), cuts + cut
        counters = {**sums, "cut": cuts}
        if dev:
            self._record_measured(number, measured, chosen)
            counters |= _dev_counters(dev)
        sent = json_hash({part: digest_of(numbers) for part, numbers in arrays.items()})
        if written_once(self._file("masked", number), sent) != sent:
            raise ExchangeError(f"asked about {sum_name(number)} again, now with another update; masks are used once")
        return {**arrays, **self._counters(number, counters, TRAINING, common, here)}

    def mask_dev_loss(
        self, sums: Mapping[str, float], received: NamedTensors, chosen: TensorSet, asked: Mapping[str, Any]
    ) -> dict[str, Numbers]:
        """Return the sums of the dev loss of `received` as a reply's only array, masked; arguments and errors as in `mask_update`."""
        number = dev_loss_sum(self.task.round)
        self._record_measured(number, received if self.task.round else {}, chosen)
        roster = self._roster_for(number)
        common, here = self._common(roster, asked, received, chosen), self._taking_part(roster, asked)
        return self._counters(number, _dev_counters(sums), DEV_LOSS, common, here)

    def mask_scores(
        self, kind: str, texts: Mapping[str, Scores], received: NamedTensors, chosen: TensorSet, asked: Mapping[str, Any]
    ) -> dict[str, Numbers]:
        """Return the numbers of scores that can be added up, in the same way. kind: The option `task`."""
        roster = self._roster_for(SCORES)
        common, here = self._common(roster, asked, received, chosen), self._taking_part(roster, asked)
        return self._counters(SCORES, counted_scores(kind, texts), score_counters(kind), common, here)

    def _common(self, roster: Roster, asked: Mapping[str, Any], received: NamedTensors, chosen: TensorSet) -> str:
        """Return what all sites of a sum have in common, to which the masks are bound: the tensors that every cluster has received, the
        round, and the round whose dev loss is asked for.

        A sum of sites of which only one trains, measures or translates with honest tensors would be that site's alone.
        """
        try:
            models = json.loads(asked[MODELS])
            said = {part: models[part][cluster] for part, (cluster, _) in roster.clusters_of(self.site).items()} if models else {}
        except (KeyError, TypeError, ValueError) as error:
            raise ExchangeError("a request for a part of a sum has to say which tensors each cluster has received") from error
        here = join(received, chosen) if received and self.task.round else {}  # round 0 is the published backbone
        if said != (own := {part: digest_of(numbers) for part, numbers in here.items()}):
            raise ExchangeError(
                f"a sum is asked for on the tensors {said or 'of the published backbone'}; this site has received {own}"
            )
        return common_to_all(models, self.task.measure, self.task.round, asked.get(WITHOUT, ()))

    def _taking_part(self, roster: Roster, asked: Mapping[str, Any]) -> list[str]:
        """Return the sites whose masks are in a sum: those of the roster but those that the request is without.

        Raises:
            ExchangeError: They are not as many as open a sum, or too few in a cluster of this site, or this site is not among them.
        """
        without = list(asked.get(WITHOUT, ()))
        here = [name for name in roster.names if name not in without]
        if len(here) + len(without) != len(roster.names) or self.site not in here:
            raise ExchangeError(
                f"asked for a sum without {', '.join(map(str, without))}; wanted sites of the roster, each once, not {self.site}"
            )
        if len(here) < (fewest := max(roster.threshold, self.least)):
            raise ExchangeError(f"asked for a sum of {len(here)} of {len(roster.names)} sites; wanted {fewest}")
        if without:
            self._check_clusters(roster, here)
        return here

    def _check_clusters(self, roster: Roster, sites: Sequence[str]) -> None:
        """Raise ExchangeError if a sum over these sites has too few of a cluster, or is mostly of one site."""
        for part, named in roster.clusters.items():
            for cluster, members in named.items():
                left = [site for site in members if site in sites]
                if 0 < len(left) < self.least:
                    raise ExchangeError(
                        f"asked to open a sum over {len(left)} sites of the {part} cluster {cluster}; wanted {self.least}"
                    )
                roster.check_weights(left, self.temperature)

    def _record_measured(self, number: int, received: NamedTensors, chosen: TensorSet) -> None:
        """Record which tensors' dev loss is in a sum; no tensors: those of the published backbone."""
        digests = digests_of(received, chosen).values() if received else ["base"]
        written_once(self._file("measured", number), "-".join(digests))

    def _counters(
        self, number: int, sums: Mapping[str, Any], names: Sequence[str], common: str, here: Sequence[str]
    ) -> dict[str, Numbers]:
        """Mask counters. The masks cover one list of numbers: the difference of two would be in the clear."""
        roster, counters = self._roster_for(number), counted(sums, names)
        said = counters.tobytes().hex()
        if written_once(self._file("counters", number), said) != said:
            raise ExchangeError(f"asked about {sum_name(number)} again, now of other numbers; masks are used once")
        bound = self._context(roster, number, COUNTERS_PART, "", (), common)
        return {COUNTERS_PART: masked(counters, self._secrets(), roster, self.site, here, number, bound)}

    def give_shares(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the shares that this site holds for a sum: of each survivor's seed, of each lost site's private key, never of both.

        A share that a site has not sealed as it should is zeros, by whose hash the server sees that the two do not agree.

        Raises:
            ExchangeError: The survivors are not in the roster's order, lack this site, are too few in total or in a cluster, or differ
                from those of an earlier request; the site has sent nothing to the sum; or its own share is not as it has sealed it, so
                the server has changed what it hands out.
        """
        try:
            survivors, sealed, number = [str(name) for name in record["survivors"]], bytes(record["sealed"]), int(record["sum"])
        except (KeyError, TypeError, ValueError) as error:
            raise ExchangeError("a request to open a sum has its number, its survivors and sealed shares") from error
        roster, secrets = self._roster_for(number), self._secrets()
        if survivors != [name for name in roster.names if name in survivors] or self.site not in survivors:
            raise ExchangeError(
                f"asked to open a sum over {', '.join(survivors) or 'nobody'}; wanted sites of the roster in its order, {self.site} "
                "among them"
            )
        if len(survivors) < (fewest := max(roster.threshold, self.least)):
            raise ExchangeError(f"asked to open a sum over {len(survivors)} of {len(roster.names)} sites; wanted {fewest}")
        is_of_updates = number == training_sum(self.task.round)
        if not is_of_updates and number not in (SCORES, dev_loss_sum(self.task.round)):
            raise ExchangeError(f"asked in round {self.task.round} to open {sum_name(number)}")
        if is_of_updates:
            self._check_clusters(roster, survivors)
        if len(sealed) != SEALED_BYTES * len(roster.names):
            raise ExchangeError(f"got {len(sealed)} bytes of sealed shares; wanted those of {len(roster.names)} sites")
        opened = b""
        for at, sender in enumerate(roster.names):
            both = sealed[SEALED_BYTES * at : SEALED_BYTES * (at + 1)]
            try:
                seed, key = secrets.open_share(both, roster, self.site, sender, number)
            except ExchangeError:
                if sender == self.site:
                    raise
                seed = key = bytes(SECRET_BYTES)
            opened += seed if sender in survivors else key
        if not self._file("counters", number).is_file():
            # Only what it has sent tells which tensors' dev loss is in the sum.
            raise ExchangeError(f"asked to open {sum_name(number)}, to which this site has sent nothing yet")
        enter(self.folder / "opened" / f"{number:04d}.json", sum_name(number), survivors)
        if (measured := self._file("measured", number)).is_file():
            digest = measured.read_text(encoding="utf-8")
            enter(self.folder / "measured" / f"{digest}.json", "the dev loss of these tensors", survivors)
        return {"shares": opened}

    def _check_signed(self, roster: Roster, approved: Set[str]) -> None:
        members = members_hash(dict(zip(roster.names, roster.signers, strict=False)))
        if members not in approved:
            raise ExchangeError(
                f"the sites of the secure sum and their node keys make {members}, which this site has not approved; at the site: "
                "`fedlingua site approve --experiment FILE --federation FILE`"
            )
        signed = zip(roster.names, roster.signers, roster.signatures, roster.channels, roster.keys, strict=True)
        for site, line, signature, channel, keys in signed:
            if not is_signed(line, signed_message(self.task.run, self.task.attempt, site, channel, keys), signature):
                raise ExchangeError(f"the keys of site {site} in the roster are not signed by its node key")

    def _context(self, roster: Roster, number: int, part: str, cluster: str, exponents: Sequence[int], common: str) -> bytes:
        return context(roster, self.task.run, self.task.attempt, number, part, cluster, exponents, common)

    def _file(self, what: str, number: int) -> Path:
        """Return a file about a sum: the numbers "masked" or "counters" that were sent to it, or what was "measured" for it."""
        return self.folder / f"{what}-{self.task.attempt}-{number}"

    def _secrets(self) -> Secrets:
        """Return the attempt's secrets; the first call draws them from the system's random generator."""
        return Secrets(bytes.fromhex(written_once(self.folder / f"secret-{self.task.attempt}", os.urandom(32).hex())))

    def _roster_for(self, number: int) -> Roster:
        """Return the attempt's roster; raise ExchangeError if there is none, or if it has no keys for a sum."""
        file = self.folder / f"roster-{self.task.attempt}.json"
        if not file.is_file():
            raise ExchangeError(f"asked about a secure sum, but no roster came before in attempt {self.task.attempt}")
        record = json.loads(file.read_text(encoding="utf-8"))
        roster = Roster.of({**record, **{key: bytes.fromhex(record[key]) for key in ("channels", "keys")}})
        if not 1 <= number <= roster.num_sums:
            raise ExchangeError(f"asked about sum {number}; the roster has keys for 1 to {roster.num_sums}")
        return roster


def secure_site(node: Node, task: Task) -> SecureSite:
    """Return the site's side of the secure sums; raise ExchangeError if the run has none."""
    if not node.settings.sums_securely:
        raise ExchangeError("asked about a secure sum, but privacy.sum = 'plain' in this run")
    of_site = node.directory(task.site, task.run), task, node.least_sites, node.trust
    asked = node.guard.asked if node.guard else node.settings
    return SecureSite(*of_site, node.settings.sampling_temperature, node.settings.least_level, asked.hash_of_all())


def answer(reply: Callable[[SecureSite, dict[str, Any], int], dict[str, Any]]) -> Answer:
    """Make an answer of what a site replies to the request's record, in a run of so many rounds."""

    def made(node: Node, task: Task, asked: RecordDict, client: Any) -> Records:
        record = dict(asked.config_records.get(protocol.SECURE, {}))
        return {protocol.SECURE: ConfigRecord(reply(secure_site(node, task), record, node.settings.rounds))}

    return made


MESSAGES: Mapping[str, Answer] = {
    protocol.KEYS: answer(lambda site, record, rounds: site.public_keys(rounds)),
    protocol.SHARES: answer(lambda site, record, rounds: site.accept_roster(record)),
    protocol.UNMASK: answer(lambda site, record, rounds: site.give_shares(record)),
}


def enter(file: Path, what: str, survivors: Sequence[str]) -> None:
    """Record the survivors of a sum on disk, before it is opened: over all attempts for one list of survivors only.

    A round that is trained again gives the same update, so the sums over S and over S without one site would reveal that site's update.
    """
    before = json.loads(written_once(file, json.dumps(list(survivors))))
    if before != list(survivors):
        raise ExchangeError(
            f"asked to open {what} for {', '.join(survivors)}, but it was opened for {', '.join(before)}; two such sums give away "
            "single sites"
        )


def _dev_counters(sums: Mapping[str, float]) -> dict[str, float]:
    examples, tokens, nll_sum = sums["num_examples"], sums["num_tokens"], sums["nll_sum"]
    return dict(zip(DEV_LOSS, (examples, tokens, nll_sum, nll_sum / tokens * examples), strict=True))


def _exponents(given: Any, count: int, part: str) -> list[int]:
    of_numbers = isinstance(given, list) and all(type(each) is int and -MOST_EXPONENT <= each <= UNSENT for each in given)
    if not of_numbers or len(given) != count:
        wanted = f"{count} whole numbers from -60 to 60, or {UNSENT} for none"
        raise ExchangeError(f"the scales of the {part} are {str(given)[:99]}; wanted {wanted}")
    return list(given)
