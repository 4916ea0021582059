"""The seam: what an optional feature may do in a round, at the server and at a site.

A run has one ordered list of layers (`fedlingua.layers.order`). What goes from the server to training passes it downwards, what comes
back passes it upwards: a site's update goes through `update` from the first layer to the last, and at the server through `reply` and
`replies` from the last to the first; the next state goes through `state` from the first to the last. Every hook of `Layer` changes
nothing, so that a layer defines those alone that it needs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol, TypeVar, cast

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from fedlingua.backbones.parts import PARTS, Part
from fedlingua.clustering.clusters import Clusters
from fedlingua.consent.ledger import Ledger
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.texts import SiteText
from fedlingua.evaluation.totals import Totals
from fedlingua.exchange import protocol
from fedlingua.exchange.expected import Expected, Sums
from fedlingua.exchange.joined import Joined, Numbers
from fedlingua.exchange.measured_change import Change
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.records import pack, to_record
from fedlingua.exchange.round_files import RoundFiles
from fedlingua.exchange.selected import Selection
from fedlingua.exchange.state import State
from fedlingua.exchange.tensors import NamedTensors, Tensors, TensorSet
from fedlingua.exchange.updates import Update, UpdateFiles
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.config import Phase, Settings

Records = Mapping[str, ArrayRecord | ConfigRecord | MetricRecord]


@dataclass(frozen=True)
class Outgoing:
    """What a site is about to send after a round's training, on its way through the layers.

    Args:
        asked: The request.
        update: The travelling tensors after training. start: Those before it.
        sums: The sums of training; None: they are not sent. dev: Those of an earlier round's dev loss, if it was asked for.
        selection: The part of the update that is sent; None: all of it.
        arrays: What is sent in place of the update's tensors; None: these themselves.
        records: What is sent besides.
    """

    asked: RecordDict
    update: NamedTensors
    start: NamedTensors
    sums: Mapping[str, Any] | None
    dev: Mapping[str, Any] | None = None
    selection: Selection | None = None
    arrays: Mapping[str, Numbers] | None = None
    records: Records = field(default_factory=dict)

    def reply(self, chosen: TensorSet) -> Records:
        """Return the records of the reply. chosen: The travelling tensor set."""
        reply: dict[str, Any] = {} if self.sums is None else {protocol.METRICS: MetricRecord(dict(self.sums))}
        reply[protocol.ARRAYS] = pack(self.update, chosen) if self.arrays is None else to_record(self.arrays)
        if self.dev is not None:
            reply[protocol.MEASURED] = MetricRecord(dict(self.dev))
        return {**reply, **self.records}


@dataclass
class Incoming:
    """A training reply at the server, on its way through the layers.

    Args:
        content: Its records, less what a layer has read.
        start: The tensors that training started from; None if tensors stay at the site.
        is_open: Whether its numbers can be read by now; if not, a layer makes them known of all replies together (`Layer.replies`).
        sums: The sums of training that a layer has read. has_loss: Whether those in `content` have the loss and what it is over.
        arrays: Its arrays as the layer above expects them; None: as in `content`.
        tensors: The site's tensors after training, once they are known. selection: The part of them that it sent; None: all.
        digest: Hash of what it sent, equal for two replies with the same update, in whatever bytes; "": of its arrays.
        figures: What layers enter into the site's record of the round. more: What else they have read, for the strategy.
    """

    expected: Expected
    content: RecordDict
    start: NamedTensors | None
    is_open: bool = True
    sums: dict[str, float] = field(default_factory=dict)
    has_loss: bool = True
    arrays: Mapping[str, Numbers] | None = None
    tensors: Joined | None = None
    selection: Selection | None = None
    digest: str = ""
    figures: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Training:
    """A site's checked update and the sums of its training.

    change: What the update changed. digest: As in `Incoming`. Without tensors they are NO_CHANGE and "". dev: The sums of an earlier
    round's dev loss, if the request asked for it. figures, more: As in `Incoming`.
    """

    update: Update
    sums: Sums
    change: Change
    digest: str
    dev: Sums | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)


T = TypeVar("T")


class Joining(Protocol):
    """What a layer sees of a run at the server before its strategy is made (`Federated` in strategies/rounds/run.py)."""

    settings: Settings
    clusters: Clusters
    tensor_set: TensorSet
    folder: RunFolder
    registry: Any

    def ask_all(
        self,
        grid: Grid,
        message_type: str,
        parse: Callable[[str, Message], T],
        need: str,
        most_bytes: Callable[[str], int],
        records: Callable[[str], Mapping[str, ArrayRecord | ConfigRecord]] = ...,
    ) -> dict[str, T]:
        """Ask all sites before the first round, and return what `parse` makes of their replies."""


def averaged_clusters(run: Joining) -> Iterator[tuple[Part, str, tuple[str, ...]]]:
    """Yield (part, cluster, its sites) of the parts that have tensors."""
    for part in PARTS:
        if run.tensor_set.of_part(part):
            yield from ((part, cluster, sites) for cluster, sites in run.clusters[part].items())


class Server(Joining, Protocol):
    """What a layer sees of a run at the server; the strategy's `run` (strategies/rounds/run.py)."""

    phases: Any
    initial: NamedTensors
    """The tensors from which every site starts."""
    id: str
    attempt: int
    update_files: UpdateFiles
    sent: State
    """The state from which the current round trains."""
    carried: State
    """The state whose tensors the newest requests carry."""
    starts: dict[str, State]
    """Site -> the state of an earlier round that it still trains from."""
    trains_under: dict[str, Settings]
    """Site -> the settings of its last training; some may be a strategy's for the round."""
    note: Callable[[str], None]

    @property
    def progress(self) -> Any: ...

    @property
    def update_phase(self) -> Phase:
        """The phase in which sites send their updates."""

    def request(self, message_type: str, site: str, number: int, own_round: int) -> Message:
        """Make a request of round `number` without tensors. own_round: The round whose tensors to use of those that never leave."""

    def record_dev_losses(self, number: int, losses: Mapping[str, Sums]) -> None:
        """Record the sites' dev losses after a round."""

    def check_score_sums(self, record: MetricRecord, most: int) -> None:
        """Raise ExchangeError for score sums that cannot be true. most: Their sentences."""

    def best_of(self, site: str) -> int:
        """Return the round whose tensors a site would keep now; 0: the backbone's."""

    def asked_in(self, site: str) -> int:
        """Return the round in which a site began the training of its latest reply."""

    def sent_to(self, site: str) -> NamedTensors:
        """Return the tensors that a site receives in the current round."""

    def received_by(self, site: str) -> NamedTensors:
        """Return the tensors that a site's training started from, maybe in an earlier round."""


