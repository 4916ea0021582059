"""Flower's own classes inside every cluster, each beside the same class called by hand on the same replies; and classes of one's own."""

import json
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flowers
from safetensors.numpy import load_file

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.exchange import protocol
from fedlingua.exchange.records import unpack
from fedlingua.exchange.trainable import build_trainable
from fedlingua.settings.checks import settings_from
from strategies.server_app import find_strategy
from strategies.stock import ClusterGrid
from tests.in_process import InProcessGrid, checkpoint_bytes, rounds, run, run_on

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


@pytest.fixture
def config(four_sites):
    return {**four_sites, "method": "adapter-fed"}


def stored(folder, number: int, file: str) -> dict[str, Any]:
    return load_file(folder.directory / "checkpoints" / f"{number:04d}" / f"{file}.safetensors")


def replies_of(live, number: int, chosen) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """site -> (tensors, sums) of its training reply."""
    of_round = [
        reply
        for reply in live.received
        if reply.metadata.message_type == protocol.TRAIN and reply.content[protocol.TASK]["round"] == number
    ]
    return {
        reply.content[protocol.TASK]["site"]: (
            unpack(reply.content[protocol.ARRAYS], chosen),
            dict(reply.content[protocol.METRICS]),
        )
        for reply in of_round
    }


def by_hand(instance, folder, live, number: int, part: str, cluster: str, before, chosen):
    """The class as Flower's loop calls it, on the round's replies of one cluster."""
    sites = folder.read("clusters.json")[part][cluster]
    names, replies = [spec.name for spec in chosen.of_part(part)], replies_of(live, number, chosen)
    arrays = ArrayRecord({name: Array(before[name]) for name in names})
    list(instance.configure_train(number, arrays, ConfigRecord(), ClusterGrid(live, sites)))
    messages = []
    for site in sites:
        tensors, sums = replies[site]
        metrics = {"num-examples": int(sums["num_examples"]), "train_loss": sums["nll_sum"] / sums["num_tokens"]}
        record = ArrayRecord({name: Array(tensors[name]) for name in names})
        content = RecordDict({"arrays": record, "metrics": MetricRecord(metrics)})
        messages.append(Message(content, dst_node_id=1, message_type="train"))
    return instance.aggregate_train(number, messages)[0]


def assert_by_hand(call: str, folder, live, chosen) -> None:
    """Both rounds, in every cluster, to the last bit of float32."""
    clusters = folder.read("clusters.json")
    moved = False
    for part, cluster in [(part, cluster) for part in clusters for cluster in clusters[part]]:
        size = len(clusters[part][cluster])
        instance = eval(f"flowers.{call if '(' in call else call + '()'}", {"flowers": flowers})
        instance.min_train_nodes = instance.min_available_nodes = min(size, 1)
        before = stored(folder, 0, f"{part}.{cluster}") if 0 in folder.checkpoints.rounds() else None
        before = before or build_trainable(settings_from(live.run_config)).sent_first
        for number in (1, 2):
            made = by_hand(instance, folder, live, number, part, cluster, before, chosen)
            kept = stored(folder, number, f"{part}.{cluster}")
            wanted = before if made is None else {name: array.numpy().astype(np.float32) for name, array in made.items()}
            for name, tensor in kept.items():
                np.testing.assert_array_equal(tensor, wanted[name], err_msg=f"{call}, round {number}, {part} {cluster}, {name}")
                moved = moved or (made is not None and not np.array_equal(tensor, before[name]))
            before = kept
    assert moved


@pytest.mark.parametrize("call", CALLS)
def test_a_class_of_flowers_is_what_it_is_by_hand(config, tmp_path, call):
    folder, live = run({**config, "strategy": f"{FLOWERS}:{call}"}, tmp_path / "run", shuffle_seed=3)
    assert_by_hand(call, folder, live, build_trainable(settings_from(config)).tensor_set)
    scores, run_json = folder.read("scores.json"), folder.read("run.json")
    assert run_json["status"] == "completed"
    assert set(scores["sites"]) == {"hospital", "court", "school", "bank"}
    assert [line["round"] for line in rounds(folder)] == [0, 1, 2]


