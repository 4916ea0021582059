"""Flower's own classes inside every cluster, each beside the same class called by hand on the same replies; and classes of one's own."""

import gc
import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flowers
from flwr.supercore.task_identity import TaskIdentity
from safetensors.numpy import load_file

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.corpora.sites import read_federation
from fedlingua.exchange import protocol
from fedlingua.exchange.joined import Joined, join
from fedlingua.exchange.records import unpack
from fedlingua.exchange.state import State
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.exchange.trainable import build_trainable
from fedlingua.exchange.updates import Update
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from fedlingua.training.loop import train_locally
from strategies.methods.stock import ClusterGrid
from strategies.rounds.flower_records import arrays_of, content_of, state_of
from strategies.rounds.phases import Phases
from strategies.rounds.registration import Registry
from strategies.server_app import find_strategy
from strategies.strategy import Federated
from tests.federations import phrasebook_federation
from tests.in_process import InProcessGrid, checkpoint_bytes, rounds, run, run_on
from tests.pages import block

CALLS = [
    "FedAvg",
    "FedMedian",
    "FedTrimmedAvg(beta=0.25)",
    "Krum",
    "MultiKrum(num_malicious_nodes=1, num_nodes_to_select=2)",
    "Bulyan",
    "FedAvgM(server_learning_rate=0.5, server_momentum=0.9)",
    "FedAdam(eta=0.01)",
    "FedYogi(eta=0.01)",
    "FedAdagrad(eta=0.01)",
    "FedProx(proximal_mu=0.5)",
    "QFedAvg(client_learning_rate=0.05, q=0.2)",
]
FLOWERS = "flwr.serverapp.strategy"
REGISTERS = ("hospital", "court", "school", "bank", "harbour", "museum", "farm", "station")


@pytest.fixture
def config(four_sites):
    return {**four_sites, "method": "adapter-fed"}


SET = TensorSet(
    "toy",
    (TensorSpec("e.weight", (3, 5), "encoder", 0), TensorSpec("e.bias", (4,), "encoder", 0), TensorSpec("d", (6,), "decoder", 0)),
)
SITES = [f"s{number}" for number in range(8)]
CLUSTERS = {
    "encoder": {"north": tuple(SITES[:5]), "south": tuple(SITES[5:])},
    "decoder": {"all": tuple(SITES)},
    "shared": {"all": tuple(SITES)},
}
RNG = np.random.default_rng(19)
START = {spec.name: RNG.standard_normal(spec.shape, np.float32) for spec in SET.specs}
MOVES = {
    (number, site): {spec.name: np.float32(0.1) * RNG.standard_normal(spec.shape, np.float32) for spec in SET.specs}
    for number in (1, 2, 3)
    for site in SITES
}
SIZES = {site: 10 + 7 * number for number, site in enumerate(SITES)}
LOSSES = {site: 1.0 + 0.3 * number for number, site in enumerate(SITES)}


