"""What a site lets out for finding its cluster: by its own consent, kept, and paid for."""

import json
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from clients.node import Consent
from clients.signature import signature
from fedlingua.clustering.privacy import signature_epsilon
from fedlingua.common.errors import ExchangeError
from fedlingua.exchange.trainable import build_trainable
from fedlingua.settings.checks import settings_from


@pytest.fixture
def settings(tiny_run_config):
    one = {"signature.form": "private", "signature.dim": 8, "signature.adapter": "decoder.-1.encoder_attn"}
    return settings_from({**tiny_run_config, "method": "adapter-gradients", **one})


@pytest.fixture
def give(settings, examples, tmp_path):
    def given(consent, **changes):
        now = replace(settings, **changes)
        return signature("court", examples, build_trainable(now), now, tmp_path / "signatures", consent)

    return given


def consent(raw=False, max_epsilon=10.0, seed=1):
    return Consent(raw, max_epsilon, Random(seed))


def test_the_same_question_gets_the_same_answer_whatever_noise_could_be_drawn(give):
    assert np.array_equal(give(consent(seed=1))["signature"], give(consent(seed=2))["signature"])


def test_a_signature_of_each_part_is_of_its_own_adapter_and_both_are_paid_for_together(give, tmp_path):
    pair = "encoder.0.self_attn,decoder.-1.fc2"
    raw = {"signature_form": "raw"}
    both = give(consent(raw=True), signature_adapter=pair, **raw)
    for name, adapter in (("encoder", "encoder.0.self_attn"), ("decoder", "decoder.-1.fc2")):
        assert np.array_equal(both[name], give(consent(raw=True), signature_adapter=adapter, **raw)["signature"])
    noised = give(consent(), signature_adapter=pair)
    assert {name: array.shape for name, array in noised.items()} == {"encoder": (8,), "decoder": (8,)}
    (spent,) = json.loads((tmp_path / "signatures/given.json").read_text())["given"]
    assert spent["epsilon"] == pytest.approx(signature_epsilon(2.0, 1e-5, 2))
    with pytest.raises(ExchangeError, match=r"2 private signatures under signature.noise = 1 costs? epsilon"):
        give(consent(), signature_adapter=pair, signature_noise=1.0)
    one = give(consent(max_epsilon=20.0), signature_adapter=pair, cluster_parts="encoder")
    assert list(one) == ["encoder"]


def test_what_different_answers_cost_adds_up_and_is_refused_beyond_the_sites_limit(give, tmp_path):
    price = signature_epsilon(2.0, 1e-5)
    give(consent(max_epsilon=2.5 * price))
    give(consent(max_epsilon=2.5 * price), seed=7)
    with pytest.raises(ExchangeError, match=r"costs epsilon = 4\.38 and 8\.75 are spent; this site gives away 10\.9"):
        give(consent(max_epsilon=2.5 * price), seed=8)
    spent = json.loads((tmp_path / "signatures/given.json").read_text())["given"]
    assert [entry["epsilon"] for entry in spent] == [pytest.approx(price)] * 2
    give(consent(max_epsilon=2.5 * price), seed=7)  # given already, so it costs nothing


def test_noise_that_hides_nothing_is_refused_by_its_price(give):
    with pytest.raises(ExchangeError, match=r"signature.noise = 0\.1 costs epsilon"):
        give(consent(), signature_noise=0.1)


def test_raw_gradients_leave_only_a_site_that_allows_them(give):
    with pytest.raises(ExchangeError, match="raw-gradients = true"):
        give(consent(), signature_form="raw")
    assert give(consent(raw=True), signature_form="raw")["signature"].shape == (2 * 32 * 4,)


def test_a_method_without_signatures_gets_none(give):
    with pytest.raises(ExchangeError, match="method adapter-families has none"):
        give(consent(raw=True), method="adapter-families")
