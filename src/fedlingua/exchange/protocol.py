"""The protocol between server and sites: message types, the records of requests and replies, and the task of a request."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedlingua.common.errors import ExchangeError
from fedlingua.common.languages import nearest
from fedlingua.settings.checks import BY_ROUND

DESCRIBE = "query.describe"
"""Request: the text rules. Reply of a node: its sites, their sizes and its fingerprint. No tensors."""
SIGNATURE = "query.signature"
"""Once, under method adapter-gradients. Request: the task alone. Reply: the gradient of one adapter, or its private form."""
DIGESTS = "query.digests"
"""Once, if the sites' text is compared. Request: the task alone. Reply: keyed hashes of the site's sentences."""
LEAKS = "query.leaks"
"""Request: the site's dev and test hashes that are also in another site's training text. Reply: how many pairs have them;
if the run says so, the site leaves these pairs out."""
TRAIN = "train"
"""Request: the tensors of the site's clusters. Reply: update and training sums; under Task.measure, dev loss of the tensors."""
PROBE = "train.probe"
"""Request: the tensors of the site's clusters. Reply: training sums and median deviation; the site stores its update."""
SEND = "train.send"
"""Request: the round's threshold. Reply: the tensors selected from the stored update, and all deviations."""
KEYS = "query.keys"
"""Once an attempt, under privacy.sum = "secure". Request: the task alone. Reply: the site's public keys, one for each sum."""
SHARES = "query.shares"
"""After KEYS. Request: the roster of sites, keys and clusters. Reply: shares of each sum's secrets, sealed for their holders."""
UNMASK = "train.unmask"
"""Once for each sum. Request: the sites that sent masked numbers, and the shares sealed for this site. Reply: its share of the
self mask's seed for each of these sites, and of the sum's private key for every other site."""
EVALUATE = "evaluate"
"""Sent if no later TRAIN request asks for the dev loss. Request: the tensors of the site's clusters and, if it is learned,
the threshold. Reply: sums of the dev loss, and of the threshold's slope."""
FINISH = "evaluate.finish"
"""Once, at the end. Request: the best round's tensors. Reply: score sums; the site stores its final model."""

ARRAYS = "arrays"
KEY = "key"
"""ConfigRecord of a DIGESTS reply: `check`, which differs between different overlap keys."""
LEAKING = "leaking"
"""The one array of a LEAKS request: (sentences,) uint64."""
FILTER = "filter"
"""ArrayRecord of a SEND or EVALUATE request: the second filter's network. The same key in META: that network's gradient."""
THRESHOLD = "threshold"
"""ConfigRecord of a SEND or EVALUATE request: see Threshold."""
DEVIATIONS = "deviations"
"""ArrayRecord of a reply under a selection by deviations: (tensors,) float32, eq. 2 of Chu et al. 2024."""
META = "meta"
"""MetricRecord of an EVALUATE reply: the site's term of the threshold's slope, and its loss sums on random dev batches."""
TASK = "task"
"""ConfigRecord of a request and of its reply: see Task."""
NOT_HELD = 101
"""Code of an error reply: the site does not have a part that the request names by its hash; the server sends it whole."""
STATE = "state"
"""ConfigRecord of a request with tensors: their hashes (fedlingua.exchange.held). ARRAYS lacks parts that the site has."""
RULES = "rules"
"""ConfigRecord of a request: fedlingua.corpora.rules.TextRules, which only a deployed site needs."""
CONFIG = "config"
"""ConfigRecord of a TRAIN request, from strategies that give one: PROXIMAL_MU, and the keys of BY_ROUND."""
SECURE = "secure"
"""ConfigRecord of KEYS, SHARES, UNMASK and their replies, and of a TRAIN request whose update is masked: its scales, by part."""
PROXIMAL_MU = "proximal-mu"
"""mu of FedProx (Li et al. 2020): local training minimises loss + mu / 2 x |w - w_0|^2; w_0: the received tensors."""
METRICS = "metrics"
"""MetricRecord of a reply: sums, and durations in seconds."""
MEASURED = "measured"
"""MetricRecord of a TRAIN reply whose request has Task.measure: the sums of EVALUATE."""
SELECT_S, BATCHES_S, SLOPE_S = "select_seconds", "batches_seconds", "slope_seconds"
"""Seconds, in METRICS and META: comparing with the last round and selecting tensors; the pass over meta batches; the slope."""
THETA = "theta"
"""In METRICS, where every site has its own threshold, fixed or random: the threshold that the site used."""
SCORES_PREFIXES = {"result": "scores.", "base": "base-scores.", "alone": "alone-scores.", "federated": "federated-scores."}
SCORES_PREFIXES |= {"alone_ensemble": "alone-ensemble-scores.", "single": "single-scores."}
CHOICE_PREFIX = "choice."
"""A FINISH reply has a MetricRecord for each field of Scores that holds sums and for each of the site's texts, under the prefix and the
text's name; all but result, base and the choice only if the site has chosen the model that it keeps. A choice: KEPT, REFERENCE and
OVER_REFERENCE."""
KEPT, REFERENCE, OVER_REFERENCE = "kept", "reference", "over-reference"
"""In a choice: the indices of the kept model and of the reference in fedlingua.personalization.choice.CANDIDATES; the interval [low, high]
of the kept model's gain over the reference on the text."""
CHOICE_SENT = (
    "; since the site chooses what it keeps, the same for the model that it trained alone, for an ensemble of two such models, for the "
    "federation's and for the best single model, two numbers that name the kept model and the one that it is compared with, and two for "
    "the interval of its gain"
)
"""What a FINISH reply also holds under keep.choose = true, in words for people."""
SITE_PREFIX = "site."
"""A DESCRIBE reply has one ConfigRecord for each hosted site, under this prefix and the site's name."""
NODE = "node"
"""ConfigRecord of a DESCRIBE reply: fingerprint, code hash."""