@pytest.fixture
def toy(run_config, tmp_path, monkeypatch):
    """What makes a strategy of a toy federation whose sites are all there; it asks them and is answered by `round_of`."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    (tmp_path / "eight.toml").write_text(phrasebook_federation("eight", **dict.fromkeys(REGISTERS, ("de-fr", 40))))
    names = dict(zip(REGISTERS, SITES, strict=True))
    text = (tmp_path / "eight.toml").read_text()
    for register, site in names.items():
        text = text.replace(f'name = "{register}"', f'name = "{site}"')
    (tmp_path / "eight.toml").write_text(text)
    monkeypatch.setattr(Phases, "available", lambda *given: SITES)
    monkeypatch.setattr(gc, "collect", lambda: 0)  # Flower collects for every site and cluster, which takes seconds beside torch
    registry = Registry(read_federation(tmp_path / "eight.toml", tmp_path), "", "", nodes=dict.fromkeys(SITES, 1))

    def make(call: str, **changes):
        settings = settings_from({**run_config, "method": "adapter-fed", "strategy": f"{FLOWERS}:{call}", **changes})
        return find_strategy(settings)(Federated(settings, registry, CLUSTERS, SET, RunFolder(tmp_path)))

    return make


def round_of(strategy, state: State, number: int) -> State:
    """A round through Flower's hooks; every site moves from what it was sent by MOVES."""
    requests = list(strategy.configure_train(number, arrays_of(state), ConfigRecord(), None))
    replies = []
    for request in requests:
        site = str(request.content[protocol.TASK]["site"])
        trained = {name: array + MOVES[number, site][name] for name, array in unpack(request.content["arrays"], SET).items()}
        update = Update(site, Joined(join(trained, SET), SET), SIZES[site], loss=LOSSES[site])
        content = content_of(update, {"num_tokens": 9.0, "steps": 1.0}, SET, request.content[protocol.TASK])
        replies.append(Message(content, dst_node_id=1, message_type="train"))
    arrays, metrics = strategy.aggregate_train(number, replies)
    assert {"train_loss", "num-tokens", "steps"} == set(metrics)
    return replace(state_of(arrays, strategy.run.sent), round=number)


def by_hand(call: str, part: str, sites: tuple[str, ...], rounds: int) -> list[dict[str, Any]]:
    """The class as Flower's loop calls it, on the same replies of one cluster; round by round its tensors, in float32."""
    instance = eval(f"flowers.{call if '(' in call else call + '()'}", {"flowers": flowers})
    instance.min_train_nodes = instance.min_available_nodes = 1
    tensors, found = {spec.name: START[spec.name] for spec in SET.of_part(part)}, []
    for number in range(1, rounds + 1):
        arrays = ArrayRecord({name: Array(tensor) for name, tensor in tensors.items()})
        list(instance.configure_train(number, arrays, ConfigRecord(), ClusterGrid(None, sites)))
        messages = []
        for site in sites:
            record = ArrayRecord({name: Array(tensor + MOVES[number, site][name]) for name, tensor in tensors.items()})
            metrics = MetricRecord({"num-examples": SIZES[site], "train_loss": LOSSES[site]})
            content = RecordDict({"arrays": record, "metrics": metrics})
            messages.append(Message(content, dst_node_id=1, message_type="train"))
        made = instance.aggregate_train(number, messages)[0]
        tensors = tensors if made is None else {name: array.numpy().astype(np.float32) for name, array in made.items()}
        found.append(tensors)
    return found


@pytest.mark.parametrize("call", CALLS)
def test_a_class_of_flowers_is_in_every_cluster_what_it_is_by_hand(toy, call):
    strategy = toy(call)
    states = [strategy.init(START)]
    for number in (1, 2, 3):
        states.append(round_of(strategy, states[-1], number))
    for part, cluster in [("encoder", "north"), ("encoder", "south"), ("decoder", "all")]:
        for number, wanted in enumerate(by_hand(call, part, CLUSTERS[part][cluster], 3), start=1):
            for name, tensor in states[number].tensors[part][cluster].items():
                assert tensor.tobytes() == wanted[name].tobytes(), (number, part, cluster, name)
                assert tensor.tobytes() != START[name].tobytes()


@pytest.mark.parametrize("call", CALLS)
def test_what_an_instance_remembers_lies_in_the_state(toy, call):
    """A strategy made anew goes on from a state as the one that made it, and leaves it as it was."""
    strategy = toy(call)
    once = round_of(strategy, strategy.init(START), 1)
    memory = {name: array.tobytes() for name, array in once.memory.items()}
    values = json.loads(json.dumps(once.values))
    twice = round_of(strategy, once, 2)
    again = round_of(toy(call), replace(once, values=values), 2)
    assert {name: array.tobytes() for name, array in once.memory.items()} == memory
    assert again.values == twice.values
    parts = [(part, cluster) for part in CLUSTERS for cluster in CLUSTERS[part]]
    pairs = [(again.tensors[part][cluster], twice.tensors[part][cluster]) for part, cluster in parts]
    for made, wanted in ((again.memory, twice.memory), *pairs):
        assert {name: array.tobytes() for name, array in made.items()} == {n: array.tobytes() for n, array in wanted.items()}


