"""The attacks on real updates of a tiny model: they succeed where they must, and not on random numbers."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.leak import table_of
from fedlingua.desk.templates import markdown_table
from fedlingua.exchange.trainable import build_trainable
from fedlingua_lab.audit.attacks import auc
from fedlingua_lab.audit.leak import (
    Effort,
    Figure,
    _scored,
    canaries,
    membership,
    subspace,
    words,
)
from fedlingua_lab.audit.retrained import Retrained
from fedlingua_lab.audit.subject import Protection

SMALL = Effort(trials=3, single=3, among=12, canaries=2, alternatives=7, rounds=1)


def changed(again: Retrained, **settings: object) -> Retrained:
    """The same round under other settings, which no run has had."""
    subject = replace(again.subject, settings=replace(again.settings, **settings), train_loss=None)
    return Retrained(subject, build_trainable(subject.settings))


def test_one_sentence_is_told_from_unseen_ones_and_protections_hide_it(again):
    plain, private = (
        {each.update: each for each in membership(again, protection, SMALL)}
        for protection in (Protection(), Protection(epsilon=0.5))
    )
    assert plain["one sentence"].value > 0.95
    assert plain["one sentence"].detail["first"] >= 2
    assert plain["batch of 8"].value > 0.8
    assert plain["one sentence"].most is None
    assert private["one sentence"].most == pytest.approx(0.52, abs=0.03)


def test_an_update_of_random_numbers_tells_nothing_of_its_members(again):
    rng = np.random.default_rng(0)
    text, unseen, size = again.training_texts["hospital"], again.unseen, len(again.received("hospital"))
    trials = [(rng.normal(0, 1e-3, size).astype(np.float32), text, unseen) for _ in range(6)]
    for name, scores in _scored(again, trials, "adam").items():
        assert auc(scores, 2)[0] == pytest.approx(0.5, abs=0.15), name


def test_noise_in_shares_hides_one_sentence_at_each_site(again):
    shared = changed(again, optimizer="sgd", dp_epsilon=0.5, dp_noise="shares", local_epochs=1)
    figures = {each.update: each for each in membership(shared, Protection(4, 0.5), replace(SMALL, single=6))}
    assert 0.1 < figures["one sentence"].value < 0.9
    assert figures["one sentence"].most is None
    assert figures["one sentence"].value == figures["one sentence"].detail["gradient"]


def test_sgds_step_on_one_sentence_spans_what_its_layer_got(again):
    figures = {each.update: each for each in subspace(changed(again, max_tokens=8), Protection(), SMALL)}
    assert figures["one sentence, sgd"].value > 0.8


def test_a_planted_sentence_has_at_most_the_bits_of_its_alternatives(again):
    (figure,) = canaries(again, Protection(), SMALL)
    assert 0 <= figure.value <= 3
    assert figure.chance == pytest.approx(np.mean([3 - np.log2(rank) for rank in range(1, 9)]))


def test_of_the_whole_model_words_and_tokens_are_named(again):
    whole = changed(again, method="model-fed", learning_rate=0.001, max_tokens=8)
    for figure in words(whole, Protection(), SMALL):
        assert figure.value > figure.chance + 0.1
    # A random model's gradient is so small that a usual step of it is lost in the rounding of float32.
    steep = changed(whole, optimizer="sgd", learning_rate=100.0)
    for module in steep.model.modules():  # nor can inputs be told exactly that dropout has changed
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
    of_tokens = [each for each in subspace(steep, Protection(), SMALL) if each.attack == "tokens by subspace"]
    assert of_tokens[0].update == "one sentence, sgd"
    assert of_tokens[0].value > 0.5 > of_tokens[0].chance


def test_adapters_hold_no_embeddings_so_no_words_are_named(again):
    assert words(again, Protection(), SMALL) == []


def test_the_table_has_a_row_for_each_attack_and_a_column_for_each_protection():
    plain = Figure("membership", "batch of 8", "plain", "AUC", 0.98, 0.5, 0.95, 1.0)
    private = Figure("membership", "batch of 8", "DP, epsilon 8", "AUC", 0.52, 0.5, 0.4, 0.6, most=0.57)
    words_alone = Figure("words", "a round", "plain", "recall = precision", 0.8, 0.1)
    headers, rows = table_of([plain, private, words_alone])
    assert headers[3:] == ["plain", "DP, epsilon 8", "chance"]
    assert [row[3:] for row in rows] == [
        ["0.98 [0.95, 1.00]", "0.52 [0.40, 0.60], at most 0.57", "0.50"],
        ["0.80", "–", "0.10"],
    ]
    assert len(markdown_table([headers, *rows]).splitlines()) == 4