@dataclass(frozen=True)
class Consent:
    """What a site permits. raw: Whether raw gradients may leave it. noise: Generator of its signatures' noise."""

    raw: bool
    noise: Random
    ledger: Ledger


class Node(Protocol):
    """What a layer sees of a site's node, which tells what its members are (clients/node.py)."""

    settings: Settings
    guard: Any
    trust: Any

    def texts(self, site: str, rules: TextRules) -> Mapping[str, SiteText]: ...

    def check_text(self, texts: Mapping[str, SiteText]) -> None: ...

    def check_update(self, client: Any, task: Task) -> None: ...

    def directory(self, site: str, run: str) -> Path: ...

    def signatures(self, site: str, run: str) -> Path: ...

    def consent(self, site: str, run: str) -> Consent: ...

    def overlap_key(self) -> bytes: ...

    def seed(self, purpose: str) -> str: ...

    @property
    def least_sites(self) -> int: ...


class Site(Protocol):
    """What a layer sees of a site: its client (clients/site_client.py)."""

    site: str
    settings: Settings
    trainable: Any
    folder: Path
    own_rounds: RoundFiles
    ledger: Ledger
    node: Any
    """The `Node` that got the request."""

    @property
    def texts(self) -> Mapping[str, SiteText]: ...

    @property
    def training_texts(self) -> Sequence[Sequence[Any]]:
        """Return the training examples of each text."""

    @property
    def files(self) -> Mapping[str, RoundFiles]:
        """Name in `Layer.folders` -> files of the layer, one for each stage."""

    def measured_examples(self) -> Sequence[Any]:
        """Return the dev examples that it is measured on."""

    def own_tensors(self, stage: tuple[int, int]) -> Tensors:
        """Load the site's own tensors of a stage."""

    def digest_of(self, stage: tuple[int, int]) -> str:
        """Return a hash of all that the site stores of a stage to train on from."""


