"""What an update tells of the sentences in the smallest of its steps: why sites refuse those on fewer than `min-batch`."""

import random
from typing import Any

import numpy as np
import pytest
import torch

from fedlingua.common.languages import Direction
from fedlingua.consent.limits import SiteLimits
from fedlingua.corpora.read import Pair
from fedlingua.exchange.tensor_sets import read_tensors, write_tensors
from fedlingua.exchange.trainable import build_trainable
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import default_run_config
from fedlingua.training.batches import pad
from fedlingua.training.loop import train_locally
from fedlingua.training.objective import corpus_gradient
from fedlingua.training.translation import PairExample, encode_pairs
from fedlingua_demo import phrasebook
from fedlingua_lab.audit.attacks import auc, cosine, step_of

BATCH, TRIALS = 25, 4


@pytest.mark.parametrize(("rest", "least", "most"), [(1, 0.9, 1.0), (SiteLimits.min_batch, 0.3, 0.7)])
def test_a_sentence_alone_in_the_last_step_is_told_from_others(rest: int, least: float, most: float) -> None:
    """Steps of 25, 25 and `rest` sentences at a rate of 1e-4; over 12 trials the AUC is 1.00 and 0.53."""
    torch.set_num_threads(1)
    how: dict[str, Any] = {"method": "adapter-fed", "learning-rate": 1e-4, "batch-size": BATCH, "whole-steps": False}
    settings = settings_from({**default_run_config(), **how})
    trainable = build_trainable(settings)
    model, codec, names = trainable.model, trainable.backbone.codec, trainable.trained.names
    text = phrasebook.register_corpus("hospital", 400, 5)
    pairs = [Pair(*both) for both in dict.fromkeys(zip(text["de"], text["fr"], strict=True))]
    examples = encode_pairs(pairs, Direction("de", "fr"), codec, settings.max_tokens)

    def flat(tensors: Any) -> np.ndarray[Any, Any]:
        return np.concatenate([tensors[name].ravel() for name in names]).astype(np.float64)

    def score(update: np.ndarray[Any, Any], example: PairExample) -> float:
        write_tensors(model, trainable.initial)
        gradient = corpus_gradient(model, names, [pad([example], codec)])[2]
        return cosine(update, step_of(flat(gradient), "adam"))

    trials = []
    for trial in range(TRIALS):
        drawn = random.Random(trial).sample(examples, 2 * BATCH + rest + 20)
        inside, others, steps = drawn[:-20], drawn[-20:], list[list[PairExample]]()
        write_tensors(model, trainable.initial)
        note = lambda step, steps=steps: steps.append([each for batch in step for each in batch])  # noqa: E731
        train_locally(model, names, [inside], codec, settings, f"seed {trial}", before_step=note)
        assert [len(step) for step in steps] == [BATCH, BATCH, rest]
        update = flat(read_tensors(model, trainable.trained)) - flat(trainable.initial)
        scores = [np.array([score(update, each) for each in group]) for group in (steps[-1], others)]
        trials.append((scores[0], scores[1]))
    assert least <= auc(trials)[0] <= most
