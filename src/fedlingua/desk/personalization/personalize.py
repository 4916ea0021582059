"""Repeat the last phase of a finished run, with measurements from papers (Manoel et al. 2022, §2.4, §3.3; Deng et al. 2020).

Besides the phase's candidates, except for the mean of the last rounds, the dev loss is measured of 21 mixtures of the site's own model
and the federation's, and of the mixture of APFL, which learns the own model's share. The test text is used once, at the end.
"""

import math
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

from fedlingua.common.errors import RunError
from fedlingua.desk.personalization.apfl import learn_in_mixture
from fedlingua.desk.personalization.start import Personalizing, Start
from fedlingua.evaluation.ensemble import Ensemble
from fedlingua.evaluation.text_metrics import TEXT_METRICS, Counts, Translated
from fedlingua.evaluation.text_scores import TEXT_SCORERS, translation_sums, translations
from fedlingua.exchange.delivery import Second
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.tensor_sets import write_tensors
from fedlingua.exchange.tensors import Tensors, save_tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.personalization import choice
from fedlingua.personalization.interpolation import ALPHAS, interpolated
from fedlingua.personalization.passes import DIVERGED
from fedlingua.personalization.phase import FOLDER as CHOICE
from fedlingua.personalization.phase import SiteModel, choose_model, of_a_pass
from fedlingua.runs.folder import json_text, library_versions, replace_text
from fedlingua.settings.config import Settings
from fedlingua.training.head import HeadUse
from fedlingua.training.loop import LocalResult, train_locally
from fedlingua.training.objective import examples_nll
from fedlingua.training.site_examples import EXAMPLE_MAKERS

FOLDER = "personal"
FILE = "personalization.json"
MOST_POINTS = 200
"""The most points of alpha's path that are stored, besides its end."""


def phase_settings(how: Personalizing, settings: Settings) -> Settings:
    """Return a run's settings, changed for this repetition of its last phase. Seed and site determine order, masks and dropout."""
    rate = settings.step_learning_rate if how.learning_rate is None else how.learning_rate
    seed = settings.seed if how.seed is None else how.seed
    return replace(settings, keep_choose=True, keep_passes=how.epochs or settings.keep_passes, learning_rate=rate, seed=seed)