def test_a_stock_krum_run_is_a_run_like_any(config, tmp_path):
    folder, _ = run({**config, "rounds": 1, "strategy": f"{FLOWERS}:Krum"}, tmp_path / "run", shuffle_seed=3)
    scores, run_json = folder.read("scores.json"), folder.read("run.json")
    assert run_json["status"] == "completed"
    assert set(scores["sites"]) == {"hospital", "court", "school", "bank"}
    assert [line["round"] for line in rounds(folder)] == [0, 1]


def stored(folder, number: int, file: str) -> dict[str, Any]:
    return load_file(folder.directory / "checkpoints" / f"{number:04d}" / f"{file}.safetensors")


class Killed(BaseException):
    """As good as kill -9."""


class Mortal(InProcessGrid):
    """Dies before it pushes the training of round 3."""

    def push_messages(self, messages):
        for message in messages:
            if message.metadata.message_type == protocol.TRAIN and message.content[protocol.TASK]["round"] == 3:
                raise Killed
        return super().push_messages(messages)


@pytest.mark.fault("resumed")
def test_a_killed_run_resumes_to_the_same_bytes(config, tmp_path):
    config = {**config, "rounds": 3, "strategy": f"{FLOWERS}:FedAdam(eta=0.01)", "run-dir": str(tmp_path / "killed")}
    with pytest.raises(Killed):
        run_on(Mortal(config, 2), config)
    resumed, _ = run({**config, "resume": True}, tmp_path / "killed")
    unbroken, _ = run(config, tmp_path / "whole")
    assert checkpoint_bytes(resumed) == checkpoint_bytes(unbroken)
    assert "strategy.safetensors" in checkpoint_bytes(resumed)


def test_a_round_that_is_skipped_leaves_what_an_instance_remembers(config, tmp_path):
    def tamper(request: Message, reply: Message) -> Message | None:
        task = request.content.config_records.get(protocol.TASK, {})
        if request.metadata.message_type == protocol.EVALUATE and task["round"] == 2 and task["site"] != "bank":
            reply.content[protocol.METRICS]["nll_sum"] = float("nan")
        return reply

    config = {**config, "rounds": 2, "below-quorum": "go-on", "strategy": f"{FLOWERS}:FedAdam(eta=0.01)"}
    folder, _ = run(config, tmp_path / "run", tamper=tamper)
    kept = [folder.checkpoints.load(number) for number in (1, 2)]
    assert kept[0].values["strategy"] == kept[1].values["strategy"]
    assert {name: array.tobytes() for name, array in kept[0].own.items()} == {n: a.tobytes() for n, a in kept[1].own.items()}


def test_fed_prox_tells_the_sites_its_mu_and_they_stay_nearer(config, tmp_path):
    one = {**config, "rounds": 1, "batch-size": 2}
    plain, _ = run({**one, "strategy": f"{FLOWERS}:FedAvg"}, tmp_path / "plain")
    pulled, live = run({**one, "strategy": f"{FLOWERS}:FedProx(proximal_mu=100.0)"}, tmp_path / "pulled")
    asked = [message for message in live.sent if message.metadata.message_type == protocol.TRAIN]
    assert [dict(message.content["config"]) for message in asked] == [{"proximal-mu": 100.0}] * 4
    norms = [[site["update_norm"] for site in rounds(folder)[1]["sites"].values()] for folder in (plain, pulled)]
    assert all(near < far for far, near in zip(*norms, strict=True))


