"""Mixtures of a site's own model and the federation's (Manoel et al. 2022, §2.4): with 21 alphas, and with alpha learned (APFL).

APFL (Deng et al. 2020) trains the own model inside the mixture. Both use the gradient at theta_bar = alpha theta_i + (1 - alpha) theta
(Algorithm 1): theta_i <- theta_i - eta alpha grad L(theta_bar), and alpha follows <grad L(theta_bar), theta_i - theta>. The difference is
own minus federation; the opposite order would increase the loss.
"""

import math
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file
from torch import nn
from transformers import PreTrainedModel

from fedlingua.backbones.codec import Codec
from fedlingua.common.errors import RunError
from fedlingua.common.languages import Direction
from fedlingua.corpora.split import Split
from fedlingua.corpora.texts import SiteText
from fedlingua.evaluation.perplexity import MaskedScores, accuracy, perplexity
from fedlingua.evaluation.scores import ScoreSums, bleu_score, chrf_score, score_sums, signatures
from fedlingua.evaluation.text_scores import masked_scores, translations
from fedlingua.exchange.tensor_sets import write_tensors
from fedlingua.exchange.tensors import Tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.personalization.choice import OWN
from fedlingua.personalization.interpolation import check_alike, mixed
from fedlingua.personalization.passes import DIVERGED
from fedlingua.personalization.phase import Phase, SiteModel, of_a_pass
from fedlingua.settings.config import Settings
from fedlingua.settings.metrics import ACCURACY, BLEU, CHRF, PERPLEXITY
from fedlingua.training.accumulate import StepGradient
from fedlingua.training.batches import TrainingExample
from fedlingua.training.loop import steps_of, train_locally
from fedlingua.training.objective import Gradients
from fedlingua.training.optimizers import OPTIMIZERS
from fedlingua.training.site_examples import EXAMPLE_MAKERS
from fedlingua_lab.start import Start

START = 0.5
"""Alpha before the first step: both models have the same weight."""


def measure_mixtures(start: Start, site: str, trainable: Trainable, settings: Settings, alpha_rate: float) -> dict[str, Any]:
    """Train a site's own model as the last phase does, and again inside a mixture; measure mixtures on dev and models on test.

    Returns:
        `sweep`: (alpha, dev loss in nats per token) of the 21 mixtures. `chosen_alpha`: the best of them, on a tie the smallest. `alpha`:
        APFL's. `test`: model -> metric -> value, for federated, personal, apfl and chosen.

    Raises:
        RunError: Training diverged.
    """
    begun, texts = time.monotonic(), start.texts[site]
    torch.set_num_threads(settings.threads)
    model, codec, names = trainable.model, trainable.backbone.codec, trainable.trained.names
    maker, scorer = EXAMPLE_MAKERS[settings.task], TEXT_SCORERS[settings.task]
    training = [maker.trained(text, "train", codec, settings) for text in texts.values()]
    dev = [example for text in texts.values() for example in maker.measured(text, "dev", codec, settings)]
    at_site = SiteModel(
        site,
        trainable,
        settings,
        dev,
        lambda how, seed, this_pass, state: train_locally(model, names, training, codec, how, seed, state, this_round=this_pass),
        lambda base, second: None,
        lambda *_: None,
    )
    federated = start.federated(site, trainable)

    def dev_loss(tensors: Tensors) -> float:
        write_tensors(model, tensors)
        return at_site.measure().loss

    with tempfile.TemporaryDirectory(prefix="fedlingua-personal-") as place:
        phase = Phase(at_site, Path(place), begun)
        phase.add_trained(OWN, federated, settings.keep_passes or settings.passes_of_rounds, 1.0)
        personal, passes = load_file(Path(place) / f"{OWN}.safetensors"), phase.trained[OWN]["best"]
    sweep = {alpha: dev_loss(interpolated(federated, personal, alpha)) for alpha in ALPHAS}
    chosen = min(sweep, key=sweep.__getitem__)
    local = of_a_pass(settings)
    local = replace(local, local_epochs=max(1, passes) * local.local_epochs)
    own, alpha = learn_in_mixture(federated, trainable, training, local, alpha_rate, f"{settings.seed}/{site}/apfl")
    apfl, best = interpolated(federated, own, alpha), interpolated(federated, personal, chosen)
    losses = [*sweep.values(), dev_loss(apfl)]
    if (phase.trained[OWN]["diverged"] and not passes) or not all(loss < DIVERGED for loss in losses):  # also if one is NaN
        rate = settings.step_learning_rate
        raise RunError(f"site {site}: its own model diverged at the learning rate {rate:g}; give a smaller --learning-rate")
    test = {}
    for name, tensors in {"federated": federated, "personal": personal, "apfl": apfl, "chosen": best}.items():
        write_tensors(model, tensors)
        sums = scorer.sums(model, codec, texts[site], "test", settings)
        test[name] = scorer.values(sums)
    return {
        "site": site,
        "seed": settings.seed,
        "epochs": passes,
        "learning_rate": settings.step_learning_rate,
        "round": start.number,
        "alpha": alpha,
        "chosen_alpha": chosen,
        "sweep": list(sweep.items()),
        "test": test,
        "test_split": scorer.about(sums, texts[site].direction),
        "seconds": round(time.monotonic() - begun, 3),
    }


