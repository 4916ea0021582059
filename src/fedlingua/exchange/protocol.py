"""What the server and the sites say to each other: message types, record keys and the task of a request, in one place."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedlingua.common.errors import ExchangeError

DESCRIBE = "query.describe"
"""Server: the text rules. Site: who it hosts, sizes, fingerprint. No tensors."""
SIGNATURE = "query.signature"
"""Server, once, for method adapter-gradients: nothing but the task. Site: the gradient of one adapter, or its private form."""
DIGESTS = "query.digests"
"""Server, once, where the sites' text is compared: nothing but the task. Site: keyed hashes of its sentences."""
LEAKS = "query.leaks"
"""Server: those of the site's dev and test hashes that another site trains on. Site: how many pairs that makes, which it leaves out where
the run says so."""
TRAIN = "train"
"""Server: the site's cluster tensors. Site: where the request says so, it measures the dev loss of these; its update and sums."""
PROBE = "train.probe"
"""Server: the site's cluster tensors. Site: trains, keeps its update, and answers with sums and the median of its deviations."""
SEND = "train.send"
"""Server: the round's threshold. Site: what it selects of the update that it keeps, and all its deviations."""
KEYS = "query.keys"
"""Server, once an attempt under privacy.sum = "secure": nothing but the task. Site: its public keys, one for each round."""
SHARES = "query.shares"
"""Server, then: the roster of sites, keys and clusters. Site: shares of each round's secrets, sealed for the sites that hold them."""
UNMASK = "train.unmask"
"""Server, once a round: the sites whose masked numbers it has, and the shares sealed for this site. Site: of each of these sites its share
of the self mask's seed, of each other one its share of the round's private key."""
EVALUATE = "evaluate"
"""Server, where no training follows whose request could ask it: the site's cluster tensors, and a learned threshold. Site: sums of its dev
loss, and for the slope."""
FINISH = "evaluate.finish"
"""Server: the best round's tensors, once, at the end. Site: keeps them, and answers with its score sums."""

ARRAYS = "arrays"
KEY = "key"
"""ConfigRecord of a DIGESTS reply: `check`, by which keys are told apart."""
LEAKING = "leaking"
"""The one array of a LEAKS request: (sentences,) uint64."""
FILTER = "filter"
"""ArrayRecord of a SEND and of an EVALUATE request: the second filter's network. In META, its gradient."""
THRESHOLD = "threshold"
"""ConfigRecord of a SEND request and of EVALUATE's: see Threshold."""
DEVIATIONS = "deviations"
"""ArrayRecord of a reply under a selection by deviations: (tensors,) float32, eq. 2 of Chu et al. 2024."""
PROJECTIONS = "projections"
"""ArrayRecord of a SEND and of an EVALUATE reply under `cross`: (tensors, 16) float32, of update and gradient."""
META = "meta"
"""MetricRecord of an EVALUATE reply: the site's share in the threshold's slope, and its loss on the random dev batches."""
TASK = "task"
"""ConfigRecord of a request and of its reply: see Task."""
NOT_HELD = 101
"""Code of an error reply: the site does not have a part that the request names, and asks for it whole."""
STATE = "state"
"""ConfigRecord of a request with tensors: their hashes, see fedlingua.exchange.held. Parts that the site already has are not in ARRAYS."""
RULES = "rules"
"""ConfigRecord of a request: fedlingua.corpora.rules.TextRules, which only a deployed site needs."""
CONFIG = "config"
"""ConfigRecord of a TRAIN request, where a strategy gives one: PROXIMAL_MU."""
SECURE = "secure"
"""ConfigRecord of KEYS, SHARES, UNMASK and their replies, and of a TRAIN request whose update is masked: its scales, by part."""
PROXIMAL_MU = "proximal-mu"
"""mu of FedProx (Li et al. 2020): local training minimises its loss + mu / 2 x |w - what the site was given|^2."""
METRICS = "metrics"
"""MetricRecord of a reply: its sums, and seconds of what it took."""
MEASURED = "measured"
"""MetricRecord of a TRAIN reply whose request has Task.measure: the sums of EVALUATE."""
SELECT_S, BATCHES_S, SLOPE_S = "select_seconds", "batches_seconds", "slope_seconds"
"""In METRICS and META: comparing with the last round and choosing what is sent; the pass over the meta batches; the slope made of it."""
THETA = "theta"
"""In METRICS, where every site has a threshold of its own, fixed or random: the one that it sent by."""
SCORES_PREFIX = "scores."
BASE_SCORES_PREFIX = "base-scores."
ALONE_SCORES_PREFIX, FEDERATED_SCORES_PREFIX, CHOICE_PREFIX = "alone-scores.", "federated-scores.", "choice."
"""A finish reply has a MetricRecord of each kind for each of the site's texts, under the prefix and the text's name; the last three where
the site has chosen what it keeps. A choice: KEPT, OVER_BETTER and OVER_ALONE."""
KEPT, OVER_BETTER, OVER_ALONE = "kept", "over-better", "over-alone"
"""In a choice: the candidate's place among fedlingua.personalization.choice.CANDIDATES; [low, high] of its gain on the text over the better
of base and alone, and over alone."""
CHOICE_SENT = (
    "; where sites choose what they keep, the same of the model that the site trained alone and of the federation's, a number that names "
    "the kept model, and four numbers: the intervals of its gain over the better of base and alone, and over alone"
)
"""What a finish reply holds besides under keep.choose = true."""
SITE_PREFIX = "site."
"""A describe reply has one ConfigRecord for each hosted site under this prefix and the site's name."""
NODE = "node"
"""ConfigRecord of a describe reply: fingerprint, code hash."""