def test_q_fed_avg_takes_the_runs_learning_rate(config):
    make = find_strategy(settings_from({**config, "strategy": f"{FLOWERS}:QFedAvg", "learning-rate": 0.25}))
    assert make.keywords["make"]().client_learning_rate == 0.25


# --- Classes of one's own ------------------------------------------------------------------------------------------------------


class Elsewhere(flowers.FedAvg):
    """May send other tensors than the cluster's."""

    def configure_train(self, server_round, arrays, config, grid):
        return super().configure_train(server_round, arrays, config, grid)


def test_flowers_own_requests_also_measure_the_round_before_and_those_of_a_class_of_ones_own_do_not(toy):
    assert toy("FedAvg").evaluates_with_training
    assert toy("FedAdam(eta=0.1)").evaluates_with_training
    assert not toy("", strategy="tests.strategies.methods.test_stock:Elsewhere").evaluates_with_training


DOCUMENTED = '''
from flwr.serverapp.strategy import FedAvg

SEEN = []


class CustomFedAvg(FedAvg):
    """As Flower's guide has it: look at what was aggregated, and count rounds."""

    rounds = 0

    def configure_train(self, server_round, arrays, config, grid):
        config["proximal-mu"] = 0.1 * server_round
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        arrays, metrics = super().aggregate_train(server_round, replies)
        self.rounds = self.rounds + 1
        state_dict = arrays.to_torch_state_dict()
        losses = [reply.content["metrics"]["train_loss"] for reply in replies if not reply.has_error()]
        SEEN.append((server_round, self.rounds, len(state_dict), losses, dict(metrics)))
        return arrays, metrics
'''
OURS = '''
import numpy as np
from flwr.app import Array
from strategies.methods.fed_mean import FedMean

SEEN = []


class Halved(FedMean):
    """Looks at replies and result, and halves one tensor."""

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        arrays, metrics = super().aggregate_train(server_round, replies)
        first = next(iter(arrays))
        mean = np.mean([reply.content["arrays"][first].numpy() for reply in replies], axis=0)
        SEEN.append((first, mean, arrays[first].numpy(), [dict(reply.content["metrics"]) for reply in replies], dict(metrics)))
        arrays[first] = Array(arrays[first].numpy() / 2)
        return arrays, metrics
'''


@pytest.fixture
def own_file(tmp_path, monkeypatch):
    def write(name: str, text: str) -> Any:
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        return __import__(name)

    return write


def test_flowers_example_of_a_class_of_ones_own_works(config, tmp_path, own_file):
    module = own_file("custom_fed_avg", DOCUMENTED)
    folder, live = run({**config, "strategy": "custom_fed_avg:CustomFedAvg"}, tmp_path / "run")
    sizes = {part: len(build_trainable(settings_from(config)).tensor_set.of_part(part)) for part in ("encoder", "decoder")}
    assert [seen[:3] for seen in module.SEEN] == [(n, n, sizes[part]) for n in (1, 2) for part in ("encoder", "decoder")]
    for _, _, _, losses, metrics in module.SEEN:
        assert len(losses) == 4
        assert min(losses) <= metrics["train_loss"] <= max(losses)
    told = {m.content["task"]["round"]: m.content["config"]["proximal-mu"] for m in live.sent if "config" in m.content}
    assert told == {1: 0.1, 2: 0.2}
    state = json.loads((folder.directory / "checkpoints" / "0002" / "state.json").read_text())
    assert state["strategy"]["stock"]["encoder/all"]["rounds"] == 2


def test_a_subclass_of_ours_sees_the_arrays_and_changes_them(config, tmp_path, own_file):
    module = own_file("halved", OURS)
    folder, _ = run({**config, "rounds": 1, "strategy": "halved:Halved"}, tmp_path / "run")
    plain, _ = run({**config, "rounds": 1}, tmp_path / "plain")
    ((first, mean, aggregated, metrics, summed),) = module.SEEN
    np.testing.assert_allclose(aggregated, mean, rtol=1e-5, atol=1e-7)
    assert all({"num-examples", "train_loss"} <= set(each) for each in metrics)
    assert min(each["train_loss"] for each in metrics) <= summed["train_loss"]
    halved, whole = (stored(each, 1, "encoder.all") for each in (folder, plain))
    np.testing.assert_array_equal(halved[first], whole[first] / 2)
    assert all(np.array_equal(halved[name], whole[name]) for name in whole if name != first)


