"""The run config as attributes, and properties derived from it; fedlingua.settings.checks makes it from the user's values."""

import math
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from fedlingua.common.files import json_hash, resolve
from fedlingua.settings.codes import AUTO, Code, parse_code
from fedlingua.settings.methods import BY_DEVIATION, PAPER_LEARNING_RATES, SMALL_SETS, Method, method_named
from fedlingua.settings.metrics import metric_names
from fedlingua.settings.options import Scalar as Scalar
from fedlingua.settings.table import CHANGES_WITHOUT_ASKING, OPTIONS, SECTIONS, AddedLayers, Keeping, Run, Sections, Training
from fedlingua.settings.table import MAY_CHANGE as MAY_CHANGE

Phase = Literal["join", "train", "send", "evaluate", "finish"]


@dataclass(frozen=True)
class Settings(Sections):
    """The run config as attributes, which are the fields of the table's sections."""

    @property
    def how(self) -> Method:
        method = method_named(self.method)
        assert method is not None, f"{self.method} was checked"
        return method

    @property
    def signature_adapters(self) -> dict[str, str]:
        """Map signatures to adapters: one for each clustered part, or, if one adapter is given, "signature" for both parts."""
        adapters = {name.strip().partition(".")[0]: name.strip() for name in self.signature_adapter.split(",")}
        if len(adapters) == 1:
            return {"signature": self.signature_adapter.strip()}
        return {part: adapters[part] for part in ("encoder", "decoder") if self.cluster_parts in ("both", part)}

    @property
    def signs_privately(self) -> bool:
        """Whether a site sends private signatures."""
        return self.how.clustering == "gradients" and self.signature_form == "private"

    @property
    def signature_multiplier(self) -> float:
        """The noise of all private signatures as one release: half of it, since a sentence is replaced; sensitivity is sqrt(number)."""
        return self.signature_noise / 2 / math.sqrt(len(self.signature_adapters))

    @property
    def trained_set(self) -> str:
        """Name of the run's tensor set: the method's, unless `tensor-set` says another."""
        return self.tensor_set or self.how.tensor_set

    @property
    def splits_model(self) -> bool:
        """Whether a part of what trains stays at the site, and the rest travels."""
        return self.trained_set == "controllers" and self.how.travels

    @property
    def rule(self) -> str:
        """Name of the rule for what of an update is sent: the method's, unless `send.rule` says another."""
        return (self.selection or self.how.selection) if self.how.travels else "all"

    @property
    def selected_by(self) -> str:
        """Name of the rule by which each site selects for itself; under secure sums the server does, for all alike."""
        return "all" if self.sums_securely else self.rule

    @property
    def optimized_by(self) -> str:
        """Name of the server's optimizer: the method's, unless `server.optimizer` says another."""
        return (self.server_optimizer or self.how.optimizer) if self.how.travels else "none"

    @property
    def by_deviation(self) -> bool:
        """Whether the rule is a threshold on deviations."""
        return self.selected_by.startswith(BY_DEVIATION)

    @property
    def selects_numbers(self) -> bool:
        """Whether the rule sends single numbers rather than whole tensors."""
        return self.selected_by in ("top-k", "apf")

    @property
    def side(self) -> Literal["g", "l"]:
        """Which side of a threshold the rule sends: "g", what deviates more, or "l", what deviates less."""
        return "l" if self.rule.endswith("-l") else "g"

    @property
    def compares_rounds(self) -> bool:
        """Whether the rule compares an update with the site's own tensors of the round before."""
        return self.by_deviation or self.selected_by in ("dp-g", "dp-l")

    @property
    def sends_change(self) -> bool:
        """Whether a site sends its whole change of its cluster's mean and nothing else, so that a code can compress it."""
        return self.how.travels and self.selected_by == "all" and not self.sums_securely

    @property
    def sums_securely(self) -> bool:
        """Whether the server learns only sums over clusters."""
        return self.privacy_sum == "secure" and self.how.travels

    @property
    def sums_scores(self) -> bool:
        """Whether the server learns dev losses and scores only as sums over all sites."""
        return self.sums_securely and self.privacy_scores == "sum"

    @property
    def trains_privately(self) -> bool:
        """Whether a round's training is differentially private for each sentence of a site."""
        return self.dp_epsilon > 0 and self.how.trains and self.how.travels

    @property
    def clips_at_sites(self) -> bool:
        """Whether every site shortens its own update, since the server sees none."""
        return self.sums_securely and self.aggregation == "norm-clip" and self.clip_update_norm > 0

    @property
    def least_level(self) -> int:
        """The magnitude that a site's levels in a secure sum have to reach, under a code of few bits; 0: there is none."""
        return self.code_up.top_level if self.sums_securely and self.code_up.bits else 0

    @property
    def shares_noise(self) -> bool:
        """Whether a site adds only a share of the noise, which a secure sum has as a whole."""
        return self.trains_privately and self.dp_noise == "shares"

    @property
    def private_share(self) -> float:
        """The probability with which a sentence is in a private step."""
        return self.sample_share or 1.0

    @property
    def code_up(self) -> Code:
        """Code of the sites' changes, on the uplink."""
        if self.send_code == "auto":
            return parse_code(AUTO if self.sends_change else "none")
        return parse_code(self.send_code if self.how.travels else "none")

    @property
    def code_down(self) -> Code:
        """Code of the server's changes, on the downlink."""
        same = self.send_code_down == "same"
        return self.code_up if same else parse_code(self.send_code_down if self.how.travels else "none")

    @property
    def remembers(self) -> bool:
        """Whether a site stores something of one round besides its model for training in the next; code of one's own may."""
        stores = self.optimizer_state == "kept" or not self.code_up.is_exact or bool(self.client or self.layers)
        return stores or self.compares_rounds or self.selected_by == "apf"

    @property
    def has_two_phases(self) -> bool:
        """Whether a round has MetaSend's two phases: training, then sending what a threshold selects."""
        return self.selected_by in ("metasend-g", "metasend-l")

    @property
    def learns_threshold(self) -> bool:
        """Whether the network that gives MetaSend's threshold learns."""
        return self.has_two_phases and not self.meta_frozen

    @property
    def asks_own_terms(self) -> bool:
        """Whether the server asks every site, in every round, for the effect of its own update on its dev loss."""
        return self.learns_threshold and (self.meta_estimator == "own" or self.second_filter)

    @property
    def chooses(self) -> bool:
        """Whether each site chooses its model at the end."""
        return self.keep_choose and self.how.trains and self.how.travels

    @property
    def rounds_at_sites(self) -> int:
        """Number of last rounds whose received tensors a site stores; more for small sets, so that it may choose their mean."""
        return 4 if self.chooses and self.trained_set in SMALL_SETS else 1

    @property
    def draws_in_passes(self) -> bool:
        """Whether a round trains on the next part of a pass over all of a site's text."""
        return self.sample_share > 0 and not self.sample_least and not self.sample_replacement

    @property
    def passes_of_a_round(self) -> float:
        """Passes in a round: over all text if rounds draw parts of such a pass, else one, whatever a round's training is."""
        return self.local_epochs * self.sample_share if self.draws_in_passes else 1.0

    @property
    def passes_of_rounds(self) -> int:
        """Maximum number of passes in all rounds, of which the last counts even if it is not whole."""
        return math.ceil(self.rounds * self.local_epochs * self.sample_share) if self.draws_in_passes else self.rounds

    @property
    def draws(self) -> bool:
        """Whether a round trains on a sample of a site's text."""
        return self.sample_least > 0 or self.sample_share > 0

    @property
    def own_layers(self) -> list[str]:
        """Layers of one's own, "my_file:MyLayer(q=0.2)" each."""
        return [name for each in re.split(r",(?=\s*[^\W\d][\w.]*:[^\W\d])", self.layers) if (name := each.strip())]

    @property
    def more_metrics(self) -> list[str]:
        """Metrics that sites measure at the end besides BLEU and chrF."""
        return [name for name in metric_names(self.metrics) if name not in ("bleu", "chrf")]

    @property
    def step_learning_rate(self) -> float:
        return self.learning_rate or PAPER_LEARNING_RATES[self.trained_set]

    def sites_drawn(self, sites: int) -> int:
        """Return the number of sites, out of all, at which a round trains; a share is rounded up."""
        wanted = self.sites_per_round
        return math.ceil(wanted * sites - 1e-9) if 0 < wanted < 1 else int(wanted) or sites

    @property
    def federation_path(self) -> Path:
        return resolve(self.federation)

    def deadline_of(self, phase: Phase, measures: bool = False) -> float:
        """Return the seconds for a phase; `deadline.phase-s` if it has none of its own. measures: the phase also evaluates."""
        own = self.join_deadline_s if phase == "join" else 0.0
        choosing = (self.keep_deadline_s or 10 * self.deadline_s) if phase == "finish" and self.chooses else 0.0
        return (own or self.deadline_s) + choosing + (self.deadline_s if measures else 0.0)

    def flat(self) -> dict[str, Scalar]:
        """Return the run config: key -> value."""
        return {key: getattr(self, said.attribute) for key, said in OPTIONS.items()}

    def hash(self) -> str:
        """Hash the settings that can change tensors or scores if every site replies, but not the contents of files they name."""
        return self._hash({})

    def hash_of_all(self) -> str:
        """Hash all settings but those that concern the server alone: what the sites of a run have in common."""
        return json_hash({key: value for key, value in self.flat().items() if key not in CHANGES_WITHOUT_ASKING})

    def hash_of_alone(self) -> str:
        """Hash the settings that determine what a site trains alone on its text; equal hashes mean equal models under any method."""
        shared = set(SECTIONS) - {Run, Training, AddedLayers, Keeping}
        elsewhere = {field.name for section in shared for field in fields(section)}
        choice = {"method", "federation", "keep_by", "keep_ensemble", "start_from", "layers"}
        return self._hash({"tensor-set": self.trained_set}, elsewhere | choice)

    def _hash(self, given: Mapping[str, Scalar], without: Set[str] = frozenset()) -> str:
        decide = {key: said.attribute for key, said in OPTIONS.items() if said.has_effect(self) and said.attribute not in without}
        return json_hash({key: getattr(self, attribute) for key, attribute in decide.items()} | dict(given))[:16]