SENT_BY_A_SITE = {
    DESCRIBE: "once a run: the site's name, directions, numbers of sentences (read, kept, dropped by reason, train, dev, test), "
    "hashes of backbone with tokenizer and tensor sets, and of the code",
    SIGNATURE: "once a run, method adapter-gradients alone: for each part that is clustered the gradient of one adapter on the training "
    "text (raw), or at most 64 noised numbers made of it (private)",
    DIGESTS: "once a run, overlap = report or remove alone: of every distinct sentence of train, dev and test a hash of 64 bits, sorted, "
    "by language, under a key that the sites share and the server does not have; 16 digits that tell one key from another",
    LEAKS: "once a run, the same: how many pairs of dev and of test have a sentence that another site trains on",
    TRAIN: "each round: the tensors that travel; sums of loss, tokens, sentences, steps, seconds; and of an earlier "
    "round, where the request asks for its dev loss, what evaluate sends",
    KEYS: "once an attempt, privacy.sum = secure alone: public keys, one for each round",
    SHARES: "once an attempt, the same: shares of every round's secrets, each sealed for the site that holds it",
    UNMASK: "each round, the same: this site's shares, of each site that sent its update of the seed of that site's own mask, of each "
    "other one of its private key of the round",
    PROBE: "each round, learned thresholds alone: the sums of training; the median of the tensors' relative changes, and seconds",
    SEND: "each round, learned thresholds alone: the tensors that travel; every tensor's relative change; seconds",
    EVALUATE: "after rounds whose dev loss is asked for by itself: sums of loss, tokens, sentences, seconds on the dev text",
    FINISH: "at the end: number of test sentences; of the result and of the base, of translations 10 counts for BLEU and 18 for chrF, and "
    "where the run has more metrics their sums (chrF++ 24 numbers, others 2, COMET also 48 bits of its model's hash), of "
    "masked text the loss, the masked pieces and those guessed right in each of four parts, and 48 bits of a hash of what was masked",
}
"""message type -> all that a reply of it holds, for people."""


def digests_name(split: str, language: str) -> str:
    """Of an array of a DIGESTS reply: (distinct sentences,) uint64, rising."""
    return f"{split}.{language}"


