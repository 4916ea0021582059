"""A round that is trained again is the run's own."""

from dataclasses import replace

import numpy as np
import pytest

from fedlingua.common.errors import RunError
from fedlingua.exchange.trainable import build_trainable
from fedlingua.privacy.accounting import noise_for
from fedlingua_lab.audit.retrained import Retrained
from fedlingua_lab.audit.subject import Protection, Subject


@pytest.mark.parametrize("number", [1, 2])
def test_the_mean_of_all_sites_changes_is_what_the_server_had_after_the_round(audited, number):
    subject = Subject.of(audited.directory, number=number)
    again = Retrained(subject, build_trainable(subject.settings))
    tensors = {
        name: array for part in audited.checkpoints.load(number).tensors.values() for name, array in part.get("all", {}).items()
    }
    seen = again.seen(Protection(sites=4))
    np.testing.assert_allclose(again.received("hospital") + seen.change, again.flat(tensors), atol=1e-6)
    assert subject.train_loss > 0
    assert len(seen.used) == 16  # of 24: whole steps alone


def test_a_round_whose_loss_is_another_than_the_runs_is_refused(again):
    other = replace(again.subject, train_loss=again.subject.train_loss * 1.01)
    with pytest.raises(RunError, match=r"trained again, has a loss of .*; the run had .*Run it again"):
        Retrained(other, again.trainable).seen(Protection())


def test_a_batch_is_one_step_and_a_code_changes_what_is_seen(again):
    batch = {site: text[:2] for site, text in again.training_texts.items()}
    seen = again.seen(Protection(), batch, "/a")
    assert [*seen.used] == sorted(batch["hospital"], key=lambda example: example.length)
    assert np.abs(seen.change).max() == pytest.approx(again.settings.step_learning_rate, rel=0.05)  # one step of Adam
    coded = Retrained(replace(again.subject, settings=replace(again.settings, send_code="4bit")), again.trainable)
    assert 0 < np.abs(coded.seen(Protection(), batch, "/a").change - seen.change).max() < again.settings.step_learning_rate


def test_private_training_has_noise_that_differs_each_time(again):
    first, second = (again.seen(Protection(epsilon=8.0)).change for _ in range(2))
    assert not np.allclose(first, second)


def test_noise_in_shares_adds_up_to_that_of_the_sum(again):
    """Over four sites, of a rate of 1: the mean clipped gradient, and noise of the same size in each of three sums."""
    clip, protection = 0.1, Protection(4, 8.0)
    how = {"dp_epsilon": 8.0, "dp_noise": "shares", "dp_clip": clip, "learning_rate": 1.0, "local_epochs": 1}
    settings = replace(again.settings, optimizer="sgd", **how)
    shared = Retrained(replace(again.subject, settings=settings, train_loss=None), again.trainable)
    sites = list(shared.training_texts)
    assert [each.name for each in shared.subject.protections()][1:3] == [
        "secure sum, 4 sites",
        "secure sum, 4 sites, noise in shares, epsilon 8",
    ]
    clipped = [shared.train(site, protection) for site in sites]
    sentences = sum(len(text) for text in shared.training_texts.values())
    wanted = -np.sum([each.change for each in clipped], axis=0) / sentences
    for site, each in zip(sites, clipped, strict=True):
        assert len(each.used) == len(shared.training_texts[site])
        assert 0 < np.linalg.norm(each.change) <= clip * len(each.used)
    noise = (
        noise_for(8.0, settings.dp_delta, 1.0, settings.rounds, True)
        * clip
        / sentences
        * np.sqrt(4 / settings.privacy_min_cluster)
    )
    seen = shared.seen(protection)
    assert {id(example) for example in seen.used} == {id(example) for example in clipped[0].used}
    for change in (seen.change, *(shared.seen(protection).change for _ in range(2))):
        assert noise < np.std(change - wanted) < 1.5 * noise  # rounding makes it larger, by the plan's factor
    assert np.mean([shared.seen(protection).change for _ in range(4)], axis=0) @ wanted / (wanted @ wanted) == pytest.approx(
        1, abs=0.2
    )


def test_a_layers_inputs_are_those_of_one_source_alone(again):
    layer = again.model.get_submodule("model.encoder.layers.0.self_attn.v_proj")
    short, long = again.inputs(layer, [[5, 6], [5, 6, 7]])
    assert short.shape == (2, 32)
    np.testing.assert_allclose(long[:2], short, atol=1e-5)
