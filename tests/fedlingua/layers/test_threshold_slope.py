"""Which dev sentences a slope of MetaSend's threshold is measured on."""

from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import ConfigRecord

from clients.node import DeployedNode
from fedlingua.consent.site_file import read_site_file
from fedlingua.exchange import protocol
from fedlingua.exchange.protocol import Threshold
from fedlingua.layers.threshold_slope import dev_batches
from fedlingua.settings.checks import settings_from
from tests.hostile.server_table import Site, settings


@pytest.mark.parametrize(("least", "drawn"), [(0, 40), (20, 40), (21, 60)])
def test_where_too_few_would_be_left_all_are_drawn(least: int, drawn: int) -> None:
    how: Any = SimpleNamespace(meta_batches=4, meta_batch_size=10)
    examples: Any = [str(number) for number in range(60)]
    batches = dev_batches(examples, how, "seed", least)
    assert [len(batch) for batch in batches] == [10] * (drawn // 10)
    assert len({example for batch in batches for example in batch}) == drawn


def test_a_server_cannot_foresee_the_dev_sentences_of_a_deployed_site(tmp_path: Any) -> None:
    """With known sentences, sums over enough of them would tell each sentence's loss. The same site draws the same again."""
    tokens = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        site = Site(tmp_path / name, limits="min-dev = 5")
        asked = settings(selection="metasend-l", meta_batches=10, meta_batch_size=2)
        site.approve(asked)
        threshold = {protocol.THRESHOLD: ConfigRecord(Threshold(0.5, 0.1, (0.0, 0.0, 0.0)).request())}
        of_run = []
        for run in (1, 2):
            reply = site.ask(protocol.EVALUATE, asked, 1, arrays=site.tensors(asked), more=threshold, attempt=run, flower_run=run)
            assert not reply.has_error(), reply.error.reason
            meta = reply.content.metric_records[protocol.META]
            of_run.append((meta["num_tokens"], meta["nll_sum"]))
        assert of_run[0] == of_run[1]
        tokens.append(of_run[0])
    assert tokens[0] != tokens[1]


def asked(site: Site, share: float, batches: int, size: int, run: int) -> Any:
    config = settings(selection="metasend-l", evaluate_share=share, meta_batches=batches, meta_batch_size=size)
    site.approve(config)
    threshold = {protocol.THRESHOLD: ConfigRecord(Threshold(0.5, 0.1, (0.0, 0.0, 0.0)).request())}
    reply = site.ask(protocol.EVALUATE, config, 1, arrays=site.tensors(config), more=threshold, attempt=run, flower_run=run)
    assert not reply.has_error(), reply.error.reason
    return reply.content.metric_records


def test_slope_and_dev_loss_are_not_of_texts_that_differ_by_a_few_sentences(tmp_path: Any) -> None:
    records = asked(Site(tmp_path), 0.98, 100, 1, 1)
    assert records[protocol.META]["num_tokens"] == records[protocol.METRICS]["num_tokens"]


def test_a_larger_draw_does_not_begin_with_the_smaller_one(tmp_path: Any) -> None:
    """As draws of two sizes under one seed do; the difference of their losses would be one sentence's."""
    Site(tmp_path)
    config = settings(selection="metasend-l", meta_batch_size=1)
    nodes = [
        DeployedNode(settings_from({**config, "meta.batches": number}), read_site_file(tmp_path / "site.toml"))
        for number in (50, 60, 50)
    ]
    examples: Any = [str(number) for number in range(200)]
    fewer, more, again = (dev_batches(examples, node.settings, node.seed("hospital/1/meta"), 50) for node in nodes)
    assert fewer == again
    assert more[:50] != fewer