OF_TRANSLATIONS = (
    ", of translations 10 counts for BLEU, 18 for chrF and, if the run has more metrics, their sums (chrF++ 24 numbers, others 2, COMET "
    "also 48 bits of its model's hash)"
)
OF_MASKED = (
    ", of masked text the loss, the masked pieces and those guessed right in each of four parts, and 48 bits of a hash of what was "
    "masked"
)
"""What a FINISH reply holds of each task."""
SENT_BY_A_SITE = {
    DESCRIBE: "once a run: the site's name, directions, numbers of sentences (read, kept, dropped by reason, train, dev, test), "
    "hashes of backbone with tokenizer and tensor sets, and of the code",
    SIGNATURE: "once a run, method adapter-gradients alone: for each part that is clustered the gradient of one adapter on the training "
    "text (raw), or at most 64 noised numbers made of it (private)",
    DIGESTS: "once a run, overlap = report or remove alone: a hash of 64 bits of every distinct sentence of train, dev and test, sorted, "
    "by language, under a key that the sites share and the server does not have; 16 digits that tell one key from another",
    LEAKS: "once a run, the same: how many pairs of dev and of test have a sentence that another site trains on",
    TRAIN: "each round: the tensors that travel; sums of loss, tokens, sentences, steps, seconds; if the "
    "request asks for the dev loss of an earlier round, also what evaluate sends",
    KEYS: "once an attempt, privacy.sum = secure alone: public keys, one for each sum",
    SHARES: "once an attempt, the same: shares of every sum's secrets, each sealed for the site that holds it, and their hashes",
    UNMASK: "for each sum, the same: this site's shares: for each site that sent its part, of the seed of that site's own mask; for "
    "every other site, of its private key of the sum",
    PROBE: "each round, learned thresholds alone: the sums of training; the median of the tensors' relative changes, and seconds",
    SEND: "each round, learned thresholds alone: the tensors that travel; every tensor's relative change; seconds",
    EVALUATE: "after rounds whose dev loss is asked for separately: sums of loss, tokens, sentences, seconds on the dev text",
    FINISH: f"at the end: the number of sentences scored; for the result and for the base{OF_TRANSLATIONS}{OF_MASKED}",
}
"""message type -> all that its reply holds, in words for people."""