Stage = tuple[int, int]
"""(round, attempt): attempts of one run are counted from 1; (0, 0) is what everybody starts from."""


@dataclass(frozen=True)
class Threshold:
    """The threshold of a round. theta: by which sites send. tau: width of the soft gate around it. weights: what the site's update counts
    in its cluster of each part, in the order of PARTS; 0 where it did not.
    """

    theta: float
    tau: float = 0.0
    weights: tuple[float, ...] = ()

    def request(self) -> dict[str, Any]:
        """As a request's ConfigRecord holds it."""
        return {"theta": self.theta, "tau": self.tau, "weights": list(self.weights)}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Threshold":
        """What `request` gave.

        Raises:
            ExchangeError: a key is missing or of another kind.
        """
        try:
            return cls(float(record["theta"]), float(record["tau"]), tuple(map(float, record["weights"])))
        except (KeyError, TypeError, ValueError) as error:
            raise ExchangeError(f"a request's threshold is not that of this version ({type(error).__name__}: {error})") from error


@dataclass(frozen=True)
class Task:
    """What a request is about, and what its reply has to say again.

    own: the site's own tensors to go on from, where some or all do not travel; keep: all of its own that may still be asked for.
    proximal_mu: of the request's CONFIG, which a site reads with `with_config`. shares: what the site's last update counts in what it is
    given of each part, in the order of PARTS, where it needs to know; a request says nothing of them else. measure: the earlier round whose
    dev loss is measured before training, of what the request carries.
    """

    site: str
    run: str
    attempt: int
    round: int
    own: Stage = (0, 0)
    keep: tuple[Stage, ...] = ()
    proximal_mu: float = 0.0
    shares: tuple[float, ...] = ()
    measure: int | None = None

    def request(self) -> dict[str, Any]:
        """As a request's ConfigRecord holds it."""
        shares: dict[str, Any] = {"shares": list(self.shares)} if self.shares else {}
        more = shares if self.measure is None else {**shares, "measure": self.measure}
        return {**self.reply(), "own": list(self.own), "keep": [number for stage in self.keep for number in stage], **more}

    def reply(self) -> dict[str, Any]:
        """As a reply's ConfigRecord holds it."""
        return {"site": self.site, "run": self.run, "attempt": self.attempt, "round": self.round}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Task":
        """What `request` gave.

        Raises:
            ExchangeError: a key is missing or of another kind.
        """
        try:
            keep = [int(number) for number in record["keep"]]
            stages = tuple(zip(keep[::2], keep[1::2], strict=True))
            own = (int(record["own"][0]), int(record["own"][1]))
            shares = tuple(map(float, record.get("shares", ())))
            if len(shares) not in (0, 3) or not all(0 <= share <= 1 for share in shares):
                raise ValueError("shares are three numbers from 0 to 1")
            about = str(record["site"]), str(record["run"]), int(record["attempt"]), int(record["round"])
            measure = None if "measure" not in record else int(record["measure"])
            if measure is not None and not 0 <= measure < about[-1]:
                raise ValueError(f"measures round {measure} in round {about[-1]}")
            return cls(*about, own, stages, shares=shares, measure=measure)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ExchangeError(f"a request's task is not that of this version ({type(error).__name__}: {error})") from error

    def with_config(self, record: Mapping[str, Any]) -> "Task":
        """The task with what a request's CONFIG record says besides.

        Raises:
            ExchangeError: a key that is not known, or a value that it cannot have.
        """
        if unknown := set(record) - {PROXIMAL_MU}:
            raise ExchangeError(f"a request's config has {', '.join(sorted(unknown))}; a site knows {PROXIMAL_MU}")
        mu = record.get(PROXIMAL_MU, 0.0)
        if not isinstance(mu, int | float) or not math.isfinite(mu) or mu < 0:
            raise ExchangeError(f"{PROXIMAL_MU} = {mu!r}; wanted a finite number, 0 or more")
        return replace(self, proximal_mu=float(mu))