def test_arrays_that_are_none_of_the_clusters_end_the_run(config, tmp_path, own_file):
    own_file(
        "lost", DOCUMENTED.replace("        return arrays, metrics", "        arrays.popitem()\n        return arrays, metrics")
    )
    with pytest.raises(RunError, match=r"CustomFedAvg gave \d+ arrays; wanted the cluster's"):
        run({**config, "strategy": "lost:CustomFedAvg"}, tmp_path / "run")


def test_what_no_checkpoint_can_hold_is_refused_by_name(config, tmp_path, own_file):
    own_file("holding", DOCUMENTED.replace("self.rounds = self.rounds + 1", "self.lock = object()"))
    with pytest.raises(RunError, match=r"CustomFedAvg.lock holds a object, which no checkpoint can"):
        run({**config, "strategy": "holding:CustomFedAvg"}, tmp_path / "run")


def trained_under(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float, int]]:
    """What the sites' training of rounds takes: (round, learning rate, epochs)."""
    seen = []

    def noting(*given, this_round, **how):
        seen.append((this_round[0], given[4].step_learning_rate, given[4].local_epochs))
        return train_locally(*given, this_round=this_round, **how)

    monkeypatch.setattr("clients.site_client.train_locally", noting)
    return seen


def test_the_guides_strategy_sets_the_learning_rate_of_each_round(config, tmp_path, own_file, monkeypatch):
    own_file("my_rates", block("docs/guides/strategy.md", 'python title="my_rates.py"'))
    seen = trained_under(monkeypatch)
    folder, _ = run({**config, "strategy": "my_rates:Decaying", "rounds": 2}, tmp_path / "run")
    assert seen == [(1, 0.02, 1)] * 4 + [(2, 0.01, 1)] * 4
    assert not any(line["failures"] for line in rounds(folder))


def test_a_strategy_sets_the_epochs_of_a_round_and_the_replies_are_checked_against_them(config, tmp_path, own_file, monkeypatch):
    text = block("docs/guides/strategy.md", 'python title="my_rates.py"')
    own_file("my_epochs", re.sub(r'config\["learning-rate"\] = .*', 'config["local-epochs"] = server_round', text))
    seen = trained_under(monkeypatch)
    folder, _ = run({**config, "strategy": "my_epochs:Decaying", "rounds": 2}, tmp_path / "run")
    assert [(number, epochs) for number, _, epochs in seen] == [(1, 1)] * 4 + [(2, 2)] * 4
    first, second = (line["sites"]["court"]["steps"] for line in rounds(folder)[1:])
    assert second == 2 * first


def test_a_key_that_sites_do_not_know_is_refused_before_any_is_asked_to_train(config, tmp_path, own_file):
    own_file("ours", MINE)
    asked = []
    with pytest.raises(ConfigError, match="strategy = 'ours:LateHabit': a round's config has lr; did you mean 'learning-rate'"):
        run(
            {**config, "strategy": "ours:LateHabit"},
            tmp_path / "run",
            tamper=lambda request, reply: asked.append(request) or reply,
        )
    assert protocol.TRAIN not in {request.metadata.message_type for request in asked}