@pytest.mark.parametrize("call", ["FedMedian", "FedAdam(eta=0.01)", "FedAvgM(server_momentum=0.9)"])
def test_every_cluster_has_an_instance_of_its_own(config, tmp_path, call):
    config = {**config, "method": "adapter-families", "strategy": f"{FLOWERS}:{call}"}
    folder, live = run(config, tmp_path / "run")
    assert_by_hand(call, folder, live, build_trainable(settings_from(config)).tensor_set)


class Killed(BaseException):
    """As good as kill -9."""


class Mortal(InProcessGrid):
    """Dies before it pushes the training of round 3."""

    def push_messages(self, messages):
        for message in messages:
            if message.metadata.message_type == protocol.TRAIN and message.content[protocol.TASK]["round"] == 3:
                raise Killed
        return super().push_messages(messages)


@pytest.mark.parametrize("call", ["FedAdam(eta=0.01)", "FedAvgM(server_learning_rate=0.5, server_momentum=0.9)"])
@pytest.mark.fault("resumed")
def test_what_an_instance_remembers_comes_back(config, tmp_path, call):
    config = {**config, "rounds": 3, "strategy": f"{FLOWERS}:{call}", "run-dir": str(tmp_path / "killed")}
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
from strategies.fed_mean import FedMean

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
    assert state["strategy"]["stock"]["encoder/all"]["rounds"] == {"kind": "value", "value": 2}


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
    with pytest.raises(RunError, match="CustomFedAvg gave .* arrays; wanted the cluster's"):
        run({**config, "strategy": "lost:CustomFedAvg"}, tmp_path / "run")


def test_what_no_checkpoint_can_hold_is_refused_by_name(config, tmp_path, own_file):
    own_file("holding", DOCUMENTED.replace("self.rounds = self.rounds + 1", "self.lock = object()"))
    with pytest.raises(RunError, match=r"CustomFedAvg.lock is a object, which no checkpoint can hold"):
        run({**config, "strategy": "holding:CustomFedAvg"}, tmp_path / "run")


@pytest.mark.parametrize(
    ("strategy", "changes", "words"),
    [
        (f"{FLOWERS}:FedMedain", {}, "did you mean 'FedMedian'"),
        (f"{FLOWERS}:FedTrimmedAvg(0.2)", {}, "its arguments do not read"),
        (f"{FLOWERS}:FedTrimmedAvg(beta=)", {}, "its arguments do not read"),
        (f"{FLOWERS}:FedTrimmedAvg(alpha=0.2)", {}, "FedTrimmedAvg takes no 'alpha'"),
        (f"{FLOWERS}:FedTrimmedAvg(beta=0.7)", {}, "cannot be made"),
        (f"{FLOWERS}:FedAvg(fraction_train=0.5)", {}, "here `quorum` does"),
        (f"{FLOWERS}:FedAvg", {"aggregation": "fed-avg"}, "has a rule of its own"),
        (f"{FLOWERS}:FedAvg", {"server-optimizer": "adam"}, "has a rule of its own"),
        (f"{FLOWERS}:FedAvg", {"selection": "metasend-g"}, "rounds of two phases"),
        (f"{FLOWERS}:FedAvg", {"method": "adapter-local"}, "its tensors travel, but those of method adapter-local stay"),
        ("strategies.fed_mean:FedMean(rule=1)", {}, "takes its settings from the run config"),
    ],
)
def test_what_cannot_be_is_refused_at_the_door(config, strategy, changes, words):
    with pytest.raises(ConfigError, match=words):
        find_strategy(settings_from({**config, "strategy": strategy, **changes}))
