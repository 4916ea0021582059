"""MetaSend at a site (Chu et al. 2024, algorithm 2): an update waits until the server has a threshold (strategies/methods/metasend.py).

`train.probe` trains and stores the update with its deviations, `train.send` sends the part that the threshold selects. With the dev loss
goes the site's part in learning the threshold (threshold_slope.py).
"""

from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import MetricRecord, RecordDict

from fedlingua.exchange import protocol
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.protocol import Task, Threshold
from fedlingua.exchange.records import from_record
from fedlingua.exchange.tensors import NamedTensors
from fedlingua.layers.layer import Answer, Layer, Node, Records, Site
from fedlingua.layers.selection import SiteSelection
from fedlingua.settings.config import Phase


class LearnedThreshold(Layer):
    """With its dev loss a site sends the loss's slope with respect to the threshold, if it is asked for it."""

    def measured(
        self, phase: Phase, site: Site, task: Task, asked: RecordDict, received: NamedTensors, result: Any, reply: Records
    ) -> Records:
        if protocol.THRESHOLD not in asked:
            return reply
        from fedlingua.layers.threshold_slope import threshold_slope

        slope = threshold_slope(SiteSelection(site), task, _threshold(asked), _network(asked))
        return {**reply, protocol.META: MetricRecord(slope)}


def probe(node: Node, task: Task, asked: RecordDict, make: Callable[[], Any]) -> Records:
    """Train one round and store the update until the server has computed the threshold from all sites' losses."""
    client = make()
    node.check_update(client, task)
    received = client.received.receive(asked)
    update, sums = client.train(received, task)
    return {protocol.METRICS: MetricRecord({**sums, **SiteSelection(client).probe(update, received, task)})}


def send(node: Node, task: Task, asked: RecordDict, make: Callable[[], Any]) -> Records:
    """Send the part of the stored update that the round's threshold selects."""
    client = make()
    going = SiteSelection(client).send(asked, task, _threshold(asked).theta, _network(asked))
    return client.layers.update(client, task, going).reply(client.trainable.tensor_set)  # type: ignore[no-any-return]


MESSAGES: Mapping[str, Answer] = {protocol.PROBE: probe, protocol.SEND: send}


def _threshold(asked: RecordDict) -> Threshold:
    return Threshold.of(asked.config_records[protocol.THRESHOLD])


def _network(asked: RecordDict) -> Numbers | None:
    """Return the second filter's network; None if the run has no such filter."""
    record = asked.array_records.get(protocol.FILTER)
    return from_record(record)[protocol.FILTER] if record else None