DECAYING = '''
import logging

import numpy as np
from flwr.serverapp.strategy import FedAvg

SEEN = []


class Decaying(FedAvg):
    """Has a rate that halves with each round."""

    def __init__(self):
        super().__init__()
        self.rate = 1.0
        self.log = logging.getLogger("decaying")  # holds nothing of the run

    def aggregate_train(self, server_round, replies):
        SEEN.append((server_round, self.rate))
        self.rate = np.float32(self.rate / 2)
        return super().aggregate_train(server_round, replies)


class Noisy(FedAvg):
    """Has a generator from the start, which no checkpoint can hold."""

    def __init__(self):
        super().__init__()
        self.rng = np.random.default_rng(0)


class Partial(FedAvg):
    """Asks each site differently."""

    def configure_train(self, server_round, arrays, config, grid):
        for mu, request in enumerate(super().configure_train(server_round, arrays, config, grid)):
            request.content = request.content.copy()
            request.content["config"] = type(request.content["config"])({"server-round": server_round, "proximal-mu": 0.1 * mu})
            yield request
'''


def test_a_number_that_a_class_changes_is_there_in_the_next_round(config, tmp_path, own_file):
    module = own_file("decaying", DECAYING)
    run({**config, "strategy": "decaying:Decaying"}, tmp_path / "run")
    assert module.SEEN == [(1, 1.0), (1, 1.0), (2, 0.5), (2, 0.5)]


def test_what_a_class_has_from_the_start_and_no_checkpoint_can_hold_is_refused_too(config, tmp_path, own_file):
    own_file("noisy", DECAYING)
    with pytest.raises(RunError, match=r"Noisy.rng holds a Generator, which no checkpoint can"):
        run({**config, "strategy": "noisy:Noisy"}, tmp_path / "run")


def test_a_class_that_asks_sites_differently_is_refused(config, tmp_path, own_file):
    own_file("partly", DECAYING)
    with pytest.raises(RunError, match="Partial asks its sites differently; wanted one content for all of a cluster"):
        run({**config, "strategy": "partly:Partial"}, tmp_path / "run")


MINE = '''
from flwr.serverapp.strategy import FedAvg
from strategies.methods.fed_mean import FedMean
from strategies.strategy import SiteStrategy


def plain(updates):
    return updates[0].tensors


class Needy(FedMean):
    """Takes the update of site number q."""

    def __init__(self, of, q):
        super().__init__(of)
        self.rule = lambda updates: updates[q].tensors


class Bare(SiteStrategy):
    pass


class NoStatic(FedMean):
    rule = plain


def trimmed(updates, share=0.1):
    return updates[0].tensors


class NoStaticTrimmed(FedMean):
    rule = trimmed


class Homeless(SiteStrategy):
    rule = staticmethod(plain)


class Stately(FedMean):
    rule = staticmethod(lambda state, updates: state)


class Ruling(SiteStrategy):
    def aggregate(self, updates):
        return updates


class Habit(FedAvg):
    key, value = "lr", 0.01

    def configure_train(self, server_round, arrays, config, grid):
        config[self.key] = self.value
        return super().configure_train(server_round, arrays, config, grid)


class Still(Habit):
    key, value = "learning-rate", 0.0


class Longer(Habit):
    key, value = "local-epochs", 2


class OurHabit(FedMean):
    def configure_train(self, server_round, arrays, config, grid):
        config["lr"] = 0.01
        return super().configure_train(server_round, arrays, config, grid)


class LateHabit(FedMean):
    def configure_train(self, server_round, arrays, config, grid):
        config["lr"] = 0.01 / len(self.registry.sites)
        return super().configure_train(server_round, arrays, config, grid)
'''


def test_a_class_of_ours_takes_arguments(config, tmp_path, own_file):
    own_file("our_own", MINE)
    folders = [run({**config, "rounds": 1, "strategy": f"our_own:Needy(q={q})"}, tmp_path / str(q))[0] for q in (0, 1)]
    first, second = map(checkpoint_bytes, folders)
    assert first != second


