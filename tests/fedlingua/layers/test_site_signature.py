"""What a site lets out for finding its cluster: by its own consent, kept, and paid for."""

import json
import shutil
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from fedlingua.common.errors import ExchangeError
from fedlingua.consent.ledger import Ledger
from fedlingua.exchange.trainable import build_trainable
from fedlingua.layers.layer import Consent
from fedlingua.layers.site_signature import signature
from fedlingua.privacy.accounting import signature_epsilon
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


@pytest.fixture
def consent(tmp_path):
    def given(raw=False, max_epsilon=10.0, seed=1):
        return Consent(raw, Random(seed), Ledger(tmp_path / "ledger.json", max_epsilon))

    return given


def test_the_same_question_gets_the_same_answer_whatever_noise_could_be_drawn(give, consent):
    assert np.array_equal(give(consent(seed=1))["signature"], give(consent(seed=2))["signature"])


def test_a_signature_of_each_part_is_of_its_own_adapter_and_both_are_paid_for_together(give, consent, tmp_path):
    pair = "encoder.0.self_attn,decoder.-1.fc2"
    raw = {"signature_form": "raw"}
    both = give(consent(raw=True), signature_adapter=pair, **raw)
    for name, adapter in (("encoder", "encoder.0.self_attn"), ("decoder", "decoder.-1.fc2")):
        assert np.array_equal(both[name], give(consent(raw=True), signature_adapter=adapter, **raw)["signature"])
    noised = give(consent(), signature_adapter=pair)
    assert {name: array.shape for name, array in noised.items()} == {"encoder": (8,), "decoder": (8,)}
    spent = json.loads((tmp_path / "ledger.json").read_text())
    assert (spent["epsilon"], len(spent["entries"])) == (pytest.approx(signature_epsilon(2.0, 1e-5, 2)), 1)
    with pytest.raises(ExchangeError, match=r"2 private signatures under signature.noise = 1: brings"):
        give(consent(), signature_adapter=pair, signature_noise=1.0)
    one = give(consent(max_epsilon=20.0), signature_adapter=pair, cluster_parts="encoder")
    assert list(one) == ["encoder"]


def test_what_different_answers_cost_adds_up_and_is_refused_beyond_the_sites_limit(give, consent, tmp_path):
    """Together they cost less than one by one: 6.57 instead of 8.75."""
    give(consent(max_epsilon=7.0))
    give(consent(max_epsilon=7.0), seed=7)
    with pytest.raises(ExchangeError, match=r"from epsilon = 6\.57 to 8\.39 at delta = 1e-05; it gives away 7 in all"):
        give(consent(max_epsilon=7.0), seed=8)
    spent = json.loads((tmp_path / "ledger.json").read_text())
    assert (spent["epsilon"], len(spent["entries"])) == (pytest.approx(signature_epsilon(2.0, 1e-5, 2)), 2)
    give(consent(max_epsilon=7.0), seed=7)  # given already, so it costs nothing
    shutil.rmtree(tmp_path / "signatures")
    with pytest.raises(ExchangeError, match="gives away 7 in all"):
        give(consent(max_epsilon=7.0), seed=7)  # noised anew it would be another answer


def test_noise_that_hides_nothing_is_refused_by_its_price(give, consent):
    with pytest.raises(ExchangeError, match=r"signature.noise = 0\.1: brings"):
        give(consent(), signature_noise=0.1)


def test_raw_gradients_leave_only_a_site_that_allows_them(give, consent):
    with pytest.raises(ExchangeError, match="raw-gradients = true"):
        give(consent(), signature_form="raw")
    assert give(consent(raw=True), signature_form="raw")["signature"].shape == (2 * 32 * 4,)


def test_a_method_without_signatures_gets_none(give, consent):
    with pytest.raises(ExchangeError, match="method adapter-families has none"):
        give(consent(raw=True), method="adapter-families")