def personalize(start: Start, site: str, trainable: Trainable, how: Personalizing) -> tuple[dict[str, Tensors], dict[str, Any]]:
    """Repeat the choice, measure 21 mixtures, train APFL and score on test. The seed determines the result; the model's tensors change.

    Returns:
        The tensors of the site's own model, of the mixture with the best alpha on dev ("interpolated") and of the kept model, with those
        of an ensemble's second model ("second"); and the content of personalization.json: the inputs and the results, except tensors.
        Losses are in nats per token; `test` is model -> metric -> value, for federated, personal, apfl, chosen, base, alone and kept.

    Raises:
        RunError: Training diverged.
    """
    started, settings, texts = time.monotonic(), phase_settings(how, start.settings), start.texts[site]
    federated = start.federated(site, trainable)
    torch.set_num_threads(settings.threads)
    model, codec = trainable.model, trainable.backbone.codec
    maker, scorer = EXAMPLE_MAKERS[settings.task], TEXT_SCORERS[settings.task]
    training_texts = [maker.trained(text, "train", codec, settings) for text in texts.values()]
    dev = [example for text in texts.values() for example in maker.measured(text, "dev", codec, settings)]
    diverged = RunError(
        f"site {site}: its own model diverged at the learning rate {settings.step_learning_rate:g}, so nothing is kept of it; give a "
        "smaller --learning-rate"
    )

    def train(changed: Settings, seed: str, this_round: tuple[int, int], state: dict[str, Numbers] | None = None) -> LocalResult:
        return train_locally(model, trainable.trained.names, training_texts, codec, changed, seed, state, this_round=this_round)

    def guides(second: Second | None) -> list[Ensemble]:
        return [Ensemble.of(second, trainable, start.settings, texts[site].direction)] if second else []

    def count_chrf(base: bool, second: Second | None) -> Counts | None:
        if base:
            write_tensors(model, trainable.published)
        text = texts[site]
        pairs = text.splits["dev"]
        hypotheses = translations(model, codec, pairs, text.direction, replace(settings, beam=1), guides(second))
        sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
        return TEXT_METRICS["chrf"].count(Translated(sources, hypotheses, references, text.direction.target))

    with tempfile.TemporaryDirectory(prefix="fedlingua-choice-") as place:
        # The model that the run itself trained alone is reused if it was trained in the same way.
        for file in (start.run.folder.directory / "sites" / site / CHOICE).glob("alone.*"):
            shutil.copy(file, place)
        at_site = SiteModel(site, trainable, settings, dev, train, count_chrf, lambda line, step: None)
        chosen = choose_model(at_site, federated, [], start.number, Path(place))
        if choice.OWN in chosen.about["left_out"] and chosen.about["candidates"][choice.OWN]["diverged"]:
            raise diverged
        personal = load_file(Path(place) / f"{choice.OWN}.safetensors")

    def dev_loss(tensors: Tensors) -> float:
        write_tensors(model, tensors)
        nll_sum, num_tokens = examples_nll(model, codec, dev, settings.precision, HeadUse(settings.head_chunk))
        return nll_sum / num_tokens

    sweep = {alpha: dev_loss(interpolated(federated, personal, alpha)) for alpha in ALPHAS}
    passes = max(1, chosen.about["candidates"][choice.OWN]["best"])
    local = of_a_pass(settings)
    local = replace(local, local_epochs=passes * local.local_epochs)
    own, path = learn_in_mixture(federated, trainable, training_texts, local, how.alpha_rate, f"{settings.seed}/{site}/apfl")
    alpha = path[-1]
    if not np.isfinite(alpha) or not all(np.isfinite(array).all() for array in own.values()):
        raise diverged
    learned = interpolated(federated, own, alpha)
    apfl_dev_loss = dev_loss(learned)
    if not all(loss < DIVERGED for loss in (*sweep.values(), apfl_dev_loss)):  # also if a loss is NaN
        raise diverged
    best_alpha = chosen_alpha(sweep)
    mixed = interpolated(federated, personal, best_alpha)
    models = {"federated": federated, "personal": personal, "apfl": learned, "chosen": mixed, "base": trainable.published}
    models |= {"kept": chosen.tensors, **({} if chosen.alone is None else {"alone": chosen.alone})}
    judged: dict[str, Any] = {}
    for name, tensors in models.items():
        if name == "kept" and chosen.second:
            write_tensors(model, tensors)
            judged[name] = translation_sums(model, codec, texts[site], "test", settings, guides(chosen.second))
            continue
        others = [other for other in judged if other != "kept" or not chosen.second]
        alike = (other for other in others if all(np.array_equal(models[other][key], array) for key, array in tensors.items()))
        same = next(alike, None)
        if same is None:
            write_tensors(model, tensors)
        judged[name] = scorer.sums(model, codec, texts[site], "test", settings) if same is None else judged[same]
    about = {
        "site": site,
        "direction": str(texts[site].direction),
        "run": start.run.folder.directory.name,
        "run_id": start.run.about.get("id"),
        "task": settings.task,
        "method": settings.method,
        "config_hash": start.settings.hash(),
        "fingerprint": trainable.fingerprint,
        "round": start.number,
        "seed": settings.seed,
        "epochs": chosen.about["candidates"][choice.OWN]["best"],
        "optimizer": settings.optimizer,
        "learning_rate": settings.step_learning_rate,
        "alpha_rate": how.alpha_rate,
        "choice": {key: value for key, value in chosen.about.items() if not key.endswith("seconds")},
        "apfl": {"alpha": alpha, "dev_loss": apfl_dev_loss, "path": thinned(path)},
        "sweep": [{"alpha": alpha, "dev_loss": loss} for alpha, loss in sweep.items()],
        "chosen_alpha": best_alpha,
        "test": {name: dict(scorer.values(sums)) for name, sums in judged.items()},
        "test_split": dict(scorer.about(judged["federated"], texts[site].direction)),
        "versions": library_versions(),
        "seconds": round(time.monotonic() - started, 3),
    }
    second = {"second": chosen.second.tensors} if chosen.second else {}
    return {"personal": personal, "interpolated": mixed, "kept": chosen.tensors, **second}, about


def chosen_alpha(sweep: Mapping[float, float]) -> float:
    """Return the alpha with the lowest dev loss; on a tie the smallest, which is closest to the shared model."""
    return min(sweep, key=lambda alpha: (sweep[alpha], alpha))


def store(folder: Path, tensors: Mapping[str, Tensors], about: Mapping[str, Any]) -> None:
    """Write the result of `personalize`; personalization.json comes last, so where it exists, all files do."""
    folder.mkdir(parents=True, exist_ok=True)
    for earlier in (FILE, "second.safetensors"):  # of a result whose tensors are replaced next
        (folder / earlier).unlink(missing_ok=True)
    for name, model in tensors.items():
        save_tensors(model, folder / f"{name}.safetensors")
    replace_text(folder / FILE, json_text(about))


def thinned(path: Sequence[float]) -> list[list[float]]:
    """Return a path's [step, alpha] pairs: all of a short path, evenly spaced ones of a long path, and always the last."""
    last = len(path) - 1
    stride = max(1, math.ceil(last / MOST_POINTS))
    return [[step, path[step]] for step in dict.fromkeys([*range(0, last, stride), last])]