def alpha_slope(gradient: Gradients, federated: Tensors, personal: Tensors) -> float:
    """Return dL/dalpha = <grad L(theta_bar), theta_i - theta>, summed in float64; tensors without a gradient contribute 0."""
    return sum(
        float((gradient[name].astype(np.float64) * (personal[name] - array)).sum())  # np.vdot depends on the number of threads
        for name, array in federated.items()
        if name in gradient
    )


def alpha_step(alpha: float, slope: float, rate: float) -> float:
    """Return the next alpha, clip(alpha - rate x dL/dalpha, 0, 1); NaN if the slope is NaN."""
    return float(np.clip(alpha - rate * slope, 0.0, 1.0))


def learn_in_mixture(
    federated: Tensors,
    trainable: Trainable,
    texts: Sequence[Sequence[TrainingExample]],
    settings: Settings,
    alpha_rate: float,
    seed: str,
) -> tuple[Tensors, float]:
    """Train the own model, from the federation's, with the run's optimizer, and alpha by gradient descent, clipped to 0 to 1.

    settings: Its `local_epochs` are run without a learning rate schedule. seed: Determines order, masks and dropout.

    Returns:
        The own model, and alpha; NaN once training diverges.
    """
    model, rng, alpha = trainable.model, random.Random(seed), START
    torch.manual_seed(rng.getrandbits(63))
    write_tensors(model, federated)
    parameters = dict(model.requires_grad_(False).named_parameters())
    mixture = {name: parameters[name].requires_grad_(True) for name in trainable.trained.names}
    own = {name: nn.Parameter(parameter.detach().clone()) for name, parameter in mixture.items()}
    optimizer = OPTIMIZERS[settings.optimizer](
        list(own.values()), settings.step_learning_rate, settings.weight_decay, settings.optimizer_epsilon
    )
    add_gradient = StepGradient(model, trainable.backbone.codec, settings)

    def own_tensors() -> Tensors:
        return {name: parameter.detach().float().cpu().numpy() for name, parameter in own.items()}

    model.train()
    for epoch in range(settings.local_epochs):
        for batches in steps_of(settings, texts, rng, epoch):
            if math.isnan(alpha):
                break
            write_tensors(model, interpolated(federated, own_tensors(), alpha))
            add_gradient([[example.drawn(rng) for example in batch] for batch in batches])
            gradient = {name: each.grad.float().cpu().numpy() for name, each in mixture.items() if each.grad is not None}
            slope = alpha_slope(gradient, federated, own_tensors())
            for name, parameter in mixture.items():
                own[name].grad = None if parameter.grad is None else alpha * parameter.grad
                parameter.grad = None
            optimizer.step()
            alpha = alpha_step(alpha, slope, alpha_rate)
    model.eval()
    model.requires_grad_(False)
    return own_tensors(), alpha


ALPHAS = tuple(step / 20 for step in range(21))
"""The alphas of figure 3: 0 is the federation's model, 1 is the site's own."""


def interpolated(federated: Tensors, personal: Tensors, alpha: float) -> Tensors:
    """Return theta_int = alpha theta_i + (1 - alpha) theta (eq. 3) in float32; alpha 0 or 1 gives an exact copy of one model.

    Raises:
        ExchangeError: The two models have different tensors.
    """
    check_alike(federated, personal)
    return {name: mixed(array, personal[name], alpha) for name, array in federated.items()}


Sums = Any
"""The task's sums: evaluation.scores.ScoreSums or evaluation.perplexity.MaskedScores."""


@dataclass(frozen=True)
class TextScorer:
    """A task's scoring. sums: scores a model on a split; values: computes the metrics from the sums, by their keys; about: returns
    how much was measured and by which metrics or masks, which shows whether two values can be compared.
    """

    sums: Callable[[PreTrainedModel, Codec, SiteText, Split, Settings], Sums]
    values: Callable[[Sums], dict[str, float]]
    about: Callable[[Sums, Direction], dict[str, Any]]


def translation_sums(model: PreTrainedModel, codec: Codec, text: SiteText, split: Split, settings: Settings) -> ScoreSums:
    """Translate a split and return its BLEU and chrF counts."""
    pairs = text.splits[split]
    hypotheses = translations(model, codec, pairs, text.direction, settings)
    return score_sums(hypotheses, [pair.target for pair in pairs], text.direction.target)


def masked_sums(model: PreTrainedModel, codec: Codec, text: SiteText, split: Split, settings: Settings) -> MaskedScores:
    """Return a split's sums for perplexity and accuracy, with every piece masked once."""
    return masked_scores(model, codec, text, split, settings).summed(len(text.splits[split]))


def _about_translation(sums: ScoreSums, direction: Direction) -> dict[str, Any]:
    bleu_signature, chrf_signature = signatures(direction.target)
    return {"sentences": sums.sentences, "signature": bleu_signature, "chrf_signature": chrf_signature}


def _about_masked(sums: MaskedScores, direction: Direction) -> dict[str, Any]:
    return {"sentences": sums.sentences, "masked": sum(sums.tokens), "masks": f"{sums.masks:012x}"}


TEXT_SCORERS: dict[str, TextScorer] = {
    "translation": TextScorer(
        translation_sums, lambda sums: {BLEU.key: bleu_score(sums), CHRF.key: chrf_score(sums)}, _about_translation
    ),
    "masked-language": TextScorer(
        masked_sums, lambda sums: {PERPLEXITY.key: perplexity(sums), ACCURACY.key: accuracy(sums)}, _about_masked
    ),
}
"""Value of `task` -> how a text is scored."""