Answer = Callable[[Node, Task, RecordDict, Callable[[], Any]], Records]
"""(node, task, request, what makes the site's client) -> the records of the reply besides its task."""
Train = Callable[..., dict[str, Any]]
"""Trains the current model for a round and returns the sums of training; its keyword arguments are those of `train_locally`."""


class Layer:
    """A feature of a run. `run` is set at the server alone.

    Attributes:
        bits_a_number: Most bits that it adds to a reply for each number of the tensor set.
        needs_run: Why a site cannot train without a server, if it cannot.
        asks_all: Whether every round still asks all sites, so that a round can be measured with the training of the next.
        folders: Names of folders of files that it keeps at a site, one file for each stage.
    """

    run: Server
    asks_all, bits_a_number, needs_run = True, 0, ""
    folders: Sequence[str] = ()

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    # --- At the server ---------------------------------------------------------------------------------------------------------

    def join(self, run: Joining, grid: Grid, trainable: Any) -> None:
        """Ask the sites for what has to be known before the strategy is made; a resumed run asks for nothing again."""

    def begin(self, run: Server, grid: Grid) -> None:
        """Prepare for the rounds of `run`, before the first one of an attempt."""

    def sites(self, number: int, sites: list[str]) -> list[str]:
        """Return those of the sites that train in a round, in their order."""
        return sites

    def goes_on(self, phase: Phase) -> bool:
        """Return whether a phase ends at its quorum, while the other sites go on with it."""
        return False

    def quorum(self, phase: Phase, sites: int, usual: tuple[int, str]) -> tuple[int, str]:
        """Return the number of good replies that a phase for so many sites needs, and the key that says so."""
        return usual

    def due(self, number: int, is_last: bool) -> list[str] | None:
        """Return the sites that measure a round by messages of their own; None: all of them, in the rounds that the settings say."""
        return None

    def dev_losses(self, losses: dict[str, Sums]) -> dict[str, Sums]:
        """Return the dev losses of a round, site -> sums, with those that count though they were not measured now."""
        return losses

    def requests(self, messages: dict[str, Message]) -> None:
        """Change the requests of a phase before they are sent, or take some out: site -> message. All that share tensors come together."""

    def answered(self, site: str) -> None:
        """Take note of a good reply to the last request."""

    def not_held(self, site: str) -> bool:
        """Take note that a site has not what the last request names; return whether another request may help."""
        return False

    def records(self, wanted: set[str]) -> set[str]:
        """Return the names of a training reply's records on the wire, given those that it has above this layer."""
        return wanted

    def reply(self, incoming: Incoming) -> Incoming:
        """Read what this layer has put into a reply; raise ExchangeError if it cannot be true."""
        return incoming

    def replies(self, number: int, trained: dict[str, Training]) -> dict[str, Training]:
        """Return the trainings of a round that count, site -> training, some of them changed."""
        return trained

    def hides(self, phase: Phase, site: str, content: RecordDict) -> bool:
        """Return whether a reply that evaluates or finishes has numbers that only all replies together make known; keep them if so."""
        return False

    def evaluations(self, number: int, of: int, losses: dict[str, Sums]) -> dict[str, Sums]:
        """Return the dev losses that replies of round `number` have, of round `of`: site -> sums; none if they cannot be known."""
        return losses

    def totals(self, here: Sequence[str]) -> Totals | None:
        """Return the scores as sums over all sites, if the replies of the sites `here` tell no others."""
        return None

    def state(self, number: int, before: State, after: State) -> State:
        """Return the state that the sites will have, from those before and after the aggregation of a round."""
        return after

    # --- At a site -------------------------------------------------------------------------------------------------------------

    def texts(self, node: Node, task: Task, texts: Mapping[str, SiteText]) -> Mapping[str, SiteText]:
        """Return those of a site's texts that the run uses, maybe without some pairs."""
        return texts

    def training(
        self, site: Site, task: Task, received: NamedTensors, optimizer: dict[str, Numbers] | None, train: Train
    ) -> Train:
        """Return what trains the site's model in a round, in place of `train`. optimizer: Its state, if the site keeps it."""
        return train

    def update(self, site: Site, task: Task, going: Outgoing) -> Outgoing:
        """Return what the site sends of its update."""
        return going

    def measured(
        self, phase: Phase, site: Site, task: Task, asked: RecordDict, received: NamedTensors, result: Any, reply: Records
    ) -> Records:
        """Return the records of the reply that evaluates or finishes. result: Sums of the dev loss, or text -> scores."""
        return reply


