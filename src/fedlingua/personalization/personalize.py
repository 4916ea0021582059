"""A site goes on by itself from a model of the federation's, and looks at what lies between the two (Manoel et al. 2022, §2.4, §3.3).

Its own model learns from the site's training text; alpha is learned beside it (Deng et al. 2020), and another one is chosen among 21 on the
dev text; the test text judges, once.
"""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedlingua.common.errors import RunError
from fedlingua.corpora.texts import SiteText
from fedlingua.evaluation.text_scores import TEXT_SCORERS
from fedlingua.exchange.tensor_sets import read_tensors, write_tensors
from fedlingua.exchange.tensors import Tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.personalization.apfl import LearnedAlpha
from fedlingua.personalization.interpolation import ALPHAS, interpolated
from fedlingua.personalization.settings import Personalizing
from fedlingua.settings.config import Settings
from fedlingua.training.head import HeadUse
from fedlingua.training.loop import LocalResult, LocalTraining, train_locally
from fedlingua.training.objective import examples_nll
from fedlingua.training.sampling import Sampling
from fedlingua.training.site_examples import EXAMPLE_MAKERS

DIVERGED = 100.0
"""Nats a token of dev text that no training can be said to have learned: one of a million guessed blindly costs 14."""


def training_of(how: Personalizing, settings: Settings) -> LocalTraining:
    """As the run trains, but that every pass takes all of the text once."""
    rate = settings.step_learning_rate if how.learning_rate is None else how.learning_rate
    return dataclasses.replace(
        LocalTraining.of(settings), epochs=how.epochs, learning_rate=rate, sampling=Sampling(), whole_steps=False
    )


@dataclass(frozen=True)
class Personalized:
    """What came of it.

    alphas: of the four models that are judged: federated (0), personal (1), apfl (learned), chosen (on dev). path: alpha before each step
    of training and at its end. sweep: alpha -> dev loss, nats a token. test: model -> metric -> value. about_test: what it was judged on.
    """

    personal: Tensors
    interpolated: Tensors
    alphas: Mapping[str, float]
    path: Sequence[float]
    sweep: Mapping[float, float]
    apfl_dev_loss: float
    test: Mapping[str, Mapping[str, float]]
    about_test: Mapping[str, Any]
    training: LocalResult
    seconds: float


def personalize(
    site: str, texts: Mapping[str, SiteText], federated: Tensors, trainable: Trainable, settings: Settings, how: Personalizing
) -> Personalized:
    """Train, learn alpha, look at 21 others, judge. The seed decides everything. texts: all that the site holds, its own under its name.

    The model is left with other tensors than it had.

    Raises:
        RunError: the training diverged.
    """
    started = time.monotonic()
    torch.set_num_threads(settings.threads)
    model, codec = trainable.model, trainable.backbone.codec
    maker, scorer = EXAMPLE_MAKERS[settings.task], TEXT_SCORERS[settings.task]
    write_tensors(model, federated)
    learned = LearnedAlpha(federated, trainable, how.alpha_rate, settings.precision)
    training_texts = [maker.trained(text, "train", codec, settings) for text in texts.values()]
    seed = f"{how.seed_of(settings)}/{site}/personal"
    training = train_locally(
        model, trainable.trained.names, training_texts, codec, training_of(how, settings), seed, before_step=learned
    )
    personal = read_tensors(model, trainable.trained)
    rate = training_of(how, settings).learning_rate
    diverged = RunError(
        f"site {site}: its own model diverged at the learning rate {rate:g}, so nothing is kept of it; give a smaller --learning-rate"
    )
    if math.isnan(learned.alpha) or not all(np.isfinite(array).all() for array in personal.values()):
        raise diverged
    dev = [example for text in texts.values() for example in maker.measured(text, "dev", codec, settings)]

    def dev_loss(alpha: float) -> float:
        write_tensors(model, interpolated(federated, personal, alpha))
        nll_sum, num_tokens = examples_nll(model, codec, dev, settings.precision, HeadUse(settings.head_chunk))
        return nll_sum / num_tokens

    sweep = {alpha: dev_loss(alpha) for alpha in ALPHAS}
    apfl_dev_loss = dev_loss(learned.alpha)
    if not all(loss < DIVERGED for loss in (*sweep.values(), apfl_dev_loss)):  # nor of NaN
        raise diverged
    alphas = {"federated": 0.0, "personal": 1.0, "apfl": learned.alpha, "chosen": chosen_alpha(sweep)}
    judged = {}
    for alpha in dict.fromkeys(alphas.values()):
        write_tensors(model, interpolated(federated, personal, alpha))
        judged[alpha] = scorer.sums(model, codec, texts[site], "test", settings)
    return Personalized(
        personal,
        interpolated(federated, personal, alphas["chosen"]),
        alphas,
        learned.path,
        sweep,
        apfl_dev_loss,
        {name: scorer.values(judged[alpha]) for name, alpha in alphas.items()},
        scorer.about(judged[0.0], texts[site].direction),
        training,
        time.monotonic() - started,
    )


def chosen_alpha(sweep: Mapping[float, float]) -> float:
    """The alpha with the least dev loss; of equal ones the least, which is nearer to what all sites share."""
    return min(sweep, key=lambda alpha: (sweep[alpha], alpha))