def digests_name(split: str, language: str) -> str:
    """Return the name of an array in a DIGESTS reply; the array: (distinct sentences,) uint64, ascending."""
    return f"{split}.{language}"


_USUAL = {"lr": "learning-rate", "eta": "learning-rate", "epochs": "local-epochs", "mu": PROXIMAL_MU}
"""Name that other code has for a key of a round's config -> the key."""
Stage = tuple[int, int]
"""(round, attempt): attempts of one run are counted from 1."""
START: Stage = (0, 0)
"""The common start of all sites."""


@dataclass(frozen=True)
class Threshold:
    """A round's threshold. theta: selects the tensors to send. tau: width of the soft gate around theta. weights: the
    weight of the site's update in its cluster of each part, in the order of PARTS; 0 if the update did not count.
    """

    theta: float
    tau: float = 0.0
    weights: tuple[float, ...] = ()

    def request(self) -> dict[str, Any]:
        """Return the content of the request's ConfigRecord."""
        return {"theta": self.theta, "tau": self.tau, "weights": list(self.weights)}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Threshold":
        """Parse what `request` returned; raise ExchangeError if a key is missing or of another kind."""
        try:
            return cls(float(record["theta"]), float(record["tau"]), tuple(map(float, record["weights"])))
        except (KeyError, TypeError, ValueError) as error:
            raise ExchangeError(f"a request's threshold is not that of this version ({type(error).__name__}: {error})") from error


@dataclass(frozen=True)
class Task:
    """The task of a request; its reply repeats site, run, attempt and round.

    own: stage of the site's own tensors to continue from, if some do not travel. keep: stages of its tensors to store for later
    requests. proximal_mu, by_round (key of BY_ROUND -> value): from the request's CONFIG, read by `with_config`. measure: the earlier
    round of the request's tensors, to measure their dev loss before training.
    """

    site: str
    run: str
    attempt: int
    round: int
    own: Stage = START
    keep: tuple[Stage, ...] = ()
    proximal_mu: float = 0.0
    by_round: Mapping[str, Any] = field(default_factory=dict)
    measure: int | None = None

    def request(self) -> dict[str, Any]:
        """Return the content of the request's ConfigRecord."""
        more = {} if self.measure is None else {"measure": self.measure}
        return {**self.reply(), "own": list(self.own), "keep": [number for stage in self.keep for number in stage], **more}

    def reply(self) -> dict[str, Any]:
        """Return the content of the reply's ConfigRecord."""
        return {"site": self.site, "run": self.run, "attempt": self.attempt, "round": self.round}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Task":
        """Parse what `request` returned; raise ExchangeError if a key is missing or of another kind."""
        try:
            keep = [int(number) for number in record["keep"]]
            stages = tuple(zip(keep[::2], keep[1::2], strict=True))
            own = (int(record["own"][0]), int(record["own"][1]))
            about = str(record["site"]), str(record["run"]), int(record["attempt"]), int(record["round"])
            measure = None if "measure" not in record else int(record["measure"])
            if measure is not None and not 0 <= measure < about[-1]:
                raise ValueError(f"measures round {measure} in round {about[-1]}")
            return cls(*about, own, stages, measure=measure)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ExchangeError(f"a request's task is not that of this version ({type(error).__name__}: {error})") from error

    def with_config(self, record: Mapping[str, Any], *more: str) -> "Task":
        """Return the task with a request's CONFIG record; raise ExchangeError for an unknown key, or a mu out of its range. more: keys that
        the caller reads."""
        known = (*BY_ROUND, PROXIMAL_MU, *more)
        if unknown := sorted(set(record) - set(known)):
            near = nearest(_USUAL.get(unknown[0], unknown[0]), known)
            raise ExchangeError(f"a round's config has {', '.join(unknown)}{near}; it may have {', '.join(known)}")
        mu = record.get(PROXIMAL_MU, 0.0)
        if not isinstance(mu, int | float) or not math.isfinite(mu) or mu < 0:
            raise ExchangeError(f"{PROXIMAL_MU} = {mu!r}; wanted a finite number, 0 or more")
        return replace(self, proximal_mu=float(mu), by_round={key: record[key] for key in BY_ROUND if key in record})