Hook = TypeVar("Hook", bound=Callable[..., Any])


def _through(hook: Hook, up: bool = False) -> Hook:
    """Return a hook that passes its last argument through those of the layers: each gets what the one before has made of it."""

    def passed(self: "Layers", *given: Any) -> Any:
        *about, value = given
        for each in self._up(hook.__name__) if up else self._down(hook.__name__):
            value = each(*about, value)
        return value

    return cast(Hook, passed)


class Layers(Layer):
    """A run's layers as one, in the order of the list. Of each hook only those layers are called that define it."""

    def __init__(self, settings: Settings, layers: Sequence[Layer]) -> None:
        super().__init__(settings)
        self.list = list(layers)
        self.folders = [name for layer in layers for name in layer.folders]
        self.bits_a_number = sum(layer.bits_a_number for layer in layers)
        self.needs_run = next((layer.needs_run for layer in layers if layer.needs_run), "")

    def _down(self, hook: str) -> list[Any]:
        """Return a hook of each layer that defines it, from the first layer to the last."""
        return [self._of(layer, hook) for layer in self.list if getattr(type(layer), hook) is not getattr(Layer, hook)]

    def _of(self, layer: Layer, hook: str) -> Any:
        return getattr(layer, hook)

    def _up(self, hook: str) -> list[Any]:
        return self._down(hook)[::-1]

    def join(self, run: Joining, grid: Grid, trainable: Any) -> None:
        for join in self._down("join"):
            join(run, grid, trainable)

    def begin(self, run: Server, grid: Grid) -> None:
        for layer in self.list:
            layer.run = run
        for begin in self._down("begin"):
            begin(run, grid)
        self.asks_all = all(layer.asks_all for layer in self.list)

    sites = _through(Layer.sites)
    quorum = _through(Layer.quorum)
    records = _through(Layer.records)
    texts = _through(Layer.texts)
    training = _through(Layer.training)
    update = _through(Layer.update)
    measured = _through(Layer.measured)
    state = _through(Layer.state)
    dev_losses = _through(Layer.dev_losses, up=True)
    reply = _through(Layer.reply, up=True)
    replies = _through(Layer.replies, up=True)
    evaluations = _through(Layer.evaluations, up=True)

    def goes_on(self, phase: Phase) -> bool:
        return any(goes_on(phase) for goes_on in self._down("goes_on"))

    def due(self, number: int, is_last: bool) -> list[str] | None:
        return next((sites for due in self._down("due") if (sites := due(number, is_last)) is not None), None)

    def requests(self, messages: dict[str, Message]) -> None:
        for requests in self._down("requests"):
            requests(messages)

    def answered(self, site: str) -> None:
        for answered in self._up("answered"):
            answered(site)

    def not_held(self, site: str) -> bool:
        may_help = [not_held(site) for not_held in self._up("not_held")]  # each is told
        return any(may_help)

    def hides(self, phase: Phase, site: str, content: RecordDict) -> bool:
        return any(hides(phase, site, content) for hides in self._up("hides"))

    def totals(self, here: Sequence[str]) -> Totals | None:
        return next((sums for totals in self._up("totals") if (sums := totals(here)) is not None), None)