@pytest.mark.parametrize(
    ("strategy", "changes", "words"),
    [
        (f"{FLOWERS}:FedMedain", {}, "did you mean 'FedMedian'"),
        (f"{FLOWERS}:FedTrimmedAvg(0.2)", {}, "its arguments do not read"),
        (f"{FLOWERS}:FedTrimmedAvg(beta=)", {}, "its arguments do not read"),
        (f"{FLOWERS}:FedTrimmedAvg(alpha=0.2)", {}, "FedTrimmedAvg takes no 'alpha'"),
        (f"{FLOWERS}:FedTrimmedAvg(beta=0.7)", {}, "cannot be made"),
        (f"{FLOWERS}:FedAvg(fraction_train=0.5)", {}, "give the key sites-per-round instead, such as sites-per-round = 0.5"),
        (f"{FLOWERS}:FedAvg(min_train_nodes=3)", {}, "give the key quorum instead$"),
        (f"{FLOWERS}:FedAvg", {"aggregation": "fed-avg"}, "has a rule of its own"),
        (f"{FLOWERS}:FedAvg", {"server.optimizer": "adam"}, "has a rule of its own"),
        (f"{FLOWERS}:FedAvg", {"send.rule": "metasend-g"}, "rounds of two phases"),
        (f"{FLOWERS}:FedAvg", {"method": "adapter-local"}, "its tensors travel, but those of method adapter-local stay"),
        ("strategies.methods.fed_mean:FedMean(rule=1)", {}, "FedMean cannot be made .got an unexpected keyword argument 'rule'"),
        ("our_own:Needy", {}, "missing a required argument: 'q'"),
        ("our_own:Needy(of=1, q=2)", {}, "multiple values for argument 'of'"),
        ("our_own:plain", {}, "wanted a subclass of flwr.serverapp.strategy.Strategy"),
        ("flwr.server.strategy:FedProx", {}, "wanted a subclass of .*; classes of flwr.server.strategy are none"),
        (
            "our_own:Bare",
            {},
            r"neither aggregate nor aggregate_train; define aggregate\(self, state, updates\), which returns a State",
        ),
        (
            "our_own:Homeless",
            {},
            "Homeless has a rule, which only a FedMean calls; derive it from strategies.methods.fed_mean.FedMean",
        ),
        (
            "our_own:Stately",
            {},
            r"Stately.rule\(state, updates\); wanted \(updates\), which returns a dict, name -> float32 array",
        ),
        ("our_own:Ruling", {}, r"Ruling.aggregate\(self, updates\); wanted \(self, state, updates\), which returns a State"),
        ("our_own:OurHabit", {}, "a round's config has lr; did you mean 'learning-rate'"),
        ("our_own:Habit", {}, "a round's config has lr; did you mean 'learning-rate'"),
        ("our_own:Still", {}, "learning-rate = 0 in a round's config; wanted more than 0"),
        ("our_own:Longer", {"optimizer-state": "kept"}, "optimizer-state = 'kept' needs rounds of equal length"),
        ("our_own:NoStatic", {}, r"NoStatic.rule is a plain function; give rule = staticmethod\(plain\)"),
        ("our_own:NoStaticTrimmed", {}, r"give rule = staticmethod\(trimmed\)"),
        ("nowhere:Mine", {}, "cannot import 'nowhere' .*; its file has to lie beside pyproject.toml"),
        ("needy:Mine", {}, "No module named 'notthere'.; mend the ModuleNotFoundError at .*needy.py:1 <module>"),
        (
            "broken:Mine",
            {},
            "cannot import 'broken' .division by zero.; mend the ZeroDivisionError at .*broken.py:1 <module>",
        ),
    ],
)
def test_what_cannot_be_is_refused_at_the_door(config, own_file, tmp_path, strategy, changes, words):
    (tmp_path / "broken.py").write_text("Mine = 1 / 0\n")
    (tmp_path / "needy.py").write_text("import notthere\n\nMine = notthere.Mine\n")
    own_file("our_own", MINE)
    with pytest.raises(ConfigError, match=words):
        find_strategy(settings_from({**config, "strategy": strategy, **changes}))
